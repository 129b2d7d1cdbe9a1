/**
 * The closed error catalogue of SSP2 (§10, protocol part 1.11) and the one error type of this project.
 *
 * A code fixes its category, retryability, recommended action and HTTP status. Message text may change, codes may
 * not. Values go into `details`, never into the text; a public message never carries SQL, a path or a stack.
 */

export type JsonValue =
  | null
  | boolean
  | number
  | string
  | readonly JsonValue[]
  | { readonly [key: string]: JsonValue };
export type JsonObject = { readonly [key: string]: JsonValue };

export type ErrorCategory =
  | 'auth-required'
  | 'invalid-request'
  | 'schema-mismatch'
  | 'forbidden'
  | 'scope-revoked'
  | 'reset-required'
  | 'conflict'
  | 'not-found'
  | 'internal'
  | 'rate-limited'
  | 'unavailable';

export type RecommendedAction =
  | 'refreshAuth'
  | 'checkPermissions'
  | 'fixRequest'
  | 'resetClientId'
  | 'regenerateClient'
  | 'upgradeClient'
  | 'resolveConflict'
  | 'rebootstrap'
  | 'forceResync'
  | 'retryLater'
  | 'splitBatch'
  | 'inspectServer';

export interface ErrorMeta {
  readonly category: ErrorCategory;
  /** The same request, unmodified, may succeed later. */
  readonly retryable: boolean;
  readonly action: RecommendedAction;
  /** HTTP status when the error is a response of its own; `null` when it never is one. */
  readonly httpStatus: number | null;
}

const meta = (
  category: ErrorCategory,
  retryable: 'retry' | 'final',
  action: RecommendedAction,
  httpStatus: number | null,
): ErrorMeta => ({ category, retryable: retryable === 'retry', action, httpStatus });

/** Every code that may appear on the wire, with its fixed metadata (part 1.11). */
export const ERROR_CATALOGUE = {
  'sync.auth_required': meta('auth-required', 'retry', 'refreshAuth', 401),
  'sync.auth_lease_required': meta('auth-required', 'retry', 'refreshAuth', 401),
  'sync.auth_lease_revoked': meta('auth-required', 'retry', 'refreshAuth', 401),
  'sync.forbidden': meta('forbidden', 'final', 'checkPermissions', 403),
  'sync.invalid_request': meta('invalid-request', 'final', 'fixRequest', 400),
  'sync.invalid_client_id': meta('invalid-request', 'final', 'resetClientId', 400),
  'sync.invalid_subscription': meta('invalid-request', 'final', 'fixRequest', 400),
  'sync.empty_commit': meta('invalid-request', 'final', 'fixRequest', 400),
  'sync.unknown_table': meta('schema-mismatch', 'final', 'regenerateClient', 400),
  'sync.row_missing': meta('not-found', 'final', 'forceResync', null),
  'sync.version_conflict': meta('conflict', 'final', 'resolveConflict', null),
  'sync.constraint_violation': meta('invalid-request', 'final', 'fixRequest', null),
  'sync.missing_scopes': meta('internal', 'final', 'inspectServer', 500),
  'sync.crdt_merge_failed': meta('internal', 'final', 'inspectServer', null),
  'sync.idempotency_cache_miss': meta('internal', 'retry', 'retryLater', null),
  'sync.too_many_operations': meta('invalid-request', 'final', 'splitBatch', 400),
  'sync.not_found': meta('not-found', 'final', 'forceResync', 404),
  'sync.segment_expired': meta('not-found', 'retry', 'retryLater', 404),
  'sync.cursor_expired': meta('reset-required', 'final', 'rebootstrap', null),
  'sync.scope_revoked': meta('scope-revoked', 'final', 'checkPermissions', null),
  'sync.rate_limited': meta('rate-limited', 'retry', 'retryLater', 429),
  'sync.schema_mismatch': meta('schema-mismatch', 'final', 'regenerateClient', 400),
  'sync.client_schema_unsupported': meta('schema-mismatch', 'final', 'upgradeClient', 400),
  'sync.client_wire_unsupported': meta('schema-mismatch', 'final', 'upgradeClient', 400),
  'sync.websocket_connection_limit': meta('rate-limited', 'retry', 'retryLater', 429),
  'sync.schema_not_ready': meta('unavailable', 'retry', 'retryLater', 503),
  'blob.not_found': meta('not-found', 'final', 'fixRequest', 404),
  'blob.forbidden': meta('forbidden', 'final', 'checkPermissions', 403),
  'blob.hash_mismatch': meta('invalid-request', 'final', 'fixRequest', 400),
  'blob.too_large': meta('invalid-request', 'final', 'fixRequest', 413),
  'operation.unknown': meta('not-found', 'final', 'regenerateClient', 404),
  'operation.forbidden': meta('forbidden', 'final', 'checkPermissions', 403),
  'operation.invalid_request': meta('invalid-request', 'final', 'fixRequest', 400),
  'operation.result_too_large': meta('invalid-request', 'final', 'fixRequest', 400),
  'operation.storage_unsupported': meta('internal', 'final', 'inspectServer', 500),
  'operation.query_failed': meta('internal', 'final', 'inspectServer', 500),
  'operation.execution_failed': meta('internal', 'final', 'inspectServer', 500),
} as const satisfies Record<string, ErrorMeta>;

export type ErrorCode = keyof typeof ERROR_CATALOGUE;

export function isErrorCode(code: string): code is ErrorCode {
  return Object.hasOwn(ERROR_CATALOGUE, code);
}

/** The flat JSON body of an HTTP error (§1.1) and, field by field, the content of an `ERROR` frame (§1.6). */
export interface ErrorBody {
  readonly code: ErrorCode;
  readonly category: ErrorCategory;
  readonly retryable: boolean;
  readonly recommendedAction: RecommendedAction;
  readonly message: string;
  readonly details?: JsonObject;
}

export interface SyncErrorOptions {
  readonly details?: JsonObject;
  readonly cause?: unknown;
  /** Overrides the catalogue's HTTP status, e.g. 415 for a wrong content type. */
  readonly httpStatus?: number;
}

/** A failure with a catalogue code. The message is public: no SQL, path, secret or row content in it. */
export class SyncError extends Error {
  override readonly name = 'SyncError';
  readonly code: ErrorCode;
  readonly details: JsonObject | undefined;
  readonly httpStatus: number;

  constructor(code: ErrorCode, message: string, options: SyncErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = options.details;
    this.httpStatus = options.httpStatus ?? ERROR_CATALOGUE[code].httpStatus ?? 500;
  }

  get meta(): ErrorMeta {
    return ERROR_CATALOGUE[this.code];
  }

  toBody(): ErrorBody {
    const { category, retryable, action } = this.meta;
    const body = { code: this.code, category, retryable, recommendedAction: action, message: this.message };
    return this.details === undefined ? body : { ...body, details: this.details };
  }

  /**
   * The one door through which an unknown failure becomes a catalogue error, or is recognised as having none:
   * `null` means "no code on the wire" (HTTP 500 with a generic body, or close 1011; part 1.11 rule 5).
   */
  static from(failure: unknown): SyncError | null {
    return failure instanceof SyncError ? failure : null;
  }
}
