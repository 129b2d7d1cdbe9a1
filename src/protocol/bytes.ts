/**
 * Canonical little-endian reader and writer (part 1.1). The reader refuses what the primitive table refuses and
 * never reserves memory that the bytes at hand do not justify; the writer produces the one byte sequence of a value.
 */
import { SyncError } from './errors.ts';
import { isJsonText } from './json-text.ts';
import { MapEntries } from './map-entries.ts';
import { SLAB_PIECE_BYTES_MAX, Slab } from './slab.ts';
import { decodeUtf8, SHORT_TEXT_BYTES } from './utf8.ts';

const TEXT_ENCODER = new TextEncoder();
/** Above this many UTF-16 units a text is encoded into a buffer of its own rather than into three times its length. */
const LONG_TEXT_UNITS = 16_384;
/** Whoever outgrows a first guess is likely to need much more. */
const GROWN_BYTES_MIN = 4_096;
const TWO_POW_32 = 4_294_967_296;
/** Where a float and its bytes meet; a view per reader would cost more than all else in a small frame. */
const FLOAT_VIEW = new DataView(new ArrayBuffer(8));
const SLAB = new Slab();
const EMPTY_MAP: Readonly<Record<string, never>> = Object.freeze(new MapEntries<never>());

export function decodeError(message: string): SyncError {
  return new SyncError('sync.invalid_request', message);
}

/** A value that has no encoding, or that every reader would refuse: a defect of the caller, never of a peer (part 1.2 rule 7). */
export class EncodeError extends RangeError {
  override readonly name = 'EncodeError';
}

/** Reads primitives from one byte range; throws `sync.invalid_request` for every fault. */
export class ByteReader {
  readonly bytes: Uint8Array;
  offset: number;
  #end: number;

  /** `start` and `end` bound what may be read; sub-ranges share the bytes without a copy. */
  constructor(bytes: Uint8Array, start = 0, end = bytes.length) {
    this.bytes = bytes;
    this.offset = start;
    this.#end = end;
  }

  get end(): number {
    return this.#end;
  }

  get remaining(): number {
    return this.#end - this.offset;
  }

  /** Bounds reading to the next `length` bytes. The answer is the former end, for `leave`. */
  enter(length: number): number {
    const outerEnd = this.#end;
    if (length > outerEnd - this.offset) throw decodeError('a length exceeds the bytes that follow');
    this.#end = this.offset + length;
    return outerEnd;
  }

  leave(outerEnd: number): void {
    this.#end = outerEnd;
  }

  #take(count: number): number {
    const at = this.offset;
    if (count > this.#end - at) throw decodeError('the message ends inside a value');
    this.offset = at + count;
    return at;
  }

  u8(): number {
    return this.bytes[this.#take(1)]!;
  }

  u16(): number {
    const at = this.#take(2);
    return this.bytes[at]! | (this.bytes[at + 1]! << 8);
  }

  u32(): number {
    return this.i32() >>> 0;
  }

  i32(): number {
    const at = this.#take(4);
    const { bytes } = this;
    return bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24);
  }

  i64(): number {
    const low = this.u32();
    const value = this.i32() * TWO_POW_32 + low;
    if (!Number.isSafeInteger(value)) throw decodeError('an i64 lies outside the safe integer range');
    return value;
  }

  f64(): number {
    FLOAT_VIEW.setUint32(0, this.u32(), true);
    FLOAT_VIEW.setUint32(4, this.u32(), true);
    return FLOAT_VIEW.getFloat64(0, true);
  }

  bool(): boolean {
    const byte = this.u8();
    if (byte > 1) throw decodeError('a bool is neither 0 nor 1');
    return byte === 1;
  }

  /** A count of items of at least `itemBytesMin` bytes each, checked against what is left (part 1.1 rule 7). */
  count(itemBytesMin: number): number {
    const count = this.u32();
    if (count * itemBytesMin > this.remaining) throw decodeError('a count exceeds the bytes that follow');
    return count;
  }

  str(): string {
    const length = this.u32();
    const at = this.#take(length);
    return decodeUtf8(this.bytes, at, at + length);
  }

  /** A view of the bytes, not a copy. */
  blob(): Uint8Array {
    return this.raw(this.u32());
  }

