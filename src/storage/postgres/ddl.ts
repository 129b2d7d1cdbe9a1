/** Additive DDL for synced tables, planned from what the catalog says: nothing that holds data is ever dropped (part 6 rule 3). */
import { createHash } from 'node:crypto';
import { IDENTIFIER_BYTES_MAX } from '../../protocol/identifiers.ts';
import type { CompiledTable } from '../../protocol/schema.ts';
import type { TableLayout } from '../../protocol/schema-layout.ts';
import { StorageError } from '../storage-error.ts';
import type { DeclaredIndex } from '../stored-schema.ts';
import { holdsColumn, isOwnColumn, materializedColumns } from '../synced-columns.ts';
import { type Reader, relationExists } from './migrations.ts';
import { type Names, quoted } from './names.ts';
import { createTableSql, sqlType } from './typed-table.ts';
import { toText } from './wire-values.ts';

export async function createTable(reader: Reader, names: Names, table: CompiledTable): Promise<string> {
  if (await relationExists(reader, names, table.name)) {
    throw new StorageError(
      'sync.storage.schema_changed',
      `table ${table.name} cannot be created: the namespace ${names.namespace} already has a table or view of that ` +
        'name that is not of this schema; rename one of them',
    );
  }
  return createTableSql(names, table);
}

interface ExistingColumn {
  readonly name: string;
  readonly notNull: boolean;
}

/**
 * Adds what is missing, as nullable columns. A column that the schema no longer has stays, but no longer demands a value.
 * One that comes back, or changed its type while the table was empty, gets a fresh column; the old one is renamed.
 */
export async function growTable(
  reader: Reader,
  names: Names,
  { table, from }: { readonly table: CompiledTable; readonly from: TableLayout },
): Promise<readonly string[]> {
  const alter = `ALTER TABLE ${names.qualified(table.name)}`;
  const statements: string[] = [];
  const columns = new Map((await readColumns(reader, names, table.name)).map((c) => [c.name, c]));
  const kept = new Set<string>();
  for (const column of materializedColumns(table)) {
    const existing = columns.get(column.name);
    if (existing !== undefined && holdsColumn(from, column)) {
      kept.add(column.name);
      if (existing.notNull && column.nullable) statements.push(allowNull(alter, column.name));
      continue;
    }
    if (existing !== undefined) {
      const aside = retiredName(column.name, columns);
      statements.push(`${alter} RENAME COLUMN ${quoted(column.name)} TO ${quoted(aside)}`);
      columns.set(aside, { ...existing, name: aside });
    }
    statements.push(`${alter} ADD COLUMN ${quoted(column.name)} ${sqlType(column)}`);
    columns.set(column.name, { name: column.name, notNull: false });
    kept.add(column.name);
  }
  for (const { name, notNull } of columns.values()) {
    if (notNull && !kept.has(name) && !isOwnColumn(name)) statements.push(allowNull(alter, name));
  }
  return statements;
}

async function readColumns(reader: Reader, names: Names, table: string): Promise<readonly ExistingColumn[]> {
  const [found] = await reader.run({
    text: `SELECT a.attname, a.attnotnull::text FROM pg_catalog.pg_attribute AS a
      JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
      WHERE n.nspname = $1 AND c.relname = $2 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`,
    params: [names.namespace, table],
  });
  return (found?.rows ?? []).map((row) => ({ name: toText(row[0]), notNull: row[1] === 'true' }));
}

function allowNull(alter: string, column: string): string {
  return `${alter} ALTER COLUMN ${quoted(column)} DROP NOT NULL`;
}

/** PostgreSQL would cut a long name without asking. */
function retiredName(column: string, columns: ReadonlyMap<string, unknown>): string {
  for (let nth = 1; ; nth++) {
    const prefix = `_sync_retired_${nth}_`;
    const isShort = Buffer.byteLength(prefix + column) <= IDENTIFIER_BYTES_MAX;
    const name = prefix + (isShort ? column : createHash('sha256').update(column).digest('hex').slice(0, 32));
    if (!columns.has(name)) return name;
  }
}

/** Indexes that others made are left alone. */
export function dropIndexSql(names: Names, { name }: DeclaredIndex): string {
  return `DROP INDEX IF EXISTS ${names.qualified(name)}`;
}

export function createIndexSql(names: Names, index: DeclaredIndex): string {
  const columns = ['_sync_partition', ...index.columns.map(quoted)].join(', ');
  const kind = index.unique ? 'UNIQUE INDEX' : 'INDEX';
  return `CREATE ${kind} ${quoted(index.name)} ON ${names.qualified(index.table)} (${columns})`;
}
