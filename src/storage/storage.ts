/**
 * The storage contract: the durable log, rows, results and client records of every partition (architecture §5,
 * protocol part 6). No code here; `storage/sqlite` and `storage/postgres` implement it and one suite tests both.
 *
 * Guarantees every implementation MUST give
 *
 * 1. Order. `commitSeq` is dense per partition: the commit after `head` is `head + 1`, no number is skipped after a
 *    rollback, none is reused. It is visible to readers only together with everything that it carries.
 * 2. Atomicity. All that one `transaction` appended lands together or not at all: commits, changes, change scopes, rows,
 *    row scopes, tombstones, results. A rejected promise means that nothing landed, except for `StorageError`s with
 *    `outcome: 'unknown'`.
 * 3. Durability. When `transaction` has resolved, a SIGKILL or a power loss does not undo it (unless the operator
 *    weakened the setting). Client cursors and last-seen times may be lost by a crash: a lost one costs a pull.
 * 4. Isolation. Everything inside one `readSnapshot` sees one state. `transaction` takes the partition's lock before
 *    anything is read; transactions of one partition never overlap, in any process.
 * 5. Partitions. Nothing read or written under one partition is ever visible under another.
 * 6. Bytes. Payloads come back byte for byte. Integers are never rounded.
 * 7. Cost. Windows and pages are found through the scope indexes, never by scanning the log or a table; pages are by
 *    key, not by offset. A write costs the same in a large table as in an empty one.
 * 8. Failure. Every failure is a `StorageError` (see `storage-error.ts`), with the driver's error as `cause`.
 */
import type { OpName, ScopeMap, StoredScopes, WireVersion } from '../protocol/frames.ts';
import type { CompiledSchema, CompiledTable, RowValues } from '../protocol/schema.ts';
import type {
  CheckpointDeclaration,
  CheckpointStorage,
  CheckpointTx,
  PendingCheckpoint,
} from './checkpoints.ts';

/** What admission, gate and cursor arithmetic need to know of a partition, read in one go. */
export interface PartitionState {
  readonly partition: string;
  /** Highest `commitSeq`; 0 for an empty log. */
  readonly head: number;
  /** Commits at or below it may be gone. 0 until something was pruned. */
  readonly horizon: number;
  /** Opaque, non-empty (§2.1). */
  readonly logEpoch: string;
  /** True once the epoch was rotated: wire 1 is refused (§2.1). */
  readonly epochRequired: boolean;
  /** Schema version the database is at. */
  readonly storedSchemaVersion: number;
  /**
   * Checkpoints of any schema version that are not activated (part 4, 4.3): all of this partition by name, then those of
   * others, of the newest versions first, `GATE_PENDING_MAX` at most. One shared empty list where there are none.
   */
  readonly pending: readonly PendingCheckpoint[];
  /** Highest schema version of a checkpoint of this partition, whatever its state; 0 without one. */
  readonly newestCheckpointVersion: number;
}

export interface LogChange {
  readonly table: string;
  readonly rowId: string;
  readonly op: OpName;
  /** `rowVersion` and `payload` are present exactly for an upsert. */
  readonly rowVersion?: number;
  readonly payload?: Uint8Array;
  /** Scopes of the row after an upsert, before a delete (S-042). */
  readonly scopes: StoredScopes;
}

/** A durable commit, or that part of it which matched a window. */
export interface LogCommit {
  readonly commitSeq: number;
  readonly createdAtMs: number;
  readonly actorId: string;
  readonly clientId: string;
  readonly clientCommitId: string;
  readonly changes: readonly LogChange[];
}

export interface StoredRow {
  readonly rowId: string;
  readonly serverVersion: number;
  readonly scopes: StoredScopes;
  /** Row-codec bytes in the layout of the stored schema version. */
  readonly payload: Uint8Array;
}

export interface RowUpsert extends StoredRow {
  /** Decoded values in column order, for the typed columns. */
  readonly values: RowValues;
}

/** Final state of every row of one table that a batch touched; a row stands in one of the lists, once. */
export interface TableWrites {
  readonly table: CompiledTable;
  readonly upserts: readonly RowUpsert[];
  /** Rows that existed before the batch and are gone after it, with the commit that removed them. */
  readonly deletes: readonly { readonly rowId: string; readonly commitSeq: number }[];
}

export interface NewCommit extends LogCommit {
  /** Running schema version of the process that appends (part 4). */
  readonly writerVersion: number;
}

export interface ResultKey {
  readonly clientId: string;
  readonly clientCommitId: string;
}

