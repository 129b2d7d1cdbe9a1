/**
 * The bounded scanner of a byte stream (§1.9, §8.7): chunks cut anywhere go in, one complete message comes out. It walks
 * length prefixes only; whether the frames mean anything is for `decodeMessage`.
 */
import { ByteWriter } from './bytes.ts';
import { ENVELOPE_BYTES, FRAME_HEADER_BYTES, MAGIC } from './frame-codecs.ts';
import type { MessageKind } from './frame-table.ts';
import { FRAME_TYPES, type WireVersion } from './frames.ts';
import type { Limits } from './limits.ts';
import { WIRE_VERSION_MAX, WIRE_VERSION_MIN } from './version.ts';

export type ScannerBounds = Pick<Limits, 'requestBytesMax' | 'frameBytesMax' | 'framesMax'>;

export type ScanResult =
  /** The message is not complete. */
  | { readonly kind: 'more' }
  /**
   * `message` ends with its `END`; `rest` is what came behind it and was not looked at. The scanner stands at the start of
   * the next message. Both are views: of the chunk, when the message came in one.
   */
  | {
      readonly kind: 'message';
      readonly wireVersion: WireVersion;
      readonly message: Uint8Array;
      readonly rest: Uint8Array;
    }
  /** The first 8 bytes are no header of this kind of message: the stream has no findable end (close 1008). */
  | { readonly kind: 'bad-header' }
  /** A bound is exceeded, by bytes at hand or by a length that is announced. */
  | { readonly kind: 'too-big'; readonly bound: keyof ScannerBounds; readonly wireVersion: WireVersion };

type State = 'envelope' | 'frame' | 'payload' | 'end';

const MORE: ScanResult = { kind: 'more' };
const BAD_HEADER: ScanResult = { kind: 'bad-header' };
const NO_BYTES = new Uint8Array(0);
const WIRE_VERSION_AT = MAGIC.length;
const KIND_BYTE: Readonly<Record<MessageKind, number>> = { request: 1, response: 2 };

/** What each byte of a valid envelope may be. A wrong byte is seen at once, not only when all 8 are there. */
function envelopeAlphabet(kind: MessageKind): readonly (readonly [min: number, max: number])[] {
  const only = (byte: number): readonly [number, number] => [byte, byte];
  return [...MAGIC.map(only), [WIRE_VERSION_MIN, WIRE_VERSION_MAX], only(0), only(KIND_BYTE[kind]), only(0)];
}

const ENVELOPE: Readonly<Record<MessageKind, ReturnType<typeof envelopeAlphabet>>> = {
  request: envelopeAlphabet('request'),
  response: envelopeAlphabet('response'),
};

/**
 * One stream of messages, one at a time. Keeps references to the chunks it is given, so they must not change. Cost is
 * linear in the bytes; a message in one chunk is never copied.
 */
export class MessageScanner {
  readonly #envelope: ReturnType<typeof envelopeAlphabet>;
  readonly #bounds: ScannerBounds;
  #state: State = 'envelope';
  /** Bytes of the current message so far: the only chunk, or everything gathered. */
  #held: Uint8Array = NO_BYTES;
  /** Owns `#held` once a second chunk came. */
  #gathered: ByteWriter | null = null;
  /** Where the next piece begins: envelope bytes checked, next frame header, or end of the payload. */
  #at = 0;
  #frames = 0;
  #type = 0;
  #refusal: ScanResult | null = null;

  constructor(kind: MessageKind, bounds: ScannerBounds) {
    this.#envelope = ENVELOPE[kind];
    this.#bounds = bounds;
  }

  /** No byte of a message has come yet. */
  get idle(): boolean {
    return this.#state === 'envelope' && this.#held.length === 0;
  }

  /** Refusals are final: every later chunk gets the same answer and is not kept. */
  push(chunk: Uint8Array): ScanResult {
    if (this.#refusal !== null) return this.#refusal;
    this.#hold(chunk);
    for (;;) {
      const result = this.#step();
      if (result !== null) return result;
    }
  }

  /** `null` = one state further. */
  #step(): ScanResult | null {
    switch (this.#state) {
      case 'envelope':
        return this.#readEnvelope();
      case 'frame':
        return this.#readFrameHeader();
      case 'payload':
        if (this.#held.length < this.#at) return MORE;
        this.#state = this.#type === FRAME_TYPES.END ? 'end' : 'frame';
        return null;
      case 'end':
        return this.#complete();
    }
  }

  #hold(chunk: Uint8Array): void {
    if (this.#held.length === 0) {
      this.#held = chunk;
      return;
    }
    if (chunk.length === 0) return;
    if (this.#gathered === null) {
      this.#gathered = new ByteWriter(this.#held.length + chunk.length);
      this.#gathered.raw(this.#held);
    }
    this.#gathered.raw(chunk);
    this.#held = this.#gathered.peek();
  }

  #readEnvelope(): ScanResult | null {
    const available = Math.min(this.#held.length, ENVELOPE_BYTES);
    for (; this.#at < available; this.#at++) {
      const [min, max] = this.#envelope[this.#at]!;
      const byte = this.#held[this.#at]!;
      if (byte < min || byte > max) return this.#refuse(BAD_HEADER);
    }
    if (this.#at < ENVELOPE_BYTES) return MORE;
    this.#state = 'frame';
    return null;
  }

  #readFrameHeader(): ScanResult | null {
    const at = this.#at;
    const held = this.#held;
    const { frameBytesMax, framesMax, requestBytesMax } = this.#bounds;
    if (at + FRAME_HEADER_BYTES > requestBytesMax) return this.#tooBig('requestBytesMax');
    if (held.length < at + FRAME_HEADER_BYTES) return MORE;
    // Little-endian; the multiplication keeps the top byte unsigned.
    const length =
      (held[at + 1]! | (held[at + 2]! << 8) | (held[at + 3]! << 16)) + held[at + 4]! * 0x1_00_00_00;
    this.#type = held[at]!;
    this.#at = at + FRAME_HEADER_BYTES + length;
    this.#frames++;
    if (length > frameBytesMax) return this.#tooBig('frameBytesMax');
    if (this.#at > requestBytesMax) return this.#tooBig('requestBytesMax');
    if (this.#frames > framesMax) return this.#tooBig('framesMax');
    this.#state = 'payload';
    return null;
  }

  #wireVersion(): WireVersion {
    return this.#held[WIRE_VERSION_AT] as WireVersion;
  }

  #tooBig(bound: keyof ScannerBounds): ScanResult {
    return this.#refuse({ kind: 'too-big', bound, wireVersion: this.#wireVersion() });
  }

  #refuse(refusal: ScanResult): ScanResult {
    this.#refusal = refusal;
    this.#held = NO_BYTES;
    this.#gathered = null;
    return refusal;
  }

  #complete(): ScanResult {
    const wireVersion = this.#wireVersion();
    const message = this.#held.subarray(0, this.#at);
    const rest = this.#held.subarray(this.#at);
    this.#state = 'envelope';
    this.#held = NO_BYTES;
    this.#gathered = null;
    this.#at = 0;
    this.#frames = 0;
    return { kind: 'message', wireVersion, message, rest };
  }
}
