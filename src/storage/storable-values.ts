/**
 * What SQLite and PostgreSQL can both hold. The sync core asks before it writes, so that a value which one of them would
 * refuse or change is a permanent, well-named rejection on both (architecture §5).
 */
import { isWellFormed } from '../protocol/bytes.ts';
import type { ColumnValue, CompiledTable, RowValues } from '../protocol/schema.ts';

export interface Unstorable {
  readonly column: string;
  /** The end of a sentence about the column, without the value. */
  readonly reason: string;
}

/**
 * UTF-8 bytes of a row id or scope value. Together with partition, table and variable they are one key of the row-scope
 * index, and PostgreSQL holds index entries of at most 2,704 bytes.
 */
const KEY_BYTES_MAX = 1_000;
/** Bytes of all columns of one declared index, for the same reason. */
const INDEX_BYTES_MAX = 2_000;
/** PostgreSQL parses `jsonb` recursively and gives up some thousand levels down. */
const JSON_DEPTH_MAX = 1_000;
/** A `jsonb` number is a `numeric`: so many digits before and behind the decimal point. */
const NUMERIC_DIGITS_MAX = 131_072;
const NUMERIC_SCALE_MAX = 16_383;

const NUL = 'holds a NUL character';
const LONE_SURROGATE = 'holds a lone surrogate';

/** The first column whose value cannot be stored, else `null`. `values` are decoded and fit the column types. */
export function findUnstorable(table: CompiledTable, values: RowValues): Unstorable | null {
  for (const [index, column] of table.columns.entries()) {
    const reason = valueFault(column.type, values[index]!);
    if (reason !== null) return { column: column.name, reason };
  }
  return findLongKey(table, values);
}

/** For texts that stand in no column: row ids of deletes, client and commit ids. */
export function isStorableText(text: string): boolean {
  return textFault(text) === null;
}

function valueFault(type: string, value: ColumnValue): string | null {
  if (typeof value === 'string') {
    return textFault(value) ?? (type === 'json' ? jsonFault(value) : null);
  }
  if (typeof value !== 'number') return null;
  if (type === 'integer') return Number.isSafeInteger(value) ? null : 'is not a safe integer';
  // SQLite turns NaN into NULL. Infinities are ordinary values of both.
  return Number.isNaN(value) ? 'is not a number' : null;
}

/** SQLite would store either, PostgreSQL refuses NUL, and no encoder writes a lone surrogate. */
function textFault(text: string): string | null {
  if (text.includes('\0')) return NUL;
  return isWellFormed(text) ? null : LONE_SURROGATE;
}

/** `jsonb` decodes escapes, so an escaped NUL or lone surrogate is as bad as a plain one. */
function jsonFault(text: string): string | null {
  return (text.includes('\\u') ? escapeFault(text) : null) ?? numberFault(text) ?? depthFault(text);
}

const ESCAPE = /\\(?:u([0-9a-fA-F]{4})|[^u])/g;

function escapeFault(text: string): string | null {
  let highEndsAt = -1;
  for (const match of text.matchAll(ESCAPE)) {
    if (highEndsAt !== -1 && match.index !== highEndsAt) return LONE_SURROGATE;
    const unit = match[1] === undefined ? -1 : Number.parseInt(match[1], 16);
    if (unit === 0) return NUL;
    const isLow = unit >= 0xdc00 && unit <= 0xdfff;
    if (isLow !== (highEndsAt !== -1)) return LONE_SURROGATE;
    const isHigh = unit >= 0xd800 && unit <= 0xdbff;
    highEndsAt = isHigh ? match.index + match[0].length : -1;
  }
  return highEndsAt === -1 ? null : LONE_SURROGATE;
}

const STRING = /"(?:[^"\\]|\\.)*"/g;
/** Without one of these no number can be out of range; most texts have neither. */
const SUSPICIOUS_NUMBER = /\d[eE][+-]?\d{4}|\d{10000}/;
const NUMBER = /-?(\d+)(?:\.(\d+))?(?:[eE]([+-]?\d+))?/g;

function numberFault(text: string): string | null {
  if (!SUSPICIOUS_NUMBER.test(text)) return null;
  for (const [, whole = '', fraction = '', exponent = '0'] of text.replace(STRING, '').matchAll(NUMBER)) {
    const digitsBefore = whole.length + Number(exponent);
    const digitsBehind = fraction.length - Number(exponent);
    if (digitsBefore > NUMERIC_DIGITS_MAX || digitsBehind > NUMERIC_SCALE_MAX) {
      return 'holds a number out of range';
    }
  }
  return null;
}

function depthFault(text: string): string | null {
  // Each level needs two characters.
  if (text.length <= JSON_DEPTH_MAX * 2) return null;
  let depth = 0;
  let inString = false;
  for (let i = 0; i < text.length; i++) {
    const unit = text.charCodeAt(i);
    if (inString) {
      if (unit === 0x5c) i++;
      else if (unit === 0x22) inString = false;
    } else if (unit === 0x22) inString = true;
    else if (unit === 0x5b || unit === 0x7b) {
      if (++depth > JSON_DEPTH_MAX) return 'is nested too deeply';
    } else if (unit === 0x5d || unit === 0x7d) depth--;
  }
  return null;
}

/** Column positions of everything that becomes part of an index entry. */
interface KeyColumns {
  readonly single: readonly number[];
  readonly indexes: readonly (readonly number[])[];
}

const keyColumns = new WeakMap<CompiledTable, KeyColumns>();

function keyColumnsOf(table: CompiledTable): KeyColumns {
  let known = keyColumns.get(table);
  if (known === undefined) {
    known = {
      single: [...new Set([table.primaryKeyIndex, ...table.scopes.map(({ columnIndex }) => columnIndex)])],
      indexes: table.indexes.map(({ columns }) => columns.map((name) => table.columnIndex.get(name)!)),
    };
    keyColumns.set(table, known);
  }
  return known;
}

function findLongKey(table: CompiledTable, values: RowValues): Unstorable | null {
  const { single, indexes } = keyColumnsOf(table);
  for (const index of single) {
    if (byteLength(values[index]!) > KEY_BYTES_MAX) {
      return tooLong(table, index, `is longer than ${KEY_BYTES_MAX} bytes, too long for a key`);
    }
  }
  for (const columns of indexes) {
    let bytes = 0;
    for (const index of columns) {
      bytes += byteLength(values[index]!);
      if (bytes > INDEX_BYTES_MAX) return tooLong(table, index, 'is too long for an index');
    }
  }
  return null;
}

function tooLong(table: CompiledTable, index: number, reason: string): Unstorable {
  return { column: table.columns[index]!.name, reason };
}

function byteLength(value: ColumnValue): number {
  if (value instanceof Uint8Array) return value.length;
  return typeof value === 'string' ? Buffer.byteLength(value) : 8;
}
