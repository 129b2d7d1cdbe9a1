/** One live session as the hub sees it. No code here. */
import type { Cohort } from './cohort.ts';
import type { DeltaBatch } from './delta-batch.ts';

/** What one turn of the fanout did; one object for all members, so that nothing is allocated per session. */
export interface FanoutTurn {
  /** Epoch ms, read once. */
  nowMs: number;
  deltas: number;
  wakeUps: number;
  bytes: number;
}

/** None of these throws. */
export interface FanoutMember {
  readonly actorId: string;
  /** Set by the feed; `null` until registrations were installed. */
  cohort: Cohort | null;
  /** Highest `commitSeq` this member was told about, by delta, wake-up, pull or `hello`. Nothing at or below is delivered. */
  readonly observedSeq: number;
  deliver(batch: DeltaBatch, turn: FanoutTurn): void;
  /** The partition's log epoch is another one now (§2.1). */
  epochRotated(): void;
  scopesChanged(): void;
  /** The host took the actor's access away. */
  identityEnded(): void;
  /** The host declared a discontinuity. */
  resync(): void;
}
