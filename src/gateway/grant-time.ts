/** Bounds an HTTP round to the life of its grant, as a session's deadlines do on a socket (architecture §6). */
import type { Clock } from '../protocol/clock.ts';
import type { Identity } from '../session/sync/sync-deps.ts';

export interface GrantTime {
  /** Aborts when the client leaves and when the identity expires: nothing leaves for a grant that ended. */
  readonly signal: AbortSignal;
  hasEnded(): boolean;
  /** The round is over. */
  release(): void;
}

class GrantEnded extends Error {
  override readonly name = 'GrantEnded';
}

export function boundToGrant({ expiresAtMs }: Identity, client: AbortSignal, clock: Clock): GrantTime {
  if (expiresAtMs === null) return { signal: client, hasEnded: () => false, release: () => undefined };
  const grant = new AbortController();
  const timer = clock.after(Math.max(0, expiresAtMs - clock.nowMs()), () => {
    grant.abort(new GrantEnded('the credentials have expired'));
  });
  return {
    signal: AbortSignal.any([client, grant.signal]),
    hasEnded: () => grant.signal.aborted,
    release: () => timer.cancel(),
  };
}
