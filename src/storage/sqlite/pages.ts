/** Reading rows: keyset pages through the row-scope index (§2.10), single rows by id. */
import type { CompiledTable } from '../../protocol/schema.ts';
import { PageCollector } from '../page-collector.ts';
import { ScopesParser } from '../scope-json.ts';
import { assertScoped } from '../scoped-read.ts';
import type { RowPage, RowScan, StoredRow } from '../storage.ts';
import type { SqliteConnection, SqlParams, SqlRow } from './driver.ts';
import { quoted, scopeCondition, scopeConditionParams } from './identifiers.ts';
import { cheapestVariable, type ScopeRange, ScopeStream } from './scope-stream.ts';
import { guarded } from './sqlite-errors.ts';
import { KEYS_PER_TURN, nextTurn, type ReadPlace } from './windows.ts';

export const ROW_COLUMNS = 'r._sync_row_id, r._sync_server_version, r._sync_scopes, r._sync_payload';
/** Row ids of the scope index looked up per statement. */
const CANDIDATES_MAX = 512;

export async function readRowPage(place: ReadPlace, scan: RowScan): Promise<RowPage> {
  assertScoped(scan.scopes);
  const range: ScopeRange = {
    connection: place.connection,
    source: 'rows',
    partition: place.partition,
    table: scan.table.name,
    after: scan.afterRowId,
    through: null,
  };
  const variable = guarded(() => cheapestVariable(range, scan.scopes));
  const stream = guarded(() => new ScopeStream(range, variable, scan.scopes[variable]!));
  const others = Object.keys(scan.scopes).filter((name) => name !== variable);
  const collector = new PageCollector(scan);
  const parser = new ScopesParser();
  for (let taken = 0; ; ) {
    // One row beyond the page, where it may be the whole rest, tells whether more follow.
    const wanted = others.length === 0 ? collector.wanted : CANDIDATES_MAX;
    const rowIds = guarded(() => stream.take(Math.min(wanted, CANDIDATES_MAX)));
    if (rowIds.length === 0) break;
    guarded(() => collectRows(place, { scan, rowIds, others, collector, parser }));
    if (collector.isCut) break;
    taken += rowIds.length;
    if (taken >= KEYS_PER_TURN) {
      taken = 0;
      await nextTurn(place.clock);
    }
  }
  return collector.finish();
}

interface Candidates {
  readonly scan: RowScan;
  readonly rowIds: readonly (number | string)[];
  /** Variables that the index did not already decide. */
  readonly others: readonly string[];
  readonly collector: PageCollector;
  readonly parser: ScopesParser;
}

function collectRows(place: ReadPlace, { scan, rowIds, others, collector, parser }: Candidates): void {
  const conditions = others.map((variable) => ` AND ${scopeCondition('r._sync_scopes', variable)}`);
  const sql = `SELECT ${ROW_COLUMNS}
    FROM json_each(?) AS candidate CROSS JOIN ${quoted(scan.table.name)} AS r
    WHERE r._sync_partition = ? AND r._sync_row_id = candidate.value${conditions.join('')}`;
  const params: SqlParams = [
    JSON.stringify(rowIds),
    place.partition,
    ...others.flatMap((variable) => scopeConditionParams(variable, scan.scopes[variable]!)),
  ];
  for (const row of place.connection.iterate(sql, params)) {
    if (!collector.add(toRow(row, parser))) return;
  }
}

/** Existing rows by id, in one statement. */
export function readRows(
  { connection, partition }: Pick<ReadPlace, 'connection' | 'partition'>,
  table: CompiledTable,
  rowIds: readonly string[],
): ReadonlyMap<string, StoredRow> {
  const parser = new ScopesParser();
  const sql = `SELECT ${ROW_COLUMNS}
    FROM json_each(?) AS candidate CROSS JOIN ${quoted(table.name)} AS r
    WHERE r._sync_partition = ? AND r._sync_row_id = candidate.value`;
  const rows = connection.all(sql, [JSON.stringify(rowIds), partition]);
  return new Map(rows.map((row) => [row[0] as string, toRow(row, parser)]));
}

export function readRow(
  { connection, partition }: Pick<ReadPlace, 'connection' | 'partition'>,
  table: CompiledTable,
  rowId: string,
): StoredRow | null {
  const row = connection.get(
    `SELECT ${ROW_COLUMNS} FROM ${quoted(table.name)} AS r WHERE r._sync_partition = ? AND r._sync_row_id = ?`,
    [partition, rowId],
  );
  return row === undefined ? null : toRow(row, new ScopesParser());
}

/** What stands in the table right now, for a connection that is about to replace it. */
export function readScopesText(
  connection: SqliteConnection,
  row: { readonly table: CompiledTable; readonly partition: string; readonly rowId: string },
): string | undefined {
  const found = connection.get(
    `SELECT _sync_scopes FROM ${quoted(row.table.name)} WHERE _sync_partition = ? AND _sync_row_id = ?`,
    [row.partition, row.rowId],
  );
  return found?.[0] as string | undefined;
}

/** `row`: the columns of `ROW_COLUMNS`. */
export function toRow(row: SqlRow, parser: ScopesParser): StoredRow {
  return {
    rowId: row[0] as string,
    serverVersion: row[1] as number,
    scopes: parser.parse(row[2] as string),
    payload: row[3] as Uint8Array,
  };
}
