/**
 * The row codec (§2.4, part 1.6): a null bitmap, then the non-NULL values in the schema's column order. One codec is
 * compiled per column list. Bytes that pass through are never re-encoded, so NaN payloads and `json` spelling survive.
 */
import { parseBlobRef } from './blob-ref.ts';
import { ByteReader, ByteWriter, decodeError, isWellFormed } from './bytes.ts';
import { SyncError } from './errors.ts';
import { isJsonText } from './json-text.ts';
import type { ColumnType, ColumnValue, RowValues } from './schema.ts';

/** What the codec needs to know of a column; `CompiledColumn` and a segment's column table both satisfy it. */
export interface CodecColumn {
  readonly name: string;
  readonly type: ColumnType;
  readonly nullable: boolean;
}

export const COLUMN_TAGS: Readonly<Record<ColumnType, number>> = {
  string: 1,
  integer: 2,
  float: 3,
  boolean: 4,
  json: 5,
  bytes: 6,
  blob_ref: 7,
  crdt: 8,
};

const TYPE_OF_TAG = new Map(Object.entries(COLUMN_TAGS).map(([type, tag]) => [tag, type as ColumnType]));

export function columnTypeOfTag(tag: number): ColumnType | undefined {
  return TYPE_OF_TAG.get(tag);
}

/** A value that has no row-codec form. The message names the column and the fault, never the value. */
export class RowEncodeError extends TypeError {
  override readonly name = 'RowEncodeError';
  /** The column at fault, or `null` when the row as a whole is. */
  readonly column: string | null;

  constructor(column: string | null, fault: string) {
    super(column === null ? fault : `column ${column}: ${fault}`);
    this.column = column;
  }
}

const REPLACEMENT_SPARE_BYTES = 64;

/** One column's new value for `RowCodec.withColumns`. */
export interface ColumnReplacement {
  readonly index: number;
  readonly value: ColumnValue;
}

/** Reads and writes rows of one column list. Every decode fault is a `SyncError` `sync.invalid_request`. */
export class RowCodec {
  readonly columns: readonly CodecColumn[];
  readonly bitmapBytes: number;
  readonly #tags: Uint8Array;
  /** Per bitmap byte the bits that must be 0: columns that are not nullable, and the padding. */
  readonly #forbiddenBits: Uint8Array;

  constructor(columns: readonly CodecColumn[]) {
    this.columns = columns;
    this.bitmapBytes = (columns.length + 7) >> 3;
    this.#tags = Uint8Array.from(columns, (column) => COLUMN_TAGS[column.type]);
    this.#forbiddenBits = new Uint8Array(this.bitmapBytes).fill(0xff);
    for (const [index, column] of columns.entries()) {
      if (column.nullable) this.#forbiddenBits[index >> 3]! &= ~(1 << (index & 7));
    }
  }

  /** Decodes a row that stands alone: bytes missing or left over are faults. */
  decode(bytes: Uint8Array): ColumnValue[] {
    const reader = new ByteReader(bytes);
    const values = this.decodeFrom(reader);
    reader.expectEnd('a row');
    return values;
  }

  /** Decodes the row at the reader's position. `bytes` and `crdt` values are views of the reader's bytes. */
  decodeFrom(reader: ByteReader): ColumnValue[] {
    const bitmapAt = this.#bitmap(reader);
    const { bytes } = reader;
    const tags = this.#tags;
    const values = new Array<ColumnValue>(tags.length);
    for (let i = 0; i < tags.length; i++) {
      const isNull = (bytes[bitmapAt + (i >> 3)]! >> (i & 7)) & 1;
      values[i] = isNull === 1 ? null : readValue(reader, tags[i]!);
    }
    return values;
  }

  /** Everything `decode` checks, without its result. */
  validate(bytes: Uint8Array): void {
    const reader = new ByteReader(bytes);
    this.validateFrom(reader);
    reader.expectEnd('a row');
  }

  validateFrom(reader: ByteReader): void {
    const bitmapAt = this.#bitmap(reader);
    const { bytes } = reader;
    const tags = this.#tags;
    for (let i = 0; i < tags.length; i++) {
      const isNull = (bytes[bitmapAt + (i >> 3)]! >> (i & 7)) & 1;
      if (isNull === 0) readValue(reader, tags[i]!);
    }
  }

