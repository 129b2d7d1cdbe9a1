/** Appends MessagePack values to one growing buffer: the shortest form of each, integers as ints, floats as 64 bits (§5.3). */
import { EncodeError, isWellFormed } from '../bytes.ts';
import { SHORT_TEXT_BYTES } from '../utf8.ts';

const CAPACITY_BYTES = 1_024;
const UTF8 = new TextEncoder();
const U32 = 0x1_0000_0000;

export class MsgpackWriter {
  #bytes: Uint8Array;
  #view: DataView;
  #length = 0;

  constructor(capacityBytes = CAPACITY_BYTES) {
    this.#bytes = new Uint8Array(capacityBytes);
    this.#view = new DataView(this.#bytes.buffer);
  }

  get lengthBytes(): number {
    return this.#length;
  }

  nil(): void {
    this.#u8(0xc0);
  }

  bool(value: boolean): void {
    this.#u8(value ? 0xc3 : 0xc2);
  }

  /** Throws `EncodeError` outside ±(2^53−1). */
  int(value: number): void {
    if (!Number.isSafeInteger(value)) throw new EncodeError('a number is not a safe integer');
    if (value < 0) this.#negative(value);
    else if (value <= 0x7f) this.#u8(value);
    else if (value <= 0xff) this.#sized(0xcc, 1, value);
    else if (value <= 0xffff) this.#sized(0xcd, 2, value);
    else if (value < U32) this.#sized(0xce, 4, value);
    else this.#wide(0xcf, value);
  }

  #negative(value: number): void {
    if (value >= -0x20) this.#u8(value + 0x100);
    else if (value >= -0x80) this.#sized(0xd0, 1, value + 0x100);
    else if (value >= -0x8000) this.#sized(0xd1, 2, value + 0x1_0000);
    else if (value >= -0x8000_0000) this.#sized(0xd2, 4, value + U32);
    else this.#wide(0xd3, value);
  }

  /** A whole number stays a float, and −0 stays −0. */
  float(value: number): void {
    const at = this.#reserve(9);
    this.#bytes[at] = 0xcb;
    this.#view.setFloat64(at + 1, value);
  }

  /** Throws `EncodeError` for a lone surrogate. */
  str(text: string): void {
    if (text.length <= SHORT_TEXT_BYTES && this.#shortAscii(text)) return;
    if (!isWellFormed(text)) throw new EncodeError('a string holds a lone surrogate');
    const bytes = UTF8.encode(text);
    const { length } = bytes;
    if (length <= 0x1f) this.#u8(0xa0 | length);
    else if (length <= 0xff) this.#sized(0xd9, 1, length);
    else this.#sized(length <= 0xffff ? 0xda : 0xdb, length <= 0xffff ? 2 : 4, length);
    this.raw(bytes);
  }

  bin(bytes: Uint8Array): void {
    const { length } = bytes;
    if (length <= 0xff) this.#sized(0xc4, 1, length);
    else this.#sized(length <= 0xffff ? 0xc5 : 0xc6, length <= 0xffff ? 2 : 4, length);
    this.raw(bytes);
  }

  /** `count` values follow. */
  array(count: number): void {
    if (count <= 0x0f) this.#u8(0x90 | count);
    else this.#sized(count <= 0xffff ? 0xdc : 0xdd, count <= 0xffff ? 2 : 4, count);
  }

  /** `count` pairs of key and value follow. */
  map(count: number): void {
    if (count <= 0x0f) this.#u8(0x80 | count);
    else this.#sized(count <= 0xffff ? 0xde : 0xdf, count <= 0xffff ? 2 : 4, count);
  }

  /** Values that were encoded before. */
  raw(encoded: Uint8Array): void {
    // The buffer may be another one behind this.
    const at = this.#reserve(encoded.length);
    this.#bytes.set(encoded, at);
  }

  /** Everything written, in memory of its own. */
  finish(): Uint8Array {
    return this.#bytes.slice(0, this.#length);
  }

  /** False, with nothing written, unless all of it is ASCII. */
  #shortAscii(text: string): boolean {
    const at = this.#reserve(text.length + 1);
    this.#bytes[at] = 0xa0 | text.length;
    for (let i = 0; i < text.length; i++) {
      const unit = text.charCodeAt(i);
      if (unit > 0x7f) {
        this.#length = at;
        return false;
      }
      this.#bytes[at + 1 + i] = unit;
    }
    return true;
  }

  #u8(value: number): void {
    const at = this.#reserve(1);
    this.#bytes[at] = value;
  }

  #sized(lead: number, bytes: 1 | 2 | 4, value: number): void {
    const at = this.#reserve(1 + bytes);
    this.#bytes[at] = lead;
    if (bytes === 1) this.#view.setUint8(at + 1, value);
    else if (bytes === 2) this.#view.setUint16(at + 1, value);
    else this.#view.setUint32(at + 1, value);
  }

  #wide(lead: number, value: number): void {
    const at = this.#reserve(9);
    this.#bytes[at] = lead;
    this.#view.setInt32(at + 1, Math.floor(value / U32));
    this.#view.setUint32(at + 5, value >>> 0);
  }

  /** Room for `bytes`; returns where it starts. */
  #reserve(bytes: number): number {
    const at = this.#length;
    const length = at + bytes;
    if (length > this.#bytes.length) this.#grow(length);
    this.#length = length;
    return at;
  }

  #grow(length: number): void {
    const grown = new Uint8Array(Math.max(length, this.#bytes.length * 2));
    grown.set(this.#bytes.subarray(0, this.#length));
    this.#bytes = grown;
    this.#view = new DataView(grown.buffer);
  }
}
