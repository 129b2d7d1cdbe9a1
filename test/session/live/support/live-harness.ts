/** Nodes of a gateway over one storage in memory, with fake sockets, scripted rounds and a clock that only the test moves. */

import type { ScopeMap, StoredScopes } from '../../../../src/protocol/frames.ts';
import { DEFAULT_LIMITS, type Limits } from '../../../../src/protocol/limits.ts';
import type { CompiledSchema } from '../../../../src/protocol/schema.ts';
import { compileSchema } from '../../../../src/protocol/schema-compiler.ts';
import { createCursorWriter } from '../../../../src/session/live/cursor-writer.ts';
import { createHub, type Hub } from '../../../../src/session/live/hub.ts';
import { createLastSeen } from '../../../../src/session/live/last-seen.ts';
import { createLive, type Live } from '../../../../src/session/live/live.ts';
import type { LiveEvent } from '../../../../src/session/live/live-events.ts';
import { PRESENCE_OFF, type Presence } from '../../../../src/session/live/presence.ts';
import { PresenceHub } from '../../../../src/session/live/presence-hub.ts';
import type { RoundHandler } from '../../../../src/session/live/session-context.ts';
import type { DuplicateClients } from '../../../../src/session/live/session-registry.ts';
import { NOTHING_DECLARED } from '../../../../src/session/sync/declarations.ts';
import type { Registration } from '../../../../src/session/sync/round-outcome.ts';
import { SegmentBuilds } from '../../../../src/session/sync/segment-builds.ts';
import type { Identity, SyncDeps } from '../../../../src/session/sync/sync-deps.ts';
import type { SegmentStore } from '../../../../src/storage/segments.ts';
import type { LogChange, LogCommit, Storage, StoredSubscription } from '../../../../src/storage/storage.ts';
import { FakeConnection, type FakeConnectionOptions } from '../../../support/fake-connection.ts';
import { ManualClock } from '../../../support/manual-clock.ts';
import { LogStorage } from './log-storage.ts';
import { LossyBus } from './lossy-bus.ts';
import { ScriptedRounds } from './scripted-rounds.ts';

export const TENANT = 'tenant';

export const LIVE_SCHEMA: CompiledSchema = compileSchema({
  version: 1,
  tables: [
    {
      name: 'notes',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'project', type: 'string' },
      ],
      primaryKey: 'id',
      scopes: ['project:{project}'],
    },
    {
      name: 'tasks',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'project', type: 'string' },
        { name: 'owner', type: 'string' },
      ],
      primaryKey: 'id',
      scopes: ['project:{project}', 'owner:{owner}'],
    },
  ],
});

export interface LiveHarnessOptions {
  readonly limits?: Partial<Limits>;
  readonly nodes?: number;
  readonly duplicateClients?: DuplicateClients;
  readonly presence?: Presence | 'on';
  readonly runRound?: RoundHandler;
  readonly storage?: Storage;
}

export interface ConnectOptions extends FakeConnectionOptions {
  readonly clientId?: string;
  readonly actorId?: string;
  readonly partition?: string;
  readonly expiresAtMs?: number | null;
  readonly node?: number;
}

export interface Node {
  readonly hub: Hub;
  readonly live: Live;
  readonly deps: SyncDeps;
}

export class LiveHarness {
  readonly clock = new ManualClock();
  readonly storage = new LogStorage();
  readonly bus = new LossyBus();
  readonly rounds = new ScriptedRounds();
  readonly events: LiveEvent[] = [];
  /** By actor; default everything. */
  readonly grants = new Map<string, ScopeMap | Error>();
  readonly limits: Limits;
  readonly nodes: Node[] = [];
  #ids = 0;

