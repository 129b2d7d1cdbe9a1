/** What all sessions of a process share. */
import type { Clock } from '../../protocol/clock.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { RoundContext } from '../sync/admission.ts';
import type { RoundOutcome } from '../sync/round-outcome.ts';
import type { SyncDeps } from '../sync/sync-deps.ts';
import type { Hub } from './hub.ts';
import type { LastSeen } from './last-seen.ts';
import type { LiveEvents } from './live-events.ts';
import type { Presence } from './presence.ts';
import type { SessionRegistry } from './session-registry.ts';
import type { TickWheel } from './tick-wheel.ts';

/** `runRound` of the sync core. */
export type RoundHandler = (
  request: Uint8Array,
  context: RoundContext,
  deps: SyncDeps,
) => AsyncGenerator<Uint8Array, RoundOutcome>;

export interface SessionContext {
  readonly deps: SyncDeps;
  readonly limits: Limits;
  readonly clock: Clock;
  readonly runRound: RoundHandler;
  readonly hub: Hub;
  readonly wheel: TickWheel;
  readonly presence: Presence;
  readonly lastSeen: LastSeen;
  readonly events: LiveEvents;
  readonly sessions: SessionRegistry;
}
