/** Keeps one connection alive: attempts, backoff, credentials, and what each kind of end means (architecture §6). */
import type { Clock, Random } from '../protocol/clock.ts';
import { reconnectClass } from '../protocol/close-codes.ts';
import { SyncError } from '../protocol/errors.ts';
import { Backoff } from './backoff.ts';
import { ClientError, protocolViolation } from './client-error.ts';
import type { ClientLimits } from './client-limits.ts';
import { Connection, type ConnectionEnd } from './connection.ts';
import type { LocalStore } from './local-store.ts';
import type { Endpoints } from './mount-url.ts';
import type { WebSocketConstructor } from './platform.ts';
import type { PresenceRooms } from './presence.ts';
import type { SegmentSource } from './segment-source.ts';
import type { StatusBoard, StatusError, StopReason } from './status.ts';
import { type Entry, type LoopEnd, SyncLoop } from './sync-loop.ts';
import type { TokenSource } from './token-source.ts';
import { Bell, Cancelled, deferred } from './waiting.ts';

export interface SessionParts {
  readonly clientId: string;
  readonly endpoints: Endpoints;
  readonly webSocket: WebSocketConstructor;
  readonly tokens: TokenSource;
  readonly segments: SegmentSource;
  readonly store: LocalStore;
  readonly presence: PresenceRooms;
  readonly status: StatusBoard;
  readonly clock: Clock;
  readonly random: Random;
  readonly limits: ClientLimits;
}

/** What follows an attempt. */
type Next =
  | { readonly kind: 'stop'; readonly reason: StopReason }
  | { readonly kind: 'wait'; readonly delayMs: number; readonly error: StatusError };

type AttemptEnd = LoopEnd | ConnectionEnd;

interface Run {
  readonly abort: AbortController;
  readonly done: Promise<void>;
}

export class Session {
  readonly #parts: SessionParts;
  readonly #backoff: Backoff;
  /** Cuts the wait between two attempts short. */
  readonly #hurry: Bell;
  #run: Run | null = null;
  /** The run before, which may still be winding up. */
  #previous: Promise<void> = Promise.resolve();
  #loop: SyncLoop | null = null;

  constructor(parts: SessionParts) {
    this.#parts = parts;
    this.#backoff = new Backoff(parts.limits, parts.random);
    this.#hurry = new Bell(parts.clock);
  }

  /** Connects and stays connected. While that is so already, it only ends a wait between two attempts. */
  start(): void {
    if (this.#run !== null) {
      this.#hurry.ring();
      return;
    }
    this.#backoff.reset();
    const abort = new AbortController();
    const done = this.#keepConnected(abort);
    this.#run = { abort, done };
  }

  /** Resolves when nothing of the session runs any more. */
  async stop(): Promise<void> {
    const run = this.#run;
    if (run !== null) {
      this.#run = null;
      this.#previous = run.done;
      run.abort.abort();
    }
    await this.#previous;
  }

  /** Something was written or subscribed. */
  nudge(): void {
    this.#loop?.nudge();
  }

