/** Exponential backoff with jitter: 1 s, doubled, capped at 30 s (part 3, 3.8.1). */
import type { Random } from '../protocol/clock.ts';
import type { ClientLimits } from './client-limits.ts';

export class Backoff {
  readonly #limits: Pick<ClientLimits, 'backoffFirstMs' | 'backoffMaxMs'>;
  readonly #random: Random;
  #failures = 0;

  constructor(limits: Pick<ClientLimits, 'backoffFirstMs' | 'backoffMaxMs'>, random: Random) {
    this.#limits = limits;
    this.#random = random;
  }

  /** Failures since the last `reset`. */
  get failures(): number {
    return this.#failures;
  }

  /** The next delay in ms: half to one and a half of the step, so that clients that failed together return apart. */
  nextMs(): number {
    const { backoffFirstMs, backoffMaxMs } = this.#limits;
    const stepMs = Math.min(backoffFirstMs * 2 ** this.#failures, backoffMaxMs);
    this.#failures++;
    return Math.min(stepMs * (0.5 + this.#random.unit()), backoffMaxMs);
  }

  reset(): void {
    this.#failures = 0;
  }
}
