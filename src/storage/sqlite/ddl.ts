/** Additive DDL for synced tables: nothing that holds data is ever dropped (part 6 rule 3). */
import { foldIdentifier } from '../../protocol/identifiers.ts';
import type { CompiledTable } from '../../protocol/schema.ts';
import type { TableLayout } from '../../protocol/schema-layout.ts';
import { StorageError } from '../storage-error.ts';
import type { DeclaredIndex } from '../stored-schema.ts';
import { holdsColumn, isOwnColumn, materializedColumns } from '../synced-columns.ts';
import type { SqliteConnection } from './driver.ts';
import { quoted } from './identifiers.ts';
import { toRowError } from './sqlite-errors.ts';
import { createTableSql, sqlType } from './typed-table.ts';

export function createTable(connection: SqliteConnection, table: CompiledTable): void {
  const taken = connection.get(
    `SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name = ? COLLATE NOCASE`,
    [table.name],
  );
  if (taken !== undefined) {
    throw new StorageError(
      'sync.storage.schema_changed',
      `table ${table.name} cannot be created: the database already has a table or view ${taken[0]} that is not ` +
        'of this schema; rename one of them',
    );
  }
  connection.exec(createTableSql(table));
}

interface ExistingColumn {
  readonly name: string;
  readonly notNull: boolean;
}

/**
 * Adds what is missing, as nullable columns. A column that the schema no longer has stays, but no longer demands a value.
 * One that comes back, or changed its type while the table was empty, gets a fresh column; the old one is renamed.
 */
export function growTable(connection: SqliteConnection, table: CompiledTable, from: TableLayout): void {
  const name = quoted(table.name);
  const kept = new Set<string>();
  const wanted = materializedColumns(table);
  for (const column of wanted) {
    const existing = readColumns(connection, table.name).find(
      (candidate) => foldIdentifier(candidate.name) === foldIdentifier(column.name),
    );
    if (existing !== undefined && existing.name === column.name && holdsColumn(from, column)) {
      kept.add(existing.name);
      if (existing.notNull && column.nullable) allowNull(connection, table.name, existing.name);
      continue;
    }
    if (existing !== undefined) setAside(connection, table.name, existing.name);
    connection.exec(`ALTER TABLE ${name} ADD COLUMN ${quoted(column.name)} ${sqlType(column)}`);
    kept.add(column.name);
  }
  for (const column of readColumns(connection, table.name)) {
    if (column.notNull && !kept.has(column.name) && !isOwnColumn(column.name)) {
      allowNull(connection, table.name, column.name);
    }
  }
}

function readColumns(connection: SqliteConnection, table: string): readonly ExistingColumn[] {
  const rows = connection.all('SELECT name, "notnull" FROM pragma_table_info(?)', [table]);
  return rows.map(([name, notNull]) => ({ name: name as string, notNull: notNull !== 0 }));
}

function allowNull(connection: SqliteConnection, table: string, column: string): void {
  connection.exec(`ALTER TABLE ${quoted(table)} ALTER COLUMN ${quoted(column)} DROP NOT NULL`);
}

function setAside(connection: SqliteConnection, table: string, column: string): void {
  const taken = new Set(readColumns(connection, table).map(({ name }) => foldIdentifier(name)));
  let nth = 1;
  while (taken.has(foldIdentifier(`_sync_retired_${nth}_${column}`))) nth++;
  connection.exec(
    `ALTER TABLE ${quoted(table)} RENAME COLUMN ${quoted(column)} TO ${quoted(`_sync_retired_${nth}_${column}`)}`,
  );
}

/** Indexes that others made are left alone. */
export function dropIndexes(connection: SqliteConnection, indexes: readonly DeclaredIndex[]): void {
  for (const { name } of indexes) connection.exec(`DROP INDEX IF EXISTS ${quoted(name)}`);
}

export function createIndexes(connection: SqliteConnection, indexes: readonly DeclaredIndex[]): void {
  for (const index of indexes) createIndex(connection, index);
}

function createIndex(connection: SqliteConnection, index: DeclaredIndex): void {
  const columns = ['_sync_partition', ...index.columns.map(quoted)].join(', ');
  const kind = index.unique ? 'UNIQUE INDEX' : 'INDEX';
  try {
    connection.exec(`CREATE ${kind} ${quoted(index.name)} ON ${quoted(index.table)} (${columns})`);
  } catch (error) {
    const failure = toRowError(error);
    if (failure.code !== 'sync.storage.constraint') throw failure;
    throw new StorageError(
      'sync.storage.schema_changed',
      `index ${index.name} of table ${index.table} cannot be unique: rows that exist share its values; ` +
        'change those rows first, or declare it without unique',
      { cause: error },
    );
  }
}
