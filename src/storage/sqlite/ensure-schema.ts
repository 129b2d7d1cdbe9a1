/** Brings the synced tables to the version of a schema, or refuses (part 4, 4.2). */
import type { CompiledSchema } from '../../protocol/schema.ts';
import { assertDeclared } from '../checkpoint-barrier.ts';
import type { SchemaRequest } from '../ensured-schema.ts';
import type { Convert } from '../layout-change.ts';
import { declaredIndexes, indexesMissingFrom, isCurrent, type StoredSchema } from '../stored-schema.ts';
import { installCheckpoint, readUnfinished } from './checkpoints.ts';
import type { SqliteConnections } from './connections.ts';
import { createIndexes, createTable, dropIndexes, growTable } from './ddl.ts';
import type { SqliteConnection } from './driver.ts';
import { migrateStorage } from './migrations.ts';
import { planChange, reencodeLog, reencodeRows } from './reencode.ts';
import { readStoredSchema, writeStoredSchema } from './schema-meta.ts';

/**
 * Takes the write lock only when something has to change. DDL, re-encoding, the new version, declarations and fence are one
 * transaction: no reader and no second process ever sees a part of it.
 */
export async function ensureSchema(connections: SqliteConnections, request: SchemaRequest): Promise<void> {
  await migrateStorage(connections);
  if (await connections.readNow((connection) => isInPlace(request, readBeforeStart(connection, request))))
    return;
  await connections.writeNow('durable', (connection) => upgrade(connection, request));
}

/** The stored schema first: whoever finds the new version then also finds the checkpoints that came with it. */
function readBeforeStart(connection: SqliteConnection, { schema, checkpoints }: SchemaRequest) {
  const stored = readStoredSchema(connection);
  assertDeclared(readUnfinished(connection, schema.version), {
    running: schema.version,
    declared: checkpoints,
  });
  return stored;
}

function isInPlace({ schema }: SchemaRequest, stored: StoredSchema | null): boolean {
  return stored !== null && isCurrent(stored, schema);
}

function upgrade(connection: SqliteConnection, request: SchemaRequest): void {
  const { schema } = request;
  const stored = readBeforeStart(connection, request);
  if (isInPlace(request, stored)) return;
  changeTables(connection, schema, stored);
  if ((stored?.layouts.version ?? 0) >= schema.version) return;
  for (const declared of request.checkpoints) {
    installCheckpoint(connection, { ...declared, nowMs: request.nowMs });
  }
}

function changeTables(
  connection: SqliteConnection,
  schema: CompiledSchema,
  stored: StoredSchema | null,
): void {
  const known = new Map(
    [...(stored?.retired ?? []), ...(stored?.layouts.tables ?? [])].map((t) => [t.name, t]),
  );
  const converts = new Map<string, Convert>();
  const indexes = declaredIndexes(schema);
  // Before the columns change: no index may stand on one that is set aside.
  dropIndexes(connection, indexesMissingFrom(indexes, stored?.indexes ?? []));
  for (const table of schema.tables) {
    const from = known.get(table.name);
    known.delete(table.name);
    if (from === undefined) {
      createTable(connection, table);
      continue;
    }
    const change = planChange(connection, table, from);
    if (change.convert !== null) converts.set(table.name, change.convert);
    growTable(connection, table, from);
    reencodeRows(connection, table, change);
  }
  reencodeLog(connection, converts);
  createIndexes(connection, indexesMissingFrom(stored?.indexes ?? [], indexes));
  writeStoredSchema(connection, schema, [...known.values()]);
}
