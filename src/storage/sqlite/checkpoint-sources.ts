/** Reading the source tables of a backfill and the log of their changes (part 4, 4.4). */
import type { OpName } from '../../protocol/frames.ts';
import type { CompiledTable } from '../../protocol/schema.ts';
import type { SourceRead, SourceVerdict, SourceWindow, TableScan } from '../checkpoints.ts';
import { PageCollector } from '../page-collector.ts';
import { ScopesParser } from '../scope-json.ts';
import { SourceCollector } from '../source-collector.ts';
import type { RowPage } from '../storage.ts';
import type { SqliteConnection } from './driver.ts';
import { quoted } from './identifiers.ts';
import { ROW_COLUMNS, toRow } from './pages.ts';
import { guarded } from './sqlite-errors.ts';
import { nextTurn, type ReadPlace } from './windows.ts';

/** Commits of the log looked at before the event loop gets a turn. */
const COMMITS_PER_TURN = 2_048;
const OF_TABLES = 'tbl IN (SELECT wanted.value FROM json_each(?) AS wanted)';

export function scanTable({ connection, partition }: ReadPlace, scan: TableScan): RowPage {
  const { table, afterRowId, rowsMax } = scan;
  const from = afterRowId === null ? ">= ''" : '> ?';
  const sql = `SELECT ${ROW_COLUMNS} FROM ${quoted(table.name)} AS r
    WHERE r._sync_partition = ? AND r._sync_row_id ${from} ORDER BY r._sync_row_id LIMIT ?`;
  const collector = new PageCollector(scan);
  const parser = new ScopesParser();
  // One more than the page tells whether more follow.
  const params = [partition, ...(afterRowId === null ? [] : [afterRowId]), rowsMax + 1];
  for (const row of connection.iterate(sql, params)) {
    if (!collector.add(toRow(row, parser))) break;
  }
  return collector.finish();
}

export async function readSourceChanges(place: ReadPlace, read: SourceRead): Promise<SourceWindow> {
  const collector = new SourceCollector(read);
  const parser = new ScopesParser();
  if (read.tables.length === 0) return collector.finish();
  for (let afterSeq = read.afterSeq; afterSeq < read.throughSeq && !collector.isCut; ) {
    const throughSeq = Math.min(afterSeq + COMMITS_PER_TURN, read.throughSeq);
    guarded(() => collectChanges(place, { ...read, afterSeq, throughSeq }, { collector, parser }));
    afterSeq = throughSeq;
    if (afterSeq < read.throughSeq) await nextTurn(place.clock);
  }
  return collector.finish();
}

interface Collecting {
  readonly collector: SourceCollector;
  readonly parser: ScopesParser;
}

function collectChanges(
  { connection, partition }: ReadPlace,
  { tables, afterSeq, throughSeq }: SourceRead,
  { collector, parser }: Collecting,
): void {
  const sql = `SELECT commit_seq, tbl, row_id, op, scopes FROM sync_changes
    WHERE partition = ? AND commit_seq > ? AND commit_seq <= ? AND ${OF_TABLES} ORDER BY commit_seq, idx`;
  const params = [partition, afterSeq, throughSeq, JSON.stringify(tables)];
  for (const [commitSeq, table, rowId, op, scopes] of connection.iterate(sql, params)) {
    const change = {
      commitSeq: commitSeq as number,
      table: table as string,
      rowId: rowId as string,
      op: op as OpName,
      scopes: parser.parse(scopes as string),
    };
    if (!collector.add(change)) return;
  }
}

export interface SourcePosition {
  readonly partition: string;
  readonly tables: readonly string[];
  readonly seq: number;
}

/**
 * Horizon and window in one statement, hence of one moment. Looks at the changes above `seq` only, which the primary key
 * finds, and at the first of the tables' own it stops: a backfill asks when it has followed the log to its end.
 */
export function sourceVerdict(
  connection: SqliteConnection,
  { partition, tables, seq }: SourcePosition,
): SourceVerdict {
  if (tables.length === 0) return 'clean';
  const row = connection.get(
    `SELECT coalesce((SELECT horizon_seq FROM sync_partitions WHERE partition = ?), 0),
       EXISTS (SELECT 1 FROM sync_changes WHERE partition = ? AND commit_seq > ? AND ${OF_TABLES})`,
    [partition, partition, seq, JSON.stringify(tables)],
  );
  const [horizon, isChanged] = row as readonly [number, number];
  if (isChanged !== 0) return 'changed';
  return horizon > seq ? 'unverifiable' : 'clean';
}

/**
 * The next slice of the walk that finds `sourceCoverageSeq`: back from the head through the primary key, until the first
 * change of one of the tables. Sources are tables that are written, so it is near in the normal case; an index led by the table
 * would find it at once, and would cost every commit. A table that is never written costs the walk through the whole log, in
 * slices, with a turn of the event loop between them. The scope index cannot answer: it is ordered by scope, and a row
 * without one does not stand in it.
 */
export function coverageSlice(
  connection: SqliteConnection,
  { partition, tables, seq }: SourcePosition,
): { readonly found: number | null; readonly below: number } {
  const below = Math.max(seq - COMMITS_PER_TURN, 0);
  const row = connection.get(
    `SELECT commit_seq FROM sync_changes WHERE partition = ? AND commit_seq > ? AND commit_seq <= ? AND ${OF_TABLES}
     ORDER BY commit_seq DESC LIMIT 1`,
    [partition, below, seq, JSON.stringify(tables)],
  );
  return { found: (row?.[0] as number | undefined) ?? null, below };
}

/** First and last commit of the log that still has changes; 0 for a log without. */
export function readLogEnds(
  connection: SqliteConnection,
  partition: string,
): { readonly first: number; readonly last: number } {
  const row = connection.get(
    `SELECT (SELECT min(commit_seq) FROM sync_changes WHERE partition = ? AND commit_seq > 0),
       (SELECT max(commit_seq) FROM sync_changes WHERE partition = ? AND commit_seq > 0)`,
    [partition, partition],
  );
  return { first: (row?.[0] ?? 0) as number, last: (row?.[1] ?? 0) as number };
}

/** By the primary key, which holds the partition. */
export function countRows(
  connection: SqliteConnection,
  {
    partition,
    table,
    max,
  }: { readonly partition: string; readonly table: CompiledTable; readonly max: number },
): number {
  const sql = `SELECT count(*) FROM (SELECT 1 FROM ${quoted(table.name)} WHERE _sync_partition = ? LIMIT ?)`;
  return connection.get(sql, [partition, max])?.[0] as number;
}
