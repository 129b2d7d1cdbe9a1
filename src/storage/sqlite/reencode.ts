/** Brings rows and log of a table into the layout of a new schema version (part 4, 4.2). */

import type { StoredScopes } from '../../protocol/frames.ts';
import { rowCodecOf } from '../../protocol/row-codec.ts';
import { planRowConversion } from '../../protocol/row-conversion.ts';
import { extractScopesFromRow } from '../../protocol/row-identity.ts';
import type { CompiledTable } from '../../protocol/schema.ts';
import type { TableLayout } from '../../protocol/schema-layout.ts';
import { StorageError } from '../storage-error.ts';
import { moveRowScopes } from './appends.ts';
import { holdsColumn } from './ddl.ts';
import type { SqliteConnection, SqlRow } from './driver.ts';
import { quoted } from './identifiers.ts';
import { parseScopes, scopesText } from './scope-json.ts';
import { materializedColumns, sqlValues, upsertSql } from './typed-table.ts';

type Convert = (payload: Uint8Array) => Uint8Array;

/** Rows and changes held in memory at once. */
const BATCH = 256;

/**
 * What has to happen to the bytes of one table; `null` where they can stay. Throws `sync.storage.schema_changed` when
 * rows or changes exist that cannot follow, naming the table and the fix.
 */
export function planConversion(
  connection: SqliteConnection,
  table: CompiledTable,
  from: TableLayout,
): Convert | null {
  const plan = planRowConversion({ from: from.columns, to: table.columns });
  const problems = plan.kind === 'impossible' ? [...plan.problems] : [];
  if (from.primaryKey !== table.primaryKey) {
    problems.push(`the primary key cannot change from ${from.primaryKey} to ${table.primaryKey}`);
  }
  if (problems.length > 0 && holdsData(connection, table.name)) {
    throw new StorageError(
      'sync.storage.schema_changed',
      `table ${table.name} holds rows that cannot follow the new schema: ${problems.join('; ')}. Keep the column as ` +
        'it was, or add the new one under another name as nullable',
    );
  }
  return plan.kind === 'convert' ? plan.convert : null;
}

function holdsData(connection: SqliteConnection, table: string): boolean {
  const row = connection.get(`SELECT 1 FROM ${quoted(table)} LIMIT 1`);
  if (row !== undefined) return true;
  const change = connection.get('SELECT 1 FROM sync_changes WHERE tbl = ? AND payload IS NOT NULL LIMIT 1', [
    table,
  ]);
  return change !== undefined;
}

/** The typed columns are written anew too: one may have come back, or be materialized only now. */
export function reencodeRows(
  connection: SqliteConnection,
  table: CompiledTable,
  { from, convert }: { readonly from: TableLayout; readonly convert: Convert | null },
): void {
  const scopesChanged = scopeColumns(from.scopes) !== scopeColumns(table.scopes);
  const refill = materializedColumns(table).some(
    (column) => !holdsColumn(from, column) && from.columns.some(({ name }) => name === column.name),
  );
  if (convert === null && !scopesChanged && !refill) return;
  const codec = rowCodecOf(table);
  const sql = upsertSql(table);
  forEachRow(connection, table.name, ([partition, rowId, serverVersion, stored, bytes]) => {
    const payload = convert === null ? (bytes as Uint8Array) : convert(bytes as Uint8Array);
    const before = parseScopes(stored as string);
    const after = scopesChanged ? scopesOf(table, payload) : before;
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

function scopeColumns(scopes: TableLayout['scopes']): string {
  return JSON.stringify(scopes.map(({ variable, column }) => JSON.stringify([variable, column])).sort());
}

/** A new variable whose column is NULL in an old row is left out: no subscription to it finds that row. */
function scopesOf(table: CompiledTable, payload: Uint8Array): StoredScopes {
  const parts = table.scopes.map((scope) => extractScopesFromRow({ ...table, scopes: [scope] }, payload));
  return Object.assign({}, ...parts.map((part) => (part.kind === 'complete' ? part.scopes : {})));
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
