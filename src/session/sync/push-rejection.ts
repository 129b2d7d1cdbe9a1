/** Why a commit ended without being applied: the one record its `PUSH_RESULT` holds (§6.3). */
import { ERROR_CATALOGUE, type ErrorCode } from '../../protocol/errors.ts';
import type { OpResult } from '../../protocol/frames.ts';

export type RejectionRecord = Exclude<OpResult, { readonly status: 'applied' }>;

/**
 * `stored`: the outcome is kept and replays. `passing`: the cause may pass, or nothing could be kept, so the same commit
 * runs again when it is sent again (part 2.24 decisions 13 and 19).
 */
export type RejectionLifetime = 'stored' | 'passing';

export interface Rejection {
  readonly record: RejectionRecord;
  /** Normalized text of the host's recovery metadata (§6.3.1). */
  readonly detailsJson: string | null;
  readonly lifetime: RejectionLifetime;
}

/** Fixed texts: a message never carries a value, a name of another tenant, or SQL. */
const MESSAGES = {
  'sync.unknown_table': 'the operation names a table the schema does not have',
  'sync.forbidden': 'the actor may not write this row',
  'sync.row_missing': 'the row to update does not exist',
  'sync.version_conflict': 'the row has another version than the one the client saw',
  'sync.missing_scopes': 'the write left a row without a value for each of its scopes',
  'sync.crdt_merge_failed': 'a crdt column could not be merged',
  'sync.constraint_violation': 'the write breaks a constraint',
  'sync.idempotency_cache_miss': 'the stored result of this commit cannot be read',
  'blob.not_found': 'the row refers to a blob that is not there',
} as const satisfies Partial<Record<ErrorCode, string>>;

type FixedCode = Exclude<keyof typeof MESSAGES, 'sync.version_conflict'>;

/** A catalogue code with its fixed text; `sync.invalid_request` says in its own words what is malformed. */
export function errorRejection(
  opIndex: number,
  code: FixedCode,
  lifetime: RejectionLifetime = 'stored',
): Rejection {
  const { retryable } = ERROR_CATALOGUE[code];
  const record = { opIndex, status: 'error', code, message: MESSAGES[code], retryable } as const;
  return { record, detailsJson: null, lifetime };
}

export function invalidRejection(
  opIndex: number,
  message: string,
  lifetime: RejectionLifetime = 'stored',
): Rejection {
  const record = {
    opIndex,
    status: 'error',
    code: 'sync.invalid_request',
    message,
    retryable: false,
  } as const;
  return { record, detailsJson: null, lifetime };
}

export function conflictRejection(
  opIndex: number,
  current: { readonly serverVersion: number; readonly payload: Uint8Array },
): Rejection {
  const code = 'sync.version_conflict';
  const record = {
    opIndex,
    status: 'conflict',
    code,
    message: MESSAGES[code],
    serverVersion: current.serverVersion,
    serverRow: current.payload,
  } as const;
  return { record, detailsJson: null, lifetime: 'stored' };
}

/** A host's own code and text; such codes have no metadata, and the same write would meet the same validator. */
export function hostRejection(
  opIndex: number,
  host: { readonly code: string; readonly message: string; readonly detailsJson: string | null },
): Rejection {
  const { code, message, detailsJson } = host;
  return {
    record: { opIndex, status: 'error', code, message, retryable: false },
    detailsJson,
    lifetime: 'stored',
  };
}
