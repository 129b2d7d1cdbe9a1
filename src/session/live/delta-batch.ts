/** What became ready for one cohort since its last delivery; it goes to every member, one after the other. */
import type { Cohort } from './cohort.ts';
import { type DeltaMessage, encodeDeltas } from './delta.ts';
import type { RingEntry } from './ring-entry.ts';

const NO_MESSAGES: readonly DeltaMessage[] = [];

export class DeltaBatch {
  readonly cohort: Cohort;
  readonly lastSeq: number;
  #isUnread: boolean;
  readonly #commits: readonly RingEntry[];
  /** Encoded messages by the position of their first commit. Nearly always one entry, for all commits. */
  #encoded: Map<number, readonly DeltaMessage[]> | null = null;

  constructor(cohort: Cohort, commits: readonly RingEntry[], unreadThroughSeq: number | null) {
    this.cohort = cohort;
    this.#commits = commits;
    this.#isUnread = unreadThroughSeq !== null;
    this.lastSeq = unreadThroughSeq ?? commits.at(-1)!.seq;
  }

  /** The commits up to `lastSeq` could not be read, or not be encoded: members are woken (part 3, 3.5.2-10). */
  get isUnread(): boolean {
    return this.#isUnread;
  }

  /** The deltas for a member that was told about everything up to `seq`. Encoded when the first member asks. */
  messagesAfter(seq: number): readonly DeltaMessage[] {
    let first = 0;
    while (first < this.#commits.length && this.#commits[first]!.seq <= seq) first++;
    if (first === this.#commits.length) return NO_MESSAGES;
    this.#encoded ??= new Map();
    const known = this.#encoded.get(first);
    if (known !== undefined) return known;
    const commits = first === 0 ? this.#commits : this.#commits.slice(first);
    const messages = this.#encode(commits);
    this.#encoded.set(first, messages);
    return messages;
  }

  /** A commit that has no encoding is a defect, but no reason to let the other sessions of the process down. */
  #encode(commits: readonly RingEntry[]): readonly DeltaMessage[] {
    try {
      return encodeDeltas(this.cohort.deltaPlan, commits);
    } catch (error) {
      this.#isUnread = true;
      this.cohort.encodeFailed(error);
      return [{ lastSeq: this.lastSeq, bytes: null }];
    }
  }
}
