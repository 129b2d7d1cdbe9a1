/** The stored schema in its table. */
import type { CompiledSchema } from '../../protocol/schema.ts';
import type { TableLayout } from '../../protocol/schema-layout.ts';
import { parseStoredSchema, type StoredSchema, storedSchemaText } from '../stored-schema.ts';
import type { SqliteConnection } from './driver.ts';

/** `null` before the first `ensureSchema`. */
export function readStoredSchema(connection: SqliteConnection): StoredSchema | null {
  const row = connection.get('SELECT layouts FROM sync_schema_meta WHERE id = 1');
  return row === undefined ? null : parseStoredSchema(row[0] as string);
}

export function writeStoredSchema(
  connection: SqliteConnection,
  schema: CompiledSchema,
  retired: readonly TableLayout[],
): void {
  connection.run(
    `INSERT INTO sync_schema_meta (id, schema_version, layouts) VALUES (1, ?, ?)
     ON CONFLICT (id) DO UPDATE SET schema_version = excluded.schema_version, layouts = excluded.layouts`,
    [schema.version, storedSchemaText(schema, retired)],
  );
}
