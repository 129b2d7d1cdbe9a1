/** Records of backfills and the writer fence (part 4), by statements that each keep their own promise. */
import type {
  Activation,
  BackfillScan,
  Checkpoint,
  CheckpointAdvance,
  CheckpointDeclaration,
  CheckpointState,
  CheckpointStorage,
  ServeGate,
} from '../checkpoints.ts';
import { StorageQueryError } from '../storage-error.ts';
import { sourceVerdict } from './checkpoint-sources.ts';
import type { SqliteConnection, SqlRow } from './driver.ts';

type Declared = CheckpointDeclaration & { readonly nowMs: number };

const CHECKPOINT_COLUMNS = `checkpoint.partition, checkpoint.name, checkpoint.schema_version, checkpoint.state, checkpoint.watermark, checkpoint.owner_epoch, checkpoint.observed_rows,
  checkpoint.updated_at_ms, scan.head_seq, scan.tbl, scan.after_row_id`;
const CHECKPOINT_SOURCE = `sync_backfill_checkpoints AS checkpoint
  LEFT JOIN sync_backfill_scans AS scan ON scan.partition = checkpoint.partition AND scan.name = checkpoint.name`;

function toCheckpoint(row: SqlRow): Checkpoint {
  return {
    partition: row[0] as string,
    name: row[1] as string,
    schemaVersion: row[2] as number,
    state: row[3] as CheckpointState,
    watermark: row[4] as number,
    ownerEpoch: row[5] as number,
    observedRows: row[6] as number,
    updatedAtMs: row[7] as number,
    scan: row[8] === null ? null : toScan(row.slice(8)),
  };
}

function toScan([headSeq, table, afterRowId]: SqlRow): BackfillScan {
  return { headSeq: headSeq as number, table: table as string, afterRowId: afterRowId as string | null };
}

/** What exists is never declared again, and a fence never lowered. */
export function installCheckpoint(connection: SqliteConnection, declared: Declared): void {
  const { partition, name, schemaVersion, nowMs } = declared;
  connection.run(
    `INSERT INTO sync_backfill_checkpoints (partition, name, schema_version, state, updated_at_ms)
     VALUES (?, ?, ?, 'declared', ?) ON CONFLICT DO NOTHING`,
    [partition, name, schemaVersion, nowMs],
  );
  connection.run(
    `INSERT INTO sync_writer_fence (partition, required_writer_version) VALUES (?, ?)
     ON CONFLICT (partition) DO UPDATE
     SET required_writer_version = max(required_writer_version, excluded.required_writer_version)`,
    [partition, schemaVersion],
  );
}

/** Of any partition. */
export function readUnfinished(
  connection: SqliteConnection,
  schemaVersion: number,
): readonly { readonly partition: string; readonly name: string }[] {
  const rows = connection.all(
    `SELECT partition, name FROM sync_backfill_checkpoints
     WHERE schema_version = ? AND state <> 'activated' ORDER BY partition, name`,
    [schemaVersion],
  );
  return rows.map(([partition, name]) => ({ partition: partition as string, name: name as string }));
}

/** One statement, hence of one moment. */
export function readServeGate(
  connection: SqliteConnection,
  partition: string,
  runningVersion: number,
): ServeGate {
  const row = connection.get(
    `SELECT coalesce((SELECT schema_version FROM sync_schema_meta WHERE id = 1), 0),
       (SELECT log_epoch FROM sync_partition_registry WHERE partition = ?),
       (SELECT json_group_array(json_array(u.partition, u.name)) FROM (
         SELECT partition, name FROM sync_backfill_checkpoints
         WHERE schema_version = ? AND state <> 'activated' ORDER BY partition, name) AS u)`,
    [partition, runningVersion],
  );
  const [version, logEpoch, unfinished] = row as readonly [number, string | null, string];
  const pending = JSON.parse(unfinished) as readonly [string, string][];
  return {
    storedSchemaVersion: version,
    ...(logEpoch === null ? {} : { logEpoch }),
    pending: pending.map(([owner, name]) => ({ partition: owner, name })),
  };
}

export function readCheckpoints(
  connection: SqliteConnection,
  partition: string,
): ReadonlyMap<string, Checkpoint> {
  const rows = connection.all(
    `SELECT ${CHECKPOINT_COLUMNS} FROM ${CHECKPOINT_SOURCE} WHERE checkpoint.partition = ? ORDER BY checkpoint.name`,
    [partition],
  );
  return new Map(rows.map((row) => [row[1] as string, toCheckpoint(row)]));
}

