/**
 * The response between its producer, which reads in a pinned snapshot and never waits, and its consumer, which may be slow.
 * Frames gather into chunks; a part that is long in coming does not hold back what is there already (S-008, R-065).
 */
import type { Clock } from '../../protocol/clock.ts';
import type { SyncError } from '../../protocol/errors.ts';
import { FrameWriter } from '../../protocol/frame-writer.ts';
import type { ResponseFrame, WireVersion } from '../../protocol/frames.ts';
import type { Limits } from '../../protocol/limits.ts';
import { errorFrame } from './error-stream.ts';

/** The consumer went away. Ends the producer at its next step; nobody else sees it. */
class RoundAbandoned extends Error {
  override readonly name = 'RoundAbandoned';
}

interface Chunk {
  readonly bytes: Uint8Array;
  /** What must have happened before the bytes may leave. */
  readonly after: Promise<unknown> | null;
}

type Progress =
  | { readonly kind: 'open' }
  | { readonly kind: 'finished' }
  | { readonly kind: 'failed'; readonly failure: unknown };

export class ResponseStream {
  readonly #clock: Clock;
  readonly #chunkBytes: number;
  readonly #writer: FrameWriter;
  readonly #chunks: Chunk[] = [];
  #progress: Progress = { kind: 'open' };
  #after: Promise<unknown> | null = null;
  #wake: (() => void) | null = null;
  #flushAsked = false;
  /** More than the header waits in the writer. */
  #hasContent = false;
  #taken = 0;

  constructor(
    wireVersion: WireVersion,
    { clock, limits }: { readonly clock: Clock; readonly limits: Limits },
  ) {
    this.#clock = clock;
    this.#chunkBytes = limits.responseChunkBytes;
    this.#writer = new FrameWriter(wireVersion);
    this.#writer.envelope('response');
  }

  /** A chunk has left: a failure can no longer replace the response. */
  get begun(): boolean {
    return this.#taken > 0;
  }

  /** Throws what ended the stream, for a producer that goes on after its consumer left. */
  assertOpen(): void {
    if (this.#progress.kind === 'failed') throw this.#progress.failure;
  }

  /** Returns the encoded length. */
  frame(frame: ResponseFrame): number {
    this.assertOpen();
    const before = this.#writer.lengthBytes;
    this.#write(frame);
    const bytes = this.#writer.lengthBytes - before;
    if (frame.type !== 'RESP_HEADER') this.#hasContent = true;
    if (this.#writer.lengthBytes >= this.#chunkBytes) this.flush();
    else this.#askFlush();
    return bytes;
  }

  /** Makes a chunk of what was written, however little. */
  flush(): void {
    if (this.#writer.lengthBytes === 0) return;
    this.#chunks.push({ bytes: this.#writer.take(), after: this.#after });
    this.#hasContent = false;
    this.#wakeUp();
  }

  /** What was written since the last chunk, and everything later, leaves only after `stored` resolved. */
  holdFor(stored: Promise<unknown>): void {
    // The consumer awaits it in its turn; until then a rejection has an owner already.
    stored.catch(() => undefined);
    const earlier = this.#after;
    this.#after = earlier === null ? stored : Promise.all([earlier, stored]);
    this.#after.catch(() => undefined);
  }

  finish(): void {
    if (this.#progress.kind === 'open') this.#end({ kind: 'finished' });
  }

  /** The first failure counts. */
  fail(failure: unknown): void {
    if (this.#progress.kind === 'open') this.#end({ kind: 'failed', failure });
  }

  /** Nothing may leave any more, not even what waits to. */
  abort(reason: unknown): void {
    this.#chunks.length = 0;
    this.#end({ kind: 'failed', failure: reason });
  }

  /** The consumer is done with the stream, whole or not. */
  abandon(): void {
    if (this.#progress.kind === 'open') this.fail(new RoundAbandoned());
  }

  /** The next chunk, or `null` when only `last` is left. Throws the failure once the chunks before it have left. */
  async take(): Promise<Uint8Array | null> {
    for (;;) {
      const failed = this.#progress.kind === 'failed' ? this.#progress : null;
      if (failed !== null && !this.begun) throw failed.failure;
      const chunk = this.#chunks.shift();
      if (chunk !== undefined) {
        await chunk.after;
        this.#taken++;
        return chunk.bytes;
      }
      if (failed !== null) throw failed.failure;
      if (this.#progress.kind === 'finished') return null;
      await this.#more();
    }
  }

  /** Resolves when all that was written may leave. */
  async released(): Promise<void> {
    await this.#after;
  }

  /** What is left, and `END`. */
  async last(): Promise<Uint8Array> {
    await this.released();
    this.assertOpen();
    this.#writer.end();
    return this.#writer.take();
  }

  /** What is left, `ERROR` and `END` (S-018). */
  async lastOfFailed(error: SyncError): Promise<Uint8Array> {
    await this.released();
    this.#writer.frame(errorFrame(error));
    this.#writer.end();
    return this.#writer.take();
  }

  /** A frame that cannot be encoded leaves half of itself behind: the stream ends there and then. */
  #write(frame: ResponseFrame): void {
    try {
      this.#writer.frame(frame);
    } catch (error) {
      this.fail(error);
      throw error;
    }
  }

  #more(): Promise<void> {
    return new Promise((resolve) => {
      this.#wake = resolve;
      this.#askFlush();
    });
  }

  /** A consumer that waits for one turn in vain gets what is there. */
  #askFlush(): void {
    if (this.#wake === null || this.#flushAsked || !this.#hasContent) return;
    this.#flushAsked = true;
    this.#clock.nextTurn(() => {
      this.#flushAsked = false;
      if (this.#wake !== null && this.#progress.kind === 'open') this.flush();
    });
  }

  #end(progress: Progress): void {
    this.#progress = progress;
    this.#wakeUp();
  }

  #wakeUp(): void {
    const wake = this.#wake;
    this.#wake = null;
    wake?.();
  }
}
