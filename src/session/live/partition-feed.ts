/**
 * The commits of one partition on this node, released in dense sequence order to the cohorts that match them
 * (architecture §4.2). Lives while the partition has sessions.
 *
 * It starts unopened: what is accepted meanwhile is kept, so that a session which joined before it read the log misses
 * nothing. The first session's reading opens it.
 */

import type { Timer } from '../../protocol/clock.ts';
import { encodeFrame } from '../../protocol/frame-codecs.ts';
import type { WireVersion } from '../../protocol/frames.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { LogCommit, PartitionState } from '../../storage/storage.ts';
import { Cohort, type CohortIdentity, cohortKey } from './cohort.ts';
import { CommitRing } from './commit-ring.ts';
import type { DeltaBatch } from './delta-batch.ts';
import type { Fanout, Matchable } from './fanout.ts';
import type { CatchUpCause } from './live-events.ts';
import type { FanoutMember } from './member.ts';
import { RingEntry } from './ring-entry.ts';
import { ScopeIndex } from './scope-index.ts';
import { WakeText } from './wake-text.ts';

export interface FeedDeps {
  readonly limits: Limits;
  readonly schemaVersion: number;
  readonly fanout: Fanout;
  /** Asks for one read of the log; calls while one runs are joined. */
  readonly catchUp: (feed: PartitionFeed, cause: CatchUpCause) => void;
  readonly encodeFailed: (error: unknown) => void;
  /** Commits up to `throughSeq` were given up as deltas. */
  readonly backlogDropped: (feed: PartitionFeed, throughSeq: number) => void;
}

export interface Offer {
  readonly logEpoch: string;
  readonly commits: readonly LogCommit[];
  readonly headSeq: number;
}

/** Commits that could not be read, in their place between those that could. */
interface Hole {
  readonly throughSeq: number;
}

export class PartitionFeed implements Matchable {
  readonly partition: string;
  readonly members = new Set<FanoutMember>();
  readonly wakeText = new WakeText();
  /** Nobody listens any more: the last member left, or the epoch was rotated. */
  isDisposed = false;
  /** Head poll, owned by the hub. */
  pollTimer: Timer | null = null;
  #logEpoch: string | null = null;
  /** Epoch of what came before the feed was opened. */
  #earlyEpoch: string | null = null;
  /** Newest released commit. */
  #headSeq = 0;
  /** Newest commit heard of. */
  #knownSeq = 0;
  readonly #deps: FeedDeps;
  readonly #index = new ScopeIndex();
  readonly #cohorts = new Map<string, Cohort>();
  readonly #ring: CommitRing;
  /** Accepted above a hole, or before the feed was opened. */
  readonly #early = new Map<number, LogCommit>();
  /** Released and not matched yet, from `#matched` on. */
  #released: (RingEntry | Hole)[] = [];
  #matched = 0;
  readonly #headers: (Uint8Array | null)[] = [null, null];

  constructor(partition: string, deps: FeedDeps) {
    this.partition = partition;
    this.#deps = deps;
    this.#ring = new CommitRing(deps.limits, 0);
  }

  /** `null` until it is opened. */
  get logEpoch(): string | null {
    return this.#logEpoch;
  }

  get headSeq(): number {
    return this.#headSeq;
  }

