/** The segment store in the same namespace (§5.1). */
import type { SegmentEntry, SegmentKey, SegmentStore } from '../segments.ts';
import type { PgConnections } from './connections.ts';
import type { Statement } from './driver.ts';
import type { Names } from './names.ts';
import { type Param, type ResultRow, textArray, toBytes, toInteger, toText } from './wire-values.ts';

const ENTRY_COLUMNS = `partition, log_epoch, tbl, schema_version, scope_digest, params_digest, as_of_commit_seq,
  has_cursor, row_cursor, rows_max, segment_id, byte_length, row_count, next_row_cursor, created_at_ms,
  expires_at_ms`;
const KEY_CONDITION = `partition = $1 AND log_epoch = $2 AND tbl = $3 AND schema_version = $4::int8
  AND scope_digest = $5 AND params_digest = $6 AND as_of_commit_seq = $7::int8 AND has_cursor = $8::int4
  AND row_cursor = $9 AND rows_max = $10::int8`;

/**
 * Rows may change while a pin stands, so one key can have entries of several ids; `find` gives the youngest, and the older
 * ones stay readable until they expire.
 */
export class PgSegmentStore implements SegmentStore {
  readonly #connections: PgConnections;
  readonly #names: Names;

  constructor(connections: PgConnections, names: Names) {
    this.#connections = connections;
    this.#names = names;
  }

  async find(key: SegmentKey, nowMs: number): Promise<SegmentEntry | null> {
    const [found] = await this.#connections.read({
      text: `SELECT ${ENTRY_COLUMNS} FROM ${this.#names.segments} WHERE ${KEY_CONDITION} AND expires_at_ms > $11::int8
        ORDER BY created_at_ms DESC, segment_id LIMIT 1`,
      params: [...keyParams(key), String(nowMs)],
    });
    const row = found?.rows[0];
    return row === undefined ? null : toEntry(row);
  }

  /** The bytes first: their row is locked from then on, so that a sweep cannot take them from under the new entry. */
  async put(entry: SegmentEntry, bytes: Uint8Array): Promise<void> {
    const { segments, segmentBytes } = this.#names;
    await this.#connections.write(
      'relaxed',
      {
        text: `INSERT INTO ${segmentBytes} (partition, segment_id, bytes) VALUES ($1, $2, $3::bytea)
          ON CONFLICT (partition, segment_id) DO UPDATE SET segment_id = excluded.segment_id`,
        params: [entry.partition, entry.segmentId, asBuffer(bytes)],
      },
      {
        text: `INSERT INTO ${segments} AS s (${ENTRY_COLUMNS})
          VALUES ($1, $2, $3, $4::int8, $5, $6, $7::int8, $8::int4, $9, $10::int8, $11, $12::int8, $13::int8,
            $14, $15::int8, $16::int8)
          ON CONFLICT ON CONSTRAINT sync_segments_pkey DO UPDATE SET created_at_ms = excluded.created_at_ms,
            expires_at_ms = greatest(s.expires_at_ms, excluded.expires_at_ms)`,
        params: [
          ...keyParams(entry),
          entry.segmentId,
          String(entry.byteLength),
          String(entry.rowCount),
          entry.nextRowCursor,
          String(entry.createdAtMs),
          String(entry.expiresAtMs),
        ],
      },
    );
  }

  async entries(partition: string, segmentId: string): Promise<readonly SegmentEntry[]> {
    const [found] = await this.#connections.read({
      text: `SELECT ${ENTRY_COLUMNS} FROM ${this.#names.segments} WHERE partition = $1 AND segment_id = $2`,
      params: [partition, segmentId],
    });
    return (found?.rows ?? []).map(toEntry);
  }

  async read(partition: string, segmentId: string): Promise<Uint8Array | null> {
    const [found] = await this.#connections.read({
      text: `SELECT bytes FROM ${this.#names.segmentBytes} WHERE partition = $1 AND segment_id = $2`,
      params: [partition, segmentId],
    });
    const row = found?.rows[0];
    return row === undefined ? null : toBytes(row[0]);
  }

  sweep(request: Parameters<SegmentStore['sweep']>[0]): Promise<number> {
    return this.#connections.transaction([this.#deleteExpired(request)], async (sql, [expired]) => {
      const removed = expired?.rows ?? [];
      if (removed.length > 0) await sql.run(...this.#deleteUnused(removed));
      return removed.length;
    });
  }

  /** Two sweeps share the work. */
  #deleteExpired({ expiredBeforeMs, max }: Parameters<SegmentStore['sweep']>[0]): Statement {
    const { segments } = this.#names;
    return {
      text: `DELETE FROM ${segments} WHERE ctid = ANY (ARRAY(
          SELECT ctid FROM ${segments} WHERE expires_at_ms < $1::int8 ORDER BY expires_at_ms LIMIT $2::int8
          FOR UPDATE SKIP LOCKED))
        RETURNING partition, segment_id`,
      params: [String(expiredBeforeMs), String(max)],
    };
  }

  /** Locks the bytes first, then looks whether an entry came meanwhile: a statement sees what had committed when it began. */
  #deleteUnused(removed: readonly ResultRow[]): readonly Statement[] {
    const { segments, segmentBytes } = this.#names;
    const params = [
      textArray(removed.map((row) => toText(row[0]))),
      textArray(removed.map((row) => toText(row[1]))),
    ];
    const gone = 'unnest($1::text[], $2::text[]) AS gone (partition, segment_id)';
    const isGone = 'b.partition = gone.partition AND b.segment_id = gone.segment_id';
    return [
      {
        text: `SELECT 1 FROM ${segmentBytes} AS b JOIN ${gone} ON ${isGone}
          ORDER BY b.partition, b.segment_id FOR UPDATE OF b`,
        params,
      },
      {
        text: `DELETE FROM ${segmentBytes} AS b USING ${gone} WHERE ${isGone} AND NOT EXISTS (
          SELECT 1 FROM ${segments} AS s WHERE s.partition = b.partition AND s.segment_id = b.segment_id)`,
        params,
      },
    ];
  }
}

function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}

function keyParams(key: SegmentKey): readonly Param[] {
  return [
    key.partition,
    key.logEpoch,
    key.table,
    String(key.schemaVersion),
    key.scopeDigest,
    key.paramsDigest,
    String(key.asOfCommitSeq),
    key.rowCursor === null ? '0' : '1',
    key.rowCursor ?? '',
    String(key.rowsMax),
  ];
}

function toEntry(row: ResultRow): SegmentEntry {
  return {
    partition: toText(row[0]),
    logEpoch: toText(row[1]),
    table: toText(row[2]),
    schemaVersion: toInteger(row[3]),
    scopeDigest: toText(row[4]),
    paramsDigest: toText(row[5]),
    asOfCommitSeq: toInteger(row[6]),
    rowCursor: toInteger(row[7]) === 0 ? null : toText(row[8]),
    rowsMax: toInteger(row[9]),
    segmentId: toText(row[10]),
    byteLength: toInteger(row[11]),
    rowCount: toInteger(row[12]),
    nextRowCursor: row[13] ?? null,
    createdAtMs: toInteger(row[14]),
    expiresAtMs: toInteger(row[15]),
  };
}
