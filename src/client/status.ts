/** What the client is doing, as one value, and who wants to know. */
import type { Clock } from '../protocol/clock.ts';
import { ClientError } from './client-error.ts';
import { Listeners } from './listeners.ts';

/**
 * `offline`: no connection, by wish or between two attempts (`retryAtMs`). `catching-up`: connected, but some subscription
 * has not reached the server's state of this connection. `live`: changes arrive as they are committed.
 * `server-upgrading`: connected, the server refuses rounds until a deploy is done; writes wait in the outbox.
 * `stopped`: another attempt would meet the same end; `stopReason` says which.
 */
export type ClientState = 'offline' | 'connecting' | 'catching-up' | 'live' | 'server-upgrading' | 'stopped';

export type StopReason =
  /** `close()`. */
  | { readonly kind: 'closed' }
  /** This application version is no longer (or not yet) served: load a new one. */
  | {
      readonly kind: 'schema-floor';
      readonly requiredSchemaVersion: number;
      readonly latestSchemaVersion: number | null;
    }
  /** An error that the same request would meet again (catalogue code, or a client-local one). */
  | { readonly kind: 'refused'; readonly code: string; readonly message: string }
  /** A close code whose class is `stop` or `never`. */
  | { readonly kind: 'disconnected'; readonly closeCode: number; readonly reason: string }
  /** Credentials were refused and there is no `token` function to get others. */
  | { readonly kind: 'auth'; readonly message: string };

export interface StatusError {
  readonly code: string;
  readonly message: string;
}

export interface ClientStatus {
  readonly state: ClientState;
  /** Commits without an outcome. */
  readonly pendingCommits: number;
  /** Epoch ms of the next attempt, while one is scheduled. */
  readonly retryAtMs: number | null;
  /** What ended the latest attempt or round; `null` after one succeeded. */
  readonly lastError: StatusError | null;
  /** Set exactly while `stopped`. */
  readonly stopReason: StopReason | null;
}

export class StatusBoard {
  readonly #listeners: Listeners<ClientStatus>;
  #current: ClientStatus = {
    state: 'offline',
    pendingCommits: 0,
    retryAtMs: null,
    lastError: null,
    stopReason: null,
  };

  constructor(clock: Clock) {
    this.#listeners = new Listeners(clock);
  }

  get current(): ClientStatus {
    return this.#current;
  }

  onChange(listener: (status: ClientStatus) => void): () => void {
    return this.#listeners.add(listener);
  }

  update(change: Partial<ClientStatus>): void {
    const next = { ...this.#current, ...change };
    const keys = Object.keys(change) as (keyof ClientStatus)[];
    if (keys.every((key) => next[key] === this.#current[key])) return;
    this.#current = next;
    this.#listeners.emit(next);
  }

  /** Enters a state; what belongs to the one before it is cleared. */
  enter(state: Exclude<ClientState, 'stopped'>, retryAtMs: number | null = null): void {
    this.update({ state, retryAtMs, stopReason: null });
  }

  stop(stopReason: StopReason): void {
    this.update({ state: 'stopped', retryAtMs: null, stopReason });
  }

  /** Resolves once `holds` is true of the status; rejects with `client.stopped` when the client stops before. */
  until(holds: (status: ClientStatus) => boolean): Promise<ClientStatus> {
    return new Promise((resolve, reject) => {
      const judge = (status: ClientStatus): boolean => {
        if (holds(status)) resolve(status);
        else if (status.stopReason === null) return false;
        else reject(stoppedError(status.stopReason));
        return true;
      };
      if (judge(this.#current)) return;
      const remove = this.onChange((status) => {
        if (judge(status)) remove();
      });
    });
  }
}

export function stoppedError(reason: StopReason): ClientError {
  if (reason.kind === 'closed') return new ClientError('client.closed', 'the client was closed');
  return new ClientError('client.stopped', `syncing has stopped: ${reason.kind}`, {
    details: { reason: { ...reason } },
  });
}
