/**
 * The look at a message before it is decoded (§5.4). One loop without recursion and without allocation; linear in the
 * bytes. What passes is one map with string keys, of bounded size and depth, with well-formed text and no extension types.
 */
import { decodeError } from '../bytes.ts';
import { SyncError } from '../errors.ts';
import { FORBIDDEN_KEYS, MSGPACK_DEPTH_MAX, type MsgpackBounds } from './bounds.ts';
import { isUtf8 } from './utf8-scan.ts';

/** Kinds of tokens; the number is a slot of `LEADS`. */
const SCALAR = 1;
const STR = 2;
const BIN = 3;
const ARRAY = 4;
const MAP = 5;

interface Lead {
  readonly kind: number;
  /** Bytes of the length or count behind the lead byte; 0 when the lead byte holds it. */
  readonly sizeBytes: number;
  /** Length, count or payload bytes when the lead byte says it. */
  readonly size: number;
}

/** By lead byte; `null` for extension types and the byte that is never used. */
const LEADS: readonly (Lead | null)[] = Array.from({ length: 256 }, (_, byte) => leadOf(byte));

function leadOf(byte: number): Lead | null {
  const fixed = (kind: number, size: number): Lead => ({ kind, sizeBytes: 0, size });
  const sized = (kind: number, sizeBytes: number): Lead => ({ kind, sizeBytes, size: 0 });
  if (byte <= 0x7f || byte >= 0xe0) return fixed(SCALAR, 0);
  if (byte <= 0x8f) return fixed(MAP, byte & 0x0f);
  if (byte <= 0x9f) return fixed(ARRAY, byte & 0x0f);
  if (byte <= 0xbf) return fixed(STR, byte & 0x1f);
  switch (byte) {
    case 0xc0:
    case 0xc2:
    case 0xc3:
      return fixed(SCALAR, 0);
    case 0xc4:
    case 0xc5:
    case 0xc6:
      return sized(BIN, 1 << (byte - 0xc4));
    case 0xca:
      return fixed(SCALAR, 4);
    case 0xcb:
      return fixed(SCALAR, 8);
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
      return fixed(SCALAR, 1 << (byte - 0xcc));
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
      return fixed(SCALAR, 1 << (byte - 0xd0));
    case 0xd9:
    case 0xda:
    case 0xdb:
      return sized(STR, 1 << (byte - 0xd9));
    case 0xdc:
    case 0xdd:
      return sized(ARRAY, 2 << (byte - 0xdc));
    case 0xde:
    case 0xdf:
      return sized(MAP, 2 << (byte - 0xde));
    default:
      return null;
  }
}

const FORBIDDEN: readonly (readonly number[])[] = FORBIDDEN_KEYS.map((key) =>
  [...key].map((unit) => unit.charCodeAt(0)),
);

function isForbiddenKey(bytes: Uint8Array, start: number, length: number): boolean {
  return FORBIDDEN.some((key) => key.length === length && key.every((unit, i) => bytes[start + i] === unit));
}

function tooBig(bound: keyof MsgpackBounds, max: number): SyncError {
  return new SyncError('sync.invalid_request', `the message exceeds ${bound}`, {
    httpStatus: 413,
    details: { limit: bound, max },
  });
}

/**
 * Scans one message, in one go or while its bytes arrive. Refuses with `sync.invalid_request`: HTTP status 413 when a bound
 * is exceeded, else 400.
 */
export class MsgpackScanner {
  readonly #bounds: MsgpackBounds;
  /** Values still to come at each open level; in a map keys count as well. */
  readonly #left = new Float64Array(MSGPACK_DEPTH_MAX);
  readonly #isMap = new Uint8Array(MSGPACK_DEPTH_MAX);
  #depth = 0;
  #at = 0;
  #elements = 0;

  constructor(bounds: MsgpackBounds) {
    this.#bounds = bounds;
  }

  /**
   * `bytes` begins where the message begins; a later call hands over the same bytes and more. Returns where the message
   * ends, or `null` while it has no end yet. What was scanned is not scanned again.
   */
  scan(bytes: Uint8Array): number | null {
    const { bytesMax } = this.#bounds;
    for (;;) {
      if (this.#at >= bytes.length) {
        if (this.#at >= bytesMax) throw tooBig('bytesMax', bytesMax);
        return null;
      }
      if (!this.#token(bytes)) return null;
      if (this.#at > bytesMax) throw tooBig('bytesMax', bytesMax);
      this.#close();
      if (this.#depth === 0) return this.#at;
    }
  }

  /** Takes one token with its content, or answers false when it is not all there. */
  #token(bytes: Uint8Array): boolean {
    const lead = LEADS[bytes[this.#at]!];
    if (lead === null || lead === undefined) throw decodeError('an extension type or unused byte');
    const { kind, sizeBytes } = lead;
    if (this.#depth === 0 && kind !== MAP) throw decodeError('a message is not a map');
    const contentAt = this.#at + 1 + sizeBytes;
    if (contentAt > bytes.length) return false;
    const size = sizeBytes === 0 ? lead.size : readSize(bytes, this.#at + 1, sizeBytes);
    const isKey = this.#expectsKey();
    if (isKey && kind !== STR) throw decodeError('a key is not a string');
    if (kind === MAP || kind === ARRAY) {
      this.#at = contentAt;
      this.#take();
      this.#open(kind, size);
      return true;
    }
    const end = contentAt + size;
    if (end > this.#bounds.bytesMax) throw tooBig('bytesMax', this.#bounds.bytesMax);
    if (end > bytes.length) return false;
    if (kind === STR && !isUtf8(bytes, contentAt, end))
      throw decodeError('a string is not well-formed UTF-8');
    if (isKey && isForbiddenKey(bytes, contentAt, size)) throw decodeError('a key is not allowed');
    this.#at = end;
    this.#take();
    return true;
  }

  #expectsKey(): boolean {
    const level = this.#depth - 1;
    return level >= 0 && this.#isMap[level] === 1 && this.#left[level]! % 2 === 0;
  }

  #take(): void {
    if (this.#depth > 0) this.#left[this.#depth - 1]!--;
  }

  #open(kind: number, count: number): void {
    if (this.#depth === MSGPACK_DEPTH_MAX) throw decodeError('a message is nested too deeply');
    const values = kind === MAP ? count * 2 : count;
    this.#elements += values;
    const { elementsMax } = this.#bounds;
    if (this.#elements > elementsMax) throw tooBig('elementsMax', elementsMax);
    this.#left[this.#depth] = values;
    this.#isMap[this.#depth] = kind === MAP ? 1 : 0;
    this.#depth++;
  }

  /** Leaves every level whose last value was just taken. */
  #close(): void {
    while (this.#depth > 0 && this.#left[this.#depth - 1] === 0) this.#depth--;
  }
}

function readSize(bytes: Uint8Array, at: number, sizeBytes: number): number {
  let size = 0;
  for (let i = 0; i < sizeBytes; i++) size = size * 0x100 + bytes[at + i]!;
  return size;
}

/** Scans bytes that are to be exactly one message; throws as the scanner does, also for bytes missing or left over. */
export function scanMessage(bytes: Uint8Array, bounds: MsgpackBounds): void {
  if (bytes.length > bounds.bytesMax) throw tooBig('bytesMax', bounds.bytesMax);
  const end = new MsgpackScanner(bounds).scan(bytes);
  if (end === null) throw decodeError('the message is truncated');
  if (end !== bytes.length) throw decodeError('bytes stand behind the message');
}
