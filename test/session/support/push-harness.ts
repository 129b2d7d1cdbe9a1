/** A commit queue over a real SQLite storage, with a host that a test makes up and a clock whose time stands still. */

import { createHash } from 'node:crypto';
import { setImmediate as onNextTurn } from 'node:timers';
import type { Random } from '../../../src/protocol/clock.ts';
import type { PushCommitFrame, PushOperation, ScopeMap } from '../../../src/protocol/frames.ts';
import { DEFAULT_LIMITS, type Limits } from '../../../src/protocol/limits.ts';
import { rowFromObject, rowToObject } from '../../../src/protocol/named-rows.ts';
import { rowCodecOf } from '../../../src/protocol/row-codec.ts';
import type { ColumnValue, CompiledSchema, CompiledTable } from '../../../src/protocol/schema.ts';
import { compileSchema } from '../../../src/protocol/schema-compiler.ts';
import { type BlobReferences, NO_BLOBS } from '../../../src/session/sync/blob-references.ts';
import { createCommitQueue } from '../../../src/session/sync/commit-queue.ts';
import { type Declarations, NOTHING_DECLARED } from '../../../src/session/sync/declarations.ts';
import type { RejectionRecord } from '../../../src/session/sync/push-rejection.ts';
import type { ScopeGrant } from '../../../src/session/sync/scopes.ts';
import type {
  CommitQueue,
  HostHooks,
  PushOutcome,
  PushRequest,
  SyncEvent,
} from '../../../src/session/sync/sync-deps.ts';
import type { LogCommit, Storage, StoredRow } from '../../../src/storage/storage.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { openTestStorage } from '../../support/storage-under-test.ts';

export const PARTITION = 'tenant-1';
export const EPOCH = 'epoch-1';
export const CLIENT = 'client-1';

/** Time only a test moves, turns of the real event loop. */
export class TurningClock extends ManualClock {
  override nextTurn(run: () => void): void {
    onNextTurn(run);
  }
}

export const PUSH_SCHEMA = {
  version: 3,
  tables: [
    {
      name: 'tasks',
      columns: [
        { name: 'id', type: 'string', nullable: false },
        { name: 'project_id', type: 'string', nullable: true },
        { name: 'title', type: 'string', nullable: true },
        { name: 'points', type: 'integer', nullable: true },
      ],
      primaryKey: 'id',
      scopes: ['project:{project_id}'],
    },
    {
      name: 'notes',
      columns: [
        { name: 'id', type: 'integer', nullable: false },
        { name: 'org', type: 'string', nullable: false },
        { name: 'team', type: 'integer', nullable: true },
        { name: 'doc', type: 'crdt', nullable: true, crdtType: 'yjs-doc' },
        { name: 'text', type: 'string', nullable: true },
      ],
      primaryKey: 'id',
      scopes: ['org:{org}', { pattern: 'team:{team_id}', column: 'team' }],
    },
    {
      name: 'users',
      columns: [
        { name: 'id', type: 'string', nullable: false },
        { name: 'project_id', type: 'string', nullable: false },
        { name: 'email', type: 'string', nullable: true },
        { name: 'age', type: 'integer', nullable: true },
      ],
      primaryKey: 'id',
      scopes: ['project:{project_id}'],
      indexes: [{ name: 'users_email', columns: ['email'], unique: true }],
    },
    {
      name: 'files',
      columns: [
        { name: 'id', type: 'string', nullable: false },
        { name: 'project_id', type: 'string', nullable: false },
        { name: 'cover', type: 'blob_ref', nullable: true },
        { name: 'body', type: 'blob_ref', nullable: true },
      ],
      primaryKey: 'id',
      scopes: ['project:{project_id}'],
    },
    {
      name: 'vaults',
      columns: [
        { name: 'id', type: 'string', nullable: false },
        { name: 'project_id', type: 'string', nullable: false },
        { name: 'secret', type: 'string', nullable: true, encrypted: true },
      ],
      primaryKey: 'id',
      scopes: ['project:{project_id}'],
    },
  ],
};

export type RowObject = Readonly<Record<string, ColumnValue>>;

export interface HarnessOptions {
  readonly hooks?: Partial<HostHooks>;
  readonly limits?: Partial<Limits>;
  readonly blobs?: BlobReferences;
  readonly declarations?: Declarations;
  /** Wraps the real storage, to hold it or to let it fail. */
  readonly wrap?: (storage: Storage) => Storage;
}

export interface PushSpec {
  readonly commits: readonly PushCommitFrame[];
  readonly clientId?: string;
  readonly actorId?: string;
  readonly partition?: string;
  readonly grant?: ScopeGrant;
  readonly allowed?: ScopeMap;
  readonly logEpoch?: string;
  readonly schemaVersion?: number;
}

const DEFAULT_ALLOWED: ScopeMap = { project_id: ['p1', 'p2'], org: ['o1'], team_id: ['1', '2'] };

/** Middle of its range, always. */
const EVEN: Random = { unit: () => 0.5, id: () => 'id' };

export function sha256(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex');
}

export class PushHarness {
  readonly schema: CompiledSchema = compileSchema(PUSH_SCHEMA);
  readonly clock = new TurningClock();
  readonly events: SyncEvent[] = [];
  /** What the sink was given, in order. */
  readonly published: LogCommit[] = [];
  /** How many commits had no answer yet, whenever the sink was given some. */
  readonly unansweredAtSink: number[] = [];
  readonly storage: Storage;
  readonly queue: CommitQueue;
  readonly #options: HarnessOptions;
  #commitIds = 0;

