/** Debug rendering of a rows segment (§11.1, part 1.13 rules 9 and 10); tools and tests only. */
import { toBase64 } from './base64.ts';
import type { JsonObject, JsonValue } from './errors.ts';
import type { CodecColumn } from './row-codec.ts';
import type { ColumnValue } from './schema.ts';
import { decodeSegment, type SegmentRow } from './segment.ts';

/** Throws `sync.invalid_request` for bytes that are no segment. */
export function renderSegment(bytes: Uint8Array): JsonObject {
  const { table, schemaVersion, columns, blocks } = decodeSegment(bytes);
  return {
    magic: 'SSG2',
    formatVersion: 1,
    table,
    schemaVersion,
    columns: columns.map(({ name, type, nullable }) => ({ name, type, nullable })),
    blocks: blocks.map((rows) => rows.map((row) => renderRow(row, columns))),
  };
}

function renderRow({ serverVersion, values }: SegmentRow, columns: readonly CodecColumn[]): JsonObject {
  // `fromEntries` defines own properties, so that a column named `__proto__` is one as well.
  const rendered = Object.fromEntries(
    columns.map((column, index) => [column.name, renderValue(column, values[index]!)]),
  );
  return { serverVersion, values: rendered };
}

function renderValue(column: CodecColumn, value: ColumnValue): JsonValue {
  if (value instanceof Uint8Array) return toBase64(value);
  if (typeof value === 'string' && (column.type === 'json' || column.type === 'blob_ref')) {
    return JSON.parse(value) as JsonValue;
  }
  if (typeof value === 'number' && !Number.isFinite(value)) return null;
  return value;
}
