/**
 * The whole sync core over a real SQLite file: rounds as a client would run them, on a clock whose time only the test moves
 * and whose turns are those of the real event loop.
 */

import { createHash } from 'node:crypto';
import { setImmediate as onNextTurn } from 'node:timers';
import type { Random } from '../../src/protocol/clock.ts';
import type {
  PullHeaderFrame,
  PushCommitFrame,
  PushOperation,
  ResponseFrame,
  ScopeMap,
  SubscriptionFrame,
  WireVersion,
} from '../../src/protocol/frames.ts';
import { DEFAULT_LIMITS, type Limits } from '../../src/protocol/limits.ts';
import { decodeMessage, encodeMessage } from '../../src/protocol/message.ts';
import { rowFromObject } from '../../src/protocol/named-rows.ts';
import { rowCodecOf } from '../../src/protocol/row-codec.ts';
import type { ColumnValue, CompiledSchema, CompiledTable } from '../../src/protocol/schema.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import { NO_BLOBS } from '../../src/session/sync/blob-references.ts';
import { createCommitQueue } from '../../src/session/sync/commit-queue.ts';
import { type Declarations, NOTHING_DECLARED } from '../../src/session/sync/declarations.ts';
import { runRound } from '../../src/session/sync/round.ts';
import type { RoundOutcome } from '../../src/session/sync/round-outcome.ts';
import { SegmentBuilds } from '../../src/session/sync/segment-builds.ts';
import type {
  ClientKey,
  CursorWriter,
  HostHooks,
  Identity,
  SyncDeps,
  SyncEvent,
} from '../../src/session/sync/sync-deps.ts';
import type { SegmentStore } from '../../src/storage/segments.ts';
import type { CursorUpdate, LogCommit, Storage } from '../../src/storage/storage.ts';
import { ManualClock } from './manual-clock.ts';
import { openTestStorage } from './storage-under-test.ts';

export const PARTITION = 'tenant-1';

/** Parents before children; two-variable scopes, a required one, and every column type that matters to a pull. */
export const SYNC_SCHEMA = {
  version: 7,
  tables: [
    {
      name: 'notes',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'project', type: 'string' },
        { name: 'title', type: 'string', nullable: true },
        { name: 'rank', type: 'integer', nullable: true },
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
        { name: 'done', type: 'boolean' },
      ],
      primaryKey: 'id',
      scopes: ['project:{project}', 'owner:{owner}'],
    },
    {
      name: 'letters',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'team', type: 'string' },
        { name: 'person', type: 'string' },
      ],
      primaryKey: 'id',
      scopes: ['team:{team}', 'person:{person}'],
      requiredScopes: ['team'],
    },
  ],
};

/** Any project, owner, team and person. */
export const EVERYTHING: ScopeMap = { project: ['*'], owner: ['*'], team: ['*'], person: ['*'] };

/** Time stands still; turns are real. */
export class LoopClock extends ManualClock {
  override nextTurn(run: () => void): void {
    onNextTurn(run);
  }
}

export function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

/** Ids that tell their order. */
export class CountingRandom implements Random {
  #count = 0;

  unit(): number {
    return 0.5;
  }

  id(): string {
    return `id-${++this.#count}`;
  }
}

/** Notes cursors and stores them when asked, like a writer behind. */
export class NotedCursors implements CursorWriter {
  readonly #storage: Storage;
  readonly #nowMs: () => number;
  readonly #updates = new Map<string, CursorUpdate>();

  constructor(storage: Storage, nowMs: () => number) {
    this.#storage = storage;
    this.#nowMs = nowMs;
  }

  pulled(key: ClientKey, cursor: number): void {
    this.#note(key, 'set', cursor);
  }

  acked(key: ClientKey, cursor: number): void {
    this.#note(key, 'raise', cursor);
  }

  async flush({ partition, clientId }: ClientKey): Promise<void> {
    const id = JSON.stringify([partition, clientId]);
    const update = this.#updates.get(id);
    this.#updates.delete(id);
    if (update !== undefined) await this.#storage.saveCursors([update]);
  }

  async flushAll(): Promise<void> {
    const updates = [...this.#updates.values()];
    this.#updates.clear();
    await this.#storage.saveCursors(updates);
  }

  #note(key: ClientKey, mode: CursorUpdate['mode'], cursor: number): void {
    const id = JSON.stringify([key.partition, key.clientId]);
    this.#updates.set(id, { ...key, mode, cursor, nowMs: this.#nowMs() });
  }
}

export interface SyncHarnessOptions {
  /** A file; default is one that vanishes with the harness. */
  readonly path?: string;
  readonly schema?: unknown;
  readonly limits?: Partial<Limits>;
  readonly hooks?: Partial<HostHooks>;
  readonly declarations?: Declarations;
  /** Wrap the real ones, to hold, count or fail their calls. */
  readonly wrapStorage?: (storage: Storage) => Storage;
  readonly wrapSegments?: (segments: SegmentStore) => SegmentStore;
}

