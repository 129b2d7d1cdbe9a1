/** Brings the synced tables to the version of a schema, or refuses (part 4, 4.2). */
import { assertDeclared } from '../checkpoint-barrier.ts';
import type { SchemaRequest } from '../ensured-schema.ts';
import { StorageError } from '../storage-error.ts';
import { type DeclaredIndex, isCurrent, type StoredSchema } from '../stored-schema.ts';
import { installCheckpoints, selectUnfinished, toUnfinished } from './checkpoints.ts';
import { INDEX_PLANS_ONLY, type PgConnections, type Sql } from './connections.ts';
import { type Statement, sqlStateOf } from './driver.ts';
import { migrateStorage, type Reader } from './migrations.ts';
import type { Names } from './names.ts';
import { reencodeLog, reencodeRows } from './reencode.ts';
import { readStoredSchema } from './schema-meta.ts';
import { planSchema, type SchemaStep } from './schema-plan.ts';

/**
 * Takes the lock only when something has to change. DDL, re-encoding, the new version, declarations and fence are one
 * transaction: no reader and no second process ever sees a part of it.
 */
export async function ensureSchema(
  connections: PgConnections,
  names: Names,
  request: SchemaRequest,
): Promise<void> {
  const { schema } = request;
  await migrateStorage(connections, names);
  const stored = await readBeforeStart({ run: connections.read.bind(connections) }, names, request);
  if (stored !== null && isCurrent(stored, schema)) return;
  await connections.migration([lockWriters(names)], async (sql) => {
    // Another process may have come first.
    const current = await readBeforeStart(sql, names, request);
    const plan = await planSchema(sql, names, { schema, stored: current });
    // Each batch touches few rows of a table of any size, which the planner may misjudge.
    await sql.run(...INDEX_PLANS_ONLY);
    for (const step of plan) await carryOut(sql, names, step);
    await sql.run(...installStatements(names, request, current));
  });
}

/** The stored schema first: whoever finds the new version then also finds the checkpoints that came with it. */
async function readBeforeStart(
  reader: Reader,
  names: Names,
  request: SchemaRequest,
): Promise<StoredSchema | null> {
  const stored = await readStoredSchema(reader, names);
  await assertBarrier(reader, names, request);
  return stored;
}

export async function assertBarrier(
  reader: Reader,
  names: Names,
  { schema, checkpoints }: SchemaRequest,
): Promise<void> {
  const [found] = await reader.run(selectUnfinished(names, schema.version));
  assertDeclared(toUnfinished(found?.rows ?? []), { running: schema.version, declared: checkpoints });
}

/** Declarations come with a new version only. */
export function installStatements(
  names: Names,
  { schema, checkpoints, nowMs }: SchemaRequest,
  stored: StoredSchema | null,
): readonly Statement[] {
  if (checkpoints.length === 0 || (stored?.layouts.version ?? 0) >= schema.version) return [];
  return installCheckpoints(names, checkpoints, nowMs);
}

/**
 * The first statement, before any read or DDL. It waits for writers that are inside and keeps out those that come, who all
 * lock a row of this table first; plain reads go on.
 */
export function lockWriters(names: Names): Statement {
  return { text: `LOCK TABLE ${names.partitions} IN EXCLUSIVE MODE` };
}

async function carryOut(sql: Sql, names: Names, step: SchemaStep): Promise<void> {
  if (step.kind === 'rows') await reencodeRows({ sql, names }, step.table, step.change);
  else if (step.kind === 'log') await reencodeLog({ sql, names }, step.converts);
  else if (step.kind === 'index') await createIndex(sql, step);
  else await sql.run(step.statement);
}

const UNIQUE_VIOLATION = '23505';

async function createIndex(
  sql: Sql,
  { statement, index }: { readonly statement: Statement; readonly index: DeclaredIndex },
): Promise<void> {
  try {
    await sql.run(statement);
  } catch (error) {
    if (!(error instanceof StorageError) || sqlStateOf(error.cause) !== UNIQUE_VIOLATION) throw error;
    throw new StorageError(
      'sync.storage.schema_changed',
      `index ${index.name} of table ${index.table} cannot be unique: rows that exist share its values; ` +
        'change those rows first, or declare it without unique',
      { cause: error.cause },
    );
  }
}