  constructor(options: LiveHarnessOptions = {}) {
    this.limits = { ...DEFAULT_LIMITS, ...options.limits };
    for (let node = 0; node < (options.nodes ?? 1); node++) this.nodes.push(this.#node(options));
  }

  get node(): Node {
    return this.nodes[0]!;
  }

  get live(): Live {
    return this.node.live;
  }

  #node(options: LiveHarnessOptions): Node {
    const { clock, storage, limits } = this;
    const bus = this.bus.connect();
    const events = { emit: (event: LiveEvent) => void this.events.push(event) };
    const writers = { storage, clock, limits, events };
    const hub = createHub({ schema: LIVE_SCHEMA, storage, limits, clock, bus, events });
    const deps: SyncDeps = {
      declarations: NOTHING_DECLARED,
      schema: LIVE_SCHEMA,
      storage,
      segments: NO_SEGMENTS,
      segmentBuilds: new SegmentBuilds(),
      hooks: {
        resolveScopes: (who) => this.#resolve(who),
        rowValidators: new Map(),
        commitValidator: 'off',
        crdtMergers: new Map(),
      },
      commits: { push: notUsed, depth: 0, close: async () => undefined },
      cursors: createCursorWriter(writers),
      limits,
      clock,
      random: { unit: () => 0.5, id: () => `id-${++this.#ids}` },
      events: { emit: () => undefined },
      sha256: () => '',
    };
    const live = createLive({
      deps,
      runRound: options.runRound ?? this.rounds.run,
      hub,
      bus,
      presence:
        options.presence === 'on'
          ? new PresenceHub({ schema: LIVE_SCHEMA, clock, limits })
          : (options.presence ?? PRESENCE_OFF),
      lastSeen: createLastSeen(writers),
      events,
      duplicateClients: options.duplicateClients ?? 'replace',
    });
    return { hub, live, deps };
  }

  who(options: ConnectOptions = {}): Identity {
    const { actorId = 'actor-1', partition = TENANT, expiresAtMs = null } = options;
    return { actorId, partition, expiresAtMs, claims: {} };
  }

  /** Opens a session and leaves its loading to the next `settle`. */
  open(options: ConnectOptions = {}): FakeConnection {
    const connection = new FakeConnection(options);
    const { clientId = 'client-1', node = 0 } = options;
    return connection.attach(this.nodes[node]!.live.open({ connection, who: this.who(options), clientId }));
  }

  /** Opens a session and waits for its `hello`. */
  async connect(options: ConnectOptions = {}): Promise<FakeConnection> {
    const connection = this.open(options);
    await this.settle();
    return connection;
  }

  /** A client that pulled everything before it connects; it is live. */
  async connectLive(
    subscriptions: readonly StoredSubscription[],
    options: ConnectOptions = {},
  ): Promise<FakeConnection> {
    const { clientId = 'client-1', actorId = 'actor-1', partition = TENANT } = options;
    const cursor = this.storage.head(partition);
    this.storage.record(partition, { clientId, actorId, cursor, subscriptions });
    const connection = await this.connect(options);
    connection.clear();
    return connection;
  }

  /** A durable commit that this node's hub is told about, as after COMMIT. Nothing is fanned out before the next turn. */
  accept(changes: readonly LogChange[], { partition = TENANT, node = 0 } = {}): LogCommit {
    const commit = this.storage.append(partition, changes);
    this.nodes[node]!.hub.accept(partition, this.storage.partition(partition).logEpoch, [commit]);
    return commit;
  }

  /** A durable commit whose fanout has run. */
  commit(changes: readonly LogChange[], options: { partition?: string; node?: number } = {}): number {
    const { commitSeq } = this.accept(changes, options);
    this.clock.turns();
    return commitSeq;
  }

  settle(): Promise<void> {
    return this.clock.settle();
  }

  eventsOf<T extends LiveEvent['type']>(type: T): Extract<LiveEvent, { type: T }>[] {
    return this.events.filter((event): event is Extract<LiveEvent, { type: T }> => event.type === type);
  }

  #resolve({ actorId }: Identity): ScopeMap {
    const grant = this.grants.get(actorId) ?? { project: ['*'], owner: ['*'] };
    if (grant instanceof Error) throw grant;
    return grant;
  }
}

export function note(project: string, rowId = 'n1', bytes = 8): LogChange {
  return change('notes', { project }, rowId, bytes);
}

export function change(table: string, scopes: StoredScopes, rowId = 'r1', bytes = 8): LogChange {
  const payload = new Uint8Array(bytes).fill(7);
  return { table, rowId, op: 'upsert', rowVersion: 1, payload, scopes };
}

export function removal(table: string, scopes: StoredScopes, rowId = 'r1'): LogChange {
  return { table, rowId, op: 'delete', scopes };
}

export function stored(
  id: string,
  scopes: ScopeMap,
  rest: Partial<StoredSubscription> = {},
): StoredSubscription {
  return { id, table: 'notes', scopes, state: 'live', ...rest };
}

export function registered(id: string, effective: ScopeMap, rest: Partial<Registration> = {}): Registration {
  return { id, table: 'notes', effective, state: 'live', nextCursor: 0, caughtUp: true, ...rest };
}

const NO_SEGMENTS: SegmentStore = new Proxy({} as SegmentStore, {
  get: () => notUsed,
});

function notUsed(): Promise<never> {
  return Promise.reject(new Error('not part of this test'));
}
