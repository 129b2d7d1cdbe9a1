/** How a synced table stands in PostgreSQL: column types, statements, values (part 6 rules 2, 3 and 5). */
import { createHash } from 'node:crypto';
import { IDENTIFIER_BYTES_MAX } from '../../protocol/identifiers.ts';
import type { ColumnType, CompiledColumn, CompiledTable } from '../../protocol/schema.ts';
import { scopesText } from '../scope-json.ts';
import type { RowUpsert } from '../storage.ts';
import { StorageConstraintError } from '../storage-error.ts';
import { materializedColumns, OWN_COLUMNS } from '../synced-columns.ts';
import type { Statement } from './driver.ts';
import type { Presence } from './known-rows.ts';
import { type Names, quoted } from './names.ts';
import {
  type ArrayType,
  arrayParam,
  type Element,
  integerArray,
  type Param,
  textArray,
} from './wire-values.ts';

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

export interface TypedTable {
  readonly names: Names;
  readonly partition: string;
  readonly table: CompiledTable;
}

/**
 * Rows of one table by what is known of them before. Absent and present ones are written by plain statements, which cost the
 * database half of what it takes to be ready for either.
 */
export type RowGroups = { readonly [K in Presence]?: readonly RowUpsert[] };

/** The first one runs first: an update may free a unique value that a new row takes. */
const ORDER: readonly Presence[] = ['present', 'unknown', 'absent'];

/** One statement for all rows, so that references between them are checked when all are there; `null` for none. */
export function writeRows(target: TypedTable, groups: RowGroups): Statement | null {
  const params: Param[] = [target.partition];
  const texts: string[] = [];
  for (const presence of ORDER) {
    const rows = groups[presence] ?? [];
    if (rows.length === 0) continue;
    texts.push(writeSql(target, { presence, paramsBefore: params.length }));
    params.push(...columnParams(target.table, rows));
  }
  const [first, ...others] = texts;
  if (first === undefined) return null;
  // What nobody selects from runs behind the statement that it stands in front of.
  const behind = others.map((text, index) => `w${index} AS (${text})`).join(', ');
  return { text: behind === '' ? first : `WITH ${behind} ${first}`, params, fault: 'row', isFrequent: true };
}

function writeSql(
  { names, table }: TypedTable,
  { presence, paramsBefore }: { readonly presence: Presence; readonly paramsBefore: number },
): string {
  const columns = materializedColumns(table);
  const elements = [...OWN_ELEMENTS, ...columns.map(({ type }) => SQL_TYPES[type].element)];
  const all = [...OWN_COLUMNS, ...columns.map(({ name }) => quoted(name))];
  const arrays = elements.map((element, index) => `$${paramsBefore + index + 1}::${element}[]`).join(', ');
  const aliases = elements.map((_, index) => `c${index}`);
  const given = `unnest(${arrays}) AS u (${aliases.join(', ')})`;
  const target = names.qualified(table.name);
  if (presence === 'present') {
    const changes = all.slice(2).map((name, index) => `${name} = u.c${index + 1}`);
    return `UPDATE ${target} AS stored SET ${changes.join(', ')} FROM ${given}
      WHERE stored._sync_partition = $1 AND stored._sync_row_id = u.c0`;
  }
  const insert = `INSERT INTO ${target} (${all.join(', ')})
    SELECT $1, ${aliases.map((alias) => `u.${alias}`).join(', ')} FROM ${given}`;
  if (presence === 'absent') return insert;
  const changes = all.slice(2).map((name) => `${name} = excluded.${name}`);
  return `${insert}
    ON CONFLICT (_sync_partition, _sync_row_id) DO UPDATE SET ${changes.join(', ')}`;
}

/** Each column as an array, in the order of the texts above. */
function columnParams(table: CompiledTable, rows: readonly RowUpsert[]): readonly Param[] {
  const own = [
    textArray(rows.map(({ rowId }) => rowId)),
    integerArray(rows.map(({ serverVersion }) => serverVersion)),
    arrayParam('jsonb', scopeTexts(rows)),
    arrayParam('bytea', payloads(rows)),
  ];
  const typed = materializedColumns(table).map(({ type }, index) => {
    const values = rows.map((row) => row.values[index]!);
    return valuesParam(SQL_TYPES[type].element, values);
  });
  return [...own, ...typed];
}

function scopeTexts(rows: readonly RowUpsert[]): readonly string[] {
  return rows.map(({ scopes }) => scopesText(scopes));
}

function payloads(rows: readonly RowUpsert[]): readonly Uint8Array[] {
  return rows.map(({ payload }) => payload);
}

function valuesParam(element: ArrayType, values: readonly Element[]): Buffer {
  try {
    return arrayParam(element, values);
  } catch (error) {
    if (error instanceof TypeError) throw new StorageConstraintError('value', error);
    throw error;
  }
}
