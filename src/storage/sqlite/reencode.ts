/** Brings rows and log of a table into the layout of a new schema version (part 4, 4.2). */

import { rowCodecOf } from '../../protocol/row-codec.ts';
import type { CompiledTable } from '../../protocol/schema.ts';
import type { TableLayout } from '../../protocol/schema-layout.ts';
import {
  type Convert,
  impossibleChange,
  type LayoutChange,
  planLayoutChange,
  scopesUnder,
} from '../layout-change.ts';
import { parseScopes, scopesText } from '../scope-json.ts';
import { moveRowScopes } from './appends.ts';
import type { SqliteConnection, SqlRow } from './driver.ts';
import { quoted } from './identifiers.ts';
import { sqlValues, upsertSql } from './typed-table.ts';

/** Rows and changes held in memory at once. */
const BATCH = 256;

/** Throws `sync.storage.schema_changed` when rows or changes exist that cannot follow, naming the table and the fix. */
export function planChange(
  connection: SqliteConnection,
  table: CompiledTable,
  from: TableLayout,
): LayoutChange {
  const change = planLayoutChange(table, from);
  if (change.problems.length > 0 && holdsData(connection, table.name)) throw impossibleChange(table, change);
  return change;
}

function holdsData(connection: SqliteConnection, table: string): boolean {
  const row = connection.get(`SELECT 1 FROM ${quoted(table)} LIMIT 1`);
  if (row !== undefined) return true;
  const change = connection.get('SELECT 1 FROM sync_changes WHERE tbl = ? AND payload IS NOT NULL LIMIT 1', [
    table,
  ]);
  return change !== undefined;
}

export function reencodeRows(
  connection: SqliteConnection,
  table: CompiledTable,
  { convert, scopesChanged, refill }: LayoutChange,
): void {
  if (convert === null && !scopesChanged && !refill) return;
  const codec = rowCodecOf(table);
  const sql = upsertSql(table);
  forEachRow(connection, table.name, ([partition, rowId, serverVersion, stored, bytes]) => {
    const payload = convert === null ? (bytes as Uint8Array) : convert(bytes as Uint8Array);
    const before = parseScopes(stored as string);
    const after = scopesChanged ? scopesUnder(table, payload) : before;
    const values = sqlValues(table, codec.decode(payload));
    connection.run(sql, [partition!, rowId!, serverVersion!, scopesText(after), payload, ...values]);
    moveRowScopes(connection, {
      partition: partition as string,
      table: table.name,
      rowId: rowId as string,
      before,
      after,
    });
  });
}

function forEachRow(connection: SqliteConnection, table: string, visit: (row: SqlRow) => void): void {
  const columns = '_sync_partition, _sync_row_id, _sync_server_version, _sync_scopes, _sync_payload';
  const order = 'ORDER BY _sync_partition, _sync_row_id LIMIT ?';
  const first = `SELECT ${columns} FROM ${quoted(table)} ${order}`;
  const next = `SELECT ${columns} FROM ${quoted(table)} WHERE (_sync_partition, _sync_row_id) > (?, ?) ${order}`;
  let rows = connection.all(first, [BATCH]);
  while (rows.length > 0) {
    for (const row of rows) visit(row);
    const last = rows.at(-1)!;
    rows = connection.all(next, [last[0]!, last[1]!, BATCH]);
  }
}

/** One pass over the log for all tables whose bytes changed. Scopes of the past stay as they were delivered. */
export function reencodeLog(connection: SqliteConnection, converts: ReadonlyMap<string, Convert>): void {
  if (converts.size === 0) return;
  const select = (after: string): string =>
    `SELECT partition, commit_seq, idx, tbl, payload FROM sync_changes
     WHERE payload IS NOT NULL AND tbl IN (SELECT value FROM json_each(?)) ${after}
     ORDER BY partition, commit_seq, idx LIMIT ?`;
  const tables = JSON.stringify([...converts.keys()]);
  let rows = connection.all(select(''), [tables, BATCH]);
  while (rows.length > 0) {
    for (const [partition, seq, idx, table, payload] of rows) {
      const converted = converts.get(table as string)!(payload as Uint8Array);
      connection.run(
        'UPDATE sync_changes SET payload = ? WHERE partition = ? AND commit_seq = ? AND idx = ?',
        [converted, partition!, seq!, idx!],
      );
    }
    const last = rows.at(-1)!;
    rows = connection.all(select('AND (partition, commit_seq, idx) > (?, ?, ?)'), [
      tables,
      last[0]!,
      last[1]!,
      last[2]!,
      BATCH,
    ]);
  }
}