  /** Highest commit known to exist, read or not. */
  get latestSeq(): number {
    return Math.max(this.#headSeq, this.#knownSeq);
  }

  get hasHole(): boolean {
    return this.#knownSeq > this.#headSeq;
  }

  get isMatched(): boolean {
    return this.#matched === this.#released.length;
  }

  /** False when `state` is of another epoch than this feed: one of the two is out of date. */
  open(state: PartitionState): boolean {
    if (this.#logEpoch === null) {
      this.#expectEarly(state.logEpoch);
      this.#logEpoch = state.logEpoch;
      this.#headSeq = state.head;
      this.#ring.restart(state.head);
      this.#releaseEarly();
    }
    if (this.#logEpoch !== state.logEpoch) {
      this.#deps.catchUp(this, 'epoch');
      return false;
    }
    this.note(state.head, 'connect');
    return true;
  }

  /** Commits from whatever source, in any order, repeated or not. `headSeq`: newest that exists. */
  offer({ logEpoch, commits, headSeq }: Offer, cause: CatchUpCause): void {
    if (this.#logEpoch === null) this.#expectEarly(logEpoch);
    else if (this.#logEpoch !== logEpoch) {
      // Which of the two epochs is the newer one, only the storage knows.
      this.#deps.catchUp(this, 'epoch');
      return;
    }
    for (const commit of commits) {
      const seq = commit.commitSeq;
      if (this.#logEpoch !== null && seq === this.#headSeq + 1) this.#release(commit);
      else if (seq > this.#headSeq) this.#keepEarly(commit);
    }
    this.#releaseEarly();
    this.note(headSeq, cause);
  }

  /** A commit with this number exists. Whatever of it is missing here is read from the log, never waited for. */
  note(headSeq: number, cause: CatchUpCause): void {
    if (headSeq > this.#knownSeq) this.#knownSeq = headSeq;
    if (this.#logEpoch !== null && this.hasHole) this.#deps.catchUp(this, cause);
  }

  /** Goes on behind commits that nobody can read: all their possible receivers are woken (part 3, 3.5.2-10). */
  skipTo(throughSeq: number): void {
    if (throughSeq <= this.#headSeq) return;
    this.#headSeq = throughSeq;
    this.#ring.restart(throughSeq);
    this.#released.push({ throughSeq });
    this.#deps.fanout.addFeed(this);
    this.#releaseEarly();
  }

  /** Takes back what was heard of `headSeq`: the log itself ends before. */
  correctKnown(headSeq: number): void {
    this.#knownSeq = Math.max(headSeq, this.#headSeq);
  }

  // Members.

  join(member: FanoutMember): void {
    this.members.add(member);
  }

  leave(member: FanoutMember): void {
    this.members.delete(member);
    this.#leaveCohort(member);
  }

  /** Puts the member into the cohort of `identity`. What it has missed is for the caller to find out. */
  install(member: FanoutMember, identity: CohortIdentity): Cohort {
    const cohort = this.#intern(identity);
    if (member.cohort === cohort) return cohort;
    this.#leaveCohort(member);
    member.cohort = cohort;
    cohort.members.add(member);
    return cohort;
  }

  /** Newest released commit that matches the member's cohort, delivered or not; 0 for none. */
  newestMatch(cohort: Cohort): number {
    for (let at = this.#released.length - 1; at >= this.#matched; at--) {
      const released = this.#released[at]!;
      if (!(released instanceof RingEntry)) {
        if (cohort.hasLive) return released.throughSeq;
      } else if (cohort.matches(released)) {
        return released.seq;
      }
    }
    return cohort.lastMatchSeq;
  }

  /**
   * Newest commit above `afterSeq` that matches the cohort, or `null`. Where the ring does not reach back that far, the
   * head stands for what may be there.
   */
  newestMatchAfter(cohort: Cohort, afterSeq: number): number | null {
    if (!cohort.hasLive) return null;
    for (const entry of this.#ring.newestFirst(afterSeq)) {
      if (cohort.matches(entry)) return entry.seq;
    }
    return this.#covers(afterSeq) ? null : this.#headSeq;
  }

  /** What the cohort's members get for the commits above `afterSeq`; `null` for nothing, `'gap'` when the ring is too short. */
  replayAfter(cohort: Cohort, afterSeq: number): DeltaBatch | 'gap' | null {
    if (!cohort.hasLive || afterSeq >= this.#headSeq) return null;
    return this.#covers(afterSeq) ? cohort.matchAll(this.#ring.after(afterSeq)) : 'gap';
  }

  // Matching, on a turn of the fanout.

  matchNext(): number | null {
    const released = this.#released[this.#matched];
    if (released === undefined || this.isDisposed) {
      this.#released = [];
      this.#matched = 0;
      return null;
    }
    this.#matched++;
    return released instanceof RingEntry ? this.#matchEntry(released) : this.#matchHole(released);
  }

  #matchEntry(entry: RingEntry): number {
    return this.#index.match(entry, this.#deps.fanout);
  }

  #matchHole({ throughSeq }: Hole): number {
    for (const cohort of this.#cohorts.values()) {
      if (!cohort.hasLive) continue;
      cohort.collectUnread(throughSeq);
      this.#deps.fanout.addCohort(cohort);
    }
    return this.#cohorts.size;
  }

  // Release.

  #release(commit: LogCommit): void {
    const entry = new RingEntry(commit);
    this.#headSeq = commit.commitSeq;
    this.#ring.push(entry);
    // A commit without changes is not fanned out (3.6).
    if (commit.changes.length === 0) return;
    this.#released.push(entry);
    this.#deps.fanout.addFeed(this);
    if (this.#released.length - this.#matched > this.#deps.limits.fanoutBacklogCommitsMax)
      this.#dropBacklog();
  }

  /** Commits come faster than they can be matched: one pull per session is cheaper than all those deltas. */
  #dropBacklog(): void {
    const hole = { throughSeq: this.#headSeq };
    this.#released.length = this.#matched;
    this.#released.push(hole);
    this.#deps.backlogDropped(this, hole.throughSeq);
  }

  /** Commits of another timeline are of no use. */
  #expectEarly(logEpoch: string): void {
    if (this.#earlyEpoch !== null && this.#earlyEpoch !== logEpoch) {
      this.#early.clear();
      this.#knownSeq = 0;
    }
    this.#earlyEpoch = logEpoch;
  }

  /** Bounded: what does not fit is read from the log later. */
  #keepEarly(commit: LogCommit): void {
    if (this.#early.size < this.#deps.limits.ringCommitsMax) this.#early.set(commit.commitSeq, commit);
    if (commit.commitSeq > this.#knownSeq) this.#knownSeq = commit.commitSeq;
  }

  #releaseEarly(): void {
    if (this.#early.size === 0 || this.#logEpoch === null) return;
    for (;;) {
      const next = this.#early.get(this.#headSeq + 1);
      if (next === undefined) break;
      this.#early.delete(next.commitSeq);
      this.#release(next);
    }
    for (const seq of this.#early.keys()) {
      if (seq <= this.#headSeq) this.#early.delete(seq);
    }
  }

  #covers(afterSeq: number): boolean {
    return afterSeq >= this.#ring.floorSeq;
  }

  // Cohorts.

  #intern(identity: CohortIdentity): Cohort {
    const key = cohortKey(identity);
    const known = this.#cohorts.get(key);
    if (known !== undefined) return known;
    const cohort = new Cohort(identity, {
      key,
      header: this.#header(identity.wireVersion),
      deltaBytesMax: this.#deps.limits.deltaBytesMax,
      isServable: identity.schemaVersion === this.#deps.schemaVersion,
      encodeFailed: this.#deps.encodeFailed,
    });
    this.#cohorts.set(key, cohort);
    for (const registration of cohort.registrations) {
      if (registration.isLive) this.#index.add(registration);
    }
    return cohort;
  }

  #leaveCohort(member: FanoutMember): void {
    const { cohort } = member;
    if (cohort === null) return;
    member.cohort = null;
    cohort.members.delete(member);
    if (cohort.members.size > 0) return;
    this.#cohorts.delete(cohort.key);
    this.#deps.fanout.dropCohort(cohort);
    for (const registration of cohort.registrations) this.#index.remove(registration);
  }

  /** The same for every delta of a wire version in this epoch. */
  #header(wireVersion: WireVersion): Uint8Array {
    const known = this.#headers[wireVersion - 1];
    if (known !== null && known !== undefined) return known;
    const logEpoch = this.#logEpoch ?? '';
    const header = encodeFrame(wireVersion, { type: 'RESP_HEADER', logEpoch, resetRequired: false });
    this.#headers[wireVersion - 1] = header;
    return header;
  }
}
