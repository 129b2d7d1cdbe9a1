/**
 * What one session is given of its partition's commits: deltas while it is live, wake-ups while it is behind, and the
 * numbers that decide which (part 3, 3.5.2). It is the session's place in the hub.
 */
import type { WakeReason } from '../../protocol/control.ts';
import type { ScopeMap, WireVersion } from '../../protocol/frames.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { Registration } from '../sync/round-outcome.ts';
import type { Cohort, CohortIdentity } from './cohort.ts';
import type { DeltaBatch } from './delta-batch.ts';
import { DeltaBudget } from './delta-budget.ts';
import type { FanoutMember, FanoutTurn } from './member.ts';
import type { Outbox } from './outbox.ts';
import type { PartitionFeed } from './partition-feed.ts';
import type { SessionMachine } from './session-machine.ts';
import type { SessionEvent } from './session-state.ts';

export interface DownlinkDeps {
  readonly limits: Limits;
  readonly machine: SessionMachine;
  readonly outbox: Outbox;
  /** Epoch ms after which nothing leaves; infinite for a grant without an end. */
  readonly expiresAtMs: number;
  /** Host signals that reach a session through its partition. */
  readonly signals: HostSignals;
}

export interface HostSignals {
  readonly actorId: string;
  scopesChanged(): void;
  resync(): void;
}

/** What a pull left behind for deltas. */
export interface PulledState {
  readonly wireVersion: WireVersion;
  readonly schemaVersion: number;
  readonly registrations: readonly Registration[];
  /** Head of the snapshot that the pull read. */
  readonly snapshotSeq: number;
}

const NO_REGISTRATIONS: readonly Registration[] = [];

export class Downlink implements FanoutMember {
  cohort: Cohort | null = null;
  #observedSeq = 0;
  /** Highest ack; delivered is not acked (3.5.2-9). */
  #ackedSeq = -1;
  /** Cursor that the last written wake-up named: a pull that follows it covers everything up to there. */
  #wokenSeq = -1;
  readonly #feed: PartitionFeed;
  readonly #deps: DownlinkDeps;
  #budget: DeltaBudget | null = null;

  /** Joins the feed: from here on no commit is missed. */
  constructor(join: (member: FanoutMember) => PartitionFeed, deps: DownlinkDeps) {
    this.#deps = deps;
    this.#feed = join(this);
  }

  get feed(): PartitionFeed {
    return this.#feed;
  }

  get observedSeq(): number {
    return this.#observedSeq;
  }

  get ackedSeq(): number {
    return this.#ackedSeq;
  }

  get actorId(): string {
    return this.#deps.signals.actorId;
  }

  /** Effective scopes by registration, as they are in force. */
  get registrations(): readonly { readonly table: string; readonly effective: ScopeMap }[] {
    return this.cohort?.registrations ?? [];
  }

  // Registrations.

  /** After `hello`: what was released since `latestSeq` was read is delivered like any other commit (3.2.2-10). */
  start(identity: CohortIdentity, latestSeq: number, nowMs: number): void {
    this.#observedSeq = latestSeq;
    const cohort = this.#feed.install(this, identity);
    const missed = this.#feed.replayAfter(cohort, latestSeq);
    if (missed === 'gap') this.#fallBehind(this.#feed.headSeq, 'commit-unread');
    else if (missed !== null) this.deliver(missed, { nowMs, deltas: 0, wakeUps: 0, bytes: 0 });
  }

  /** At the end of a successful pull, right before `END` (3.11.7). */
  installPulled(pulled: PulledState): void {
    this.settle();
    const { snapshotSeq, registrations } = pulled;
    const cohort = this.#feed.install(this, pulled);
    const newestSeq = this.#feed.newestMatchAfter(cohort, snapshotSeq);
    const isCaughtUp = registrations.every(({ state, caughtUp }) => state !== 'live' || caughtUp);
    if (newestSeq !== null) {
      // A commit after the snapshot that the new list matches: without this the next delta would jump it.
      const isTold = this.#deps.machine.isSuppressed && newestSeq <= this.#observedSeq;
      if (!isTold || !isCaughtUp) this.#fallBehind(newestSeq, 'commit-matched');
    } else if (!isCaughtUp) {
      this.#fallBehind(snapshotSeq, 'commit-matched');
    }
    this.#observe(snapshotSeq);
  }

  /** At the end of a push-only round: deltas take its versions from now on. */
  adopt(wireVersion: WireVersion, schemaVersion: number): void {
    this.settle();
    const registrations = this.cohort?.identity.registrations ?? NO_REGISTRATIONS;
    this.#feed.install(this, { wireVersion, schemaVersion, registrations });
  }

