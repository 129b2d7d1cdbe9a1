/** Reads a long result in pieces, so that memory is bounded by the reader's limits and not by the result. */
import type { Sql } from './connections.ts';
import type { Statement } from './driver.ts';
import type { ResultRow } from './wire-values.ts';

export interface RowSink {
  /** False when nothing more is wanted. */
  take(row: ResultRow): boolean;
  /** Payload bytes that still fit. */
  readonly bytesLeft: number;
}

const PIECE_FIRST = 256;
const PIECE_MIN = 16;
const PIECE_MAX = 4_096;

/** Pieces after the first are as large as the rows so far make likely to fit. */
export async function streamRows(sql: Sql, statement: Statement, sink: RowSink): Promise<void> {
  const portal = sql.newPortal();
  const bytesAtStart = sink.bytesLeft;
  let taken = 0;
  let [piece] = await sql.run({ ...statement, open: { portal, rowsMax: PIECE_FIRST } });
  for (;;) {
    for (const row of piece?.rows ?? []) {
      if (sink.take(row)) continue;
      sql.closePortal(portal);
      return;
    }
    if (!piece?.hasMore) break;
    taken += piece.rows.length;
    const rowBytes = Math.max((bytesAtStart - sink.bytesLeft) / taken, 1);
    const likely = Math.ceil(sink.bytesLeft / rowBytes) + 1;
    const rowsMax = Math.min(Math.max(likely, PIECE_MIN), PIECE_MAX);
    [piece] = await sql.run({ fetch: { portal, rowsMax } });
  }
  sql.closePortal(portal);
}
