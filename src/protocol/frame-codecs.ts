/** One `{decode, encode}` entry per frame, and the encoding of a frame as a whole: type, length, payload (part 1.2). */
import { type ByteReader, ByteWriter, EncodeError } from './bytes.ts';
import { commitCodec } from './commit-codec.ts';
import { type FrameName, frameSpec, isRegistered, type MessageKind } from './frame-table.ts';
import { FRAME_TYPES, type Frame, type WireVersion } from './frames.ts';
import {
  type FrameCodec,
  pullHeaderCodec,
  pushCommitCodec,
  reqHeaderCodec,
  subscriptionCodec,
} from './request-codecs.ts';
import {
  errorCodec,
  leaseCodec,
  pushResultCodec,
  pushResultDetailsCodec,
  respHeaderCodec,
  segmentInlineCodec,
  segmentRefCodec,
  subEndCodec,
  subStartCodec,
} from './response-codecs.ts';

/** The frames that have a layout and appear in `SyncMessage.frames`. */
export type KnownFrame = Exclude<Frame, { readonly type: 'UNKNOWN' }>;
type FrameOf<N extends KnownFrame['type']> = Extract<KnownFrame, { readonly type: N }>;

export const FRAME_CODECS: { readonly [N in KnownFrame['type']]: FrameCodec<FrameOf<N>> } = {
  REQ_HEADER: reqHeaderCodec,
  PUSH_COMMIT: pushCommitCodec,
  PULL_HEADER: pullHeaderCodec,
  SUBSCRIPTION: subscriptionCodec,
  RESP_HEADER: respHeaderCodec,
  PUSH_RESULT: pushResultCodec,
  PUSH_RESULT_DETAILS: pushResultDetailsCodec,
  SUB_START: subStartCodec,
  COMMIT: commitCodec,
  SEGMENT_REF: segmentRefCodec,
  SEGMENT_INLINE: segmentInlineCodec,
  SUB_END: subEndCodec,
  LEASE: leaseCodec,
  ERROR: errorCodec,
};

/** Magic, wire version, kind, flags. */
export const ENVELOPE_BYTES = 8;
/** Type and length. */
export const FRAME_HEADER_BYTES = 5;
/** `SSP2`. */
export const MAGIC: readonly number[] = [0x53, 0x53, 0x50, 0x32];
const MAGIC_U32 = 0x32_50_53_53;
const KIND_REQUEST = 1;
const KIND_RESPONSE = 2;

/** The `END` frame: type 0, length 0. Shared: read it, never write it. */
export const END_FRAME: Uint8Array = new Uint8Array(FRAME_HEADER_BYTES);

/** The kind that `msgKind` stands for. */
export function kindOfByte(byte: number): MessageKind | undefined {
  return byte === KIND_REQUEST ? 'request' : byte === KIND_RESPONSE ? 'response' : undefined;
}

export function writeEnvelope(writer: ByteWriter, wireVersion: WireVersion, kind: MessageKind): void {
  writer.u32(MAGIC_U32);
  writer.u16(wireVersion);
  writer.u8(kind === 'request' ? KIND_REQUEST : KIND_RESPONSE);
  writer.u8(0);
}

export function encodeEnvelope(wireVersion: WireVersion, kind: MessageKind): Uint8Array {
  const writer = new ByteWriter(ENVELOPE_BYTES);
  writeEnvelope(writer, wireVersion, kind);
  return writer.finishExact();
}

/** Appends one frame with its header. Throws `EncodeError` for a value that a reader would refuse (part 1.2 rule 7). */
export function writeFrame(writer: ByteWriter, wireVersion: WireVersion, frame: Frame): void {
  if (frame.type === 'UNKNOWN') {
    if (isRegistered(wireVersion, frame.frameType)) {
      throw new EncodeError(
        `frame type ${frame.frameType} is registered, so it cannot be written as unknown`,
      );
    }
    writer.u8(frame.frameType);
    writer.blob(frame.payload);
    return;
  }
  const codec = FRAME_CODECS[frame.type];
  if (codec === undefined) throw new EncodeError('a frame has a type without a layout');
  writer.u8(FRAME_TYPES[frame.type]);
  const lengthAt = writer.holeU32();
  // The table pairs each type with its own codec, which TypeScript cannot follow through an index.
  (codec as FrameCodec<KnownFrame>).encode(writer, frame, wireVersion);
  writer.patchU32(lengthAt, writer.length - lengthAt - 4);
}

/** One frame in memory of its own, fit to be kept. */
export function encodeFrame(wireVersion: WireVersion, frame: Frame): Uint8Array {
  const writer = new ByteWriter();
  writeFrame(writer, wireVersion, frame);
  return writer.finishExact();
}

/** What stands in front of a payload. */
export interface FrameHeader {
  readonly type: number;
  /** Bytes of the payload. */
  readonly length: number;
}

export function readFrameHeader(reader: ByteReader): FrameHeader {
  return { type: reader.u8(), length: reader.u32() };
}

/** Decodes a payload of exactly `length` bytes at the reader's place; leaves the reader behind it (part 1.2 rule 2). */
export function decodePayload(
  reader: ByteReader,
  wireVersion: WireVersion,
  { type, length }: FrameHeader,
): Frame {
  const spec = frameSpec(type);
  if (spec === undefined) return { type: 'UNKNOWN', frameType: type, payload: reader.raw(length) };
  const codec = FRAME_CODECS[spec.name as Exclude<FrameName, 'END'>];
  const outerEnd = reader.enter(length);
  const frame = codec.decode(reader, wireVersion);
  reader.expectEnd('a frame');
  reader.leave(outerEnd);
  return frame;
}