  /** Registrations whose past the client may not have: it stays behind until it pulled. */
  replaceRegistrations(registrations: readonly Registration[]): void {
    this.settle();
    const identity = this.cohort?.identity;
    if (identity === undefined) return;
    this.#feed.install(this, { ...identity, registrations });
  }

  /**
   * What was released and matches, but did not have its turn, counts as told from here on. Before every change of the cohort
   * and at the end of every round, so that a commit of the round's time is never taken for a later one.
   */
  settle(): void {
    if (this.cohort === null) return;
    const newestSeq = this.#feed.newestMatch(this.cohort);
    if (newestSeq > this.#observedSeq) this.#fallBehind(newestSeq, 'commit-matched');
  }

  // Fanout.

  deliver(batch: DeltaBatch, turn: FanoutTurn): void {
    if (batch.lastSeq <= this.#observedSeq) return;
    const { machine } = this.#deps;
    if (turn.nowMs >= this.#deps.expiresAtMs) {
      machine.step('identity-ended');
      return;
    }
    const event = batch.isUnread ? 'commit-unread' : 'commit-matched';
    const effect = machine.peek(event);
    if (effect === 'send-delta') this.#send(batch, turn);
    else if (effect === 'wake') this.#wakeAgain(batch.lastSeq, event, turn);
  }

  epochRotated(): void {
    this.#deps.machine.step('epoch-rotated');
  }

  identityEnded(): void {
    this.#deps.machine.step('identity-ended');
  }

  scopesChanged(): void {
    this.#deps.signals.scopesChanged();
  }

  resync(): void {
    this.#deps.signals.resync();
  }

  // Acks.

  /** Returns the cursor to persist, or `null` for an ack that says nothing (3.5.3). */
  ack(cursor: number): number | null {
    // A lie must not open the log for pruning. What this connection pulled is no lie, though this node may not have heard
    // of it yet.
    const seq = Math.min(cursor, Math.max(this.#feed.latestSeq, this.#observedSeq));
    if (seq < 0 || seq < this.#ackedSeq) return null;
    const isReached = seq >= this.#observedSeq;
    if (this.#deps.machine.step(isReached ? 'ack-reached' : 'ack-short') !== 'note-ack') return null;
    this.#ackedSeq = seq;
    this.#observe(seq);
    this.#budget?.acked(seq);
    return seq;
  }

  /** Says that there is something to pull, whatever the registrations (3.7-5). */
  wake(reason: WakeReason): void {
    this.#deps.outbox.wake(reason);
  }

  /** A wake-up is being written; returns the newest commit it can name. */
  woken(): number {
    this.#wokenSeq = this.#feed.latestSeq;
    return this.#wokenSeq;
  }

  #send(batch: DeltaBatch, turn: FanoutTurn): void {
    if (!batch.cohort.isServable) {
      this.#wakeFor(batch.lastSeq, 'delta-dropped', 'reset-required', turn);
      return;
    }
    this.#budget ??= new DeltaBudget();
    for (const { bytes, lastSeq } of batch.messagesAfter(this.#observedSeq)) {
      if (bytes === null) {
        this.#wakeFor(batch.lastSeq, 'delta-dropped', 'delta-too-large', turn);
        return;
      }
      const { outbox, limits } = this.#deps;
      if (outbox.isHigh || !this.#budget.allows(limits, turn.nowMs)) {
        const event = outbox.isHigh ? 'buffer-high' : 'delta-dropped';
        this.#wakeFor(batch.lastSeq, event, 'catchup-required', turn);
        return;
      }
      outbox.send(bytes);
      this.#budget.sent(lastSeq);
      this.#observedSeq = lastSeq;
      turn.deltas++;
      turn.bytes += bytes.length;
    }
  }

  /** A commit that the last wake-up named already needs no other one; a newer one does. */
  #wakeAgain(seq: number, event: SessionEvent, turn: FanoutTurn): void {
    const isNamed = this.#deps.machine.isSuppressed && seq <= this.#wokenSeq;
    if (!isNamed) this.#wakeFor(seq, event, 'catchup-required', turn);
    else this.#observe(seq);
  }

  #wakeFor(seq: number, event: SessionEvent, reason: WakeReason, turn: FanoutTurn): void {
    this.#observe(seq);
    this.#deps.machine.step(event);
    this.#deps.outbox.wake(reason);
    turn.wakeUps++;
  }

  #fallBehind(seq: number, event: 'commit-matched' | 'commit-unread'): void {
    this.#observe(seq);
    const { machine } = this.#deps;
    // A live session never gets here with a matched commit unless a delta would jump a gap.
    const fall = machine.peek(event) === 'send-delta' ? 'delta-dropped' : event;
    if (machine.step(fall) === 'wake') this.#deps.outbox.wake('catchup-required');
  }

  #observe(seq: number): void {
    if (seq > this.#observedSeq) this.#observedSeq = seq;
  }
}
