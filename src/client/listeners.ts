/** A set of callbacks. One that throws neither stops the others nor the sync: its error surfaces on a later turn. */
import type { Clock } from '../protocol/clock.ts';

export class Listeners<T> {
  readonly #clock: Clock;
  readonly #all = new Set<(value: T) => void>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get size(): number {
    return this.#all.size;
  }

  /** Returns the function that removes it again. The same function may be added twice. */
  add(listener: (value: T) => void): () => void {
    const entry = (value: T): void => listener(value);
    this.#all.add(entry);
    return () => {
      this.#all.delete(entry);
    };
  }

  emit(value: T): void {
    for (const listener of [...this.#all]) {
      if (!this.#all.has(listener)) continue;
      try {
        listener(value);
      } catch (failure) {
        this.#clock.nextTurn(() => {
          throw failure;
        });
      }
    }
  }
}
