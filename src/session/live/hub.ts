/** The commit fanout of this node (architecture §4): durable commits in, deltas and wake-ups to the members of each partition out. */
import type { Clock } from '../../protocol/clock.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { CompiledSchema } from '../../protocol/schema.ts';
import type { LogCommit, Storage } from '../../storage/storage.ts';
import type { CommitSink } from '../sync/sync-deps.ts';
import type { Bus, Notice } from './bus.ts';
import { Fanout } from './fanout.ts';
import { FeedReader } from './feed-reader.ts';
import type { LiveEvents } from './live-events.ts';
import type { FanoutMember } from './member.ts';
import { type FeedDeps, PartitionFeed } from './partition-feed.ts';

export interface HubDeps {
  readonly schema: CompiledSchema;
  readonly storage: Storage;
  readonly limits: Limits;
  readonly clock: Clock;
  readonly bus: Bus;
  readonly events: LiveEvents;
}

export interface Hub extends CommitSink {
  /** From now on commits of the partition are kept for this member; it sees them once registrations are installed. */
  join(partition: string, member: FanoutMember): PartitionFeed;
  /** Harmless for a member that left already. */
  leave(feed: PartitionFeed, member: FanoutMember): void;
  members(partition: string): Iterable<FanoutMember>;
  /** Ends every member that is on another epoch than `logEpoch`. */
  fence(partition: string, logEpoch: string): void;
  /** Members over all partitions. */
  readonly memberCount: number;
  close(): void;
}

const NO_MEMBERS: readonly FanoutMember[] = [];

export function createHub(deps: HubDeps): Hub {
  return new CommitHub(deps);
}

class CommitHub implements Hub {
  readonly #deps: HubDeps;
  readonly #feeds = new Map<string, PartitionFeed>();
  readonly #feedDeps: FeedDeps;
  readonly #fanout: Fanout;
  readonly #reader: FeedReader;
  readonly #unsubscribe: readonly (() => void)[];
  #members = 0;

  constructor(deps: HubDeps) {
    const { storage, limits, events, clock, bus, schema } = deps;
    this.#deps = deps;
    this.#fanout = new Fanout(clock, limits, events);
    this.#reader = new FeedReader({
      storage,
      limits,
      events,
      settled: (feed) => this.#settled(feed),
      otherEpoch: (feed, logEpoch) => this.fence(feed.partition, logEpoch),
    });
    this.#feedDeps = {
      limits,
      schemaVersion: schema.version,
      fanout: this.#fanout,
      catchUp: (feed, cause) => this.#reader.catchUp(feed, cause),
      backlogDropped: ({ partition }, throughSeq) =>
        events.emit({ type: 'fanout.backlog_dropped', partition, throughSeq }),
      encodeFailed: (error) => events.emit({ type: 'fanout.failed', error }),
    };
    this.#unsubscribe = [
      bus.subscribe((notice) => this.#hear(notice)),
      bus.onReconnect(() => this.#resume()),
    ];
  }

  get memberCount(): number {
    return this.#members;
  }

  accept(partition: string, logEpoch: string, commits: readonly LogCommit[]): void {
    const last = commits.at(-1);
    if (last === undefined) return;
    const headSeq = last.commitSeq;
    this.#feeds.get(partition)?.offer({ logEpoch, commits, headSeq }, 'hole');
    this.#deps.bus.announce({ kind: 'commits', partition, logEpoch, head: headSeq, commits });
  }

  join(partition: string, member: FanoutMember): PartitionFeed {
    let feed = this.#feeds.get(partition);
    if (feed === undefined) {
      feed = new PartitionFeed(partition, this.#feedDeps);
      this.#feeds.set(partition, feed);
      this.#poll(feed);
    }
    feed.join(member);
    this.#members++;
    return feed;
  }

  leave(feed: PartitionFeed, member: FanoutMember): void {
    if (!feed.members.has(member)) return;
    feed.leave(member);
    this.#members--;
    if (feed.members.size === 0) this.#dispose(feed);
  }

  members(partition: string): Iterable<FanoutMember> {
    return this.#feeds.get(partition)?.members ?? NO_MEMBERS;
  }

  fence(partition: string, logEpoch: string): void {
    const feed = this.#feeds.get(partition);
    if (feed === undefined || feed.logEpoch === logEpoch) return;
    this.#dispose(feed);
    this.#deps.events.emit({ type: 'feed.fenced', partition, sessions: feed.members.size });
    for (const member of [...feed.members]) member.epochRotated();
  }

  close(): void {
    for (const unsubscribe of this.#unsubscribe) unsubscribe();
    for (const feed of this.#feeds.values()) this.#dispose(feed);
  }

  #hear(notice: Notice): void {
    if (notice.kind !== 'commits') return;
    const { partition, logEpoch, commits, head } = notice;
    this.#feeds.get(partition)?.offer({ logEpoch, commits, headSeq: head }, 'notice');
  }

  /** Notices may have been lost while the bus was away. */
  #resume(): void {
    for (const feed of this.#feeds.values()) {
      if (feed.logEpoch !== null) this.#reader.catchUp(feed, 'reconnect');
    }
  }

  /** The backstop for a lost notice. */
  #poll(feed: PartitionFeed): void {
    feed.pollTimer = this.#deps.clock.after(this.#deps.limits.headPollMs, () => {
      if (feed.isDisposed) return;
      if (feed.logEpoch !== null) this.#reader.catchUp(feed, 'poll');
      this.#poll(feed);
    });
  }

  #dispose(feed: PartitionFeed): void {
    feed.isDisposed = true;
    feed.pollTimer?.cancel();
    this.#fanout.dropFeed(feed);
    if (this.#feeds.get(feed.partition) === feed) this.#feeds.delete(feed.partition);
  }

  #settled(feed: PartitionFeed): Promise<void> {
    return new Promise((resolve) => {
      const look = (): void => {
        if (feed.isDisposed || feed.isMatched) resolve();
        else this.#deps.clock.nextTurn(look);
      };
      look();
    });
  }
}