  raw(length: number): Uint8Array {
    const at = this.#take(length);
    return this.bytes.subarray(at, at + length);
  }

  /** The verbatim text of one JSON value; refused when it does not parse. */
  json(): string {
    const text = this.str();
    if (!isJsonText(text)) throw decodeError('a json field is not JSON');
    return text;
  }

  opt<T>(read: (reader: ByteReader) => T): T | undefined {
    return this.bool() ? read(this) : undefined;
  }

  /** `map`: keys strictly ascending by UTF-16 code unit, no duplicate. */
  map<T>(itemBytesMin: number, read: (reader: ByteReader) => T): Record<string, T> {
    const count = this.count(4 + itemBytesMin);
    if (count === 0) return EMPTY_MAP;
    const entries = new MapEntries<T>();
    let previous: string | null = null;
    for (let i = 0; i < count; i++) {
      const key = this.str();
      if (previous !== null && !(previous < key)) throw decodeError('map keys are not ascending');
      previous = key;
      entries[key] = read(this);
    }
    return entries;
  }

  expectEnd(what: string): void {
    if (this.offset !== this.#end) throw decodeError(`${what} has bytes left over`);
  }
}

/**
 * Appends primitives to a growing buffer; throws `EncodeError` for a value outside its type. Results are views of a buffer
 * that may hold others' bytes beside them: never hand on their `buffer`.
 */
export class ByteWriter {
  #bytes: Uint8Array;
  /** Bounds of this writer in `#bytes`, and where the next byte goes. */
  #start = 0;
  #at = 0;
  #limit: number;

  constructor(capacityBytes = 256) {
    if (capacityBytes <= SLAB_PIECE_BYTES_MAX) {
      this.#start = SLAB.reserve(capacityBytes);
      this.#at = this.#start;
      this.#limit = this.#start + capacityBytes;
      this.#bytes = SLAB.bytes;
    } else {
      this.#bytes = new Uint8Array(capacityBytes);
      this.#limit = capacityBytes;
    }
  }

  get length(): number {
    return this.#at - this.#start;
  }

  /** Position of `count` new bytes in `#bytes`. */
  #reserve(count: number): number {
    const at = this.#at;
    if (count > this.#limit - at) return this.#grow(count);
    this.#at = at + count;
    return at;
  }

  #grow(count: number): number {
    const { length } = this;
    const grown = new Uint8Array(Math.max(length + count, (this.#limit - this.#start) * 2, GROWN_BYTES_MIN));
    grown.set(this.peek());
    SLAB.trim(this.#bytes, { end: this.#limit, usedEnd: this.#start });
    this.#bytes = grown;
    this.#start = 0;
    this.#at = length + count;
    this.#limit = grown.length;
    return length;
  }

  u8(value: number): void {
    if ((value & 0xff) !== value) throw new EncodeError(`not a u8: ${value}`);
    const at = this.#reserve(1);
    this.#bytes[at] = value;
  }

  u16(value: number): void {
    if ((value & 0xffff) !== value) throw new EncodeError(`not a u16: ${value}`);
    const at = this.#reserve(2);
    this.#bytes[at] = value;
    this.#bytes[at + 1] = value >>> 8;
  }

  u32(value: number): void {
    if (value >>> 0 !== value) throw new EncodeError(`not a u32: ${value}`);
    this.#put32(this.#reserve(4), value);
  }

  i32(value: number): void {
    if ((value | 0) !== value) throw new EncodeError(`not an i32: ${value}`);
    this.#put32(this.#reserve(4), value);
  }

  /** Throws outside ±(2^53−1). */
  i64(value: number): void {
    if (!Number.isSafeInteger(value)) throw new EncodeError(`not a safe integer: ${value}`);
    const high = Math.floor(value / TWO_POW_32);
    const at = this.#reserve(8);
    this.#put32(at, value - high * TWO_POW_32);
    this.#put32(at + 4, high);
  }

  f64(value: number): void {
    FLOAT_VIEW.setFloat64(0, value, true);
    const at = this.#reserve(8);
    this.#put32(at, FLOAT_VIEW.getUint32(0, true));
    this.#put32(at + 4, FLOAT_VIEW.getUint32(4, true));
  }

  /** Little-endian; a byte store keeps the low eight bits by itself. */
  #put32(at: number, value: number): void {
    const bytes = this.#bytes;
    bytes[at] = value;
    bytes[at + 1] = value >>> 8;
    bytes[at + 2] = value >>> 16;
    bytes[at + 3] = value >>> 24;
  }

  bool(value: boolean): void {
    this.u8(value ? 1 : 0);
  }

  /** Lone surrogates have no UTF-8 form and throw rather than turn into U+FFFD. */
  str(text: string): void {
    const lengthAt = this.holeU32();
    if (text.length <= SHORT_TEXT_BYTES && this.#ascii(text)) {
      this.patchU32(lengthAt, text.length);
      return;
    }
    const byteLength = text.length > LONG_TEXT_UNITS ? this.#appendLong(text) : this.#appendInPlace(text);
    // As many bytes as units means ASCII, which needs no look at surrogates.
    if (byteLength !== text.length && !isWellFormed(text)) {
      throw new EncodeError('a string holds a lone surrogate');
    }
    this.patchU32(lengthAt, byteLength);
  }

  #appendInPlace(text: string): number {
    const at = this.#reserve(text.length * 3);
    const { written } = TEXT_ENCODER.encodeInto(text, this.#bytes.subarray(at, this.#at));
    this.#at = at + written;
    return written;
  }

  #appendLong(text: string): number {
    const bytes = TEXT_ENCODER.encode(text);
    this.raw(bytes);
    return bytes.length;
  }

  /** The verbatim text of one JSON value. */
  json(text: string): void {
    if (!isJsonText(text)) throw new EncodeError('a json field is not JSON');
    this.str(text);
  }

  #ascii(text: string): boolean {
    const at = this.#reserve(text.length);
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      if (unit > 0x7f) {
        this.#at = at;
        return false;
      }
      this.#bytes[at + i] = unit;
    }
    return true;
  }

