/** Columns, values and rows for property tests, and an encoder of rows that shares no code with `src`. */
import fc from 'fast-check';
import { blobRefText } from '../../src/protocol/blob-ref.ts';
import type { CodecColumn } from '../../src/protocol/row-codec.ts';
import type { ColumnType, ColumnValue } from '../../src/protocol/schema.ts';

export const ALL_TYPES: readonly ColumnType[] = [
  'string',
  'integer',
  'float',
  'boolean',
  'json',
  'bytes',
  'blob_ref',
  'crdt',
];

const text = fc.string({ unit: 'binary', maxLength: 40 });
const hash = fc
  .uint8Array({ minLength: 32, maxLength: 32 })
  .map((bytes) => Buffer.from(bytes).toString('hex'));
const blobRef = fc
  .record(
    { blobId: hash, byteLength: fc.maxSafeNat(), mediaType: text, name: text },
    { requiredKeys: ['blobId', 'byteLength'] },
  )
  .map((ref) => blobRefText({ ...ref, blobId: `sha256:${ref.blobId}` }));

const VALUES: Readonly<Record<ColumnType, fc.Arbitrary<ColumnValue>>> = {
  string: text,
  integer: fc.maxSafeInteger(),
  float: fc.double(),
  boolean: fc.boolean(),
  json: fc.json().map((json) => ` ${json}\n`),
  bytes: fc.uint8Array({ maxLength: 40 }),
  blob_ref: blobRef,
  crdt: fc.uint8Array({ maxLength: 40 }),
};

export function valueFor(column: CodecColumn): fc.Arbitrary<ColumnValue> {
  const value = VALUES[column.type];
  return column.nullable ? fc.option(value, { nil: null }) : value;
}

export const columnsArbitrary: fc.Arbitrary<readonly CodecColumn[]> = fc
  .array(fc.record({ type: fc.constantFrom(...ALL_TYPES), nullable: fc.boolean() }), { maxLength: 20 })
  .map((columns) => columns.map((column, index) => ({ name: `c${index}`, ...column })));

export interface SampleRow {
  readonly columns: readonly CodecColumn[];
  readonly values: readonly ColumnValue[];
}

export const rowArbitrary: fc.Arbitrary<SampleRow> = columnsArbitrary.chain((columns) =>
  fc.tuple(...columns.map(valueFor)).map((values) => ({ columns, values })),
);

function modelValue(type: ColumnType, value: ColumnValue): Buffer {
  if (typeof value === 'boolean') return Buffer.from([value ? 1 : 0]);
  if (typeof value === 'number') {
    const bytes = Buffer.alloc(8);
    if (type === 'float') bytes.writeDoubleLE(value);
    else bytes.writeBigInt64LE(BigInt(value));
    return bytes;
  }
  const content = typeof value === 'string' ? Buffer.from(value, 'utf8') : Buffer.from(value ?? []);
  const length = Buffer.alloc(4);
  length.writeUInt32LE(content.length);
  return Buffer.concat([length, content]);
}

/** Part 1.6, as plainly as it can be written. */
export function modelRow({ columns, values }: SampleRow): Buffer {
  const bitmap = Buffer.alloc(Math.ceil(columns.length / 8));
  const parts: Buffer[] = [bitmap];
  for (const [index, column] of columns.entries()) {
    const value = values[index] ?? null;
    if (value === null) bitmap[Math.floor(index / 8)]! += 2 ** (index % 8);
    else parts.push(modelValue(column.type, value));
  }
  return Buffer.concat(parts);
}

/** A copy that compares by content whether it was a `Buffer` or a plain `Uint8Array`. */
export function plain(values: readonly ColumnValue[]): readonly ColumnValue[] {
  return values.map((value) => (value instanceof Uint8Array ? Uint8Array.from(value) : value));
}
