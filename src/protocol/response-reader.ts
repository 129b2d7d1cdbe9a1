/** A client's way to read a response while it arrives (§1.4, §1.9): frames come out as they complete, the grammar is enforced. */
import { ByteReader, ByteWriter, decodeError } from './bytes.ts';
import { SyncError } from './errors.ts';
import { ENVELOPE_BYTES, FRAME_HEADER_BYTES, type FrameHeader, readFrameHeader } from './frame-codecs.ts';
import type { ResponseFrame, WireVersion } from './frames.ts';
import { FrameDecoder, type MessageBounds, RESPONSE_BOUNDS, readEnvelope } from './message.ts';
import { SLAB_PIECE_BYTES_MAX } from './slab.ts';

export interface ReadResult {
  /** Completed by this chunk, in wire order; those in front of a failure are good (part 1.9 row 5). */
  readonly frames: readonly ResponseFrame[];
  /** `ended`: `END` was consumed. `failed`: roll back what is open; nothing more comes. */
  readonly state: 'open' | 'ended' | 'failed';
  /** Set exactly when failed. */
  readonly failure: SyncError | null;
  /** Bytes behind `END`, not looked at. */
  readonly rest: Uint8Array;
}

/**
 * Reads one response. Memory is the frame in progress. Byte fields of frames are views of the chunk, or of a buffer of their
 * own when the frame came in several; chunks must not change.
 */
export class ResponseReader {
  readonly #bounds: MessageBounds;
  #decoder: FrameDecoder | null = null;
  #wireVersion: WireVersion | null = null;
  /** The piece that is waited for: the envelope, a frame header, or the payload behind `#header`. */
  #piece: 'envelope' | 'header' | 'payload' = 'envelope';
  #pieceBytes = ENVELOPE_BYTES;
  #header: FrameHeader = { type: 0, length: 0 };
  /** The beginning of that piece, when a chunk ended inside it. */
  #partial: ByteWriter | null = null;
  #failure: SyncError | null = null;

  constructor(bounds: MessageBounds = RESPONSE_BOUNDS) {
    this.#bounds = bounds;
  }

  /** Known once the envelope was read. */
  get wireVersion(): WireVersion | null {
    return this.#wireVersion;
  }

  get state(): ReadResult['state'] {
    if (this.#failure !== null) return 'failed';
    return this.#decoder?.ended ? 'ended' : 'open';
  }

  /** Behind the end and behind a failure nothing is read: the bytes come back as `rest`. */
  push(chunk: Uint8Array): ReadResult {
    const frames: ResponseFrame[] = [];
    let at = 0;
    try {
      while (this.state === 'open') {
        const piece = this.#takePiece(chunk, at);
        at += piece.taken;
        if (piece.bytes === null) break;
        const frame = this.#read(piece.bytes);
        if (frame !== null) frames.push(frame);
      }
    } catch (failure) {
      const known = SyncError.from(failure);
      if (known === null) throw failure;
      this.#failure = known;
    }
    return { frames, state: this.state, failure: this.#failure, rest: chunk.subarray(at) };
  }

  /** The stream was cut: throws `sync.invalid_request` unless the response was complete, or the failure it ended with. */
  finish(): void {
    if (this.#failure !== null) throw this.#failure;
    if (this.state !== 'ended') throw decodeError('the message is truncated');
  }

  /** `bytes` is the whole piece once it is there. */
  #takePiece(chunk: Uint8Array, at: number): { readonly taken: number; readonly bytes: Uint8Array | null } {
    const missing = this.#pieceBytes - (this.#partial?.length ?? 0);
    const taken = Math.min(missing, chunk.length - at);
    const part = chunk.subarray(at, at + taken);
    if (this.#partial === null && taken === missing) return { taken, bytes: part };
    if (taken === 0) return { taken, bytes: null };
    // Not the announced length, unless it is small: memory is reserved for bytes that came.
    this.#partial ??= new ByteWriter(Math.min(this.#pieceBytes, Math.max(taken, SLAB_PIECE_BYTES_MAX)));
    this.#partial.raw(part);
    if (taken < missing) return { taken, bytes: null };
    const bytes = this.#partial.finish();
    this.#partial = null;
    return { taken, bytes };
  }

  #expect(piece: 'header' | 'payload', bytes: number): void {
    this.#piece = piece;
    this.#pieceBytes = bytes;
  }

  #read(bytes: Uint8Array): ResponseFrame | null {
    if (this.#piece === 'envelope') {
      const envelope = readEnvelope(bytes);
      if (envelope.kind !== 'response') throw decodeError('the message is not a response');
      this.#wireVersion = envelope.wireVersion;
      this.#decoder = new FrameDecoder(envelope, this.#bounds);
      this.#expect('header', FRAME_HEADER_BYTES);
      return null;
    }
    const decoder = this.#decoder!;
    const reader = new ByteReader(bytes);
    if (this.#piece === 'header') {
      this.#header = readFrameHeader(reader);
      decoder.begin(this.#header);
      this.#expect('payload', this.#header.length);
      return null;
    }
    this.#expect('header', FRAME_HEADER_BYTES);
    // The grammar let in no request frame.
    return decoder.payload(reader, this.#header) as ResponseFrame;
  }
}
