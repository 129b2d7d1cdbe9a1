/** Rows as maps of column name → value (§5.3), to and from row-codec bytes. The row codec judges every value. */
import { RowEncodeError, rowCodecOf } from '../row-codec.ts';
import type { ColumnType, ColumnValue, CompiledTable, RowValues } from '../schema.ts';
import { IntegralFloat, isMap, type MsgpackMap, type MsgpackValue } from './value.ts';
import { MsgpackWriter } from './writer.ts';

/** What a row needs to be written; a table and a segment's column table both satisfy it. */
export interface NamedColumns {
  readonly columns: readonly {
    readonly name: string;
    readonly type: ColumnType;
    readonly nullable: boolean;
  }[];
}

/** Encoded column names by column list. */
const encodedNames = new WeakMap<NamedColumns['columns'], readonly Uint8Array[]>();

function namesOf({ columns }: NamedColumns): readonly Uint8Array[] {
  let names = encodedNames.get(columns);
  if (names === undefined) {
    names = columns.map(({ name }) => {
      const writer = new MsgpackWriter(name.length + 5);
      writer.str(name);
      return writer.finish();
    });
    encodedNames.set(columns, names);
  }
  return names;
}

/** Throws `sync.invalid_request` for bytes that are no row of the table; nothing is written then. */
export function writeRow(writer: MsgpackWriter, table: NamedColumns, row: Uint8Array): void {
  writeValues(writer, table, rowCodecOf(table).decode(row));
}

/** Every column is written; NULL is nil. */
export function writeValues(writer: MsgpackWriter, table: NamedColumns, values: RowValues): void {
  const { columns } = table;
  const names = namesOf(table);
  writer.map(columns.length);
  for (let i = 0; i < columns.length; i++) {
    writer.raw(names[i]!);
    writeValue(writer, values[i]!, columns[i]!.type);
  }
}

function writeValue(writer: MsgpackWriter, value: ColumnValue, type: ColumnType): void {
  if (value === null) writer.nil();
  else if (typeof value === 'string') writer.str(value);
  else if (typeof value === 'boolean') writer.bool(value);
  else if (typeof value !== 'number') writer.bin(value);
  else if (type === 'float') writer.float(value);
  else writer.int(value);
}

/**
 * The row-codec bytes of a map. A missing column and nil are NULL. Throws `RowEncodeError` for everything that no row of the
 * table can hold; its message names columns of the table, never what was sent.
 */
export function encodeRow(table: CompiledTable, row: MsgpackMap): Uint8Array {
  return rowCodecOf(table).encode(valuesOf(table, row));
}

/** Values in column order, not judged by the codec yet. Throws `RowEncodeError`. */
export function valuesOf(table: CompiledTable, row: MsgpackMap): ColumnValue[] {
  const values = new Array<ColumnValue>(table.columns.length).fill(null);
  for (const name in row) {
    const index = table.columnIndex.get(name);
    if (index === undefined) throw new RowEncodeError(null, 'a row has a column that is not in the table');
    values[index] = columnValue(row[name]!, table.columns[index]!);
  }
  return values;
}

function columnValue(value: MsgpackValue, column: CompiledTable['columns'][number]): ColumnValue {
  if (value instanceof IntegralFloat) {
    if (column.type === 'float') return value.value;
    throw new RowEncodeError(column.name, 'needs no float');
  }
  if (typeof value === 'bigint') throw new RowEncodeError(column.name, 'is beyond the safe integers');
  if (Array.isArray(value) || isMap(value)) throw new RowEncodeError(column.name, 'needs a single value');
  return value as ColumnValue;
}
