/** Whole messages: envelope, frames in their order, nothing behind `END` (part 1.2, 1.3). */
import { ByteReader, ByteWriter, decodeError, EncodeError } from './bytes.ts';
import { SyncError } from './errors.ts';
import {
  decodePayload,
  END_FRAME,
  ENVELOPE_BYTES,
  FRAME_HEADER_BYTES,
  type FrameHeader,
  kindOfByte,
  MAGIC,
  readFrameHeader,
  writeEnvelope,
  writeFrame,
} from './frame-codecs.ts';
import type { MessageKind } from './frame-table.ts';
import {
  FRAME_TYPES,
  type Frame,
  type PullHeaderFrame,
  type PushCommitFrame,
  type PushResultFrame,
  type ReqHeaderFrame,
  type SubscriptionFrame,
  type SyncMessage,
  type UnknownFrame,
  type WireVersion,
} from './frames.ts';
import { FrameOrder } from './grammar.ts';
import { DEFAULT_LIMITS, type Limits } from './limits.ts';
import { detailsFault } from './result-details.ts';
import { isWireVersion } from './version.ts';

export interface Envelope {
  readonly wireVersion: WireVersion;
  readonly kind: MessageKind;
}

/** Bounds of a reader beside the length of what it reads; the protocol has none of its own (part 1.17 W-o). */
export type MessageBounds = Pick<Limits, 'framesMax' | 'frameBytesMax'>;

export interface DecodeOptions {
  /** Default: those of `DEFAULT_LIMITS` for the message's kind. */
  readonly limits?: MessageBounds;
}

/** A request as the server works on it. Byte fields are views of the message. */
export interface DecodedRequest {
  readonly wireVersion: WireVersion;
  readonly header: ReqHeaderFrame;
  /** In client commit order. */
  readonly pushes: readonly PushCommitFrame[];
  readonly pull: PullHeaderFrame | null;
  readonly subscriptions: readonly SubscriptionFrame[];
  /** Skipped, not interpreted; their places are only in `SyncMessage`. */
  readonly unknown: readonly UnknownFrame[];
}

export const RESPONSE_BOUNDS: MessageBounds = {
  framesMax: DEFAULT_LIMITS.responseFramesMax,
  frameBytesMax: DEFAULT_LIMITS.responseFrameBytesMax,
};

/** Reads the 8 bytes in front of the frames. Throws `sync.invalid_request`. */
export function readEnvelope(bytes: Uint8Array): Envelope {
  const reader = new ByteReader(bytes);
  for (const expected of MAGIC) {
    if (reader.u8() !== expected) throw decodeError('the magic is not SSP2');
  }
  const wireVersion = reader.u16();
  if (!isWireVersion(wireVersion)) throw decodeError('the wire version is not served');
  const kind = kindOfByte(reader.u8());
  if (kind === undefined) throw decodeError('the message is neither request nor response');
  if (reader.u8() !== 0) throw decodeError('the envelope has flags set');
  return { wireVersion, kind };
}

export function tooBig(bound: keyof MessageBounds, max: number): SyncError {
  return new SyncError('sync.invalid_request', `the message exceeds ${bound}`, {
    httpStatus: 413,
    details: { limit: bound, max },
  });
}

/** Decodes frame after frame and keeps what binds them: order, count, and details to their result. */
export class FrameDecoder {
  readonly #envelope: Envelope;
  readonly #bounds: MessageBounds;
  readonly #order: FrameOrder;
  #lastResult: PushResultFrame | null = null;
  #frames = 0;

  constructor(envelope: Envelope, bounds: MessageBounds) {
    this.#envelope = envelope;
    this.#bounds = bounds;
    this.#order = new FrameOrder(envelope.kind);
  }

  /** `END` has been consumed. */
  get ended(): boolean {
    return this.#order.ended;
  }

