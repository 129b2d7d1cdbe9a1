/** Brings the synced tables to the version of a schema, or refuses (part 4, 4.2 without checkpoints). */
import type { CompiledSchema } from '../../protocol/schema.ts';
import { layoutsOf, sameLayouts } from '../../protocol/schema-layout.ts';
import { StorageError } from '../storage-error.ts';
import type { SqliteConnections } from './connections.ts';
import { createIndexes, createTable, dropIndexes, growTable } from './ddl.ts';
import type { SqliteConnection } from './driver.ts';
import { migrateStorage } from './migrations.ts';
import { planConversion, reencodeLog, reencodeRows } from './reencode.ts';
import {
  declaredIndexes,
  indexesMissingFrom,
  readStoredSchema,
  type StoredSchema,
  writeStoredSchema,
} from './schema-meta.ts';

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

/** Throws where the stored schema must not be touched by this one. */
function isCurrent(stored: StoredSchema, schema: CompiledSchema): boolean {
  const { version } = stored.layouts;
  if (version > schema.version) {
    throw new StorageError(
      'sync.storage.schema_newer',
      `the database is at schema version ${version}, this process runs ${schema.version}`,
    );
  }
  if (version < schema.version) return false;
  if (!sameLayouts(stored.layouts, layoutsOf(schema))) {
    throw new StorageError(
      'sync.storage.schema_changed',
      `the tables of schema version ${version} differ from those in the database; raise the version with every change`,
    );
  }
  const indexes = declaredIndexes(schema);
  return (
    indexesMissingFrom(stored.indexes, indexes).length +
      indexesMissingFrom(indexes, stored.indexes).length ===
    0
  );
}

function upgrade(connection: SqliteConnection, schema: CompiledSchema): void {
  const stored = readStoredSchema(connection);
  if (stored !== null && isCurrent(stored, schema)) return;
  const known = new Map(
    [...(stored?.retired ?? []), ...(stored?.layouts.tables ?? [])].map((t) => [t.name, t]),
  );
  const converts = new Map<string, (payload: Uint8Array) => Uint8Array>();
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
    const convert = planConversion(connection, table, from);
    if (convert !== null) converts.set(table.name, convert);
    growTable(connection, table, from);
    reencodeRows(connection, table, { from, convert });
  }
  reencodeLog(connection, converts);
  createIndexes(connection, indexesMissingFrom(stored?.indexes ?? [], indexes));
  writeStoredSchema(connection, schema, [...known.values()]);
}
