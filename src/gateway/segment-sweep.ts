/** Removes what is left of expired segments, or the store would only ever grow (§5.1). */
import type { Clock, Timer } from '../protocol/clock.ts';
import type { Limits } from '../protocol/limits.ts';
import type { SegmentStore } from '../storage/segments.ts';
import type { GatewayLogger } from './logger.ts';

export interface SegmentSweep {
  /** Starts no further sweep; resolves when the one that runs has ended. Idempotent. */
  stop(): Promise<void>;
}

export interface SegmentSweepDeps {
  readonly segments: SegmentStore;
  readonly clock: Clock;
  readonly limits: Pick<Limits, 'segmentSweepMs' | 'segmentSweepEntriesMax' | 'segmentKeepExpiredMs'>;
  readonly logger: GatewayLogger;
}

/**
 * Every `segmentSweepMs`, and at once again while a sweep was full: each takes the store's write lock for one bounded batch.
 * An expired entry is kept for `segmentKeepExpiredMs`, so that a late download is told `sync.segment_expired` (S-094).
 */
export function startSegmentSweep(deps: SegmentSweepDeps): SegmentSweep {
  return new RunningSweep(deps);
}

class RunningSweep implements SegmentSweep {
  readonly #deps: SegmentSweepDeps;
  #timer: Timer | null = null;
  #sweeping: Promise<void> = Promise.resolve();
  #isStopped = false;

  constructor(deps: SegmentSweepDeps) {
    this.#deps = deps;
    this.#arm(deps.limits.segmentSweepMs);
  }

  stop(): Promise<void> {
    this.#isStopped = true;
    this.#timer?.cancel();
    return this.#sweeping;
  }

  #arm(delayMs: number): void {
    this.#timer = this.#deps.clock.after(delayMs, () => {
      this.#sweeping = this.#sweep();
    });
  }

  /** Never rejects: what could not be removed now is removed by a later sweep. */
  async #sweep(): Promise<void> {
    const { segments, clock, limits, logger } = this.#deps;
    const { segmentSweepMs, segmentSweepEntriesMax: max, segmentKeepExpiredMs } = limits;
    let delayMs = segmentSweepMs;
    try {
      const removed = await segments.sweep({ expiredBeforeMs: clock.nowMs() - segmentKeepExpiredMs, max });
      if (removed > 0 && removed >= max) delayMs = 0;
    } catch (failure) {
      logger.error({ err: failure }, 'expired segments could not be removed');
    }
    if (!this.#isStopped) this.#arm(delayMs);
  }
}
