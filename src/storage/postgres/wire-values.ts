/**
 * Values on their way to and from PostgreSQL. Arrays leave in the binary format, which needs no escaping and holds every
 * byte; results come as text and are read strictly, so that no 64-bit integer is ever rounded (guarantee 6).
 */
import { StorageError } from '../storage-error.ts';

/** A bound parameter: text format for a string, binary for a Buffer. */
export type Param = string | Buffer | null;
/** One result column. */
export type Field = string | null;
/** In the order of the select list. */
export type ResultRow = readonly Field[];

/** Object ids of built-in types, the same on every server. */
const OIDS = { bool: 16, bytea: 17, int8: 20, text: 25, jsonb: 3802, float8: 701 } as const;
export type ArrayType = keyof typeof OIDS;

/** What an array element may be; what does not fit its type is a `TypeError`. */
export type Element = null | string | number | boolean | Uint8Array;

interface ElementCodec {
  /** Bytes of the value; throws `TypeError` for a value of another type. */
  readonly size: (value: Element) => number;
  readonly write: (target: Buffer, at: number, value: never) => void;
}

const CODECS: Readonly<Record<ArrayType, ElementCodec>> = {
  text: {
    size: (value) => (typeof value === 'string' ? Buffer.byteLength(value) : misfit('text')),
    write: (target, at, value: string) => void target.write(value, at),
  },
  jsonb: {
    size: (value) => (typeof value === 'string' ? Buffer.byteLength(value) + 1 : misfit('jsonb')),
    write: (target, at, value: string) => {
      target[at] = JSONB_FORMAT;
      target.write(value, at + 1);
    },
  },
  bytea: {
    size: (value) => (value instanceof Uint8Array ? value.length : misfit('bytea')),
    write: (target, at, value: Uint8Array) => target.set(value, at),
  },
  int8: {
    size: (value) => (Number.isSafeInteger(value) ? 8 : misfit('int8')),
    write: writeInt8,
  },
  float8: {
    size: (value) => (typeof value === 'number' ? 8 : misfit('float8')),
    write: (target, at, value: number) => void target.writeDoubleBE(value, at),
  },
  bool: {
    size: (value) => (typeof value === 'boolean' ? 1 : misfit('bool')),
    write: (target, at, value: boolean) => {
      target[at] = value ? 1 : 0;
    },
  },
};

const JSONB_FORMAT = 1;
const WORD = 2 ** 32;

function misfit(type: ArrayType): never {
  throw new TypeError(`a value is not of the type ${type}`);
}

/** Two words instead of a BigInt; exact for safe integers of either sign. */
function writeInt8(target: Buffer, at: number, value: number): void {
  const high = Math.floor(value / WORD);
  target.writeInt32BE(high, at);
  target.writeUInt32BE(value - high * WORD, at + 4);
}

const HEADER_BYTES = 20;
const LENGTH_BYTES = 4;
const NULL_LENGTH = -1;

/** A one-dimensional array in PostgreSQL's binary format. */
export function arrayParam(type: ArrayType, values: readonly Element[]): Buffer {
  const codec = CODECS[type];
  let bytes = HEADER_BYTES;
  const sizes = values.map((value) => {
    const size = value === null ? NULL_LENGTH : codec.size(value);
    bytes += LENGTH_BYTES + Math.max(size, 0);
    return size;
  });
  const target = Buffer.allocUnsafe(bytes);
  target.writeInt32BE(1, 0);
  target.writeInt32BE(sizes.includes(NULL_LENGTH) ? 1 : 0, 4);
  target.writeInt32BE(OIDS[type], 8);
  target.writeInt32BE(values.length, 12);
  target.writeInt32BE(1, 16);
  let at = HEADER_BYTES;
  for (const [index, value] of values.entries()) {
    const size = sizes[index]!;
    target.writeInt32BE(size, at);
    at += LENGTH_BYTES;
    if (size === NULL_LENGTH) continue;
    codec.write(target, at, value as never);
    at += size;
  }
  return target;
}

export function textArray(values: readonly string[]): Buffer {
  return arrayParam('text', values);
}

export function integerArray(values: readonly (number | null)[]): Buffer {
  return arrayParam('int8', values);
}

/** Throws where the column is NULL: the statement promised that it cannot be. */
export function toText(field: Field | undefined): string {
  if (typeof field !== 'string') throw unexpected('a text');
  return field;
}

/** An integer without loss. */
export function toInteger(field: Field | undefined): number {
  const value = Number(toText(field));
  if (!Number.isSafeInteger(value)) throw unexpected('a safe integer');
  return value;
}

const HEX_PREFIX = '\\x';

/** Bytes of their own, as a plain `Uint8Array`: a Buffer's `slice` shares memory. */
export function toBytes(field: Field | undefined): Uint8Array {
  const text = toText(field);
  // `bytea_output = escape` is a setting for servers before 9.0.
  if (!text.startsWith(HEX_PREFIX)) throw unexpected('bytes in hexadecimal digits');
  const bytes = Buffer.from(text.slice(HEX_PREFIX.length), 'hex');
  return new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length);
}

function unexpected(wanted: string): StorageError {
  return new StorageError('sync.storage.failed', `the database gave something else than ${wanted}`);
}
