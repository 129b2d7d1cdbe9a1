/** Measures the work of one pull: how much more it may produce, and when it lets the rest of the process run. */
import type { Clock } from '../../protocol/clock.ts';
import type { Limits } from '../../protocol/limits.ts';

/** A read that finds little still costs about as much as producing this many bytes. */
const READ_COST_BYTES = 4 * 1024;

export interface PullMeterOptions {
  readonly clock: Clock;
  readonly limits: Limits;
  readonly assertWanted: () => void;
}

export class PullMeter {
  readonly #clock: Clock;
  readonly #assertWanted: () => void;
  readonly #turnBytes: number;
  /** Bytes of data that may still be produced. The last page or commit may pass it, so it can be negative. */
  #leftBytes: number;
  #sinceTurnBytes = 0;

  /** `assertWanted` throws when nobody waits for the response any more. */
  constructor({ clock, limits, assertWanted }: PullMeterOptions) {
    this.#clock = clock;
    this.#assertWanted = assertWanted;
    this.#leftBytes = limits.pullBytesMax;
    this.#turnBytes = limits.responseChunkBytes;
  }

  get leftBytes(): number {
    return this.#leftBytes;
  }

  get exhausted(): boolean {
    return this.#leftBytes <= 0;
  }

  /** Bytes of data that the response, or the process on its behalf, now holds. */
  produced(bytes: number): void {
    this.#leftBytes -= bytes;
    this.worked(bytes);
  }

  /** Bytes handled that count against nothing but the turn. */
  worked(bytes: number): void {
    this.#sinceTurnBytes += bytes;
  }

  /** A read from storage; what it found is counted when it is produced. */
  read(bytes: number): void {
    this.worked(bytes + READ_COST_BYTES);
  }

  /** Yields a turn of the event loop once enough was done since the last one; throws when the work is in vain. */
  async breathe(): Promise<void> {
    if (this.#sinceTurnBytes >= this.#turnBytes) await this.nextTurn();
  }

  async nextTurn(): Promise<void> {
    this.#sinceTurnBytes = 0;
    await new Promise<void>((resolve) => this.#clock.nextTurn(resolve));
    this.#assertWanted();
  }
}
