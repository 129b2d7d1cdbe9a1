/** Everything the sync core is handed. No member is optional: a feature that is off is an "off" object. */
import type { Clock, Random } from '../../protocol/clock.ts';
import type { JsonObject } from '../../protocol/errors.ts';
import type {
  OpName,
  PushCommitFrame,
  PushResultDetailsFrame,
  PushResultFrame,
  ScopeMap,
} from '../../protocol/frames.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { ColumnValue, CompiledSchema } from '../../protocol/schema.ts';
import type { SegmentStore } from '../../storage/segments.ts';
import type { LogCommit, Storage } from '../../storage/storage.ts';
import type { Declarations } from './declarations.ts';
import type { ScopeGrant } from './scopes.ts';
import type { SegmentBuilds } from './segment-builds.ts';

/** Who speaks, as the host's `authenticate` said. */
export interface Identity {
  readonly actorId: string;
  readonly partition: string;
  /** Epoch ms after which nothing leaves for this grant; `null` never expires. */
  readonly expiresAtMs: number | null;
  /** The host's own data about the actor, handed to `resolveScopes`. */
  readonly claims: JsonObject;
}

/** Values by column name. */
export type NamedRow = Readonly<Record<string, ColumnValue>>;

export interface RowValidatorInput {
  readonly op: OpName;
  readonly table: string;
  readonly rowId: string;
  readonly actorId: string;
  readonly partition: string;
  /** What will persist, after the scope strip and CRDT merge; `undefined` on delete. */
  readonly row: NamedRow | undefined;
  /** The current row; `undefined` on insert. */
  readonly stored: NamedRow | undefined;
}

/** Throws `ValidationRejection` to reject (§6.7). Pure: it may run again when a batch is retried. */
export type RowValidator = (input: RowValidatorInput) => void | Promise<void>;

export interface CommitOperation {
  readonly opIndex: number;
  readonly op: OpName;
  readonly table: string;
  readonly rowId: string;
  readonly row: NamedRow | undefined;
  readonly stored: NamedRow | undefined;
  readonly storedServerVersion: number | undefined;
  readonly nextServerVersion: number | undefined;
}

/** Read-only view of the candidate state inside the push transaction (§6.8). */
export interface CandidateReader {
  getRow(
    table: string,
    rowId: string,
  ): Promise<{ readonly row: NamedRow; readonly serverVersion: number } | undefined>;
  /** Ascending `rowId`. `limit` default 100, 1…1,000. An empty filter fails with `sync.storage.scan_requires_scope`. */
  scanRows(request: {
    readonly table: string;
    readonly scopeFilter: ScopeMap;
    readonly afterRowId?: string;
    readonly limit?: number;
  }): Promise<readonly { readonly rowId: string; readonly row: NamedRow; readonly serverVersion: number }[]>;
}

export interface CommitValidatorInput {
  readonly clientId: string;
  readonly clientCommitId: string;
  readonly actorId: string;
  readonly partition: string;
  readonly operations: readonly CommitOperation[];
  readonly reader: CandidateReader;
}

/** Throws `CommitValidationRejection` or `ValidationRejection` to reject (§6.8). Pure, as above. */
export type CommitValidator = (input: CommitValidatorInput) => void | Promise<void>;

/** Idempotent, commutative, associative (§5.10). */
export type CrdtMerger = (stored: Uint8Array | null, incoming: Uint8Array) => Uint8Array;

export interface HostHooks {
  /** Variable → values over all tables; `'*'` = any. Called at most once per request; a throw revokes (§3.2). */
  resolveScopes(who: Identity): ScopeMap | Promise<ScopeMap>;
  /** By table name. */
  readonly rowValidators: ReadonlyMap<string, RowValidator>;
  /** `'off'` costs nothing. */
  readonly commitValidator: CommitValidator | 'off';
  /** By `crdtType`. */
  readonly crdtMergers: ReadonlyMap<string, CrdtMerger>;
}

/** Where durable commits go, in order, right after COMMIT and before any writer is answered (architecture §4.1). */
export interface CommitSink {
  /** Synchronous, cheap and never throwing: it queues the fanout. */
  accept(partition: string, logEpoch: string, commits: readonly LogCommit[]): void;
}

/** Writes client cursors behind (architecture §4.7). */
export interface CursorWriter {
  /** A pull response was handed over whole. */
  pulled(key: ClientKey, cursor: number): void;
  acked(key: ClientKey, cursor: number): void;
  /** Resolves when what was noted for this client is stored. */
  flush(key: ClientKey): Promise<void>;
  flushAll(): Promise<void>;
}