export function listCheckpoints(
  connection: SqliteConnection,
  { after, max }: Parameters<CheckpointStorage['listCheckpoints']>[0],
): readonly Checkpoint[] {
  const condition = after === null ? '' : 'WHERE (checkpoint.partition, checkpoint.name) > (?, ?)';
  const rows = connection.all(
    `SELECT ${CHECKPOINT_COLUMNS} FROM ${CHECKPOINT_SOURCE} ${condition}
     ORDER BY checkpoint.partition, checkpoint.name LIMIT ?`,
    after === null ? [max] : [after.partition, after.name, max],
  );
  return rows.map(toCheckpoint);
}

/** Inside a write transaction, which makes the UPDATE and the reading of what it left one step. */
export function claimCheckpoint(connection: SqliteConnection, declared: Declared): Checkpoint {
  const { partition, name, schemaVersion, nowMs } = declared;
  connection.get(
    `UPDATE sync_backfill_checkpoints
     SET owner_epoch = owner_epoch + 1, state = 'backfilling', updated_at_ms = ?
     WHERE partition = ? AND name = ? AND schema_version = ? AND state <> 'activated' RETURNING owner_epoch`,
    [nowMs, partition, name, schemaVersion],
  );
  const row = connection.get(
    `SELECT ${CHECKPOINT_COLUMNS} FROM ${CHECKPOINT_SOURCE}
     WHERE checkpoint.partition = ? AND checkpoint.name = ? AND checkpoint.schema_version = ?`,
    [partition, name, schemaVersion],
  );
  if (row === undefined) {
    throw new StorageQueryError(
      'sync.storage.checkpoint_not_declared',
      `partition ${partition} has no checkpoint ${name} of schema version ${schemaVersion}`,
    );
  }
  return toCheckpoint(row);
}

/** False for a worker that was superseded; then nothing is written. */
export function advanceCheckpoint(
  connection: SqliteConnection,
  partition: string,
  { name, ownerEpoch, watermark, observedRows, scan, nowMs }: CheckpointAdvance,
): boolean {
  // Back to 0 only where the scan starts again.
  const raised = watermark === 0 && scan !== null ? '?' : 'max(watermark, ?)';
  const advanced = connection.get(
    `UPDATE sync_backfill_checkpoints SET watermark = ${raised}, observed_rows = ?, updated_at_ms = ?
     WHERE partition = ? AND name = ? AND owner_epoch = ? AND state = 'backfilling' RETURNING 1`,
    [watermark, observedRows, nowMs, partition, name, ownerEpoch],
  );
  if (advanced === undefined) return false;
  if (scan === null) removeScan(connection, partition, name);
  else {
    connection.run(
      `INSERT INTO sync_backfill_scans (partition, name, head_seq, tbl, after_row_id) VALUES (?, ?, ?, ?, ?)
       ON CONFLICT (partition, name) DO UPDATE
       SET head_seq = excluded.head_seq, tbl = excluded.tbl, after_row_id = excluded.after_row_id`,
      [partition, name, scan.headSeq, scan.table, scan.afterRowId],
    );
  }
  return true;
}

function removeScan(connection: SqliteConnection, partition: string, name: string): void {
  connection.run('DELETE FROM sync_backfill_scans WHERE partition = ? AND name = ?', [partition, name]);
}

/** Inside a write transaction: no push lands between the look at the sources and the new state. */
export function activateCheckpoint(
  connection: SqliteConnection,
  request: Parameters<CheckpointStorage['activateCheckpoint']>[0],
): Activation {
  const { partition, name, ownerEpoch, watermark, sources, nowMs } = request;
  const fenced = connection.get(
    `SELECT 1 FROM sync_backfill_checkpoints AS checkpoint JOIN sync_writer_fence AS fence ON fence.partition = checkpoint.partition
     WHERE checkpoint.partition = ? AND checkpoint.name = ? AND fence.required_writer_version >= checkpoint.schema_version`,
    [partition, name],
  );
  if (fenced === undefined) {
    throw new StorageQueryError(
      'sync.storage.checkpoint_fence_missing',
      `partition ${partition} has no checkpoint ${name} behind a writer fence of its schema version`,
    );
  }
  const verdict = sourceVerdict(connection, { partition, tables: sources, seq: watermark });
  if (verdict !== 'clean') return verdict === 'changed' ? 'stale' : 'unverifiable';
  const activated = connection.get(
    `UPDATE sync_backfill_checkpoints
     SET state = 'activated', watermark = max(watermark, ?), updated_at_ms = ?
     WHERE partition = ? AND name = ? AND owner_epoch = ? AND state <> 'activated' RETURNING 1`,
    [watermark, nowMs, partition, name, ownerEpoch],
  );
  if (activated === undefined) return 'stale';
  removeScan(connection, partition, name);
  return 'activated';
}
