/** Rows between the wire and the application. */
import { rowFromObject, rowToObject } from '../protocol/named-rows.ts';
import { RowEncodeError, rowCodecOf } from '../protocol/row-codec.ts';
import { rowIdOf } from '../protocol/row-identity.ts';
import type { ColumnValue, CompiledTable, RowValues } from '../protocol/schema.ts';
import { ClientError } from './client-error.ts';
import type { Row } from './replica.ts';

/** Byte values are copied: they must neither pin the message they came in nor change with the caller's buffer. */
function owned(value: ColumnValue): ColumnValue {
  return value instanceof Uint8Array ? new Uint8Array(value) : value;
}

export function toRow(table: CompiledTable, values: RowValues): Row {
  return Object.freeze(rowToObject(table, values.map(owned)));
}

/** Throws `sync.invalid_request` for bytes that are no row of the table. */
export function decodeRow(table: CompiledTable, bytes: Uint8Array): Row {
  return toRow(table, rowCodecOf(table).decode(bytes));
}

export interface EncodedRow {
  readonly rowId: string;
  readonly row: Row;
  readonly payload: Uint8Array;
}

/** A member that is missing is NULL. Throws `client.invalid_mutation`, which names the column and the fault. */
export function encodeRow(
  table: CompiledTable,
  record: Readonly<Record<string, ColumnValue | undefined>>,
): EncodedRow {
  try {
    const values = rowFromObject(table, record);
    const payload = rowCodecOf(table).encode(values);
    const rowId = rowIdOf(table, values);
    if (rowId === '') throw new RowEncodeError(table.primaryKey, 'must not be empty');
    return { rowId, row: toRow(table, values), payload };
  } catch (cause) {
    if (!(cause instanceof RowEncodeError)) throw cause;
    throw new ClientError('client.invalid_mutation', `table ${table.name}: ${cause.message}`, { cause });
  }
}