/** Idempotency record (§2.3). `result` is text owned by the sync core; storage keeps it verbatim. */
export interface PushResultRecord extends ResultKey {
  readonly result: string;
  /** SHA-256 hex over the commit's content (part 2.24 decision 19). */
  readonly contentHash: string;
  readonly schemaVersion: number;
  readonly recordedAtMs: number;
}

export interface CommitBatch {
  /** Ascending and dense from `head + 1`. May be empty: a batch of rejections only. */
  readonly commits: readonly NewCommit[];
  readonly rows: readonly TableWrites[];
  readonly results: readonly PushResultRecord[];
}

export interface RowScan {
  readonly table: CompiledTable;
  /** Non-empty; a row matches when its value lies in the list for every key. */
  readonly scopes: ScopeMap;
  /** Exclusive; `null` starts at the first row. Ascending `rowId`, compared as UTF-8 bytes. */
  readonly afterRowId: string | null;
  readonly rowsMax: number;
  /** Payload bytes; at least one row is returned whatever its size. */
  readonly bytesMax: number;
}

export interface RowPage {
  readonly rows: readonly StoredRow[];
  /** Last row of this page when more rows follow, else `null`. */
  readonly nextRowId: string | null;
}

export interface WindowQuery {
  readonly table: CompiledTable;
  /** Effective scopes, non-empty, no `'*'`. */
  readonly scopes: ScopeMap;
  /** Exclusive lower and inclusive upper bound of `commitSeq`. */
  readonly afterSeq: number;
  readonly throughSeq: number;
  /** Changes over the returned commits (S-058): a first commit larger than this comes whole and alone. */
  readonly changesMax: number;
  /** Payload bytes, same rule. */
  readonly bytesMax: number;
}

export interface CommitWindow {
  /** Oldest first, each with exactly its matching changes, never split. */
  readonly commits: readonly LogCommit[];
  /** `throughSeq` when the window was exhausted, else the last returned commit (S-062). */
  readonly scannedThrough: number;
}

export interface LogRead {
  readonly afterSeq: number;
  readonly throughSeq: number;
  readonly commitsMax: number;
  readonly bytesMax: number;
}

/** Where a subscription stands; only `live` ones take delta sections (part 3, 3.5.2-8). */
export type SubscriptionState = 'live' | 'bootstrapping' | 'reset' | 'revoked';

export interface StoredSubscription {
  readonly id: string;
  readonly table: string;
  /** As requested; effective scopes are computed anew at each load. */
  readonly scopes: ScopeMap;
  readonly state: SubscriptionState;
  /** Effective scopes that the client was last told, where the grant left fewer than requested; absent where it left all. */
  readonly narrowed?: ScopeMap;
}

/** Durable record per (partition, clientId), written by pulls (§8.1). */
export interface ClientRecord {
  readonly clientId: string;
  readonly actorId: string;
  readonly wireVersion: WireVersion;
  readonly schemaVersion: number;
  /** −1 until a pull had an active subscription. */
  readonly cursor: number;
  readonly subscriptions: readonly StoredSubscription[];
  readonly updatedAtMs: number;
}

export interface ClientUpdate {
  readonly partition: string;
  readonly clientId: string;
  /** Log epoch the round was served under. Once the partition has another one, nothing is saved (S-032). */
  readonly logEpoch: string;
  readonly actorId: string;
  readonly wireVersion: WireVersion;
  readonly schemaVersion: number;
  /** Replaces the stored list; `null` keeps it (push-only round). Without a record `null` creates none. */
  readonly subscriptions: readonly StoredSubscription[] | null;
  readonly nowMs: number;
}

/** `set` is a pull's cursor; `raise` an ack's, applied as max(stored, cursor). Neither touches the list. */
export interface CursorUpdate {
  readonly partition: string;
  readonly clientId: string;
  readonly mode: 'set' | 'raise';
  readonly cursor: number;
  readonly nowMs: number;
}

export interface Admission {
  readonly state: PartitionState;
  readonly client: ClientRecord | null;
  /** Actor this `clientId` belongs to; `null` until `bindClient`. Survives an epoch rotation (2.24 decision 24). */
  readonly boundActorId: string | null;
}

/** Reads inside one pinned state. Valid only until the function it was handed to has settled. */
export interface SnapshotReader {
  state(): Promise<PartitionState>;
  readClient(clientId: string): Promise<ClientRecord | null>;
  readWindow(query: WindowQuery): Promise<CommitWindow>;
  readRowPage(scan: RowScan): Promise<RowPage>;
  readRow(table: CompiledTable, rowId: string): Promise<StoredRow | null>;
  /** Whole commits with all their changes, oldest first; at least one if there is one. For the hub. */
  readCommits(range: LogRead): Promise<readonly LogCommit[]>;
}

