/** Reading rows: keyset pages through the row-scope index (§2.10), single rows by id. */
import type { CompiledTable } from '../../protocol/schema.ts';
import { PageCollector } from '../page-collector.ts';
import { ScopesParser, scopesText } from '../scope-json.ts';
import { assertScoped } from '../scoped-read.ts';
import type { RowPage, RowScan, StoredRow } from '../storage.ts';
import type { Statement } from './driver.ts';
import type { KnownRows } from './known-rows.ts';
import { streamRows } from './row-stream.ts';
import {
  boundedMax,
  candidatesSql,
  cheapestVariable,
  Params,
  type ScopeRange,
  scopeConditions,
} from './scope-candidates.ts';
import type { TypedTable } from './typed-table.ts';
import type { ReadPlace } from './windows.ts';
import { type ResultRow, textArray, toBytes, toInteger, toText } from './wire-values.ts';

export const ROW_COLUMNS = 'r._sync_server_version, r._sync_scopes, r._sync_payload';
/** Row ids of the scope index looked at per statement where other variables decide as well. */
const CANDIDATES_MAX = 2_048;

export async function readRowPage(place: ReadPlace, scan: RowScan): Promise<RowPage> {
  assertScoped(scan.scopes);
  const range: ScopeRange = {
    source: 'rows',
    partition: place.partition,
    table: scan.table.name,
    after: scan.afterRowId,
    through: null,
  };
  const variable = await cheapestVariable(place.sql, place.names, { range, scopes: scan.scopes });
  const values = [...new Set(scan.scopes[variable]!)];
  const others = Object.entries(scan.scopes).filter(([name]) => name !== variable);
  const reader = new PageReader(scan);
  while (values.length > 0) {
    const max = boundedMax(others.length === 0 ? reader.wanted : CANDIDATES_MAX, values);
    reader.startCandidates();
    const candidates = { ...range, after: reader.lastCandidate ?? range.after, variable, values, max };
    const scopes = Object.fromEntries(others);
    await streamRows(place.sql, selectPage(place, scan.table, { candidates, scopes }), reader);
    if (reader.isCut || reader.candidates < max) break;
  }
  return reader.finish();
}

interface PageQuery {
  readonly candidates: Parameters<typeof candidatesSql>[2];
  /** Variables that the index did not already decide. */
  readonly scopes: RowScan['scopes'];
}

/** Every candidate gives a row, so that the reader knows how far it came where nothing matched. */
function selectPage(
  { names }: ReadPlace,
  table: CompiledTable,
  { candidates, scopes }: PageQuery,
): Statement {
  const params = new Params();
  const partition = params.add(candidates.partition, 'text');
  const conditions = scopeConditions(params, { column: 'r._sync_scopes', scopes });
  return {
    text: `SELECT candidate.key, stored._sync_server_version, stored._sync_scopes, stored._sync_payload
      FROM (${candidatesSql(names, params, candidates)}) AS candidate
      LEFT JOIN LATERAL (
        SELECT ${ROW_COLUMNS} FROM ${names.qualified(table.name)} AS r
        WHERE r._sync_partition = ${partition} AND r._sync_row_id = candidate.key${conditions}
        LIMIT 1) AS stored ON true
      ORDER BY candidate.key`,
    params: params.values,
  };
}

class PageReader {
  readonly #collector: PageCollector;
  readonly #parser = new ScopesParser();
  lastCandidate: string | null = null;
  /** Since `startCandidates`. */
  candidates = 0;

  constructor(scan: RowScan) {
    this.#collector = new PageCollector(scan);
  }

  get wanted(): number {
    return this.#collector.wanted;
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
    this.lastCandidate = toText(row[0]);
    this.candidates++;
    return row[1] === null || this.#collector.add(toRow(row, this.#parser));
  }

  finish(): RowPage {
    return this.#collector.finish();
  }
}

export function selectRow({ names, partition, table }: TypedTable, rowId: string): Statement {
  return {
    text: `SELECT r._sync_row_id, ${ROW_COLUMNS} FROM ${names.qualified(table.name)} AS r
      WHERE r._sync_partition = $1 AND r._sync_row_id = $2`,
    params: [partition, rowId],
  };
}

/** LIMIT makes each id one look into the index. Of those that do not exist it is asked whether they ever did. */
export function selectKnownRows(
  { names, partition, table }: TypedTable,
  rowIds: readonly string[],
): Statement {
  return {
    text: `SELECT wanted.row_id, stored._sync_server_version, stored._sync_scopes, stored._sync_payload, gone.found
      FROM unnest($3::text[]) AS wanted (row_id)
      LEFT JOIN LATERAL (
        SELECT ${ROW_COLUMNS} FROM ${names.qualified(table.name)} AS r
        WHERE r._sync_partition = $1 AND r._sync_row_id = wanted.row_id LIMIT 1) AS stored ON true
      LEFT JOIN LATERAL (
        SELECT 1 AS found FROM ${names.tombstones} AS t
        WHERE stored._sync_server_version IS NULL
          AND t.partition = $1 AND t.tbl = $2 AND t.row_id = wanted.row_id LIMIT 1) AS gone ON true`,
    params: [partition, table.name, textArray(rowIds)],
    isFrequent: true,
  };
}

/** The existing ones; `known` hears of all. */
export function toKnownRows(
  table: CompiledTable,
  rows: readonly ResultRow[],
  known: KnownRows,
): ReadonlyMap<string, StoredRow> {
  const parser = new ScopesParser();
  const found = new Map<string, StoredRow>();
  for (const row of rows) {
    const rowId = toText(row[0]);
    if (row[1] === null) {
      known.note(table, rowId, { kind: 'absent', buried: row[4] !== null });
      continue;
    }
    const stored = toRow(row, parser);
    found.set(rowId, stored);
    known.note(table, rowId, { kind: 'present', scopes: scopesText(stored.scopes) });
  }
  return found;
}

/** `row`: row id, server version, scopes, payload. */
export function toRow(row: ResultRow, parser: ScopesParser): StoredRow {
  return {
    rowId: toText(row[0]),
    serverVersion: toInteger(row[1]),
    scopes: parser.parse(toText(row[2])),
    payload: toBytes(row[3]),
  };
}
