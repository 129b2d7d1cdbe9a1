/**
 * Backfill checkpoints, the writer fence and what the serve gate looks at (part 4), as every storage keeps them. No code here;
 * `Storage` and `StorageTx` include these contracts.
 *
 * Durable state: `sync_backfill_checkpoints`, `sync_writer_fence`, and a trigger on `sync_commits` that refuses a writer below
 * the fence of its partition, whatever code that writer runs (4.1).
 */
import type { OpName, StoredScopes } from '../protocol/frames.ts';
import type { CompiledTable } from '../protocol/schema.ts';
import type { RowPage } from './storage.ts';

/** `declared` → `backfilling` → `activated`; never back. */
export type CheckpointState = 'declared' | 'backfilling' | 'activated';

/** What a host announces for a projection (4.2): its rows are derived in this partition as of this schema version. */
export interface CheckpointDeclaration {
  readonly partition: string;
  /** Unique in its partition. */
  readonly name: string;
  readonly schemaVersion: number;
}

/** The durable record of one backfill. */
export interface Checkpoint extends CheckpointDeclaration {
  readonly state: CheckpointState;
  /** `commitSeq` up to which the backfill has seen every source change; 0 until its first scan is complete. */
  readonly watermark: number;
  /** Fencing token: the newest claimer holds the highest. 0 until claimed. */
  readonly ownerEpoch: number;
  /** Source rows seen so far, for progress. */
  readonly observedRows: number;
  readonly updatedAtMs: number;
  /** Where an unfinished scan of the sources stands; `null` when none is under way. */
  readonly scan: BackfillScan | null;
}

/** Position of a scan through the source tables, so that a restarted worker continues from the last batch that landed. */
export interface BackfillScan {
  /** Head of the log when the scan began: where following the log starts once the scan is complete. */
  readonly headSeq: number;
  /** Source table being read. */
  readonly table: string;
  /** Last row of it that was seen; `null` before its first. */
  readonly afterRowId: string | null;
}

export interface PendingCheckpoint extends CheckpointDeclaration {}

/** What the serve gate decides on (4.3). */
export interface ServeGate {
  readonly storedSchemaVersion: number;
  /** Absent for a partition that nobody has been admitted to. */
  readonly logEpoch?: string;
  /** Every checkpoint, of any partition, of the running schema version that is not activated. */
  readonly pending: readonly { readonly partition: string; readonly name: string }[];
}

/** Progress of the owner `ownerEpoch`; nothing is written for a worker that was superseded. */
export interface CheckpointAdvance {
  readonly name: string;
  readonly ownerEpoch: number;
  /** Never lowered, except to 0 together with a new `scan` (the history was pruned: the scan starts again). */
  readonly watermark: number;
  readonly observedRows: number;
  /** Replaces the stored position; `null` says that no scan is under way. */
  readonly scan: BackfillScan | null;
  readonly nowMs: number;
}

/** Every row of a table in one partition, ascending `rowId` (UTF-8 bytes): what a backfill reads. Never for a client's read. */
export interface TableScan {
  readonly table: CompiledTable;
  /** Exclusive; `null` starts at the first row. */
  readonly afterRowId: string | null;
  readonly rowsMax: number;
  /** Payload bytes; at least one row is returned whatever its size. */
  readonly bytesMax: number;
}

/** Changes of some tables in the log, oldest first. */
export interface SourceRead {
  readonly tables: readonly string[];
  /** Exclusive lower and inclusive upper bound of `commitSeq`. */
  readonly afterSeq: number;
  readonly throughSeq: number;
  /** Changes; a first commit with more comes whole and alone, so a commit is never split. */
  readonly changesMax: number;
}

export interface SourceChange {
  readonly commitSeq: number;
  readonly table: string;
  readonly rowId: string;
  readonly op: OpName;
  /** Scopes of the row after an upsert, before a delete (S-042). */
  readonly scopes: StoredScopes;
}

export interface SourceWindow {
  readonly changes: readonly SourceChange[];
  /** `throughSeq` when the window was exhausted, else the last returned commit. */
  readonly scannedThrough: number;
}

/** Whether sources changed above a position; `unverifiable`: history above it was pruned, so an empty window proves nothing. */
export type SourceVerdict = 'clean' | 'changed' | 'unverifiable';

export type Activation = 'activated' | 'stale' | 'unverifiable';

/** Part of a transaction under the partition's lock, so that backfilled rows and the progress that counts them commit together. */
export interface CheckpointTx {
  /** Compare-and-set on the owner epoch and on state `backfilling`; false for a worker that was superseded. */
  advanceCheckpoint(advance: CheckpointAdvance): Promise<boolean>;
  scanTable(scan: TableScan): Promise<RowPage>;
  readSourceChanges(read: SourceRead): Promise<SourceWindow>;
}

export interface CheckpointStorage {
  /**
   * Installs the checkpoint as `declared` unless it exists, and raises the partition's fence to `schemaVersion` (never lowers),
   * in one transaction that takes neither the table lock nor a partition lock (4.2).
   */
  declareCheckpoint(declaration: CheckpointDeclaration & { readonly nowMs: number }): Promise<void>;
  readServeGate(partition: string, runningVersion: number): Promise<ServeGate>;
  /** By name; empty for a partition without. */
  readCheckpoints(partition: string): Promise<ReadonlyMap<string, Checkpoint>>;
  /** Every checkpoint, by partition and name ascending, after `after`; for operators. */
  listCheckpoints(request: {
    readonly after: { readonly partition: string; readonly name: string } | null;
    readonly max: number;
  }): Promise<readonly Checkpoint[]>;
  /**
   * One UPDATE: owner epoch + 1, `declared` → `backfilling`. An activated checkpoint is returned as it is. Two claimers never
   * get the same epoch. Throws `sync.storage.checkpoint_not_declared` when there is no such checkpoint of this version.
   */
  claimCheckpoint(declaration: CheckpointDeclaration & { readonly nowMs: number }): Promise<Checkpoint>;
  /** As `CheckpointTx.advanceCheckpoint`, in a transaction of its own. */
  advanceCheckpoint(advance: CheckpointAdvance & { readonly partition: string }): Promise<boolean>;
  /** Rows of a table in the partition, at most `max`: what an operator's progress is measured against. Reads as many keys. */
  countRows(request: {
    readonly partition: string;
    readonly table: CompiledTable;
    readonly max: number;
  }): Promise<number>;
  /** Highest `commitSeq` that changed one of the tables; 0 if none. */
  sourceCoverageSeq(partition: string, tables: readonly string[]): Promise<number>;
  /** Reads the horizon before the window. No tables → `clean`. */
  hasSourceChangesAbove(partition: string, tables: readonly string[], seq: number): Promise<SourceVerdict>;
  /**
   * Under the partition's lock, the one a push takes: fence and checkpoint must stand (`sync.storage.checkpoint_fence_missing`),
   * the sources must not have changed above `watermark`, and the caller must own the checkpoint; else nothing changes.
   */
  activateCheckpoint(request: {
    readonly partition: string;
    readonly name: string;
    readonly ownerEpoch: number;
    readonly watermark: number;
    readonly sources: readonly string[];
    readonly nowMs: number;
  }): Promise<Activation>;
}