export interface RoundSpec {
  readonly clientId?: string;
  readonly actorId?: string;
  readonly partition?: string;
  readonly expiresAtMs?: number | null;
  readonly wireVersion?: WireVersion;
  readonly schemaVersion?: number;
  /** Default: the partition's current one in wire version 2. `null` leaves it out. */
  readonly logEpoch?: string | null;
  readonly pushes?: readonly PushCommitFrame[];
  /** Present: a pull. Defaults: no limits, accept inline and external rows. */
  readonly pull?: Partial<PullHeaderFrame>;
  /** Present: a pull as well. */
  readonly subscriptions?: readonly SubscriptionFrame[];
  /** The id of the socket; default HTTP. */
  readonly socketClientId?: string;
  readonly signal?: AbortSignal;
}

export interface RoundResult {
  readonly outcome: RoundOutcome;
  /** Without the final one. */
  readonly chunks: readonly Uint8Array[];
  readonly bytes: Uint8Array;
  readonly frames: readonly ResponseFrame[];
}

/** Decoding limits for responses far beyond what a test makes. */
const DECODE_LIMITS = { framesMax: 1_000_000, frameBytesMax: 64 * 1024 * 1024 };

export class SyncHarness {
  readonly schema: CompiledSchema;
  readonly clock: LoopClock;
  readonly storage: Storage;
  readonly segments: SegmentStore;
  readonly cursors: NotedCursors;
  readonly events: SyncEvent[] = [];
  /** What the sink was given, in order. */
  readonly published: LogCommit[] = [];
  readonly deps: SyncDeps;
  /** What `resolveScopes` answers per actor, or throws; default `EVERYTHING`. */
  readonly grants = new Map<string, ScopeMap | Error>();
  /** Calls of `resolveScopes`. */
  resolved = 0;
  #commitIds = 0;

  private constructor(
    opened: { storage: Storage; segments: SegmentStore; clock: LoopClock; schema: CompiledSchema },
    options: SyncHarnessOptions,
  ) {
    this.schema = opened.schema;
    this.clock = opened.clock;
    this.storage = options.wrapStorage?.(opened.storage) ?? opened.storage;
    this.segments = options.wrapSegments?.(opened.segments) ?? opened.segments;
    this.cursors = new NotedCursors(this.storage, () => this.clock.nowMs());
    const shared = {
      schema: this.schema,
      declarations: options.declarations ?? NOTHING_DECLARED,
      storage: this.storage,
      limits: { ...DEFAULT_LIMITS, ...options.limits },
      clock: this.clock,
      random: new CountingRandom(),
      events: { emit: (event: SyncEvent) => void this.events.push(event) },
      sha256,
      hooks: {
        resolveScopes: (who: Identity) => this.#resolve(who),
        rowValidators: new Map(),
        commitValidator: 'off',
        crdtMergers: new Map(),
        ...options.hooks,
      } satisfies HostHooks,
    };
    const sink = {
      accept: (_partition: string, _epoch: string, commits: readonly LogCommit[]) =>
        void this.published.push(...commits),
    };
    this.deps = {
      ...shared,
      segments: this.segments,
      segmentBuilds: new SegmentBuilds(),
      commits: createCommitQueue({ ...shared, sink, blobs: NO_BLOBS }),
      cursors: this.cursors,
    };
  }

  static async open(options: SyncHarnessOptions = {}): Promise<SyncHarness> {
    const clock = new LoopClock();
    const schema = compileSchema(options.schema ?? SYNC_SCHEMA);
    const { storage, segments } = await openTestStorage({ path: options.path, clock });
    await storage.ensureSchema(schema);
    return new SyncHarness({ storage, segments, clock, schema }, options);
  }

  async close(): Promise<void> {
    await this.deps.commits.close();
    await this.storage.close();
  }

  who(spec: Pick<RoundSpec, 'actorId' | 'partition' | 'expiresAtMs'> = {}): Identity {
    const { actorId = 'actor-1', partition = PARTITION, expiresAtMs = null } = spec;
    return { actorId, partition, expiresAtMs, claims: {} };
  }

  readState(partition = PARTITION) {
    return this.storage.readSnapshot(partition, (reader) => reader.state());
  }

  /** First contact, so that the partition exists; returns its epoch. */
  async admit(partition = PARTITION): Promise<string> {
    const nowMs = this.clock.nowMs();
    const request = { partition, clientId: 'somebody', newLogEpoch: this.deps.random.id(), nowMs };
    return (await this.storage.admit(request)).state.logEpoch;
  }

  clientRecord(clientId = 'client-1', partition = PARTITION) {
    return this.storage.readSnapshot(partition, (reader) => reader.readClient(clientId));
  }

