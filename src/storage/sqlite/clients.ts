/** Client records and the binding of a `clientId` to its actor (§8.1, S-009, part 2.24 decision 24). */
import type { WireVersion } from '../../protocol/frames.ts';
import type { ClientRecord, ClientUpdate, CursorUpdate, StoredSubscription } from '../storage.ts';
import type { SqliteConnection, SqlRow } from './driver.ts';

/** A record in the order that `toClient` reads. */
export const CLIENT_COLUMNS =
  'c.client_id, c.actor_id, c.wire_version, c.schema_version, c.cursor, c.subscriptions, c.updated_at_ms';

export function readClient(
  connection: SqliteConnection,
  partition: string,
  clientId: string,
): ClientRecord | null {
  const row = connection.get(
    `SELECT ${CLIENT_COLUMNS} FROM sync_clients AS c WHERE c.partition = ? AND c.client_id = ?`,
    [partition, clientId],
  );
  return row === undefined ? null : toClient(row, 0);
}

/** Reads the columns from `at` on; `null` when an outer join found no record. */
export function toClient(row: SqlRow, at: number): ClientRecord | null {
  if (row[at] === null) return null;
  return {
    clientId: row[at] as string,
    actorId: row[at + 1] as string,
    wireVersion: row[at + 2] as WireVersion,
    schemaVersion: row[at + 3] as number,
    cursor: row[at + 4] as number,
    subscriptions: JSON.parse(row[at + 5] as string) as StoredSubscription[],
    updatedAtMs: row[at + 6] as number,
  };
}

/** A round that a rotation overtook must not bring back a record of the old timeline. */
const SERVED_EPOCH = 'SELECT 1 FROM sync_partition_registry WHERE partition = ? AND log_epoch = ?';

export function saveClient(connection: SqliteConnection, update: ClientUpdate): void {
  const { partition, clientId, logEpoch, actorId, wireVersion, schemaVersion, subscriptions, nowMs } = update;
  if (subscriptions === null) {
    connection.run(
      `UPDATE sync_clients SET actor_id = ?, wire_version = ?, schema_version = ?, updated_at_ms = ?
       WHERE partition = ? AND client_id = ? AND EXISTS (${SERVED_EPOCH})`,
      [actorId, wireVersion, schemaVersion, nowMs, partition, clientId, partition, logEpoch],
    );
    return;
  }
  connection.run(
    `INSERT INTO sync_clients
       (partition, client_id, actor_id, wire_version, schema_version, cursor, updated_at_ms, subscriptions)
     SELECT ?, ?, ?, ?, ?, -1, ?, ? WHERE EXISTS (${SERVED_EPOCH})
     ON CONFLICT (partition, client_id) DO UPDATE SET actor_id = excluded.actor_id,
       wire_version = excluded.wire_version, schema_version = excluded.schema_version,
       updated_at_ms = excluded.updated_at_ms, subscriptions = excluded.subscriptions`,
    [
      partition,
      clientId,
      actorId,
      wireVersion,
      schemaVersion,
      nowMs,
      JSON.stringify(subscriptions),
      partition,
      logEpoch,
    ],
  );
}

/** A record that is gone stays gone (part 3, 3.5.3). */
export function saveCursor(connection: SqliteConnection, update: CursorUpdate): void {
  const value = update.mode === 'set' ? '?' : 'max(cursor, ?)';
  connection.run(
    `UPDATE sync_clients SET cursor = ${value}, updated_at_ms = max(updated_at_ms, ?)
     WHERE partition = ? AND client_id = ?`,
    [update.cursor, update.nowMs, update.partition, update.clientId],
  );
}

export function readBinding(
  connection: SqliteConnection,
  partition: string,
  clientId: string,
): string | null {
  const row = connection.get(
    'SELECT actor_id FROM sync_client_bindings WHERE partition = ? AND client_id = ?',
    [partition, clientId],
  );
  return row === undefined ? null : (row[0] as string);
}

/** The first binder wins; returns whoever holds the id. */
export function bindClient(
  connection: SqliteConnection,
  binding: { readonly partition: string; readonly clientId: string; readonly actorId: string },
): string {
  const { partition, clientId, actorId } = binding;
  connection.run(
    'INSERT OR IGNORE INTO sync_client_bindings (partition, client_id, actor_id) VALUES (?, ?, ?)',
    [partition, clientId, actorId],
  );
  return readBinding(connection, partition, clientId) ?? actorId;
}
