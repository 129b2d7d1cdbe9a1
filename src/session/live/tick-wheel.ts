/**
 * One timer for the deadlines of all sessions: tens of thousands of idle ones cost a list entry each. A deadline is met at
 * most one tick late.
 */
import type { Clock, Timer } from '../../protocol/clock.ts';

/** Something with deadlines. The wheel owns `wheelTick`. */
export interface Ticking {
  wheelTick: number;
  /** Does what is due and returns the next deadline (monotonic ms). */
  onTick(nowMs: number): number;
}

/** Not on the wheel. */
export const OFF_WHEEL = -1;

export class TickWheel {
  readonly #clock: Clock;
  readonly #tickMs: number;
  readonly #buckets = new Map<number, Ticking[]>();
  #timer: Timer | null = null;
  #lastTick = 0;
  #waiting = 0;
  #nowMs: number;

  constructor(clock: Clock, tickMs: number) {
    this.#clock = clock;
    this.#tickMs = Math.max(1, tickMs);
    this.#nowMs = clock.monotonicMs();
  }

  /** Monotonic ms as of the last tick: good enough to note that a session gave a sign of life. */
  get nowMs(): number {
    return this.#nowMs;
  }

  /** Entries on the wheel. */
  get waiting(): number {
    return this.#waiting;
  }

  /** Calls `onTick` at `dueMs` or before: an entry that stands earlier stays there and is asked again. */
  schedule(entry: Ticking, dueMs: number): void {
    this.#start();
    const tick = Math.max(Math.ceil(dueMs / this.#tickMs), this.#lastTick + 1);
    if (entry.wheelTick !== OFF_WHEEL && entry.wheelTick <= tick) return;
    if (entry.wheelTick === OFF_WHEEL) this.#waiting++;
    entry.wheelTick = tick;
    const bucket = this.#buckets.get(tick);
    if (bucket === undefined) this.#buckets.set(tick, [entry]);
    else bucket.push(entry);
  }

  cancel(entry: Ticking): void {
    if (entry.wheelTick === OFF_WHEEL) return;
    entry.wheelTick = OFF_WHEEL;
    this.#waiting--;
  }

  #start(): void {
    if (this.#timer !== null) return;
    this.#nowMs = this.#clock.monotonicMs();
    this.#lastTick = Math.max(this.#lastTick, Math.floor(this.#nowMs / this.#tickMs) - 1);
    this.#arm();
  }

  #arm(): void {
    this.#timer = this.#clock.after(this.#tickMs, () => this.#turn());
  }

  #turn(): void {
    this.#timer = null;
    this.#nowMs = this.#clock.monotonicMs();
    const currentTick = Math.floor(this.#nowMs / this.#tickMs);
    while (this.#lastTick < currentTick) {
      this.#lastTick++;
      this.#serve(this.#lastTick);
    }
    if (this.#waiting > 0) this.#arm();
    else this.#buckets.clear();
  }

  #serve(tick: number): void {
    const bucket = this.#buckets.get(tick);
    if (bucket === undefined) return;
    this.#buckets.delete(tick);
    for (const entry of bucket) {
      // It was cancelled, or stands somewhere else by now.
      if (entry.wheelTick !== tick) continue;
      entry.wheelTick = OFF_WHEEL;
      this.#waiting--;
      const dueMs = entry.onTick(this.#nowMs);
      if (Number.isFinite(dueMs)) this.schedule(entry, dueMs);
    }
  }
}
