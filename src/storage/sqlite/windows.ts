/** Reading the log: windows through the scope index (§2.8, S-043), whole commits for the hub. */
import type { Clock } from '../../protocol/clock.ts';
import type { OpName } from '../../protocol/frames.ts';
import { CommitsCollector } from '../commits-collector.ts';
import { ScopesParser } from '../scope-json.ts';
import { assertScoped } from '../scoped-read.ts';
import type { CommitWindow, LogChange, LogCommit, LogRead, WindowQuery } from '../storage.ts';
import { StorageError } from '../storage-error.ts';
import { WindowCollector } from '../window-collector.ts';
import type { SqliteConnection, SqlParams, SqlRow } from './driver.ts';
import { scopeCondition, scopeConditionParams } from './identifiers.ts';
import { cheapestVariable, type ScopeRange, ScopeStream } from './scope-stream.ts';
import { guarded } from './sqlite-errors.ts';

/** Where a read happens, and the clock by which long ones let others have the event loop. */
export interface ReadPlace {
  readonly connection: SqliteConnection;
  readonly partition: string;
  readonly clock: Pick<Clock, 'nextTurn'>;
}

const LOST_COMMIT = 'the log holds changes of a commit that is missing';
/** Commits of the scope index looked at per statement. */
const CANDIDATES = 64;
/** Keys looked at before the event loop gets a turn: some 5 ms of scattered reads. */
export const KEYS_PER_TURN = 512;

export async function readWindow(place: ReadPlace, query: WindowQuery): Promise<CommitWindow> {
  assertScoped(query.scopes);
  const { connection, partition, clock } = place;
  const range: ScopeRange = {
    connection,
    source: 'commits',
    partition,
    table: query.table.name,
    after: query.afterSeq,
    through: query.throughSeq,
  };
  const stream = guarded(() => {
    const variable = cheapestVariable(range, query.scopes);
    return new ScopeStream(range, variable, query.scopes[variable]!);
  });
  const collector = new WindowCollector(query);
  const parser = new ScopesParser();
  for (let taken = 0; ; ) {
    const seqs = guarded(() => stream.take(CANDIDATES));
    if (seqs.length === 0) break;
    guarded(() => collectChanges(place, { query, seqs, collector, parser }));
    if (collector.isCut) break;
    taken += seqs.length;
    if (taken % KEYS_PER_TURN === 0) await nextTurn(clock);
  }
  return guarded(() => finishWindow(place, collector));
}

export function nextTurn(clock: Pick<Clock, 'nextTurn'>): Promise<void> {
  return new Promise((resolve) => {
    clock.nextTurn(resolve);
  });
}

interface Candidates {
  readonly query: WindowQuery;
  readonly seqs: readonly (number | string)[];
  readonly collector: WindowCollector;
  readonly parser: ScopesParser;
}

function collectChanges(
  { connection, partition }: ReadPlace,
  { query, seqs, collector, parser }: Candidates,
): void {
  const variables = Object.keys(query.scopes);
  const conditions = variables.map((variable) => ` AND ${scopeCondition('change.scopes', variable)}`);
  // CROSS JOIN fixes the order of the loops: candidates ascending, and inside each its changes by key.
  const sql = `SELECT change.commit_seq, change.row_id, change.op, change.row_version, change.scopes, change.payload
    FROM json_each(?) AS candidate CROSS JOIN sync_changes AS change
    WHERE change.partition = ? AND change.commit_seq = candidate.value AND change.tbl = ?${conditions.join('')}`;
  const params: SqlParams = [
    JSON.stringify(seqs),
    partition,
    query.table.name,
    ...variables.flatMap((variable) => scopeConditionParams(variable, query.scopes[variable]!)),
  ];
  for (const [seq, rowId, op, rowVersion, scopes, payload] of connection.iterate(sql, params)) {
    const target = {
      table: query.table.name,
      rowId: rowId as string,
      scopes: parser.parse(scopes as string),
    };
    if (!collector.add(seq as number, toChange(target, { op, rowVersion, payload }))) return;
  }
}

/** Looks up what is known of each commit: one statement, which costs half as much as one per commit. */
function finishWindow({ connection, partition }: ReadPlace, collector: WindowCollector): CommitWindow {
  const { commits, scannedThrough } = collector;
  const heads = connection.all(
    `SELECT head.created_at_ms, head.actor_id, head.client_id, head.client_commit_id, head.commit_seq
     FROM json_each(?) AS wanted CROSS JOIN sync_commits AS head
     WHERE head.partition = ? AND head.commit_seq = wanted.value`,
    [JSON.stringify(commits.map(({ commitSeq }) => commitSeq)), partition],
  );
  const bySeq = new Map(heads.map((head) => [head[4], head]));
  return {
    commits: commits.map(({ commitSeq, changes }) => {
      const head = bySeq.get(commitSeq);
      if (head === undefined) throw new StorageError('sync.storage.failed', LOST_COMMIT);
      return toCommit(commitSeq, head, changes);
    }),
    scannedThrough,
  };
}

type StoredOp = { readonly [K in 'op' | 'rowVersion' | 'payload']: SqlRow[number] | undefined };

function toChange(target: Pick<LogChange, 'table' | 'rowId' | 'scopes'>, stored: StoredOp): LogChange {
  const op = stored.op as OpName;
  if (op === 'delete') return { table: target.table, rowId: target.rowId, op, scopes: target.scopes };
  return {
    table: target.table,
    rowId: target.rowId,
    op,
    rowVersion: stored.rowVersion as number,
    payload: stored.payload as Uint8Array,
    scopes: target.scopes,
  };
}

/** `head`: created_at_ms, actor_id, client_id, client_commit_id. */
function toCommit(commitSeq: number, head: SqlRow, changes: readonly LogChange[]): LogCommit {
  return {
    commitSeq,
    createdAtMs: head[0] as number,
    actorId: head[1] as string,
    clientId: head[2] as string,
    clientCommitId: head[3] as string,
    changes,
  };
}

export function readCommits({ connection, partition }: ReadPlace, range: LogRead): readonly LogCommit[] {
  const { afterSeq, throughSeq, commitsMax, bytesMax } = range;
  const heads = connection.all(
    `SELECT created_at_ms, actor_id, client_id, client_commit_id, commit_seq FROM sync_commits
     WHERE partition = ? AND commit_seq > ? AND commit_seq <= ? ORDER BY commit_seq LIMIT ?`,
    [partition, afterSeq, throughSeq, commitsMax],
  );
  const last = heads.at(-1);
  if (last === undefined) return [];
  const collector = new CommitsCollector(
    heads.map((head) => head[4] as number),
    bytesMax,
  );
  const parser = new ScopesParser();
  const rows = connection.iterate(
    `SELECT commit_seq, tbl, row_id, op, row_version, scopes, payload FROM sync_changes
     WHERE partition = ? AND commit_seq > ? AND commit_seq <= ? ORDER BY commit_seq, idx`,
    [partition, afterSeq, last[4]!],
  );
  for (const [seq, table, rowId, op, rowVersion, scopes, payload] of rows) {
    const target = { table: table as string, rowId: rowId as string, scopes: parser.parse(scopes as string) };
    if (!collector.add(seq as number, toChange(target, { op, rowVersion, payload }))) break;
  }
  const collected = collector.finish();
  return heads
    .slice(0, collected.size)
    .map((head) => toCommit(head[4] as number, head, collected.get(head[4] as number)!));
}
