/** How a synced table stands in SQLite: column types, statements, values (part 6 rules 2, 3 and 5). */
import type { ColumnType, ColumnValue, CompiledColumn, CompiledTable } from '../../protocol/schema.ts';
import { materializedColumns, OWN_COLUMNS } from '../synced-columns.ts';
import type { SqlValue } from './driver.ts';
import { quoted } from './identifiers.ts';

const SQL_TYPES: Readonly<Record<ColumnType, string>> = {
  string: 'TEXT',
  json: 'TEXT',
  blob_ref: 'TEXT',
  integer: 'INTEGER',
  boolean: 'INTEGER',
  float: 'REAL',
  bytes: 'BLOB',
  crdt: 'BLOB',
};

export function sqlType(column: Pick<CompiledColumn, 'type'>): string {
  return SQL_TYPES[column.type];
}

/**
 * A rowid table: rows are wide, and their ids random (see `migrations.ts`). What is read without the payload comes first;
 * a long payload continues on pages of its own.
 */
export function createTableSql(table: CompiledTable): string {
  const columns = materializedColumns(table).map(
    (column) => `${quoted(column.name)} ${sqlType(column)}${column.nullable ? '' : ' NOT NULL'},\n  `,
  );
  return `CREATE TABLE ${quoted(table.name)} (
  _sync_partition TEXT NOT NULL,
  _sync_row_id TEXT NOT NULL,
  _sync_server_version INTEGER NOT NULL,
  _sync_scopes TEXT NOT NULL,
  ${columns.join('')}_sync_payload BLOB NOT NULL,
  PRIMARY KEY (_sync_partition, _sync_row_id)
) STRICT`;
}

/** Parameters: partition, row id, server version, scopes, payload, then `sqlValues`. */
export function upsertSql(table: CompiledTable): string {
  const names = [...OWN_COLUMNS, ...materializedColumns(table).map(({ name }) => quoted(name))];
  const updates = names.slice(2).map((name) => `${name} = excluded.${name}`);
  return `INSERT INTO ${quoted(table.name)} (${names.join(', ')}) VALUES (${names.map(() => '?').join(', ')})
    ON CONFLICT (_sync_partition, _sync_row_id) DO UPDATE SET ${updates.join(', ')}`;
}

export function sqlValues(table: CompiledTable, values: readonly ColumnValue[]): readonly SqlValue[] {
  return table.materialize ? values.map(sqlValue) : [];
}

function sqlValue(value: ColumnValue): SqlValue {
  return typeof value === 'boolean' ? Number(value) : value;
}
