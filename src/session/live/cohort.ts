/** Sessions that get the same bytes: same wire version, schema version, subscriptions, effective scopes and states (architecture §4.3). */
import type { WireVersion } from '../../protocol/frames.ts';
import type { Registration } from '../sync/round-outcome.ts';
import { CohortRegistration } from './cohort-registration.ts';
import type { DeltaPlan } from './delta.ts';
import { DeltaBatch } from './delta-batch.ts';
import type { FanoutMember, FanoutTurn } from './member.ts';
import type { RingEntry } from './ring-entry.ts';

export interface CohortIdentity {
  readonly wireVersion: WireVersion;
  readonly schemaVersion: number;
  readonly registrations: readonly Registration[];
}

export interface CohortSetting {
  readonly key: string;
  /** Encoded `RESP_HEADER` of the wire version. */
  readonly header: Uint8Array;
  readonly deltaBytesMax: number;
  /** Whether rows go out in the schema version that the members run (part 3, 3.16 A-7). */
  readonly isServable: boolean;
  readonly encodeFailed: (error: unknown) => void;
}

interface Delivery {
  readonly batch: DeltaBatch;
  readonly members: Iterator<FanoutMember>;
}

/** Text that two sessions have in common exactly when the same delta bytes fit both. */
export function cohortKey({ wireVersion, schemaVersion, registrations }: CohortIdentity): string {
  return JSON.stringify([
    wireVersion,
    schemaVersion,
    registrations.map(({ id, table, effective, state }) => [id, table, effective, state]),
  ]);
}

export class Cohort {
  readonly key: string;
  readonly identity: CohortIdentity;
  readonly isServable: boolean;
  readonly registrations: readonly CohortRegistration[];
  /** Iterated while it changes: who joins is visited later and skips what it was told about, who leaves is not visited. */
  readonly members = new Set<FanoutMember>();
  readonly deltaPlan: DeltaPlan;
  readonly encodeFailed: (error: unknown) => void;
  /** Owned by the fanout: it has this cohort in its queue. */
  isQueued = false;
  /** Newest commit that matched, delivered or not. */
  lastMatchSeq = 0;
  #pending: RingEntry[] = [];
  /** A hole that stands behind `#pending`. */
  #ready: DeltaBatch[] = [];
  #delivery: Delivery | null = null;

  constructor(identity: CohortIdentity, setting: CohortSetting) {
    this.key = setting.key;
    this.identity = identity;
    this.isServable = setting.isServable;
    this.encodeFailed = setting.encodeFailed;
    const { wireVersion } = identity;
    this.registrations = identity.registrations.map(
      (registration) => new CohortRegistration(this, registration, wireVersion),
    );
    const { header, deltaBytesMax } = setting;
    const live = this.registrations.filter((registration) => registration.isLive);
    this.deltaPlan = { wireVersion, header, registrations: live, bytesMax: deltaBytesMax };
  }

  get hasLive(): boolean {
    return this.deltaPlan.registrations.length > 0;
  }

  get hasWork(): boolean {
    return this.#delivery !== null || this.#pending.length > 0 || this.#ready.length > 0;
  }

  /** `entry` matches. Called in commit order, any number of times for one commit. */
  collect(entry: RingEntry): void {
    if (entry.seq === this.lastMatchSeq) return;
    this.#pending.push(entry);
    this.lastMatchSeq = entry.seq;
  }

  /** Commits up to `throughSeq` could not be read; some may have matched. */
  collectUnread(throughSeq: number): void {
    this.#seal();
    this.#ready.push(new DeltaBatch(this, [], throughSeq));
    this.lastMatchSeq = throughSeq;
  }

  /** What `entries` hold for this cohort; `null` for nothing. */
  matchAll(entries: readonly RingEntry[]): DeltaBatch | null {
    const matching = entries.filter((entry) => this.matches(entry));
    return matching.length === 0 ? null : new DeltaBatch(this, matching, null);
  }

  matches(entry: RingEntry): boolean {
    const { registrations } = this.deltaPlan;
    return entry.commit.changes.some((change) => registrations.some(({ selects }) => selects(change)));
  }

  /**
   * Goes on delivering, to at most `membersMax` members. What arrived while a batch was on its way leaves as one batch
   * after it. Returns how many were served.
   */
  deliver(membersMax: number, turn: FanoutTurn): number {
    let served = 0;
    while (served < membersMax) {
      this.#delivery ??= this.#nextDelivery();
      if (this.#delivery === null) return served;
      const { batch, members } = this.#delivery;
      for (;;) {
        const next = members.next();
        if (next.done === true) {
          this.#delivery = null;
          break;
        }
        next.value.deliver(batch, turn);
        if (++served >= membersMax) return served;
      }
    }
    return served;
  }

  #nextDelivery(): Delivery | null {
    if (this.#ready.length === 0) this.#seal();
    const batch = this.#ready.shift();
    return batch === undefined ? null : { batch, members: this.members.values() };
  }

  #seal(): void {
    if (this.#pending.length === 0) return;
    const commits = this.#pending;
    this.#pending = [];
    this.#ready.push(new DeltaBatch(this, commits, null));
  }
}
