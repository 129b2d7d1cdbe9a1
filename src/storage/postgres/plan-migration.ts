/** What opening a storage and `ensureSchema` would do to a database, as SQL to read, without doing it. */
import type { CompiledSchema } from '../../protocol/schema.ts';
import type { CheckpointDeclaration } from '../checkpoints.ts';
import type { StoredSchema } from '../stored-schema.ts';
import type { Statement } from './driver.ts';
import { assertBarrier, installStatements, lockWriters } from './ensure-schema.ts';
import { pendingStatements, type Reader, relationExists } from './migrations.ts';
import type { Names } from './names.ts';
import { type PostgresStorageOptions, resolveOptions } from './options.ts';
import { readStoredSchema } from './schema-meta.ts';
import { planSchema, type SchemaStep } from './schema-plan.ts';
import type { Param } from './wire-values.ts';

/**
 * Statements in order, each without a closing semicolon, and comments (`-- ...`) for what only the program can do; empty where
 * nothing is to be done. Reads the catalog, so it needs to connect; throws what `ensureSchema` would.
 */
export async function planMigration(
  options: PostgresStorageOptions,
  schema: CompiledSchema,
  checkpoints: readonly CheckpointDeclaration[] = [],
): Promise<readonly string[]> {
  const { connections, names, clock } = resolveOptions(options);
  const request = { schema, checkpoints, nowMs: clock.nowMs() };
  const reader = { run: connections.read.bind(connections) };
  try {
    const own = await pendingStatements(reader, names);
    const stored = await readStored(reader, names);
    if (await relationExists(reader, names, 'sync_backfill_checkpoints')) {
      await assertBarrier(reader, names, request);
    }
    const plan = await planSchema(reader, names, { schema, stored });
    const tables =
      plan.length === 0
        ? []
        : [
            lockWriters(names).text,
            ...plan.map((step) => show(names, step)),
            ...installStatements(names, request, stored).map(literal),
          ];
    return [...inTransaction(own.map(literal)), ...inTransaction(tables)];
  } finally {
    await connections.close();
  }
}

async function readStored(reader: Reader, names: Names): Promise<StoredSchema | null> {
  return (await relationExists(reader, names, 'sync_schema_meta')) ? readStoredSchema(reader, names) : null;
}

function inTransaction(texts: readonly string[]): readonly string[] {
  return texts.length === 0 ? [] : ['BEGIN', ...texts, 'COMMIT'];
}

function show(names: Names, step: SchemaStep): string {
  if (step.kind === 'rows') {
    return `-- every row of ${names.qualified(step.table.name)} is written anew, in batches: its payload gets the new layout`;
  }
  if (step.kind === 'log') {
    const tables = [...step.converts.keys()].join(', ');
    return `-- payloads of ${names.changes} get the new layout, in batches: ${tables}`;
  }
  return literal(step.statement);
}

/** Parameters in their place, for a reader. */
function literal({ text, params = [] }: Statement): string {
  return text.replace(/\$(\d+)/g, (_, nth: string) => literalOf(params[Number(nth) - 1] ?? null));
}

function literalOf(param: Param): string {
  return param === null ? 'NULL' : `'${String(param).replaceAll("'", "''")}'`;
}
