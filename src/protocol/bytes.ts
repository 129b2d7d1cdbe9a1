/**
 * Canonical little-endian reader and writer (part 1.1). The reader refuses what the primitive table refuses and
 * never reserves memory that the bytes at hand do not justify; the writer produces the one byte sequence of a value.
 */
import { SyncError } from './errors.ts';
import { isJsonText } from './json-text.ts';

const TEXT_DECODER = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const TEXT_ENCODER = new TextEncoder();
/** Up to this many bytes an ASCII text is cheaper to decode and encode by hand (measured, Node 20). */
const SHORT_TEXT_BYTES = 28;
/** Above this many UTF-16 units a text is encoded into a buffer of its own rather than into three times its length. */
const LONG_TEXT_UNITS = 16_384;
const TWO_POW_32 = 4_294_967_296;
const EMPTY_MAP: Readonly<Record<string, never>> = Object.freeze(Object.create(null));

export function decodeError(message: string): SyncError {
  return new SyncError('sync.invalid_request', message);
}

/** A value that has no encoding, or that every reader would refuse: a defect of the caller, never of a peer (part 1.2 rule 7). */
export class EncodeError extends RangeError {
  override readonly name = 'EncodeError';
}

/** Four units per step: each `fromCharCode` makes a string, and those are what costs. */
function decodeUtf8(bytes: Uint8Array, start: number, end: number): string {
  if (end - start > SHORT_TEXT_BYTES) return decodeLongUtf8(bytes.subarray(start, end));
  let text = '';
  let at = start;
  for (; at + 4 <= end; at += 4) {
    const a = bytes[at]!;
    const b = bytes[at + 1]!;
    const c = bytes[at + 2]!;
    const d = bytes[at + 3]!;
    if ((a | b | c | d) > 0x7f) return decodeLongUtf8(bytes.subarray(start, end));
    text += String.fromCharCode(a, b, c, d);
  }
  for (; at < end; at++) {
    const byte = bytes[at]!;
    if (byte > 0x7f) return decodeLongUtf8(bytes.subarray(start, end));
    text += String.fromCharCode(byte);
  }
  return text;
}

function decodeLongUtf8(bytes: Uint8Array): string {
  try {
    return TEXT_DECODER.decode(bytes);
  } catch (cause) {
    throw new SyncError('sync.invalid_request', 'a string is not well-formed UTF-8', { cause });
  }
}

/** Reads primitives from one byte range; throws `sync.invalid_request` for every fault. */
export class ByteReader {
  readonly bytes: Uint8Array;
  readonly #view: DataView;
  offset: number;
  #end: number;

  /** `start` and `end` bound what may be read; sub-ranges share the bytes without a copy. */
  constructor(bytes: Uint8Array, start = 0, end = bytes.length) {
    this.bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
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
    return this.#view.getUint8(this.#take(1));
  }

  u16(): number {
    return this.#view.getUint16(this.#take(2), true);
  }

  u32(): number {
    return this.#view.getUint32(this.#take(4), true);
  }

  i32(): number {
    return this.#view.getInt32(this.#take(4), true);
  }

  i64(): number {
    const at = this.#take(8);
    const value = this.#view.getInt32(at + 4, true) * TWO_POW_32 + this.#view.getUint32(at, true);
    if (!Number.isSafeInteger(value)) throw decodeError('an i64 lies outside the safe integer range');
    return value;
  }

  f64(): number {
    return this.#view.getFloat64(this.#take(8), true);
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
    const entries: Record<string, T> = Object.create(null);
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
 * Appends primitives to a growing buffer; throws `EncodeError` for a value outside its type. `finish` hands out a view:
 * the writer must not be used afterwards.
 */
export class ByteWriter {
  #bytes: Uint8Array;
  #view: DataView;
  #length = 0;

  constructor(capacityBytes = 256) {
    this.#bytes = new Uint8Array(capacityBytes);
    this.#view = new DataView(this.#bytes.buffer);
  }

  get length(): number {
    return this.#length;
  }

  #reserve(count: number): number {
    const at = this.#length;
    const needed = at + count;
    if (needed > this.#bytes.length) {
      const grown = new Uint8Array(Math.max(needed, this.#bytes.length * 2));
      grown.set(this.#bytes.subarray(0, at));
      this.#bytes = grown;
      this.#view = new DataView(grown.buffer);
    }
    this.#length = needed;
    return at;
  }

  u8(value: number): void {
    if ((value & 0xff) !== value) throw new EncodeError(`not a u8: ${value}`);
    const at = this.#reserve(1);
    this.#bytes[at] = value;
  }

  u16(value: number): void {
    if ((value & 0xffff) !== value) throw new EncodeError(`not a u16: ${value}`);
    const at = this.#reserve(2);
    this.#view.setUint16(at, value, true);
  }

  u32(value: number): void {
    if (value >>> 0 !== value) throw new EncodeError(`not a u32: ${value}`);
    const at = this.#reserve(4);
    this.#view.setUint32(at, value, true);
  }

  i32(value: number): void {
    if ((value | 0) !== value) throw new EncodeError(`not an i32: ${value}`);
    const at = this.#reserve(4);
    this.#view.setInt32(at, value, true);
  }

  /** Throws outside ±(2^53−1). */
  i64(value: number): void {
    if (!Number.isSafeInteger(value)) throw new EncodeError(`not a safe integer: ${value}`);
    const high = Math.floor(value / TWO_POW_32);
    const at = this.#reserve(8);
    this.#view.setUint32(at, value - high * TWO_POW_32, true);
    this.#view.setInt32(at + 4, high, true);
  }

  f64(value: number): void {
    const at = this.#reserve(8);
    this.#view.setFloat64(at, value, true);
  }

  bool(value: boolean): void {
    this.u8(value ? 1 : 0);
  }

  /** Lone surrogates have no UTF-8 form and throw rather than turn into U+FFFD. */
  str(text: string): void {
    const lengthAt = this.#reserve(4);
    if (text.length <= SHORT_TEXT_BYTES && this.#ascii(text)) {
      this.#view.setUint32(lengthAt, text.length, true);
      return;
    }
    const byteLength = text.length > LONG_TEXT_UNITS ? this.#appendLong(text) : this.#appendInPlace(text);
    // As many bytes as units means ASCII, which needs no look at surrogates.
    if (byteLength !== text.length && !isWellFormed(text))
      throw new EncodeError('a string holds a lone surrogate');
    this.#view.setUint32(lengthAt, byteLength, true);
  }

  #appendInPlace(text: string): number {
    const at = this.#reserve(text.length * 3);
    const { written } = TEXT_ENCODER.encodeInto(text, this.#bytes.subarray(at));
    this.#length = at + written;
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
        this.#length = at;
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
    return this.#reserve(4);
  }

  patchU32(at: number, value: number): void {
    this.#view.setUint32(at, value, true);
  }

  /** A view of the bytes so far, good until the next write. */
  peek(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }

  /** The bytes written so far, as a view of the writer's buffer. */
  finish(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
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
