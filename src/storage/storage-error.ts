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