  async request(spec: RoundSpec): Promise<Uint8Array> {
    const { clientId = 'client-1', wireVersion = 2, schemaVersion = this.schema.version } = spec;
    const logEpoch = await this.#epochOf(spec);
    const { pushes = [], subscriptions = [] } = spec;
    const hasPull = spec.pull !== undefined || spec.subscriptions !== undefined;
    const header = { limitCommits: 0, limitSnapshotRows: 0, maxSnapshotPages: 0, accept: 0b0011 };
    return encodeMessage({
      kind: 'request',
      wireVersion,
      frames: [
        { type: 'REQ_HEADER', clientId, schemaVersion, ...(logEpoch === null ? {} : { logEpoch }) },
        ...pushes,
        ...(hasPull ? [{ type: 'PULL_HEADER', ...header, ...spec.pull } as const] : []),
        ...subscriptions,
      ],
    });
  }

  /** A round nobody has asked anything of yet. */
  async start(spec: RoundSpec, deps = this.deps): Promise<AsyncGenerator<Uint8Array, RoundOutcome>> {
    const context = {
      who: this.who(spec),
      clientId: spec.socketClientId ?? null,
      signal: spec.signal ?? new AbortController().signal,
    };
    return runRound(await this.request(spec), context, deps);
  }

  /** Runs a round to its end and hands it over, as a transport does. */
  async round(spec: RoundSpec): Promise<RoundResult> {
    const result = await this.drain(await this.start(spec));
    if (result.outcome.kind === 'served') result.outcome.handedOver();
    return result;
  }

  /** Consumes a round of which `taken` was consumed before; nothing is handed over. */
  async drain(
    generator: AsyncGenerator<Uint8Array, RoundOutcome>,
    taken: readonly Uint8Array[] = [],
  ): Promise<RoundResult> {
    const chunks = [...taken];
    for (;;) {
      const step = await generator.next();
      if (!step.done) {
        chunks.push(step.value);
        continue;
      }
      const outcome = step.value;
      const bytes = new Uint8Array(Buffer.concat([...chunks, outcome.finalChunk]));
      return { outcome, chunks, bytes, frames: decodeResponse(bytes) };
    }
  }

  /** One commit of `operations` by `actor-1`, which must be applied; returns its `commitSeq`. */
  async commit(
    operations: readonly PushOperation[],
    spec: Pick<RoundSpec, 'actorId' | 'clientId' | 'partition'> = {},
  ): Promise<number> {
    const { frames } = await this.round({ clientId: 'writer', ...spec, pushes: [this.push(operations)] });
    const result = frames.find((frame) => frame.type === 'PUSH_RESULT');
    if (result?.commitSeq === undefined) throw new Error(`not applied: ${JSON.stringify(result)}`);
    return result.commitSeq;
  }

  push(operations: readonly PushOperation[], clientCommitId = `c-${++this.#commitIds}`): PushCommitFrame {
    return { type: 'PUSH_COMMIT', clientCommitId, operations };
  }

  upsert(table: string, row: Readonly<Record<string, ColumnValue>>, baseVersion?: number): PushOperation {
    const payload = this.payload(table, row);
    const operation = { table, rowId: String(row.id), op: 'upsert', payload } as const;
    return baseVersion === undefined ? operation : { ...operation, baseVersion };
  }

  delete(table: string, rowId: string): PushOperation {
    return { table, rowId, op: 'delete' };
  }

  /** A note of `project`, with a title as long as a test needs rows to be. */
  note(id: string, project: string, title = `title of ${id}`): PushOperation {
    return this.upsert('notes', { id, project, title, rank: null });
  }

  payload(table: string, row: Readonly<Record<string, ColumnValue>>): Uint8Array {
    return rowCodecOf(this.table(table)).encode(rowFromObject(this.table(table), row));
  }

  table(name: string): CompiledTable {
    return this.schema.tableByName.get(name)!;
  }

  async #epochOf({ wireVersion = 2, logEpoch, partition }: RoundSpec): Promise<string | null> {
    if (wireVersion === 1) return null;
    return logEpoch === undefined ? await this.admit(partition) : logEpoch;
  }

  #resolve({ actorId }: Identity): ScopeMap {
    this.resolved++;
    const grant = this.grants.get(actorId) ?? EVERYTHING;
    if (grant instanceof Error) throw grant;
    return grant;
  }
}

export function decodeResponse(bytes: Uint8Array): readonly ResponseFrame[] {
  const message = decodeMessage(bytes, { limits: DECODE_LIMITS });
  if (message.kind !== 'response') throw new Error('not a response');
  return message.frames;
}

/** A subscription that never synced. */
export function subscription(
  id: string,
  table: string,
  scopes: ScopeMap,
  rest: Partial<Pick<SubscriptionFrame, 'cursor' | 'params' | 'bootstrapState'>> = {},
): SubscriptionFrame {
  return { type: 'SUBSCRIPTION', id, table, scopes, cursor: -1, ...rest };
}
