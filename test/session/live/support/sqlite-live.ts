/** The whole session layer over a real SQLite file: sockets are fake, everything behind them is not. */
import type { ScopeMap } from '../../../../src/protocol/frames.ts';
import type { Limits } from '../../../../src/protocol/limits.ts';
import { decodeMessage } from '../../../../src/protocol/message.ts';
import { createCursorWriter } from '../../../../src/session/live/cursor-writer.ts';
import { createHub, type Hub } from '../../../../src/session/live/hub.ts';
import { createLastSeen } from '../../../../src/session/live/last-seen.ts';
import { createLive, type Live } from '../../../../src/session/live/live.ts';
import type { LiveEvent } from '../../../../src/session/live/live-events.ts';
import { PRESENCE_OFF } from '../../../../src/session/live/presence.ts';
import { NO_BLOBS } from '../../../../src/session/sync/blob-references.ts';
import { createCommitQueue } from '../../../../src/session/sync/commit-queue.ts';
import { runRound } from '../../../../src/session/sync/round.ts';
import type { SyncDeps } from '../../../../src/session/sync/sync-deps.ts';
import type { Storage } from '../../../../src/storage/storage.ts';
import { FakeConnection } from '../../../support/fake-connection.ts';
import {
  decodeResponse,
  PARTITION,
  type RoundResult,
  type RoundSpec,
  SyncHarness,
} from '../../../support/sync-harness.ts';
import { LossyBus } from './lossy-bus.ts';

export interface SqliteLiveOptions {
  readonly path?: string;
  readonly limits?: Partial<Limits>;
  readonly bus?: LossyBus;
  readonly wrapStorage?: (storage: Storage) => Storage;
}

/** Commit ids stay unique when a file is opened again, or twice. */
let writes = 0;

export class SqliteLive {
  readonly sync: SyncHarness;
  readonly hub: Hub;
  readonly live: Live;
  readonly deps: SyncDeps;
  readonly events: LiveEvent[] = [];

  private constructor(sync: SyncHarness, bus: LossyBus) {
    this.sync = sync;
    const { schema, storage, limits, clock } = sync.deps;
    const events = { emit: (event: LiveEvent) => void this.events.push(event) };
    const end = bus.connect();
    this.hub = createHub({ schema, storage, limits, clock, bus: end, events });
    const commits = createCommitQueue({ ...sync.deps, sink: this.hub, blobs: NO_BLOBS });
    const writers = { storage, clock, limits, events };
    this.deps = { ...sync.deps, commits, cursors: createCursorWriter(writers) };
    this.live = createLive({
      deps: this.deps,
      runRound,
      hub: this.hub,
      bus: end,
      presence: PRESENCE_OFF,
      lastSeen: createLastSeen(writers),
      events,
      duplicateClients: 'replace',
    });
  }

  static async open(options: SqliteLiveOptions = {}): Promise<SqliteLive> {
    const { bus = new LossyBus(), ...rest } = options;
    return new SqliteLive(await SyncHarness.open(rest), bus);
  }

  async close(): Promise<void> {
    this.live.close();
    this.hub.close();
    await this.deps.commits.close();
    await this.deps.cursors.flushAll();
    await this.sync.close();
  }

  grant(actorId: string, scopes: ScopeMap | Error): void {
    this.sync.grants.set(actorId, scopes);
  }

  settle(): Promise<void> {
    return this.sync.clock.settle();
  }

  open({ clientId = 'client-1', actorId = 'actor-1', partition = PARTITION } = {}): FakeConnection {
    const connection = new FakeConnection();
    const who = this.sync.who({ actorId, partition });
    return connection.attach(this.live.open({ connection, who, clientId }));
  }

  async connect(
    options: { clientId?: string; actorId?: string; partition?: string } = {},
  ): Promise<FakeConnection> {
    const connection = this.open(options);
    await this.settle();
    return connection;
  }

  /** A round over HTTP. */
  async http(spec: RoundSpec): Promise<RoundResult> {
    const context = { who: this.sync.who(spec), clientId: null, signal: new AbortController().signal };
    const result = await this.sync.drain(runRound(await this.sync.request(spec), context, this.deps));
    if (result.outcome.kind === 'served') result.outcome.handedOver();
    return result;
  }

  /** A round over the socket; returns its response frames. */
  async socket(connection: FakeConnection, spec: RoundSpec) {
    const request = await this.sync.request(spec);
    const before = connection.roundBytes.length;
    connection.round(request);
    await this.settle();
    const bytes = connection.roundBytes.subarray(before);
    return { bytes, frames: decodeResponse(bytes), message: decodeMessage(bytes) };
  }

  /** A commit of one note, over HTTP, by another actor and client. */
  async commit(project: string, id = `note-${project}`): Promise<number> {
    const pushes = [this.sync.push([this.sync.note(id, project)], `w-${++writes}`)];
    const { frames } = await this.http({ clientId: 'writer', actorId: 'writer', pushes });
    const result = frames.find((frame) => frame.type === 'PUSH_RESULT');
    if (result?.commitSeq === undefined) throw new Error(`not applied: ${JSON.stringify(result)}`);
    await this.settle();
    return result.commitSeq;
  }
}
