/** Closes the holes of a feed: one read of the log per node and partition, whoever asks (architecture §4.2). */
import type { Limits } from '../../protocol/limits.ts';
import type { LogCommit, PartitionState, Storage } from '../../storage/storage.ts';
import type { CatchUpCause, LiveEvents } from './live-events.ts';
import type { PartitionFeed } from './partition-feed.ts';

export interface FeedReaderDeps {
  readonly storage: Storage;
  readonly limits: Limits;
  readonly events: LiveEvents;
  /** Resolves once the fanout has matched what the feed released, so that a long catch-up does not pile up. */
  readonly settled: (feed: PartitionFeed) => Promise<void>;
  /** The storage knows the partition under another epoch. */
  readonly otherEpoch: (feed: PartitionFeed, logEpoch: string) => void;
}

interface LogSlice {
  readonly state: PartitionState;
  readonly commits: readonly LogCommit[];
}

/**
 * What was heard while a read ran: `if-hole`: of commits, which it may have brought; `again`: that something may have been
 * missed, which only a read that begins later can tell.
 */
type Reading = 'once' | 'if-hole' | 'again';

export class FeedReader {
  readonly #deps: FeedReaderDeps;
  readonly #readings = new Map<PartitionFeed, Reading>();

  constructor(deps: FeedReaderDeps) {
    this.#deps = deps;
  }

  catchUp(feed: PartitionFeed, cause: CatchUpCause): void {
    if (feed.isDisposed) return;
    const reading = this.#readings.get(feed);
    if (reading !== undefined) {
      const isOfCommits = cause === 'hole' || cause === 'notice' || cause === 'connect';
      if (reading !== 'again') this.#readings.set(feed, isOfCommits ? 'if-hole' : 'again');
      return;
    }
    void this.#read(feed, cause);
  }

  /** Never rejects. */
  async #read(feed: PartitionFeed, cause: CatchUpCause): Promise<void> {
    const { events } = this.#deps;
    let commits = 0;
    do {
      this.#readings.set(feed, 'once');
      try {
        commits += await this.#closeHole(feed);
      } catch (error) {
        events.emit({ type: 'feed.read_failed', partition: feed.partition, cause, error });
        this.#skip(feed, feed.latestSeq, error);
      }
    } while (this.#isNeededAgain(feed));
    this.#readings.delete(feed);
    // A read that began after the notice shows that there is nothing: the notice was wrong.
    if (feed.hasHole) feed.correctKnown(feed.headSeq);
    if (commits > 0) events.emit({ type: 'feed.caught_up', partition: feed.partition, cause, commits });
  }

  #isNeededAgain(feed: PartitionFeed): boolean {
    if (feed.isDisposed) return false;
    const reading = this.#readings.get(feed);
    return reading === 'again' || (reading === 'if-hole' && feed.hasHole);
  }

  /** Slice by slice up to the head. Returns the number of commits read. */
  async #closeHole(feed: PartitionFeed): Promise<number> {
    let total = 0;
    for (;;) {
      const { state, commits } = await this.#readSlice(feed);
      if (feed.isDisposed) return total;
      if (state.logEpoch !== feed.logEpoch) {
        this.#deps.otherEpoch(feed, state.logEpoch);
        return total;
      }
      total += commits.length;
      this.#offer(feed, state, commits);
      if (feed.headSeq >= state.head) return total;
      if (commits.length === 0 || total >= this.#deps.limits.catchUpCommitsMax) {
        this.#skip(feed, state.head, null);
        return total;
      }
      await this.#deps.settled(feed);
    }
  }

  #readSlice(feed: PartitionFeed): Promise<LogSlice> {
    const afterSeq = feed.headSeq;
    const { ringCommitsMax, ringBytesMax } = this.#deps.limits;
    return this.#deps.storage.readSnapshot(feed.partition, async (reader) => {
      const state = await reader.state();
      if (state.head <= afterSeq || state.logEpoch !== feed.logEpoch) return { state, commits: [] };
      const commits = await reader.readCommits({
        afterSeq,
        throughSeq: state.head,
        commitsMax: ringCommitsMax,
        bytesMax: ringBytesMax,
      });
      return { state, commits };
    });
  }

  #offer(feed: PartitionFeed, { logEpoch }: PartitionState, commits: readonly LogCommit[]): void {
    const first = commits[0];
    if (first === undefined) return;
    // The log no longer holds what was missed.
    this.#skip(feed, first.commitSeq - 1, null);
    feed.offer({ logEpoch, commits, headSeq: commits.at(-1)!.commitSeq }, 'hole');
  }

  #skip(feed: PartitionFeed, throughSeq: number, error: unknown): void {
    const afterSeq = feed.headSeq;
    if (throughSeq <= afterSeq || feed.isDisposed) return;
    this.#deps.events.emit({ type: 'feed.gap', partition: feed.partition, afterSeq, throughSeq, error });
    feed.skipTo(throughSeq);
  }
}
