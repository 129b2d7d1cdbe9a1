/** Waits that end early: every one takes an `AbortSignal` and rejects with `Cancelled` once it is aborted. */
import type { Clock } from '../protocol/clock.ts';

/** The wait was given up by whoever owns the signal; never an outcome that a user sees. */
export class Cancelled extends Error {
  override readonly name = 'Cancelled';
}

export interface Deferred<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
  readonly reject: (failure: unknown) => void;
}

export function deferred<T>(): Deferred<T> {
  let resolve!: (value: T) => void;
  let reject!: (failure: unknown) => void;
  const promise = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  return { promise, resolve, reject };
}

/** `work`, or `Cancelled` as soon as `signal` aborts. The work itself goes on, its result is dropped. */
export async function orCancelled<T>(work: Promise<T>, signal: AbortSignal): Promise<T> {
  const cancelled = deferred<never>();
  const cancel = (): void => cancelled.reject(new Cancelled('cancelled'));
  if (signal.aborted) cancel();
  else signal.addEventListener('abort', cancel, { once: true });
  try {
    return await Promise.race([cancelled.promise, work]);
  } finally {
    signal.removeEventListener('abort', cancel);
  }
}

export interface WaitBounds {
  readonly clock: Clock;
  readonly timeoutMs: number;
  readonly signal: AbortSignal;
  /** What to reject with when the time is over. */
  readonly late: () => Error;
}

/** `work` within `timeoutMs`; cancelled with the signal. */
export async function within<T>(work: Promise<T>, bounds: WaitBounds): Promise<T> {
  const late = deferred<never>();
  const timer = bounds.clock.after(bounds.timeoutMs, () => late.reject(bounds.late()));
  try {
    return await orCancelled(Promise.race([work, late.promise]), bounds.signal);
  } finally {
    timer.cancel();
  }
}

/** Rings for one waiter. A ring that nobody waits for is kept, several are one. */
export class Bell {
  readonly #clock: Clock;
  #rung = false;
  #wake: (() => void) | null = null;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  ring(): void {
    this.#rung = true;
    this.#wake?.();
  }

  /** Resolves at the next ring, or after `delayMs`; `null` waits for the ring alone. */
  async wait(delayMs: number | null, signal: AbortSignal): Promise<void> {
    const { promise, resolve } = deferred<void>();
    this.#wake = resolve;
    const timer = delayMs === null ? null : this.#clock.after(delayMs, resolve);
    if (this.#rung) resolve();
    try {
      await orCancelled(promise, signal);
    } finally {
      this.#rung = false;
      this.#wake = null;
      timer?.cancel();
    }
  }
}
