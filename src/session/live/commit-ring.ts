/** The newest commits of one partition, dense and in order, for catch-up without the database (architecture §4.6). */
import type { Limits } from '../../protocol/limits.ts';
import type { RingEntry } from './ring-entry.ts';

/** Emptied places in front of the ring that are not yet worth a move. */
const FRONT_MAX = 64;

export class CommitRing {
  readonly #commitsMax: number;
  readonly #bytesMax: number;
  /** Entries from `#first` on; the emptied front is cut off in bulk, so that shifting stays cheap. */
  #entries: (RingEntry | undefined)[] = [];
  #first = 0;
  #bytes = 0;
  #floor: number;

  constructor(limits: Pick<Limits, 'ringCommitsMax' | 'ringBytesMax'>, headSeq: number) {
    this.#commitsMax = limits.ringCommitsMax;
    this.#bytesMax = limits.ringBytesMax;
    this.#floor = headSeq;
  }

  /** Everything above it and up to the head is here. */
  get floorSeq(): number {
    return this.#floor;
  }

  get length(): number {
    return this.#entries.length - this.#first;
  }

  get bytes(): number {
    return this.#bytes;
  }

  /** `entry` continues the head. */
  push(entry: RingEntry): void {
    this.#entries.push(entry);
    this.#bytes += entry.bytes;
    while (this.length > this.#commitsMax || (this.#bytes > this.#bytesMax && this.length > 0)) this.#evict();
  }

  /** Forgets all; the next push is `headSeq + 1`. */
  restart(headSeq: number): void {
    this.#entries = [];
    this.#first = 0;
    this.#bytes = 0;
    this.#floor = headSeq;
  }

  /** Entries with `afterSeq < seq`, newest first. Ask `floorSeq` whether that is all of them. */
  *newestFirst(afterSeq: number): Generator<RingEntry> {
    for (let at = this.#entries.length - 1; at >= this.#first; at--) {
      const entry = this.#entries[at]!;
      if (entry.seq <= afterSeq) return;
      yield entry;
    }
  }

  /** Entries with `afterSeq < seq`, oldest first. */
  after(afterSeq: number): RingEntry[] {
    const skip = Math.max(0, afterSeq - this.#floor);
    return this.#entries.slice(this.#first + skip) as RingEntry[];
  }

  #evict(): void {
    const evicted = this.#entries[this.#first]!;
    this.#bytes -= evicted.bytes;
    this.#floor = evicted.seq;
    this.#entries[this.#first] = undefined;
    this.#first++;
    if (this.#first >= FRONT_MAX && this.#first * 2 >= this.#entries.length) {
      this.#entries.splice(0, this.#first);
      this.#first = 0;
    }
  }
}
