/** Maintaining `sync_row_scopes` and `sync_tombstones`: only entries that differ are touched. */
import type { StoredScopes } from '../../protocol/frames.ts';
import { parseScopes, scopesText } from '../scope-json.ts';
import type { Statement } from './driver.ts';
import type { KnownRows } from './known-rows.ts';
import type { TypedTable } from './typed-table.ts';
import { integerArray, textArray } from './wire-values.ts';

interface Entry {
  readonly rowId: string;
  readonly variable: string;
  readonly value: string;
}

export interface ScopedRow {
  readonly rowId: string;
  readonly scopes: StoredScopes;
}

/** For rows that were inserted or updated. */
export function moveRowScopes(
  target: TypedTable,
  rows: readonly ScopedRow[],
  known: KnownRows,
): readonly Statement[] {
  const added: Entry[] = [];
  const removed: Entry[] = [];
  /** Rows whose entries have to be found out. */
  const unknown: ScopedRow[] = [];
  const buried: string[] = [];
  for (const { rowId, scopes } of rows) {
    const before = known.get(target.table, rowId);
    if (before === undefined) unknown.push({ rowId, scopes });
    if (before === undefined || (before.kind === 'absent' && before.buried)) buried.push(rowId);
    if (before?.kind === 'present' && before.scopes === scopesText(scopes)) continue;
    const scopesBefore = before?.kind === 'present' ? parseScopes(before.scopes) : {};
    removed.push(...entriesMissing(rowId, { from: scopes, of: scopesBefore }));
    added.push(...entriesMissing(rowId, { from: scopesBefore, of: scopes }));
  }
  const onConflict = unknown.length === 0 ? '' : ' ON CONFLICT DO NOTHING';
  return [
    ...(buried.length === 0 ? [] : [deleteTombstones(target, buried)]),
    ...(unknown.length === 0 ? [] : [deleteStaleEntries(target, unknown)]),
    ...(removed.length === 0 ? [] : [deleteEntries(target, removed)]),
    ...(added.length === 0 ? [] : [insertEntries(target, added, onConflict)]),
  ];
}

function entriesMissing(
  rowId: string,
  { from, of }: { readonly from: StoredScopes; readonly of: StoredScopes },
): readonly Entry[] {
  return Object.entries(of)
    .filter(([variable, value]) => !Object.hasOwn(from, variable) || from[variable] !== value)
    .map(([variable, value]) => ({ rowId, variable, value }));
}

/** For rows that are gone, each with the commit that removed it. */
export function removeRowScopes(
  target: TypedTable,
  rows: readonly { readonly rowId: string; readonly commitSeq: number }[],
): readonly Statement[] {
  const { names, partition, table } = target;
  const rowIds = textArray(rows.map(({ rowId }) => rowId));
  return [
    {
      text: `DELETE FROM ${names.rowScopes} WHERE partition = $1 AND tbl = $2 AND row_id = ANY ($3::text[])`,
      params: [partition, table.name, rowIds],
    },
    {
      text: `INSERT INTO ${names.tombstones} (partition, tbl, row_id, commit_seq)
        SELECT $1, $2, gone.row_id, gone.commit_seq
        FROM unnest($3::text[], $4::int8[]) AS gone (row_id, commit_seq)
        ON CONFLICT (partition, tbl, row_id) DO UPDATE SET commit_seq = excluded.commit_seq`,
      params: [partition, table.name, rowIds, integerArray(rows.map(({ commitSeq }) => commitSeq))],
    },
  ];
}

function deleteTombstones({ names, partition, table }: TypedTable, rowIds: readonly string[]): Statement {
  return {
    text: `DELETE FROM ${names.tombstones} WHERE partition = $1 AND tbl = $2 AND row_id = ANY ($3::text[])`,
    params: [partition, table.name, textArray(rowIds)],
  };
}

const ENTRIES = 'unnest($3::text[], $4::text[], $5::text[]) AS entry (row_id, var, value)';

function entryParams({ partition, table }: TypedTable, entries: readonly Entry[]) {
  return [
    partition,
    table.name,
    textArray(entries.map(({ rowId }) => rowId)),
    textArray(entries.map(({ variable }) => variable)),
    textArray(entries.map(({ value }) => value)),
  ];
}

function deleteStaleEntries(target: TypedTable, rows: readonly ScopedRow[]): Statement {
  const kept = rows.flatMap(({ rowId, scopes }) => entriesMissing(rowId, { from: {}, of: scopes }));
  return {
    text: `DELETE FROM ${target.names.rowScopes} AS stored
      WHERE stored.partition = $1 AND stored.tbl = $2 AND stored.row_id = ANY ($6::text[])
        AND NOT EXISTS (SELECT 1 FROM ${ENTRIES}
          WHERE entry.row_id = stored.row_id AND entry.var = stored.var AND entry.value = stored.value)`,
    params: [...entryParams(target, kept), textArray(rows.map(({ rowId }) => rowId))],
  };
}

function deleteEntries(target: TypedTable, entries: readonly Entry[]): Statement {
  return {
    text: `DELETE FROM ${target.names.rowScopes} AS stored USING ${ENTRIES}
      WHERE stored.partition = $1 AND stored.tbl = $2 AND stored.var = entry.var
        AND stored.value = entry.value AND stored.row_id = entry.row_id`,
    params: entryParams(target, entries),
  };
}

function insertEntries(target: TypedTable, entries: readonly Entry[], onConflict: string): Statement {
  return {
    text: `INSERT INTO ${target.names.rowScopes} (partition, tbl, var, value, row_id)
      SELECT $1, $2, entry.var, entry.value, entry.row_id FROM ${ENTRIES}${onConflict}`,
    params: entryParams(target, entries),
    isFrequent: true,
  };
}