  async #keepConnected({ signal }: AbortController): Promise<void> {
    const { status, clock } = this.#parts;
    await this.#previous;
    let entry: Entry = 'asked';
    while (!signal.aborted) {
      const end = await this.#attempt(entry, signal);
      if (signal.aborted) return;
      const next = this.#follow(end);
      if (next.kind === 'stop') {
        this.#run = null;
        status.stop(next.reason);
        return;
      }
      status.update({ lastError: next.error });
      status.enter('offline', clock.nowMs() + next.delayMs);
      entry = await this.#pause(next.delayMs, signal);
    }
  }

  /** `asked` when somebody wanted to go on at once. */
  async #pause(delayMs: number, signal: AbortSignal): Promise<Entry> {
    const { clock } = this.#parts;
    const dueMs = clock.monotonicMs() + delayMs;
    try {
      await this.#hurry.wait(delayMs, signal);
    } catch (failure) {
      if (!(failure instanceof Cancelled)) throw failure;
    }
    return clock.monotonicMs() < dueMs ? 'asked' : 'automatic';
  }

  /** Never rejects: every failure is an end. */
  async #attempt(entry: Entry, signal: AbortSignal): Promise<AttemptEnd> {
    const { tokens, status } = this.#parts;
    status.enter('connecting');
    try {
      const token = await tokens.fresh(signal);
      return await this.#serve(token, entry, signal);
    } catch (failure) {
      return endOf(failure);
    }
  }

  /** One connection, from its opening to its end. When it resolves, neither socket nor loop are left. */
  async #serve(token: string | null, entry: Entry, signal: AbortSignal): Promise<AttemptEnd> {
    const { webSocket, endpoints, clientId, clock, limits } = this.#parts;
    const scope = new AbortController();
    const verdict = deferred<AttemptEnd>();
    let working: Promise<void> = Promise.resolve();
    const connection: Connection = new Connection({
      webSocket,
      url: endpoints.realtime(clientId, token),
      clock,
      limits,
      onHello: (hello) => {
        const loop = new SyncLoop(
          { ...this.#parts, backoff: this.#backoff, socket: connection },
          hello,
          entry,
        );
        this.#loop = loop;
        working = loop.run(scope.signal).then(verdict.resolve, (failure) => verdict.resolve(endOf(failure)));
        return loop;
      },
    });
    const letGo = (): void => connection.close();
    signal.addEventListener('abort', letGo, { once: true });
    try {
      return await Promise.race([connection.ended, verdict.promise]);
    } finally {
      signal.removeEventListener('abort', letGo);
      connection.close();
      scope.abort();
      await working;
      this.#loop = null;
      this.#parts.presence.disconnected();
    }
  }

  #follow(end: AttemptEnd): Next {
    switch (end.kind) {
      case 'stop':
        return end;
      case 'reauthenticate':
        return this.#reauthenticate(end.error);
      case 'failed':
        return this.#wait(this.#backoff.nextMs(), end.error);
      case 'closed':
        return this.#followClose(end.code, end.reason);
    }
  }

  #followClose(closeCode: number, reason: string): Next {
    const error = { code: 'client.connection_lost', message: `the connection was closed with ${closeCode}` };
    switch (reconnectClass(closeCode)) {
      case 'stop':
      case 'never':
        return { kind: 'stop', reason: { kind: 'disconnected', closeCode, reason } };
      case 'refresh-auth':
        return this.#reauthenticate({ code: 'sync.auth_required', message: 'the credentials were refused' });
      case 'retry-now':
        return this.#wait(this.#soonMs(this.#parts.limits.returnSpreadMs * this.#parts.random.unit()), error);
      case 'retry-backoff':
        return this.#wait(this.#backoff.nextMs(), error);
    }
  }

  /** The next attempt asks for a token of its own. Without a function to ask, only an outage (a lease code) may pass. */
  #reauthenticate(error: StatusError): Next {
    const { tokens } = this.#parts;
    if (!tokens.refreshable && error.code === 'sync.auth_required') {
      return { kind: 'stop', reason: { kind: 'auth', message: error.message } };
    }
    return this.#wait(tokens.refreshable ? this.#soonMs(0) : this.#backoff.nextMs(), error);
  }

  /** `firstMs` once after a served round, then backoff: a server that goes away at once again is not hammered. */
  #soonMs(firstMs: number): number {
    const isFirst = this.#backoff.failures === 0;
    const delayMs = this.#backoff.nextMs();
    return isFirst ? firstMs : delayMs;
  }

  #wait(delayMs: number, { code, message }: StatusError): Next {
    return { kind: 'wait', delayMs, error: { code, message } };
  }
}

function endOf(failure: unknown): AttemptEnd {
  if (failure instanceof Cancelled) return { kind: 'failed', error: lost('the connection was given up') };
  const known = SyncError.from(failure);
  if (known?.code === 'sync.schema_mismatch') {
    return { kind: 'stop', reason: { kind: 'refused', code: known.code, message: known.message } };
  }
  if (failure instanceof ClientError) return { kind: 'failed', error: failure };
  if (known !== null) return { kind: 'failed', error: protocolViolation(known.message, known) };
  return { kind: 'failed', error: lost('the connection could not be opened', failure) };
}

function lost(message: string, cause?: unknown): ClientError {
  return new ClientError('client.connection_lost', message, { cause });
}
