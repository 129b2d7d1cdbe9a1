/** MessagePack values in memory. Integers and floats stay apart: an integer field never takes a float (§5.3). */
import { decodeError } from '../bytes.ts';
import { MapEntries } from '../map-entries.ts';
import { decodeUtf8 } from '../utf8.ts';
import type { MsgpackBounds } from './bounds.ts';
import { scanMessage } from './scan.ts';

/** A float whose value is integral; any other float is a plain number, which no integer field takes anyway. */
export class IntegralFloat {
  readonly value: number;

  constructor(value: number) {
    this.value = value;
  }
}

/** No prototype; keys as they were sent. */
export interface MsgpackMap {
  readonly [key: string]: MsgpackValue;
}

export type MsgpackValue =
  | null
  | boolean
  /** An integer within ±(2^53−1), or a float that is not integral. */
  | number
  /** An integer beyond. */
  | bigint
  | IntegralFloat
  | string
  /** A view of the message. */
  | Uint8Array
  | readonly MsgpackValue[]
  | MsgpackMap;

export function isMap(value: MsgpackValue | undefined): value is MsgpackMap {
  return (
    typeof value === 'object' &&
    value !== null &&
    !Array.isArray(value) &&
    !(value instanceof Uint8Array) &&
    !(value instanceof IntegralFloat)
  );
}

/** Scans, then decodes exactly one message. Throws `sync.invalid_request`. */
export function decodeMap(bytes: Uint8Array, bounds: MsgpackBounds): MsgpackMap {
  scanMessage(bytes, bounds);
  // The scan lets through nothing but a map.
  return new ValueReader(bytes).read() as MsgpackMap;
}

/** Reads what the scan has let through: lengths, depth, text and types need no second look. */
class ValueReader {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  #at = 0;

  constructor(bytes: Uint8Array) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** The scan bounds the recursion. */
  read(): MsgpackValue {
    const lead = this.#bytes[this.#at++]!;
    if (lead <= 0x7f) return lead;
    if (lead >= 0xe0) return lead - 0x100;
    if (lead <= 0x8f) return this.#map(lead & 0x0f);
    if (lead <= 0x9f) return this.#array(lead & 0x0f);
    if (lead <= 0xbf) return this.#text(lead & 0x1f);
    return lead <= 0xc6 ? this.#simple(lead) : this.#numberOrSized(lead);
  }

  #simple(lead: number): MsgpackValue {
    switch (lead) {
      case 0xc0:
        return null;
      case 0xc2:
        return false;
      case 0xc3:
        return true;
      default: {
        const start = this.#sizeThenSkip(1 << (lead - 0xc4));
        return this.#bytes.subarray(start, this.#at);
      }
    }
  }

  #numberOrSized(lead: number): MsgpackValue {
    switch (lead) {
      case 0xca:
        return floatOf(this.#view.getFloat32(this.#skip(4)));
      case 0xcb:
        return floatOf(this.#view.getFloat64(this.#skip(8)));
      case 0xcc:
        return this.#view.getUint8(this.#skip(1));
      case 0xcd:
        return this.#view.getUint16(this.#skip(2));
      case 0xce:
        return this.#view.getUint32(this.#skip(4));
      case 0xcf:
        return intOf(this.#view.getBigUint64(this.#skip(8)));
      case 0xd0:
        return this.#view.getInt8(this.#skip(1));
      case 0xd1:
        return this.#view.getInt16(this.#skip(2));
      case 0xd2:
        return this.#view.getInt32(this.#skip(4));
      case 0xd3:
        return intOf(this.#view.getBigInt64(this.#skip(8)));
      case 0xd9:
      case 0xda:
      case 0xdb:
        return this.#text(this.#size(1 << (lead - 0xd9)));
      case 0xdc:
      case 0xdd:
        return this.#array(this.#size(2 << (lead - 0xdc)));
      default:
        return this.#map(this.#size(2 << (lead - 0xde)));
    }
  }

  #skip(bytes: number): number {
    const at = this.#at;
    this.#at += bytes;
    return at;
  }

  #size(sizeBytes: number): number {
    const at = this.#skip(sizeBytes);
    if (sizeBytes === 1) return this.#view.getUint8(at);
    return sizeBytes === 2 ? this.#view.getUint16(at) : this.#view.getUint32(at);
  }

  /** Where the content starts; the reader stands behind it. */
  #sizeThenSkip(sizeBytes: number): number {
    const size = this.#size(sizeBytes);
    return this.#skip(size);
  }

  #text(length: number): string {
    const start = this.#skip(length);
    return decodeUtf8(this.#bytes, start, this.#at);
  }

  #array(count: number): MsgpackValue[] {
    const items: MsgpackValue[] = [];
    for (let i = 0; i < count; i++) items.push(this.read());
    return items;
  }

  #map(count: number): MsgpackMap {
    const map = new MapEntries<MsgpackValue>();
    for (let i = 0; i < count; i++) {
      const key = this.read() as string;
      if (key in map) throw decodeError('a key stands twice in a map');
      map[key] = this.read();
    }
    return map;
  }
}

function floatOf(value: number): number | IntegralFloat {
  return Number.isInteger(value) ? new IntegralFloat(value) : value;
}

function intOf(value: bigint): number | bigint {
  const number = Number(value);
  return Number.isSafeInteger(number) ? number : value;
}