  /** Takes the step in the grammar and checks the bounds, before the payload is there. */
  begin({ type, length }: FrameHeader): void {
    if (length > this.#bounds.frameBytesMax) throw tooBig('frameBytesMax', this.#bounds.frameBytesMax);
    if (++this.#frames > this.#bounds.framesMax) throw tooBig('framesMax', this.#bounds.framesMax);
    const fault = this.#order.step(type);
    if (fault !== null) throw decodeError(fault);
    if (type === FRAME_TYPES.END && length !== 0) throw decodeError('END has a payload');
  }

  /** Decodes the payload of the frame that `begin` let in; not for `END`. */
  payload(reader: ByteReader, header: FrameHeader): Frame {
    const frame = decodePayload(reader, this.#envelope.wireVersion, header);
    if (frame.type === 'PUSH_RESULT') this.#lastResult = frame;
    if (frame.type === 'PUSH_RESULT_DETAILS') {
      const fault = detailsFault(frame, this.#lastResult!);
      if (fault !== null) throw decodeError(fault);
    }
    return frame;
  }
}

function decodeFrames(
  bytes: Uint8Array,
  { envelope, bounds, take }: { envelope: Envelope; bounds: MessageBounds; take: (frame: Frame) => void },
): void {
  const reader = new ByteReader(bytes, ENVELOPE_BYTES);
  const decoder = new FrameDecoder(envelope, bounds);
  while (!decoder.ended) {
    if (reader.remaining < FRAME_HEADER_BYTES) throw decodeError('the message is truncated');
    const header = readFrameHeader(reader);
    if (header.length > reader.remaining) throw decodeError('a frame is longer than the message');
    decoder.begin(header);
    if (!decoder.ended) take(decoder.payload(reader, header));
  }
  reader.expectEnd('a message');
}

function defaultBounds(kind: MessageKind): MessageBounds {
  return kind === 'request' ? DEFAULT_LIMITS : RESPONSE_BOUNDS;
}

/**
 * Decodes a whole message. Byte fields are views of `bytes`, which must not change afterwards. Unknown frames stand at
 * their places. Throws `SyncError`: `sync.invalid_request`, or `sync.empty_commit` (part 1.8).
 */
export function decodeMessage(bytes: Uint8Array, options: DecodeOptions = {}): SyncMessage {
  const envelope = readEnvelope(bytes);
  const { kind, wireVersion } = envelope;
  const frames: Frame[] = [];
  const bounds = options.limits ?? defaultBounds(kind);
  decodeFrames(bytes, { envelope, bounds, take: (frame) => frames.push(frame) });
  // The grammar let in no frame of the other kind.
  return { kind, wireVersion, frames } as SyncMessage;
}

/** Decodes a request into its parts; a response is `sync.invalid_request`. Throws as `decodeMessage`. */
export function decodeRequest(bytes: Uint8Array, limits: MessageBounds): DecodedRequest {
  const envelope = readEnvelope(bytes);
  if (envelope.kind !== 'request') throw decodeError('the message is not a request');
  let header: ReqHeaderFrame | null = null;
  let pull: PullHeaderFrame | null = null;
  const pushes: PushCommitFrame[] = [];
  const subscriptions: SubscriptionFrame[] = [];
  const unknown: UnknownFrame[] = [];
  const take = (frame: Frame): void => {
    if (frame.type === 'PUSH_COMMIT') pushes.push(frame);
    else if (frame.type === 'SUBSCRIPTION') subscriptions.push(frame);
    else if (frame.type === 'REQ_HEADER') header = frame;
    else if (frame.type === 'PULL_HEADER') pull = frame;
    else if (frame.type === 'UNKNOWN') unknown.push(frame);
  };
  decodeFrames(bytes, { envelope, bounds: limits, take });
  // The grammar guarantees a header in every message that decodes.
  return { wireVersion: envelope.wireVersion, header: header!, pushes, pull, subscriptions, unknown };
}

/**
 * The one byte sequence of a message, `END` included. Throws `EncodeError` for a frame order or a value that a reader would
 * refuse.
 */
export function encodeMessage(message: SyncMessage): Uint8Array {
  const { kind, wireVersion, frames } = message;
  const writer = new ByteWriter(1_024);
  const order = new FrameOrder(kind);
  let lastResult: PushResultFrame | null = null;
  writeEnvelope(writer, wireVersion, kind);
  for (const frame of frames) {
    step(order, frame.type === 'UNKNOWN' ? frame.frameType : FRAME_TYPES[frame.type]);
    if (frame.type === 'PUSH_RESULT') lastResult = frame;
    const fault = frame.type === 'PUSH_RESULT_DETAILS' ? detailsFault(frame, lastResult!) : null;
    if (fault !== null) throw new EncodeError(fault);
    writeFrame(writer, wireVersion, frame);
  }
  step(order, FRAME_TYPES.END);
  writer.raw(END_FRAME);
  return writer.finishExact();
}

function step(order: FrameOrder, type: number): void {
  const fault = order.step(type);
  if (fault !== null) throw new EncodeError(fault);
}
