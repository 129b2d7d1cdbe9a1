/** Spreads matching and delivery over turns of the event loop, for all partitions of the process (architecture §4.8). */
import type { Clock } from '../../protocol/clock.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { Cohort } from './cohort.ts';
import type { LiveEvents } from './live-events.ts';
import type { FanoutTurn } from './member.ts';

/** A feed with released commits that were not matched yet. */
export interface Matchable {
  /** Matches the next released commit; returns how many registrations were looked at, or `null` when none is left. */
  matchNext(): number | null;
}

/** One match is this much cheaper than one delivery. */
const MATCHES_PER_SESSION = 16;

export class Fanout {
  readonly #clock: Clock;
  readonly #events: LiveEvents;
  readonly #sessionsPerTurn: number;
  readonly #feeds = new Set<Matchable>();
  readonly #cohorts = new Set<Cohort>();
  #isScheduled = false;

  constructor(clock: Clock, limits: Limits, events: LiveEvents) {
    this.#clock = clock;
    this.#events = events;
    this.#sessionsPerTurn = Math.max(1, limits.fanoutSessionsPerTurn);
  }

  get isIdle(): boolean {
    return this.#feeds.size === 0 && this.#cohorts.size === 0;
  }

  /** Never does the work itself: whoever released the commits is still to be answered. */
  addFeed(feed: Matchable): void {
    this.#feeds.add(feed);
    this.#schedule();
  }

  addCohort(cohort: Cohort): void {
    if (cohort.isQueued) return;
    cohort.isQueued = true;
    this.#cohorts.add(cohort);
    this.#schedule();
  }

  dropFeed(feed: Matchable): void {
    this.#feeds.delete(feed);
  }

  dropCohort(cohort: Cohort): void {
    cohort.isQueued = false;
    this.#cohorts.delete(cohort);
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.#clock.nextTurn(() => this.#turn());
  }

  #turn(): void {
    this.#isScheduled = false;
    this.#match();
    const turn: FanoutTurn = { nowMs: this.#clock.nowMs(), deltas: 0, wakeUps: 0, bytes: 0 };
    const sessions = this.#deliver(turn);
    if (sessions > 0) {
      const { deltas, wakeUps, bytes } = turn;
      this.#events.emit({ type: 'fanout.turn', sessions, deltas, wakeUps, bytes });
    }
    if (!this.isIdle) this.#schedule();
  }

  /** Partitions take turns: one that is not done goes to the back. */
  #match(): void {
    let budget = this.#sessionsPerTurn * MATCHES_PER_SESSION;
    for (const feed of this.#feeds) {
      if (budget <= 0) return;
      this.#feeds.delete(feed);
      let matches: number | null = 0;
      while (budget > 0 && matches !== null) {
        matches = feed.matchNext();
        budget -= (matches ?? 0) + 1;
      }
      if (matches !== null) this.#feeds.add(feed);
    }
  }

  /** Cohorts take turns in the same way. */
  #deliver(turn: FanoutTurn): number {
    let sessions = 0;
    for (const cohort of this.#cohorts) {
      const left = this.#sessionsPerTurn - sessions;
      if (left <= 0) break;
      this.dropCohort(cohort);
      sessions += cohort.deliver(left, turn);
      if (cohort.hasWork) this.addCohort(cohort);
    }
    return sessions;
  }
}
