/** Brings the synced tables to the version of a schema, or refuses (part 4, 4.2 without checkpoints). */
import type { CompiledSchema } from '../../protocol/schema.ts';
import type { Convert } from '../layout-change.ts';
import { declaredIndexes, indexesMissingFrom, isCurrent } from '../stored-schema.ts';
import type { SqliteConnections } from './connections.ts';
import { createIndexes, createTable, dropIndexes, growTable } from './ddl.ts';
import type { SqliteConnection } from './driver.ts';
import { migrateStorage } from './migrations.ts';
import { planChange, reencodeLog, reencodeRows } from './reencode.ts';
import { readStoredSchema, writeStoredSchema } from './schema-meta.ts';

/**
 * Takes the write lock only when something has to change. DDL, re-encoding and the new version are one transaction: no
 * reader and no second process ever sees a part of it.
 */
export async function ensureSchema(connections: SqliteConnections, schema: CompiledSchema): Promise<void> {
  await migrateStorage(connections);
  const stored = await connections.readNow(readStoredSchema);
  if (stored !== null && isCurrent(stored, schema)) return;
  await connections.writeNow('durable', (connection) => upgrade(connection, schema));
}

function upgrade(connection: SqliteConnection, schema: CompiledSchema): void {
  const stored = readStoredSchema(connection);
  if (stored !== null && isCurrent(stored, schema)) return;
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