export interface ClientKey {
  readonly partition: string;
  readonly clientId: string;
}

/** The commits of one request, to be run back to back in order. */
export interface PushRequest {
  readonly who: Identity;
  readonly clientId: string;
  /** Of the request; selects the codec of payloads and server rows. */
  readonly schemaVersion: number;
  readonly grant: ScopeGrant;
  /** Log epoch the request was admitted with: another one under the lock refuses (part 4). */
  readonly logEpoch: string;
  readonly commits: readonly PushCommitFrame[];
}

export interface PushOutcome {
  readonly result: PushResultFrame;
  readonly details: PushResultDetailsFrame | null;
}

/** Group commit per partition (architecture §3). */
export interface CommitQueue {
  /**
   * Resolves, in commit order, after COMMIT returned and the sink has the commits. Rejects with a request-level `SyncError`
   * (`sync.rate_limited`, `sync.schema_not_ready`) or a `StorageError`; then commits that did land answer `cached` on retry.
   */
  push(request: PushRequest): Promise<readonly PushOutcome[]>;
  /** Commits waiting or running, over all partitions. */
  readonly depth: number;
  /** Refuses new pushes, waits for those in the queue. */
  close(): Promise<void>;
}

/** Things an operator may want to know; never awaited, never throwing. */
export interface SyncEvents {
  emit(event: SyncEvent): void;
}

export type SyncEvent =
  | {
      readonly type: 'commit.batch';
      readonly partition: string;
      readonly commits: number;
      readonly rejected: number;
      readonly durationMs: number;
    }
  | {
      readonly type: 'push.rejected';
      readonly partition: string;
      readonly actorId: string;
      readonly code: string;
      readonly opIndex: number;
    }
  | {
      readonly type: 'commit.slow_path';
      readonly partition: string;
      readonly commits: number;
      readonly cause: string;
    }
  | {
      readonly type: 'host.failed';
      readonly hook: string;
      readonly partition: string;
      readonly error: unknown;
    }
  | { readonly type: 'storage.failed'; readonly partition: string; readonly error: unknown }
  /** A request met the serve gate (part 4, 4.3); `details` are those of the client's error. */
  | {
      readonly type: 'gate.refused';
      readonly partition: string;
      readonly kind: 'schema' | 'epoch' | 'checkpoint';
      readonly details: JsonObject;
    }
  /** The database refused an append of this process: its schema version is below the partition's fence (part 4, 4.1). */
  | { readonly type: 'writer.fenced'; readonly partition: string; readonly writerVersion: number }
  /** A worker of a backfill, and what became of it (part 4, 4.4). */
  | {
      readonly type: `backfill.${'claimed' | 'stale' | 'unverifiable' | 'activated' | 'superseded'}`;
      readonly partition: string;
      readonly name: string;
      readonly ownerEpoch: number;
      readonly watermark: number;
      readonly observedRows: number;
    }
  /** A batch landed. */
  | {
      readonly type: 'backfill.advanced';
      readonly partition: string;
      readonly name: string;
      readonly phase: 'scan' | 'follow';
      readonly observedRows: number;
      readonly watermark: number;
      readonly head: number;
      readonly ratePerSecond: number;
    }
  | {
      readonly type: 'backfill.failed';
      readonly partition: string;
      readonly name: string;
      readonly error: unknown;
    }
  /** This process is part of the roll-out of a checkpoint that is not activated. */
  | {
      readonly type: 'checkpoint.declared';
      readonly partition: string;
      readonly name: string;
      readonly schemaVersion: number;
    }
  | { readonly type: 'request.refused'; readonly partition: string; readonly code: string }
  | {
      readonly type: 'segment.built';
      readonly partition: string;
      readonly table: string;
      readonly rows: number;
      readonly bytes: number;
    };

export interface SyncDeps {
  readonly schema: CompiledSchema;
  /** Checkpoints that the host of this process declared. */
  readonly declarations: Declarations;
  readonly storage: Storage;
  readonly segments: SegmentStore;
  /** Pages being built in this process; one per gateway, whatever its schema or storage. */
  readonly segmentBuilds: SegmentBuilds;
  readonly hooks: HostHooks;
  readonly commits: CommitQueue;
  readonly cursors: CursorWriter;
  readonly limits: Limits;
  readonly clock: Clock;
  readonly random: Random;
  readonly events: SyncEvents;
  /** SHA-256 as 64 lower-case hex digits. */
  readonly sha256: (bytes: Uint8Array) => string;
}
