/**
 * A clock that only a test moves. Timers run in the order of their due time, turns in the order they were asked for.
 * `settle` lets promises and real I/O finish; it never waits for wall-clock time.
 */
import { setImmediate as realTurn } from 'node:timers/promises';
import type { Clock, Timer } from '../../src/protocol/clock.ts';

interface Waiting {
  readonly dueMs: number;
  readonly order: number;
  readonly run: () => void;
}

/** Turns of the real event loop without any new work after which everything is taken to be at rest. */
const QUIET_TURNS = 8;

let ioInFlight: () => number = () => 0;

/** For a storage whose answers take more than a few turns of the loop: `settle` and `until` wait while it has any to come. */
export function watchIo(count: () => number): void {
  ioInFlight = count;
}

export class ManualClock implements Clock {
  #elapsedMs = 0;
  readonly #startMs: number;
  #order = 0;
  readonly #timers = new Set<Waiting>();
  #turns: (() => void)[] = [];

  constructor(startMs = 1_700_000_000_000) {
    this.#startMs = startMs;
  }

  nowMs(): number {
    return this.#startMs + this.#elapsedMs;
  }

  monotonicMs(): number {
    return this.#elapsedMs;
  }

  after(delayMs: number, run: () => void): Timer {
    const waiting = { dueMs: this.#elapsedMs + Math.max(0, delayMs), order: this.#order++, run };
    this.#timers.add(waiting);
    return { cancel: () => this.#timers.delete(waiting) };
  }

  nextTurn(run: () => void): void {
    this.#turns.push(run);
  }

  /** Timers that wait; what is left after a close is a leak. */
  get timersWaiting(): number {
    return this.#timers.size;
  }

  get turnsWaiting(): number {
    return this.#turns.length;
  }

  /** Runs what asked for the next turn so far; what it asks for in its course waits for the turn after. */
  turn(): void {
    const due = this.#turns;
    this.#turns = [];
    for (const run of due) run();
  }

  /** Turns until nobody asks for another. */
  turns(turnsMax = 100_000): void {
    for (let turn = 0; this.#turns.length > 0; turn++) {
      if (turn >= turnsMax) throw new Error(`still busy after ${turnsMax} turns`);
      this.turn();
    }
  }

  /** Moves time and runs every timer that comes due on the way, turns included. Promises are left to `settle`. */
  advance(durationMs: number): void {
    const targetMs = this.#elapsedMs + durationMs;
    for (;;) {
      this.turns();
      const next = this.#next(targetMs);
      if (next === null) break;
      this.#elapsedMs = Math.max(this.#elapsedMs, next.dueMs);
      this.#timers.delete(next);
      next.run();
    }
    this.#elapsedMs = targetMs;
  }

  /** Moves time in steps and settles after each, for code that awaits something between its timers. */
  async advanceSettled(durationMs: number, stepMs: number): Promise<void> {
    for (let doneMs = 0; doneMs < durationMs; doneMs += stepMs) {
      this.advance(Math.min(stepMs, durationMs - doneMs));
      await this.settle();
    }
  }

  /** Lets promises, real I/O and turns run until all is at rest. Time stands still. */
  async settle(): Promise<void> {
    for (let quiet = 0; quiet < QUIET_TURNS; ) {
      await realTurn();
      if (this.#turns.length > 0) {
        this.turn();
        quiet = 0;
      } else if (ioInFlight() > 0) {
        quiet = 0;
      } else {
        quiet++;
      }
    }
  }

  /** Lets promises run that wait for nothing but each other. No turn, no I/O. */
  async promises(): Promise<void> {
    for (let step = 0; step < 100; step++) await Promise.resolve();
  }

  /** Settles until `condition` holds. */
  async until(condition: () => boolean, what = 'the condition'): Promise<void> {
    for (let attempt = 0; attempt < 10_000; ) {
      if (condition()) return;
      await realTurn();
      this.turn();
      if (ioInFlight() === 0) attempt++;
    }
    throw new Error(`${what} never held`);
  }

  #next(targetMs: number): Waiting | null {
    let next: Waiting | null = null;
    for (const waiting of this.#timers) {
      if (waiting.dueMs > targetMs) continue;
      const sooner =
        next === null ||
        waiting.dueMs < next.dueMs ||
        (waiting.dueMs === next.dueMs && waiting.order < next.order);
      if (sooner) next = waiting;
    }
    return next;
  }
}
