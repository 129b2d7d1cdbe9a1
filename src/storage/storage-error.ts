/** Failures of a storage. Their codes are for hosts and operators; they never reach the wire (part 1.11 rule 5). */

export type StorageErrorCode =
  /** The database cannot be reached, is full, read-only, or broke off. */
  | 'sync.storage.unavailable'
  /** Connection lost while COMMIT was on its way: it may have landed. */
  | 'sync.storage.outcome_unknown'
  /** Lock not had in time, deadlock, serialization failure: nothing landed, the same may succeed. */
  | 'sync.storage.busy'
  | 'sync.storage.constraint'
  | 'sync.storage.schema_newer'
  | 'sync.storage.schema_changed'
  | 'sync.storage.unknown_partition'
  | 'sync.storage.scan_requires_scope'
  | 'sync.storage.closed'
  /** A checkpoint of the running schema version is unfinished, and this process did not declare it (part 4, 4.2). */
  | 'sync.storage.checkpoint_incomplete'
  | 'sync.storage.checkpoint_not_declared'
  /** No checkpoint, no fence, or a fence below the checkpoint's schema version. */
  | 'sync.storage.checkpoint_fence_missing'
  /** The writer runs a schema version below the fence of the partition (part 4, 4.1): nothing of the transaction landed. */
  | 'sync.storage.writer_fence_rejected'
  /** A defect: a statement the database refuses for a reason nobody foresaw. */
  | 'sync.storage.failed';

export interface StorageErrorOptions {
  readonly cause?: unknown;
  /** `unknown`: the write may have landed. */
  readonly outcome?: 'nothing' | 'unknown';
  /** The same call may succeed later. */
  readonly retryable?: boolean;
}

export class StorageError extends Error {
  override readonly name: string = 'StorageError';
  readonly code: StorageErrorCode;
  readonly outcome: 'nothing' | 'unknown';
  readonly retryable: boolean;

  constructor(code: StorageErrorCode, message: string, options: StorageErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.outcome = options.outcome ?? 'nothing';
    this.retryable = options.retryable ?? false;
  }
}

/** What the database holds does not allow what was asked for. */
export class StorageQueryError extends StorageError {
  override readonly name = 'StorageQueryError';
}

/** The text that the trigger on `sync_commits` raises. */
export const WRITER_FENCE_REJECTED = 'sync.storage.writer_fence_rejected';

export function writerFenceError(cause: unknown): StorageError {
  return new StorageError(
    WRITER_FENCE_REJECTED,
    'the partition accepts commits of a newer schema version only: a projection was declared there',
    { cause },
  );
}

export type ConstraintKind = 'unique' | 'foreign_key' | 'not_null' | 'check' | 'value';

/** The database refused a row; the commit that holds it becomes `sync.constraint_violation` (§6.4). */
export class StorageConstraintError extends StorageError {
  override readonly name = 'StorageConstraintError';
  readonly kind: ConstraintKind;

  constructor(kind: ConstraintKind, cause: unknown) {
    super('sync.storage.constraint', `the database refused the write: ${kind}`, { cause });
    this.kind = kind;
  }
}