  /** Moves behind the row at the reader's position by its lengths alone; contents are not checked. */
  skip(reader: ByteReader): void {
    const start = reader.offset;
    reader.raw(this.#valueAt(reader.bytes.subarray(start, reader.end), this.#tags.length));
  }

  /** One column of a standing-alone row, without decoding the others; only that column's content is checked. */
  readColumn(row: Uint8Array, index: number): ColumnValue {
    if (index >= this.#tags.length) throw new RangeError(`no column ${index}`);
    const at = this.#valueAt(row, index);
    if (this.#isNull(row, index)) return null;
    return readValue(new ByteReader(row, at), this.#tags[index]!);
  }

  /**
   * Where each column of a standing-alone row starts, and after the last one where the row ends. Column `i` is the range
   * from entry `i` to entry `i + 1`, empty exactly when it is NULL.
   */
  columnStarts(row: Uint8Array): Uint32Array {
    const count = this.#tags.length;
    const starts = new Uint32Array(count + 1);
    let at = this.#valueAt(row, 0);
    for (let i = 0; i < count; i++) {
      starts[i] = at;
      if (!this.#isNull(row, i)) at = valueEnd(row, at, this.#tags[i]!);
    }
    if (at !== row.length) throw decodeError('a row has bytes left over');
    starts[count] = at;
    return starts;
  }

  /** A copy of the row with some columns replaced; the bytes of all others are kept as they are. */
  withColumns(row: Uint8Array, replacements: readonly ColumnReplacement[]): Uint8Array {
    const starts = this.columnStarts(row);
    // Not `row.slice`: on a Node Buffer that would be a view, and the caller's row would change.
    const bitmap = Uint8Array.from(row.subarray(0, this.bitmapBytes));
    const byIndex = new Map<number, ColumnValue>();
    for (const { index, value } of replacements) {
      byIndex.set(index, value);
      if (value === null) this.#assertNullable(index);
      const bit = 1 << (index & 7);
      bitmap[index >> 3] = value === null ? bitmap[index >> 3]! | bit : bitmap[index >> 3]! & ~bit;
    }
    const writer = new ByteWriter(row.length + REPLACEMENT_SPARE_BYTES);
    writer.raw(bitmap);
    for (let i = 0; i < this.#tags.length; i++) {
      const value = byIndex.get(i);
      if (value === undefined) writer.raw(row.subarray(starts[i], starts[i + 1]));
      else if (value !== null) this.#writeValue(writer, value, i);
    }
    return writer.finishExact();
  }

  /** Throws `RowEncodeError` for a value that the column cannot hold. The result owns its buffer. */
  encode(values: RowValues): Uint8Array {
    const writer = new ByteWriter();
    this.encodeInto(writer, values);
    return writer.finishExact();
  }

  /** As `encode`, appended to a writer; after a throw the writer holds half a row and must be dropped. */
  encodeInto(writer: ByteWriter, values: RowValues): void {
    const count = this.#tags.length;
    if (values.length !== count) {
      throw new RowEncodeError(null, `a row has ${values.length} values for ${count} columns`);
    }
    for (let first = 0; first < count; first += 8) {
      const end = Math.min(first + 8, count);
      let bits = 0;
      for (let i = first; i < end; i++) if (values[i] === null) bits |= 1 << (i & 7);
      writer.u8(bits);
    }
    for (let i = 0; i < count; i++) {
      const value = values[i] as ColumnValue;
      if (value === null) this.#assertNullable(i);
      else this.#writeValue(writer, value, i);
    }
  }

  /** Checks the bitmap and moves behind it; returns where it starts. */
  #bitmap(reader: ByteReader): number {
    const at = reader.offset;
    reader.raw(this.bitmapBytes);
    for (let i = 0; i < this.bitmapBytes; i++) {
      if ((reader.bytes[at + i]! & this.#forbiddenBits[i]!) !== 0) {
        throw decodeError('a null bitmap marks a column that is not nullable or does not exist');
      }
    }
    return at;
  }

  #isNull(row: Uint8Array, index: number): boolean {
    return ((row[index >> 3]! >> (index & 7)) & 1) === 1;
  }

  /** Where column `index` starts, or where the row ends when it equals the number of columns. */
  #valueAt(row: Uint8Array, index: number): number {
    let at = this.bitmapBytes;
    if (at > row.length) throw decodeError('a row ends inside its null bitmap');
    for (let i = 0; i < index; i++) {
      if (!this.#isNull(row, i)) at = valueEnd(row, at, this.#tags[i]!);
    }
    return at;
  }

  #assertNullable(index: number): void {
    const column = this.columns[index]!;
    if (!column.nullable) throw new RowEncodeError(column.name, 'is not nullable');
  }

  #writeValue(writer: ByteWriter, value: ColumnValue, index: number): void {
    const fault = writeValue(writer, value, this.#tags[index]!);
    if (fault !== null) throw new RowEncodeError(this.columns[index]!.name, fault);
  }
}

export function compileRowCodec(columns: readonly CodecColumn[]): RowCodec {
  return new RowCodec(columns);
}

const codecs = new WeakMap<readonly CodecColumn[], RowCodec>();

/** The codec of a table, compiled once per column list. */
export function rowCodecOf(table: { readonly columns: readonly CodecColumn[] }): RowCodec {
  let codec = codecs.get(table.columns);
  if (codec === undefined) {
    codec = compileRowCodec(table.columns);
    codecs.set(table.columns, codec);
  }
  return codec;
}

function readValue(reader: ByteReader, tag: number): ColumnValue {
  switch (tag) {
    case 1:
      return reader.str();
    case 2:
      return reader.i64();
    case 3:
      return reader.f64();
    case 4:
      return reader.bool();
    case 5:
      return reader.json();
    case 7: {
      const text = reader.str();
      parseBlobRef(text);
      return text;
    }
    default:
      return reader.blob();
  }
}

/** Where the value that starts at `at` ends. */
function valueEnd(row: Uint8Array, at: number, tag: number): number {
  let end: number;
  if (tag === 2 || tag === 3) end = at + 8;
  else if (tag === 4) end = at + 1;
  else {
    // Bytes of the length that lie behind the row count as 0; the check below sees that they are missing.
    const length = (row[at]! | (row[at + 1]! << 8) | (row[at + 2]! << 16) | (row[at + 3]! << 24)) >>> 0;
    end = at + 4 + length;
  }
  if (end > row.length) throw decodeError('a row ends inside a value');
  return end;
}

/** Writes one non-NULL value, or returns why it has no encoding. */
function writeValue(writer: ByteWriter, value: ColumnValue, tag: number): string | null {
  switch (tag) {
    case 1:
      return typeof value === 'string' ? writeText(writer, value) : 'needs a string';
    case 2:
      if (typeof value !== 'number' || !Number.isSafeInteger(value)) return 'needs a safe integer';
      writer.i64(value);
      return null;
    case 3:
      if (typeof value !== 'number') return 'needs a number';
      writer.f64(value);
      return null;
    case 4:
      if (typeof value !== 'boolean') return 'needs a boolean';
      writer.bool(value);
      return null;
    case 5:
    case 7:
      return writeJsonText(writer, value, tag);
    default:
      if (!(value instanceof Uint8Array)) return 'needs bytes';
      writer.blob(value);
      return null;
  }
}

function writeText(writer: ByteWriter, text: string): string | null {
  try {
    writer.str(text);
    return null;
  } catch (failure) {
    if (!isWellFormed(text)) return 'holds a lone surrogate';
    throw failure;
  }
}

function writeJsonText(writer: ByteWriter, value: ColumnValue, tag: number): string | null {
  if (tag === 7) return isBlobRefText(value) ? writeText(writer, value) : 'needs a canonical BlobRef';
  return typeof value === 'string' && isJsonText(value) ? writeText(writer, value) : 'needs JSON text';
}

function isBlobRefText(value: ColumnValue): value is string {
  if (typeof value !== 'string') return false;
  try {
    parseBlobRef(value);
    return true;
  } catch (failure) {
    if (failure instanceof SyncError) return false;
    throw failure;
  }
}
