/** From SQLite result codes to the failures that the storage contract names (guarantee 8). */
import {
  type ConstraintKind,
  StorageConstraintError,
  StorageError,
  WRITER_FENCE_REJECTED,
  writerFenceError,
} from '../storage-error.ts';
import { resultCodeOf } from './driver.ts';

/** Another process holds the lock, or its snapshot was overtaken. Extended codes carry the primary one as a prefix. */
export function isBusy(error: unknown): boolean {
  return /^SQLITE_(BUSY|LOCKED)(_|$)/.test(resultCodeOf(error) ?? '');
}

/** May pass by itself or with an operator's hand: a full disk, a missing mount. */
const UNREACHABLE = /^SQLITE_(IOERR|FULL|CANTOPEN|PROTOCOL|NOMEM)(_|$)/;
const UNUSABLE = /^SQLITE_(READONLY|CORRUPT|NOTADB|PERM|AUTH|NOLFS)(_|$)/;

/** Errors that are `StorageError`s already pass through. */
export function toStorageError(error: unknown): StorageError {
  if (error instanceof StorageError) return error;
  const code = resultCodeOf(error) ?? '';
  if (isBusy(error)) return busyError(error);
  if (code === 'SQLITE_CONSTRAINT_TRIGGER' && messageOf(error) === WRITER_FENCE_REJECTED) {
    return writerFenceError(error);
  }
  const retryable = UNREACHABLE.test(code);
  if (retryable || UNUSABLE.test(code)) {
    return new StorageError('sync.storage.unavailable', 'the database cannot be read or written', {
      cause: error,
      retryable,
    });
  }
  return new StorageError('sync.storage.failed', 'the database refused a statement', { cause: error });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : '';
}

export function busyError(cause: unknown): StorageError {
  return new StorageError('sync.storage.busy', 'the lock of the database was not had in time', {
    cause,
    retryable: true,
  });
}

/** A failed COMMIT whose bytes may have reached the write-ahead log: a crash right now could still bring it back. */
export function commitError(error: unknown): StorageError {
  if (/^SQLITE_IOERR(_|$)/.test(resultCodeOf(error) ?? '')) {
    return new StorageError('sync.storage.outcome_unknown', 'writing a commit to disk failed', {
      cause: error,
      outcome: 'unknown',
    });
  }
  return toStorageError(error);
}

const CONSTRAINT_KINDS: ReadonlyMap<string, ConstraintKind> = new Map([
  ['SQLITE_CONSTRAINT_UNIQUE', 'unique'],
  ['SQLITE_CONSTRAINT_PRIMARYKEY', 'unique'],
  ['SQLITE_CONSTRAINT_ROWID', 'unique'],
  ['SQLITE_CONSTRAINT_FOREIGNKEY', 'foreign_key'],
  ['SQLITE_CONSTRAINT_NOTNULL', 'not_null'],
  ['SQLITE_CONSTRAINT_DATATYPE', 'value'],
  ['SQLITE_TOOBIG', 'value'],
]);

/** For statements that write a synced row: what the database refuses there is the row's fault, not ours (§6.4). */
export function toRowError(error: unknown): StorageError {
  const code = resultCodeOf(error) ?? '';
  const kind = CONSTRAINT_KINDS.get(code);
  if (kind !== undefined) return new StorageConstraintError(kind, error);
  // CHECK, and RAISE(ABORT) in a trigger that an operator added.
  if (code.startsWith('SQLITE_CONSTRAINT')) return new StorageConstraintError('check', error);
  return toStorageError(error);
}

/** Runs synchronous database work so that only `StorageError`s leave it. */
export function guarded<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    throw toStorageError(error);
  }
}