  blob(bytes: Uint8Array): void {
    this.u32(bytes.length);
    this.raw(bytes);
  }

  raw(bytes: Uint8Array): void {
    const at = this.#reserve(bytes.length);
    this.#bytes.set(bytes, at);
  }

  opt<T>(value: T | undefined, write: (writer: ByteWriter, value: T) => void): void {
    this.bool(value !== undefined);
    if (value !== undefined) write(this, value);
  }

  /** Keys leave in ascending UTF-16 order whatever the order of the object. */
  map<T>(entries: Readonly<Record<string, T>>, write: (writer: ByteWriter, value: T) => void): void {
    const keys = Object.keys(entries);
    if (keys.length > 1) keys.sort(compareUtf16);
    this.u32(keys.length);
    for (const key of keys) {
      this.str(key);
      write(this, entries[key]!);
    }
  }

  /** Reserves a `u32` and returns its position for `patchU32`. */
  holeU32(): number {
    return this.#reserve(4) - this.#start;
  }

  patchU32(position: number, value: number): void {
    this.#put32(this.#start + position, value);
  }

  /** Takes back everything behind `length`; never what `finish` handed out. */
  truncate(length: number): void {
    if (length > this.length) throw new RangeError('cannot truncate to more than was written');
    this.#at = this.#start + length;
  }

  /** A view of the bytes so far, good until the next write. */
  peek(): Uint8Array {
    return this.#bytes.subarray(this.#start, this.#at);
  }

  /** The bytes written, in memory of exactly their size: for what is kept, since `finish` may pin a whole block. */
  finishExact(): Uint8Array {
    const exact = this.peek().slice();
    SLAB.trim(this.#bytes, { end: this.#limit, usedEnd: this.#start });
    this.#limit = this.#at;
    return exact;
  }

  /** The bytes written, for good: whatever is written afterwards goes elsewhere. */
  finish(): Uint8Array {
    SLAB.trim(this.#bytes, { end: this.#limit, usedEnd: this.#at });
    this.#limit = this.#at;
    return this.peek();
  }
}

/** JavaScript's `<` on strings as a comparator; `Array.sort` without one does the same but hides the rule. */
export function compareUtf16(a: string, b: string): number {
  return a < b ? -1 : a > b ? 1 : 0;
}

const SURROGATE = /[\uD800-\uDFFF]/u;

/** True when the text has no lone surrogate. With the `u` flag a paired surrogate is one code point and never matches. */
export function isWellFormed(text: string): boolean {
  return !SURROGATE.test(text);
}
