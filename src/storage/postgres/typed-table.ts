/** How a synced table stands in PostgreSQL: column types, statements, values (part 6 rules 2, 3 and 5). */
import { createHash } from 'node:crypto';
import { IDENTIFIER_BYTES_MAX } from '../../protocol/identifiers.ts';
import type { ColumnType, CompiledColumn, CompiledTable } from '../../protocol/schema.ts';
import { scopesText } from '../scope-json.ts';
import type { RowUpsert } from '../storage.ts';
import { StorageConstraintError } from '../storage-error.ts';
import { materializedColumns, OWN_COLUMNS } from '../synced-columns.ts';
import type { Statement } from './driver.ts';
import { type Names, quoted } from './names.ts';
import { type ArrayType, arrayParam, type Element } from './wire-values.ts';

interface SqlType {
  readonly column: string;
  readonly element: ArrayType;
}

/** The order of bytes, as SQLite has it: the same on every server, and no index depends on the system's locales. */
const TEXT: SqlType = { column: 'text COLLATE "C"', element: 'text' };

const SQL_TYPES: Readonly<Record<ColumnType, SqlType>> = {
  string: TEXT,
  blob_ref: TEXT,
  json: { column: 'jsonb', element: 'jsonb' },
  integer: { column: 'bigint', element: 'int8' },
  float: { column: 'double precision', element: 'float8' },
  boolean: { column: 'boolean', element: 'bool' },
  bytes: { column: 'bytea', element: 'bytea' },
  crdt: { column: 'bytea', element: 'bytea' },
};

const OWN_ELEMENTS: readonly ArrayType[] = ['text', 'int8', 'jsonb', 'bytea'];

export function sqlType(column: Pick<CompiledColumn, 'type'>): string {
  return SQL_TYPES[column.type].column;
}

export function createTableSql(names: Names, table: CompiledTable): string {
  const columns = materializedColumns(table).map(
    (column) => `${quoted(column.name)} ${sqlType(column)}${column.nullable ? '' : ' NOT NULL'},\n  `,
  );
  return `CREATE TABLE ${names.qualified(table.name)} (
  _sync_partition text COLLATE "C" NOT NULL,
  _sync_row_id text COLLATE "C" NOT NULL,
  _sync_server_version bigint NOT NULL,
  _sync_scopes jsonb NOT NULL,
  ${columns.join('')}_sync_payload bytea NOT NULL,
  CONSTRAINT ${quoted(primaryKeyName(table.name))} PRIMARY KEY (_sync_partition, _sync_row_id)
)`;
}

/** Index names share one space with those of tables, so ours begins as no declared one may. */
function primaryKeyName(table: string): string {
  const name = `_sync_pkey_${table}`;
  if (Buffer.byteLength(name) <= IDENTIFIER_BYTES_MAX) return name;
  return `_sync_pkey_${createHash('sha256').update(table).digest('hex').slice(0, 32)}`;
}

/** One statement for all rows; each column is an array. */
export function upsertRows(
  names: Names,
  { table, partition }: { readonly table: CompiledTable; readonly partition: string },
  rows: readonly RowUpsert[],
): Statement {
  const columns = materializedColumns(table);
  const elements = [...OWN_ELEMENTS, ...columns.map(({ type }) => SQL_TYPES[type].element)];
  const all = [...OWN_COLUMNS, ...columns.map(({ name }) => quoted(name))];
  const arrays = elements.map((element, index) => `$${index + 2}::${element}[]`);
  const aliases = elements.map((_, index) => `c${index}`);
  const updates = all.slice(2).map((name) => `${name} = excluded.${name}`);
  return {
    text: `INSERT INTO ${names.qualified(table.name)} (${all.join(', ')})
      SELECT $1, ${aliases.map((alias) => `u.${alias}`).join(', ')}
      FROM unnest(${arrays.join(', ')}) AS u (${aliases.join(', ')})
      ON CONFLICT (_sync_partition, _sync_row_id) DO UPDATE SET ${updates.join(', ')}`,
    params: [
      partition,
      arrayParam(
        'text',
        rows.map(({ rowId }) => rowId),
      ),
      arrayParam(
        'int8',
        rows.map(({ serverVersion }) => serverVersion),
      ),
      arrayParam(
        'jsonb',
        rows.map(({ scopes }) => scopesText(scopes)),
      ),
      arrayParam(
        'bytea',
        rows.map(({ payload }) => payload),
      ),
      ...columns.map((column, index) =>
        valuesParam(
          SQL_TYPES[column.type].element,
          rows.map(({ values }) => values[index]!),
        ),
      ),
    ],
    fault: 'row',
  };
}

function valuesParam(element: ArrayType, values: readonly Element[]): Buffer {
  try {
    return arrayParam(element, values);
  } catch (error) {
    if (error instanceof TypeError) throw new StorageConstraintError('value', error);
    throw error;
  }
}
