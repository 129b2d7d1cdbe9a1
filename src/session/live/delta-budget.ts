/** Bounds of what one session is sent without an answer and within a window (part 3, 3.5.4; R-026). */
import type { Limits } from '../../protocol/limits.ts';

export type DeltaBounds = Pick<Limits, 'deltasInFlightMax' | 'deltasPerWindowMax' | 'deltaWindowMs'>;

/**
 * Counts unacked deltas in two generations instead of remembering each: a generation is freed by an ack that reaches its
 * end. So the count is never too low, exact without acks and after a full ack, and at most twice the real number between.
 */
export class DeltaBudget {
  #older = 0;
  #olderEndSeq = 0;
  #newer = 0;
  #newestSeq = 0;
  #windowStartMs = Number.NEGATIVE_INFINITY;
  #inWindow = 0;

  get inFlight(): number {
    return this.#older + this.#newer;
  }

  allows(bounds: DeltaBounds, nowMs: number): boolean {
    if (nowMs - this.#windowStartMs >= bounds.deltaWindowMs) {
      this.#windowStartMs = nowMs;
      this.#inWindow = 0;
    }
    return this.inFlight < bounds.deltasInFlightMax && this.#inWindow < bounds.deltasPerWindowMax;
  }

  sent(lastSeq: number): void {
    this.#newer++;
    this.#inWindow++;
    this.#newestSeq = lastSeq;
  }

  acked(seq: number): void {
    if (seq >= this.#newestSeq) {
      this.#older = 0;
      this.#newer = 0;
    } else if (seq >= this.#olderEndSeq) {
      this.#older = this.#newer;
      this.#newer = 0;
    } else {
      return;
    }
    this.#olderEndSeq = this.#newestSeq;
  }
}
