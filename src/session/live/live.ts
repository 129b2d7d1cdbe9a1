/** The realtime side of a gateway: opens sessions, passes on what the host says, and drains (part 3). */
import { SyncError } from '../../protocol/errors.ts';
import type { Identity, SyncDeps } from '../sync/sync-deps.ts';
import type { Bus, Notice } from './bus.ts';
import type { SessionEndpoint } from './connection.ts';
import type { Hub } from './hub.ts';
import type { LastSeen } from './last-seen.ts';
import type { LiveEvents } from './live-events.ts';
import type { FanoutMember } from './member.ts';
import type { Presence } from './presence.ts';
import { Session, type SessionOptions } from './session.ts';
import type { RoundHandler, SessionContext } from './session-context.ts';
import { admitClient, assertConnectable } from './session-loader.ts';
import { type DuplicateClients, SessionRegistry } from './session-registry.ts';
import { TickWheel } from './tick-wheel.ts';

export interface LiveDeps {
  /** Limits, clock, randomness and cursors are those of the sync core. */
  readonly deps: SyncDeps;
  /** `runRound` of the sync core. */
  readonly runRound: RoundHandler;
  readonly hub: Hub;
  readonly bus: Bus;
  readonly presence: Presence;
  readonly lastSeen: LastSeen;
  readonly events: LiveEvents;
  /** `replace`: a newer connection of a client closes the older one with 4409 (part 3, 3.13). */
  readonly duplicateClients: DuplicateClients;
}

export interface OpenRequest {
  readonly who: Identity;
  /** From the URL; `null` when it is missing. */
  readonly clientId: string | null;
}

export interface Live {
  /**
   * What to answer instead of an upgrade, or `null` to go on: `sync.invalid_request`, `sync.invalid_client_id`,
   * `sync.auth_required`, `sync.websocket_connection_limit`. Counts as the partition's authentication (3.2-4). Rejects
   * with a `StorageError`.
   */
  refusal(request: OpenRequest): Promise<SyncError | null>;
  /** Never throws. Whatever is wrong is told by a close code; `hello` comes once the client's record was read. */
  open(request: SessionOptions): SessionEndpoint;
  readonly sessionCount: number;
  readonly isDraining: boolean;
  /** The epoch of a partition was rotated: its connections on every node end with 1012 (§2.1, R-032). */
  epochRotated(partition: string, logEpoch: string): void;
  /** Scopes of an actor are resolved anew at once, on every node; lost ones get nothing more. */
  scopesChanged(partition: string, actorId: string): void;
  /** The actor is cut off: its connections on every node end with 4401. */
  revokeActor(partition: string, actorId: string): void;
  /** Every connection of the partition, on every node, is told to pull (`reset-required`). */
  resync(partition: string): void;
  /** Starts no round; resolves when the last session is gone. */
  drain(): Promise<void>;
  /** Ends what is left at once. */
  close(): void;
}

export function createLive(deps: LiveDeps): Live {
  return new LiveSessions(deps);
}

class LiveSessions implements Live {
  readonly #deps: LiveDeps;
  readonly #context: SessionContext;
  readonly #sessions: SessionRegistry;
  readonly #unsubscribe: () => void;
  #isDraining = false;

  constructor(deps: LiveDeps) {
    const { limits, clock } = deps.deps;
    this.#deps = deps;
    this.#sessions = new SessionRegistry(deps.duplicateClients);
    const wheel = new TickWheel(clock, limits.sessionTickMs);
    const { runRound, hub, presence, lastSeen, events } = deps;
    const shared = { runRound, hub, presence, lastSeen, events };
    this.#context = { ...shared, deps: deps.deps, limits, clock, wheel, sessions: this.#sessions };
    this.#unsubscribe = deps.bus.subscribe((notice) => this.#hear(notice));
  }

  get sessionCount(): number {
    return this.#sessions.count;
  }

  get isDraining(): boolean {
    return this.#isDraining;
  }

  async refusal({ who, clientId }: OpenRequest): Promise<SyncError | null> {
    const { limits, clock } = this.#context;
    try {
      if (who.expiresAtMs !== null && who.expiresAtMs <= clock.nowMs()) {
        throw new SyncError('sync.auth_required', 'the credentials have expired');
      }
      const present = assertConnectable(clientId, limits);
      if (this.#sessions.count >= limits.connectionsMax) {
        throw new SyncError('sync.websocket_connection_limit', 'too many connections');
      }
      await admitClient({ who, clientId: present }, this.#context);
      return null;
    } catch (failure) {
      const error = SyncError.from(failure);
      if (error === null) throw failure;
      return error;
    }
  }

  open(request: SessionOptions): SessionEndpoint {
    const session = new Session(request, this.#context);
    if (this.#isDraining) session.drain({ spreadMs: 0, roundsMs: 0 });
    else if (this.#sessions.count > this.#context.limits.connectionsMax) session.overloaded();
    else void session.connect();
    return session;
  }

  epochRotated(partition: string, logEpoch: string): void {
    this.#tell({ kind: 'epoch-rotated', partition, logEpoch });
  }

  scopesChanged(partition: string, actorId: string): void {
    this.#tell({ kind: 'scopes-changed', partition, actorId });
  }

  revokeActor(partition: string, actorId: string): void {
    this.#tell({ kind: 'actor-revoked', partition, actorId });
  }

  resync(partition: string): void {
    this.#tell({ kind: 'resync', partition });
  }

  /** No round starts from here on; sockets close over a few seconds, those with a round when it ends (architecture §6). */
  async drain(): Promise<void> {
    this.#isDraining = true;
    const { drainSpreadMs, shutdownRoundsMs } = this.#context.limits;
    const { random } = this.#context.deps;
    for (const session of this.#sessions.all()) {
      session.drain({ spreadMs: random.unit() * drainSpreadMs, roundsMs: shutdownRoundsMs });
    }
    await this.#sessions.empty();
  }

  close(): void {
    this.#isDraining = true;
    this.#unsubscribe();
    for (const session of this.#sessions.all()) {
      session.drain({ spreadMs: 0, roundsMs: 0 });
      session.overdue('drain-due');
    }
  }

  /** The bus does not bring a node its own notices. */
  #tell(notice: Notice): void {
    this.#hear(notice);
    this.#deps.bus.announce(notice);
  }

  #hear(notice: Notice): void {
    const { hub } = this.#deps;
    switch (notice.kind) {
      case 'commits':
        return;
      case 'epoch-rotated':
        hub.fence(notice.partition, notice.logEpoch);
        return;
      case 'scopes-changed':
        this.#each(notice, (member) => member.scopesChanged());
        return;
      case 'actor-revoked':
        this.#each(notice, (member) => member.identityEnded());
        return;
      case 'resync':
        for (const member of [...hub.members(notice.partition)]) member.resync();
    }
  }

  #each({ partition, actorId }: ActorNotice, run: (member: FanoutMember) => void): void {
    for (const member of [...this.#deps.hub.members(partition)]) {
      if (member.actorId === actorId) run(member);
    }
  }
}

type ActorNotice = Extract<Notice, { readonly actorId: string }>;
