/** Time, timers, randomness and ids are handed in everywhere, so that tests own them (architecture §2). */

export interface Timer {
  cancel(): void;
}

export interface Clock {
  /** Epoch milliseconds. */
  nowMs(): number;
  /** Milliseconds of a monotonic clock, for durations. */
  monotonicMs(): number;
  /** Runs `run` once after `delayMs`. Does not keep a process alive by itself. */
  after(delayMs: number, run: () => void): Timer;
  /** Runs `run` on a later turn of the event loop, after pending I/O had its chance. */
  nextTurn(run: () => void): void;
}

export interface Random {
  /** Uniform in [0, 1). */
  unit(): number;
  /** An unpredictable, URL-safe id of at least 128 bits. */
  id(): string;
}
