/** The segment store in the same database file (§5.1). */
import type { SegmentEntry, SegmentKey, SegmentStore } from '../segments.ts';
import type { SqliteConnections } from './connections.ts';
import type { SqliteConnection, SqlParams, SqlRow } from './driver.ts';

const ENTRY_COLUMNS = `partition, log_epoch, tbl, schema_version, scope_digest, params_digest, as_of_commit_seq,
  has_cursor, row_cursor, rows_max, segment_id, byte_length, row_count, next_row_cursor, created_at_ms,
  expires_at_ms`;
const KEY_CONDITION = `partition = ? AND log_epoch = ? AND tbl = ? AND schema_version = ? AND scope_digest = ?
  AND params_digest = ? AND as_of_commit_seq = ? AND has_cursor = ? AND row_cursor = ? AND rows_max = ?`;

/**
 * Writes are relaxed: a segment that a power loss took is built again. Rows may change while a pin stands, so one key can
 * have entries of several ids; `find` gives the youngest, and the older ones stay readable until they expire.
 */
export class SqliteSegmentStore implements SegmentStore {
  readonly #connections: SqliteConnections;

  constructor(connections: SqliteConnections) {
    this.#connections = connections;
  }

  find(key: SegmentKey, nowMs: number): Promise<SegmentEntry | null> {
    return this.#connections.readNow((connection) => {
      const row = connection.get(
        `SELECT ${ENTRY_COLUMNS} FROM sync_segments WHERE ${KEY_CONDITION} AND expires_at_ms > ?
         ORDER BY created_at_ms DESC, segment_id LIMIT 1`,
        [...keyParams(key), nowMs],
      );
      return row === undefined ? null : toEntry(row);
    });
  }

  put(entry: SegmentEntry, bytes: Uint8Array): Promise<void> {
    return this.#connections.writeNow('relaxed', (connection) => {
      connection.run(
        `INSERT INTO sync_segments (${ENTRY_COLUMNS}) VALUES (${new Array(16).fill('?').join(', ')})
         ON CONFLICT DO UPDATE SET created_at_ms = excluded.created_at_ms,
           expires_at_ms = max(expires_at_ms, excluded.expires_at_ms)`,
        [
          ...keyParams(entry),
          entry.segmentId,
          entry.byteLength,
          entry.rowCount,
          entry.nextRowCursor,
          entry.createdAtMs,
          entry.expiresAtMs,
        ],
      );
      connection.run(
        'INSERT OR IGNORE INTO sync_segment_bytes (partition, segment_id, bytes) VALUES (?, ?, ?)',
        [entry.partition, entry.segmentId, bytes],
      );
    });
  }

  entries(partition: string, segmentId: string): Promise<readonly SegmentEntry[]> {
    return this.#connections.readNow((connection) =>
      connection
        .all(`SELECT ${ENTRY_COLUMNS} FROM sync_segments WHERE partition = ? AND segment_id = ?`, [
          partition,
          segmentId,
        ])
        .map(toEntry),
    );
  }

  read(partition: string, segmentId: string): Promise<Uint8Array | null> {
    return this.#connections.readNow((connection) => {
      const row = connection.get(
        'SELECT bytes FROM sync_segment_bytes WHERE partition = ? AND segment_id = ?',
        [partition, segmentId],
      );
      return row === undefined ? null : (row[0] as Uint8Array);
    });
  }

  sweep({ expiredBeforeMs, max }: Parameters<SegmentStore['sweep']>[0]): Promise<number> {
    return this.#connections.writeNow('relaxed', (connection) => {
      const expired = connection.all(
        `SELECT ${ENTRY_COLUMNS} FROM sync_segments WHERE expires_at_ms < ? ORDER BY expires_at_ms LIMIT ?`,
        [expiredBeforeMs, max],
      );
      for (const row of expired) removeEntry(connection, toEntry(row));
      return expired.length;
    });
  }
}

function removeEntry(connection: SqliteConnection, entry: SegmentEntry): void {
  connection.run(`DELETE FROM sync_segments WHERE ${KEY_CONDITION} AND segment_id = ?`, [
    ...keyParams(entry),
    entry.segmentId,
  ]);
  const id = [entry.partition, entry.segmentId];
  const used = connection.get(
    'SELECT 1 FROM sync_segments WHERE partition = ? AND segment_id = ? LIMIT 1',
    id,
  );
  if (used === undefined) {
    connection.run('DELETE FROM sync_segment_bytes WHERE partition = ? AND segment_id = ?', id);
  }
}

function keyParams(key: SegmentKey): SqlParams {
  return [
    key.partition,
    key.logEpoch,
    key.table,
    key.schemaVersion,
    key.scopeDigest,
    key.paramsDigest,
    key.asOfCommitSeq,
    key.rowCursor === null ? 0 : 1,
    key.rowCursor ?? '',
    key.rowsMax,
  ];
}

function toEntry(row: SqlRow): SegmentEntry {
  return {
    partition: row[0] as string,
    logEpoch: row[1] as string,
    table: row[2] as string,
    schemaVersion: row[3] as number,
    scopeDigest: row[4] as string,
    paramsDigest: row[5] as string,
    asOfCommitSeq: row[6] as number,
    rowCursor: row[7] === 0 ? null : (row[8] as string),
    rowsMax: row[9] as number,
    segmentId: row[10] as string,
    byteLength: row[11] as number,
    rowCount: row[12] as number,
    nextRowCursor: row[13] as string | null,
    createdAtMs: row[14] as number,
    expiresAtMs: row[15] as number,
  };
}