  private constructor(storage: Storage, options: HarnessOptions) {
    this.storage = storage;
    this.#options = options;
    this.queue = this.newQueue();
  }

  static async open(options: HarnessOptions = {}): Promise<PushHarness> {
    const { storage } = await openTestStorage({ clock: new TurningClock() });
    const harness = new PushHarness(options.wrap?.(storage) ?? storage, options);
    await storage.ensureSchema(harness.schema);
    for (const partition of [PARTITION, 'tenant-2']) await harness.admit(partition);
    return harness;
  }

  /** Another process on the same database, as far as the queue can tell. */
  newQueue(options: HarnessOptions = this.#options): CommitQueue {
    return createCommitQueue({
      schema: this.schema,
      declarations: options.declarations ?? NOTHING_DECLARED,
      storage: this.storage,
      hooks: {
        resolveScopes: () => ({}),
        rowValidators: new Map(),
        commitValidator: 'off',
        crdtMergers: new Map(),
        ...options.hooks,
      },
      limits: { ...DEFAULT_LIMITS, ...options.limits },
      clock: this.clock,
      random: EVEN,
      events: { emit: (event) => this.events.push(event) },
      sink: {
        accept: (_partition, _epoch, commits) => {
          this.published.push(...commits);
          this.unansweredAtSink.push(this.queue.depth);
        },
      },
      blobs: options.blobs ?? NO_BLOBS,
      sha256,
    });
  }

  async admit(partition: string): Promise<void> {
    const nowMs = this.clock.nowMs();
    await this.storage.admit({ partition, clientId: CLIENT, newLogEpoch: EPOCH, nowMs });
  }

  async close(): Promise<void> {
    await this.queue.close();
    await this.storage.close();
  }

  table(name: string): CompiledTable {
    return this.schema.tableByName.get(name)!;
  }

  payload(table: string, row: RowObject): Uint8Array {
    return rowCodecOf(this.table(table)).encode(rowFromObject(this.table(table), row));
  }

  upsert(table: string, row: RowObject, baseVersion?: number): PushOperation {
    const rowId = String(row.id);
    const payload = this.payload(table, row);
    return { table, rowId, op: 'upsert', payload, ...(baseVersion === undefined ? {} : { baseVersion }) };
  }

  delete(table: string, rowId: string): PushOperation {
    return { table, rowId, op: 'delete' };
  }

  task(id: string, more: RowObject = {}, baseVersion?: number): PushOperation {
    return this.upsert('tasks', { id, project_id: 'p1', ...more }, baseVersion);
  }

  /** A commit under an id of its own. */
  commit(...operations: PushOperation[]): PushCommitFrame {
    return { type: 'PUSH_COMMIT', clientCommitId: `commit-${++this.#commitIds}`, operations };
  }

  request(spec: PushSpec): PushRequest {
    const { commits, clientId = CLIENT, actorId = 'ada', partition = PARTITION } = spec;
    return {
      who: { actorId, partition, expiresAtMs: null, claims: {} },
      clientId,
      schemaVersion: spec.schemaVersion ?? this.schema.version,
      grant: spec.grant ?? { kind: 'granted', allowed: spec.allowed ?? DEFAULT_ALLOWED },
      logEpoch: spec.logEpoch ?? EPOCH,
      commits,
    };
  }

  send(spec: PushSpec): Promise<readonly PushOutcome[]> {
    return this.queue.push(this.request(spec));
  }

  /** One commit of these operations; its outcome. */
  async push(...operations: PushOperation[]): Promise<PushOutcome> {
    return this.pushAs({}, ...operations);
  }

  async pushAs(spec: Omit<PushSpec, 'commits'>, ...operations: PushOperation[]): Promise<PushOutcome> {
    const [outcome] = await this.send({ ...spec, commits: [this.commit(...operations)] });
    return outcome!;
  }

  async log(partition = PARTITION): Promise<readonly LogCommit[]> {
    return this.storage.readSnapshot(partition, async (reader) => {
      const { head } = await reader.state();
      const bounds = { commitsMax: 1_000_000, bytesMax: 1_000_000_000 };
      return reader.readCommits({ afterSeq: 0, throughSeq: head, ...bounds });
    });
  }

  async stored(table: string, rowId: string): Promise<StoredRow | null> {
    return this.storage.readSnapshot(PARTITION, (reader) => reader.readRow(this.table(table), rowId));
  }

  async row(table: string, rowId: string): Promise<RowObject | null> {
    const row = await this.stored(table, rowId);
    return row === null ? null : this.decode(table, row.payload);
  }

  decode(table: string, payload: Uint8Array): RowObject {
    return rowToObject(this.table(table), rowCodecOf(this.table(table)).decode(payload));
  }

  eventsOf<T extends SyncEvent['type']>(type: T): Extract<SyncEvent, { readonly type: T }>[] {
    return this.events.filter(
      (event): event is Extract<SyncEvent, { readonly type: T }> => event.type === type,
    );
  }
}

/** `applied`, or the code of the record that ended the commit. */
export function verdict({ result }: PushOutcome): string {
  if (result.status !== 'rejected') return result.status;
  const [record] = result.results;
  return record === undefined || record.status === 'applied' ? 'malformed' : record.code;
}

/** The one record of a rejected commit. */
export function rejection({ result }: PushOutcome): RejectionRecord {
  const [record, ...more] = result.results;
  if (
    result.status !== 'rejected' ||
    record === undefined ||
    record.status === 'applied' ||
    more.length > 0
  ) {
    throw new Error(`not one record of a rejected commit: ${JSON.stringify(result)}`);
  }
  return record;
}
