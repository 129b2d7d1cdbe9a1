/** The partition row that a push locks, and the registry beside it (§2.1). */
import { checkpointsOfState, GATE_PENDING_MAX } from '../pending-checkpoints.ts';
import type { Admission, PartitionState } from '../storage.ts';
import { StorageError } from '../storage-error.ts';
import { CLIENT_COLUMNS, toClient } from './clients.ts';
import type { SqliteConnection, SqlRow } from './driver.ts';

/**
 * Checkpoints come along as JSON: the partition's own through their key, unfinished ones of any partition through their partial
 * index, read once per statement. Without a checkpoint that is a look into two empty trees.
 */
const STATE_COLUMNS = `p.partition, p.max_commit_seq, p.horizon_seq, registry.log_epoch, registry.epoch_required,
  coalesce((SELECT schema_version FROM sync_schema_meta WHERE id = 1), 0),
  (SELECT json_group_array(json_array(own.name, own.schema_version, own.state))
    FROM sync_backfill_checkpoints AS own WHERE own.partition = p.partition),
  (SELECT json_group_array(json_array(unfinished.partition, unfinished.name, unfinished.schema_version)) FROM (
    SELECT partition, name, schema_version FROM sync_backfill_checkpoints
    WHERE state <> 'activated' ORDER BY schema_version DESC, partition, name LIMIT ${GATE_PENDING_MAX}) AS unfinished)`;
const STATE_COLUMN_COUNT = 8;
const STATE_SOURCE = `sync_partitions AS p
  JOIN sync_partition_registry AS registry ON registry.partition = p.partition`;

function toState(row: SqlRow): PartitionState {
  const partition = row[0] as string;
  return {
    partition,
    head: row[1] as number,
    horizon: row[2] as number,
    logEpoch: row[3] as string,
    epochRequired: row[4] !== 0,
    storedSchemaVersion: row[5] as number,
    ...checkpointsOfState(partition, { own: listOf(row[6]), unfinished: listOf(row[7]) }),
  };
}

function listOf<Entry>(json: SqlRow[number] | undefined): readonly Entry[] | null {
  return json === '[]' ? null : (JSON.parse(json as string) as readonly Entry[]);
}

/** Throws `sync.storage.unknown_partition`. */
export function readState(connection: SqliteConnection, partition: string): PartitionState {
  const row = connection.get(`SELECT ${STATE_COLUMNS} FROM ${STATE_SOURCE} WHERE p.partition = ?`, [
    partition,
  ]);
  if (row === undefined) throw unknownPartition();
  return toState(row);
}

export function unknownPartition(): StorageError {
  return new StorageError('sync.storage.unknown_partition', 'the partition was never admitted');
}

/** State, record and binding in one statement, hence of one moment; `null` for a partition that is not known yet. */
export function readAdmission(
  connection: SqliteConnection,
  partition: string,
  clientId: string,
): Admission | null {
  const row = connection.get(
    `SELECT ${STATE_COLUMNS}, binding.actor_id, ${CLIENT_COLUMNS} FROM ${STATE_SOURCE}
     LEFT JOIN sync_client_bindings AS binding ON binding.partition = p.partition AND binding.client_id = ?
     LEFT JOIN sync_clients AS c ON c.partition = p.partition AND c.client_id = ?
     WHERE p.partition = ?`,
    [clientId, clientId, partition],
  );
  if (row === undefined) return null;
  return {
    state: toState(row),
    boundActorId: row[STATE_COLUMN_COUNT] as string | null,
    client: toClient(row, STATE_COLUMN_COUNT + 1),
  };
}

/** First contact creates the epoch; a second creator finds the first one's (S-027). */
export function createPartition(
  connection: SqliteConnection,
  first: { readonly partition: string; readonly newLogEpoch: string; readonly nowMs: number },
): void {
  connection.run('INSERT OR IGNORE INTO sync_partitions (partition) VALUES (?)', [first.partition]);
  connection.run(
    `INSERT OR IGNORE INTO sync_partition_registry (partition, log_epoch, last_authenticated_at_ms)
     VALUES (?, ?, ?)`,
    [first.partition, first.newLogEpoch, first.nowMs],
  );
}

export function touchPartition(connection: SqliteConnection, partition: string, seenAtMs: number): void {
  connection.run(
    `UPDATE sync_partition_registry SET last_authenticated_at_ms = max(last_authenticated_at_ms, ?)
     WHERE partition = ?`,
    [seenAtMs, partition],
  );
}

/** S-032; the binding of clients to actors stays (part 2.24 decision 24). */
export function rotateEpoch(
  connection: SqliteConnection,
  { partition, logEpoch }: { readonly partition: string; readonly logEpoch: string },
): void {
  const changed = connection.run(
    'UPDATE sync_partition_registry SET log_epoch = ?, epoch_required = 1 WHERE partition = ?',
    [logEpoch, partition],
  );
  if (changed === 0) throw unknownPartition();
  connection.run('DELETE FROM sync_clients WHERE partition = ?', [partition]);
}

export function listPartitions(
  connection: SqliteConnection,
  { afterPartition, max }: { readonly afterPartition: string | null; readonly max: number },
): PartitionState[] {
  const after = afterPartition === null ? '' : 'WHERE p.partition > ?';
  const rows = connection.all(
    `SELECT ${STATE_COLUMNS} FROM ${STATE_SOURCE} ${after} ORDER BY p.partition LIMIT ?`,
    afterPartition === null ? [max] : [afterPartition, max],
  );
  return rows.map(toState);
}
