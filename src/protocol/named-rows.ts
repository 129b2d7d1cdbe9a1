/** Rows as objects of column name → value, for host callbacks and dialects that name their columns. */
import { RowEncodeError } from './row-codec.ts';
import type { ColumnValue, CompiledTable, RowValues } from './schema.ts';

/**
 * Values in column order. A missing or `undefined` member is NULL; the codec judges types and nullability. Throws
 * `RowEncodeError` for a member that is no column.
 */
export function rowFromObject(
  table: CompiledTable,
  record: Readonly<Record<string, ColumnValue | undefined>>,
): ColumnValue[] {
  const values = new Array<ColumnValue>(table.columns.length).fill(null);
  // Own members only: a column that is not set must not be found on the prototype.
  for (const name of Object.keys(record)) {
    const index = table.columnIndex.get(name);
    if (index === undefined) throw new RowEncodeError(name, 'is not in the table');
    values[index] = record[name] ?? null;
  }
  return values;
}

export function rowToObject(table: CompiledTable, values: RowValues): Record<string, ColumnValue> {
  const record: Record<string, ColumnValue> = {};
  const { columns } = table;
  for (let i = 0; i < columns.length; i++) {
    const { name } = columns[i]!;
    const value = values[i] ?? null;
    // Assigning `__proto__` would set the prototype instead of a member.
    if (name === '__proto__') Object.defineProperty(record, name, { value, enumerable: true });
    else record[name] = value;
  }
  return record;
}
