/** Reading the log: windows through the scope index (§2.8, S-043), whole commits for the hub. */
import type { OpName } from '../../protocol/frames.ts';
import { CommitsCollector } from '../commits-collector.ts';
import { ScopesParser } from '../scope-json.ts';
import { assertScoped } from '../scoped-read.ts';
import type { CommitWindow, LogChange, LogCommit, LogRead, WindowQuery } from '../storage.ts';
import { WindowCollector } from '../window-collector.ts';
import type { Sql } from './connections.ts';
import type { Statement } from './driver.ts';
import type { Names } from './names.ts';
import { streamRows } from './row-stream.ts';
import {
  boundedMax,
  candidatesSql,
  cheapestVariable,
  Params,
  type ScopeRange,
  scopeConditions,
} from './scope-candidates.ts';
import { type ResultRow, toBytes, toInteger, toText } from './wire-values.ts';

/** Where a read happens. */
export interface ReadPlace {
  readonly sql: Sql;
  readonly names: Names;
  readonly partition: string;
}

/** Commits of the scope index looked at per statement, the first time and at most. */
const CANDIDATES_FIRST = 256;
const CANDIDATES_MAX = 4_096;

export async function readWindow(place: ReadPlace, query: WindowQuery): Promise<CommitWindow> {
  assertScoped(query.scopes);
  const range: ScopeRange = {
    source: 'commits',
    partition: place.partition,
    table: query.table.name,
    after: query.afterSeq,
    through: query.throughSeq,
  };
  const variable = await cheapestVariable(place.sql, place.names, { range, scopes: query.scopes });
  const values = [...new Set(query.scopes[variable]!)];
  const reader = new WindowReader(query);
  if (values.length === 0) return reader.finish();
  for (let wanted = CANDIDATES_FIRST; ; wanted = Math.min(wanted * 4, CANDIDATES_MAX)) {
    const max = boundedMax(wanted, values);
    reader.startCandidates();
    const after = reader.lastCandidate ?? query.afterSeq;
    const candidates = { ...range, after, variable, values, max };
    await streamRows(place.sql, selectChanges(place, query, candidates), reader);
    if (reader.isCut || reader.candidates < max) return reader.finish();
  }
}

type Candidates = Parameters<typeof candidatesSql>[2];

/** Every candidate gives a row at least, so that the reader knows how far it came where nothing matched. */
function selectChanges({ names }: ReadPlace, query: WindowQuery, candidates: Candidates): Statement {
  const params = new Params();
  const partition = params.add(candidates.partition, 'text');
  const table = params.add(candidates.table, 'text');
  const conditions = scopeConditions(params, { column: 'c.scopes', scopes: query.scopes });
  return {
    text: `SELECT candidate.key, change.row_id, change.op, change.row_version, change.scopes, change.payload,
        head.created_at_ms, head.actor_id, head.client_id, head.client_commit_id
      FROM (${candidatesSql(names, params, candidates)}) AS candidate
      LEFT JOIN LATERAL (
        SELECT h.created_at_ms, h.actor_id, h.client_id, h.client_commit_id FROM ${names.commits} AS h
        WHERE h.partition = ${partition} AND h.commit_seq = candidate.key LIMIT 1) AS head ON true
      LEFT JOIN LATERAL (
        SELECT c.idx, c.row_id, c.op, c.row_version, c.scopes, c.payload FROM ${names.changes} AS c
        WHERE c.partition = ${partition} AND c.commit_seq = candidate.key AND c.tbl = ${table}${conditions}
        ORDER BY c.idx) AS change ON true
      ORDER BY candidate.key, change.idx`,
    params: params.values,
  };
}

class WindowReader {
  readonly #query: WindowQuery;
  readonly #collector: WindowCollector;
  readonly #parser = new ScopesParser();
  readonly #heads = new Map<number, ResultRow>();
  lastCandidate: number | null = null;
  /** Different ones since `startCandidates`. */
  candidates = 0;

  constructor(query: WindowQuery) {
    this.#query = query;
    this.#collector = new WindowCollector(query);
  }

  get bytesLeft(): number {
    return this.#collector.bytesLeft;
  }

  get isCut(): boolean {
    return this.#collector.isCut;
  }

  startCandidates(): void {
    this.candidates = 0;
  }

  take(row: ResultRow): boolean {
    const commitSeq = toInteger(row[0]);
    if (commitSeq !== this.lastCandidate) {
      this.lastCandidate = commitSeq;
      this.candidates++;
      if (row[1] !== null) this.#heads.set(commitSeq, row.slice(HEAD_AT));
    }
    if (row[1] === null) return true;
    const table = this.#query.table.name;
    return this.#collector.add(commitSeq, toChange(table, row.slice(1, HEAD_AT), this.#parser));
  }

  finish(): CommitWindow {
    const { commits, scannedThrough } = this.#collector;
    return {
      commits: commits.map(({ commitSeq, changes }) =>
        toCommit(commitSeq, this.#heads.get(commitSeq)!, changes),
      ),
      scannedThrough,
    };
  }
}

/** Where the columns of the commit begin. */
const HEAD_AT = 6;

/** `row`: row_id, op, row_version, scopes, payload. */
function toChange(table: string, row: ResultRow, parser: ScopesParser): LogChange {
  const rowId = toText(row[0]);
  const op = toText(row[1]) as OpName;
  const scopes = parser.parse(toText(row[3]));
  if (op === 'delete') return { table, rowId, op, scopes };
  return { table, rowId, op, rowVersion: toInteger(row[2]), payload: toBytes(row[4]), scopes };
}

/** `head`: created_at_ms, actor_id, client_id, client_commit_id. */
function toCommit(commitSeq: number, head: ResultRow, changes: readonly LogChange[]): LogCommit {
  return {
    commitSeq,
    createdAtMs: toInteger(head[0]),
    actorId: toText(head[1]),
    clientId: toText(head[2]),
    clientCommitId: toText(head[3]),
    changes,
  };
}

export async function readCommits(place: ReadPlace, range: LogRead): Promise<readonly LogCommit[]> {
  const { sql, names, partition } = place;
  const { afterSeq, throughSeq, commitsMax } = range;
  const bounds = [partition, String(afterSeq), String(throughSeq)];
  const [heads] = await sql.run({
    text: `SELECT created_at_ms, actor_id, client_id, client_commit_id, commit_seq FROM ${names.commits}
      WHERE partition = $1 AND commit_seq > $2::int8 AND commit_seq <= $3::int8
      ORDER BY commit_seq LIMIT $4::int8`,
    params: [...bounds, String(commitsMax)],
  });
  const rows = heads?.rows ?? [];
  const last = rows.at(-1);
  if (last === undefined) return [];
  const collector = new CommitsCollector(
    rows.map((head) => toInteger(head[4])),
    range.bytesMax,
  );
  const parser = new ScopesParser();
  const changes = {
    text: `SELECT row_id, op, row_version, scopes, payload, tbl, commit_seq FROM ${names.changes}
      WHERE partition = $1 AND commit_seq > $2::int8 AND commit_seq <= $3::int8 ORDER BY commit_seq, idx`,
    params: [partition, String(afterSeq), toText(last[4])],
  };
  await streamRows(sql, changes, {
    take: (row) => collector.add(toInteger(row[6]), toChange(toText(row[5]), row, parser)),
    get bytesLeft() {
      return collector.bytesLeft;
    },
  });
  const collected = collector.finish();
  return rows
    .slice(0, collected.size)
    .map((head) => toCommit(toInteger(head[4]), head, collected.get(toInteger(head[4]))!));
}
