/** Admits up to `slots` holders at a time, the others in the order in which they came. */
export class FifoLock {
  #free: number;
  readonly #waiting: (() => void)[] = [];

  constructor(slots: number) {
    this.#free = slots;
  }

  /** Runs `work` while holding a slot. */
  async run<T>(work: () => T | Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--;
    else await new Promise<void>((admit) => this.#waiting.push(admit));
    try {
      return await work();
    } finally {
      const next = this.#waiting.shift();
      // The slot goes straight to the next one, so that a newcomer cannot overtake it.
      if (next === undefined) this.#free++;
      else next();
    }
  }
}