/**
 * Reads and writes under the partition's lock. Valid only until the function it was handed to has settled. `readResults` and
 * `readRows` that are called together are answered in one round trip; anything else waits for the answers before it.
 */
export interface StorageTx extends CheckpointTx {
  /** As of the lock. */
  readonly state: PartitionState;
  /** In the order of the keys; `null` where none is stored. One query. */
  readResults(keys: readonly ResultKey[]): Promise<readonly (PushResultRecord | null)[]>;
  /** Existing rows by id. One query. */
  readRows(table: CompiledTable, rowIds: readonly string[]): Promise<ReadonlyMap<string, StoredRow>>;
  scanRows(scan: RowScan): Promise<RowPage>;
  /**
   * Writes a batch with one multi-row statement per kind where the database has such. Maintains change scopes, row scopes
   * and tombstones, and raises `head`. Throws `RangeError` when the commits do not continue `head`, and
   * `StorageConstraintError` when the database refuses a row (the transaction or savepoint must then be left by a throw).
   *
   * `'last'`: nothing else is asked of the transaction, and later calls are refused. The storage may then write the batch when
   * it commits, in the same round trip; a refused row is told by `transaction` in that case, and it has rolled back.
   */
  append(batch: CommitBatch, place?: 'last'): Promise<void>;
  /** What `fn` wrote is undone when it throws; the transaction goes on. `state.head` follows. */
  savepoint<T>(fn: () => Promise<T>): Promise<T>;
}

export interface Storage extends CheckpointStorage {
  /**
   * Brings the storage's own tables and the schema's tables up to date (part 4, 4.2): additive DDL, rows and log re-encoded
   * when a table's layout grew, stored version raised. Idempotent, safe when two processes start at once. Refuses a stored
   * version above `schema.version` (`sync.storage.schema_newer`) and a layout that changed without a new version.
   *
   * Barrier: a checkpoint of this schema version, of any partition, that is not activated must be among `checkpoints`; else
   * `StorageQueryError` `sync.storage.checkpoint_incomplete`. Where the version is raised, `checkpoints` are installed in the
   * same transaction; never otherwise (`declareCheckpoint` is for that). Memoized: the same call again does nothing.
   */
  ensureSchema(schema: CompiledSchema, checkpoints?: readonly CheckpointDeclaration[]): Promise<void>;
  /** Creates the partition with `newLogEpoch` on first contact (S-027), then reads state, record and binding at once. */
  admit(request: {
    readonly partition: string;
    readonly clientId: string;
    readonly newLogEpoch: string;
    readonly nowMs: number;
  }): Promise<Admission>;
  /** First binder wins; returns the actor that holds the id. */
  bindClient(request: {
    readonly partition: string;
    readonly clientId: string;
    readonly actorId: string;
  }): Promise<string>;
  saveClient(update: ClientUpdate): Promise<void>;
  /** One write for all of them. A missing record is skipped, never created (part 3, 3.5.3). */
  saveCursors(updates: readonly CursorUpdate[]): Promise<void>;
  /** Raises `last_authenticated_at_ms` (S-028). */
  touchPartitions(seen: ReadonlyMap<string, number>): Promise<void>;
  readSnapshot<T>(partition: string, fn: (reader: SnapshotReader) => Promise<T>): Promise<T>;
  /** `partition` must have been admitted; `StorageError` `sync.storage.unknown_partition` otherwise. */
  transaction<T>(partition: string, fn: (tx: StorageTx) => Promise<T>): Promise<T>;
  /** New epoch, validation required, client records deleted, bindings and results kept (S-032). */
  rotateEpoch(request: { readonly partition: string; readonly logEpoch: string }): Promise<void>;
  /**
   * Raises the horizon to `horizon` (never lowers) and removes at most `commitsMax` commits at or below it with their
   * changes and scopes (part 6 rule 6). `more` says that another call has work left.
   */
  pruneLog(request: {
    readonly partition: string;
    readonly horizon: number;
    readonly commitsMax: number;
  }): Promise<{ readonly removed: number; readonly more: boolean }>;
  /** Known partitions in ascending order after `afterPartition`, for operators and jobs. */
  listPartitions(request: {
    readonly afterPartition: string | null;
    readonly max: number;
  }): Promise<readonly PartitionState[]>;
  /** Rejects when the database cannot be reached or written. */
  ping(): Promise<void>;
  /** Waits for transactions in flight, then releases everything. Idempotent. */
  close(): Promise<void>;
}
