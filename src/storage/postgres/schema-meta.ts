/** The stored schema in its table. */
import type { CompiledSchema } from '../../protocol/schema.ts';
import type { TableLayout } from '../../protocol/schema-layout.ts';
import { parseStoredSchema, type StoredSchema, storedSchemaText } from '../stored-schema.ts';
import type { Statement } from './driver.ts';
import type { Reader } from './migrations.ts';
import type { Names } from './names.ts';
import { toText } from './wire-values.ts';

/** `null` before the first `ensureSchema`. */
export async function readStoredSchema(reader: Reader, names: Names): Promise<StoredSchema | null> {
  const [found] = await reader.run({ text: `SELECT layouts FROM ${names.schemaMeta} WHERE id = 1` });
  const row = found?.rows[0];
  return row === undefined ? null : parseStoredSchema(toText(row[0]));
}

export function writeStoredSchema(
  names: Names,
  schema: CompiledSchema,
  retired: readonly TableLayout[],
): Statement {
  return {
    text: `INSERT INTO ${names.schemaMeta} (id, schema_version, layouts) VALUES (1, $1::int8, $2::json)
  ON CONFLICT (id) DO UPDATE SET schema_version = excluded.schema_version, layouts = excluded.layouts`,
    params: [String(schema.version), storedSchemaText(schema, retired)],
  };
}
