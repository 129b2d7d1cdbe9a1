/** From SQLSTATE codes to the failures that the storage contract names (guarantee 8). */
import {
  type ConstraintKind,
  StorageConstraintError,
  StorageError,
  WRITER_FENCE_REJECTED,
  writerFenceError,
} from '../storage-error.ts';
import { FlightError, sqlStateOf } from './driver.ts';

/**
 * By code or by class, the longer one first. Connection failures, a server that goes down, is full, out of memory, read-only
 * after a failover, or damaged: nothing that a caller did.
 */
const UNAVAILABLE = /^(08|53|57P|58|F0|XX|25006|25P03|25P04|28|3D000)/;
/** Lock or statement timeout, deadlock, serialization failure: the same may succeed. */
const BUSY = /^(40|55P03|57014)/;
/** An operator has to act before the same can succeed: wrong password, no such database. */
const HOPELESS = /^(28|3D000)/;

/** RAISE in a trigger or function, without a code of its own. */
const RAISED = 'P0001';

/** True where this server can no longer be written to, but a new connection may reach its successor. */
export function isFailover(error: StorageError): boolean {
  return /^(25006|57P0[123])$/.test(sqlStateOf(error.cause) ?? '');
}

/** Errors that are `StorageError`s already pass through. */
export function toStorageError(error: unknown): StorageError {
  if (error instanceof StorageError) return error;
  if (!(error instanceof FlightError)) return refusedError(error);
  const { cause, isLost, fault } = error;
  const state = sqlStateOf(cause) ?? '';
  if (isLost || UNAVAILABLE.test(state)) return unavailableError(cause);
  if (BUSY.test(state)) return busyError('the database did not get to it in time', cause);
  if (state === RAISED && cause instanceof Error && cause.message === WRITER_FENCE_REJECTED) {
    return writerFenceError(cause);
  }
  const kind = fault === 'row' ? constraintKind(state) : null;
  return kind === null ? refusedError(cause) : new StorageConstraintError(kind, cause);
}

/** For the COMMIT of a transaction, and for a flight that commits by itself: without an answer it may have landed. */
export function toWriteError(error: unknown): StorageError {
  if (!(error instanceof FlightError && error.isLost)) return toStorageError(error);
  return new StorageError(
    'sync.storage.outcome_unknown',
    'the connection broke while a commit was on its way',
    {
      cause: error.cause,
      outcome: 'unknown',
    },
  );
}

/** Also for a connection that could not be made. */
export function unavailableError(cause: unknown): StorageError {
  return new StorageError('sync.storage.unavailable', 'the database cannot be read or written', {
    cause,
    retryable: !HOPELESS.test(sqlStateOf(cause) ?? ''),
  });
}

export function busyError(message: string, cause?: unknown): StorageError {
  return new StorageError('sync.storage.busy', message, { cause, retryable: true });
}

function refusedError(cause: unknown): StorageError {
  return new StorageError('sync.storage.failed', 'the database refused a statement', { cause });
}

const CONSTRAINT_KINDS: ReadonlyMap<string, ConstraintKind> = new Map([
  ['23505', 'unique'],
  ['23503', 'foreign_key'],
  ['23001', 'foreign_key'],
  ['23502', 'not_null'],
]);

/** What the database refuses in a synced row is the row's fault, not ours (§6.4). */
function constraintKind(state: string): ConstraintKind | null {
  const kind = CONSTRAINT_KINDS.get(state);
  if (kind !== undefined) return kind;
  // Values that a type cannot hold, and rows too long for an index.
  if (/^(22|54)/.test(state)) return 'value';
  // CHECK, exclusion, WITH CHECK OPTION, and RAISE in a trigger that an operator added.
  if (/^(23|44|P0)/.test(state)) return 'check';
  return null;
}
