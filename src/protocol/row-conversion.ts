/** Carries stored rows from one column layout to the next without decoding their values. */
import { ByteWriter } from './bytes.ts';
import { type CodecColumn, compileRowCodec, type RowCodec } from './row-codec.ts';

export type RowConversion =
  /** Both layouts give the same bytes. */
  | { readonly kind: 'identical' }
  /** `convert` throws `sync.invalid_request` for bytes that are no row of the old layout. */
  | { readonly kind: 'convert'; readonly convert: (row: Uint8Array) => Uint8Array }
  /** No byte-exact conversion exists; one sentence per column, without values. */
  | { readonly kind: 'impossible'; readonly problems: readonly string[] };

/**
 * Columns keep their bytes by name. New columns must be nullable and become NULL, missing ones are dropped, and no column
 * may change its type or stop being nullable: rows that already exist could not follow.
 */
export function planRowConversion(layouts: {
  readonly from: readonly CodecColumn[];
  readonly to: readonly CodecColumn[];
}): RowConversion {
  const { from, to } = layouts;
  const sources = to.map((column) => from.findIndex(({ name }) => name === column.name));
  const problems = to.flatMap((column, index) => columnProblem(from[sources[index]!], column) ?? []);
  if (problems.length > 0) return { kind: 'impossible', problems };
  if (from.length === to.length && sources.every((source, index) => source === index)) {
    return { kind: 'identical' };
  }
  const codec = compileRowCodec(from);
  return { kind: 'convert', convert: (row) => convertRow(row, codec, sources) };
}

function columnProblem(from: CodecColumn | undefined, to: CodecColumn): string | null {
  if (from === undefined) return to.nullable ? null : `new column ${to.name} must be nullable`;
  if (from.type !== to.type) return `column ${to.name} cannot change from ${from.type} to ${to.type}`;
  if (from.nullable && !to.nullable) return `column ${to.name} must stay nullable`;
  return null;
}

function convertRow(row: Uint8Array, from: RowCodec, sources: readonly number[]): Uint8Array {
  const starts = from.columnStarts(row);
  const writer = new ByteWriter(row.length + 8);
  const bitmap = new Uint8Array((sources.length + 7) >> 3);
  for (const [index, source] of sources.entries()) {
    if (source === -1 || starts[source] === starts[source + 1]) bitmap[index >> 3]! |= 1 << (index & 7);
  }
  writer.raw(bitmap);
  for (const source of sources) {
    if (source !== -1) writer.raw(row.subarray(starts[source], starts[source + 1]));
  }
  return writer.finishExact();
}
