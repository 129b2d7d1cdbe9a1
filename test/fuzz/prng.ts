/** A small seeded generator (mulberry32 over a mixed seed): the same numbers on every machine. */
export class Prng {
  #state: number;

  /** Each (seed, index) pair starts a sequence of its own, so that one input can be made again alone. */
  constructor(seed: number, index: number) {
    this.#state = (Math.imul(seed ^ 0x9e37_79b9, 0x85eb_ca6b) ^ Math.imul(index + 1, 0xc2b2_ae35)) >>> 0;
  }

  u32(): number {
    this.#state = (this.#state + 0x6d2b_79f5) >>> 0;
    let mixed = this.#state;
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  }

  /** Uniform in [0, bound). */
  below(bound: number): number {
    return bound <= 1 ? 0 : this.u32() % bound;
  }

  pick<T>(items: readonly T[]): T {
    return items[this.below(items.length)]!;
  }
}
