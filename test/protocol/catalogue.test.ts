/** The closed catalogues: errors row by row (part 1.11), close codes with their class (architecture 6), limits. */
import { describe, expect, it } from 'vitest';
import { CLOSE_CODES, reconnectClass } from '../../src/protocol/close-codes.ts';
import { ERROR_CATALOGUE, isErrorCode, SyncError } from '../../src/protocol/errors.ts';
import { assertLimits, DEFAULT_LIMITS, type Limits } from '../../src/protocol/limits.ts';

/** Code, category, retryable, action, HTTP status (`-` = never a response of its own). */
const ROWS = `
sync.auth_required auth-required yes refreshAuth 401
sync.auth_lease_required auth-required yes refreshAuth 401
sync.auth_lease_revoked auth-required yes refreshAuth 401
sync.forbidden forbidden no checkPermissions 403
sync.invalid_request invalid-request no fixRequest 400
sync.invalid_client_id invalid-request no resetClientId 400
sync.invalid_subscription invalid-request no fixRequest 400
sync.empty_commit invalid-request no fixRequest 400
sync.unknown_table schema-mismatch no regenerateClient 400
sync.row_missing not-found no forceResync -
sync.version_conflict conflict no resolveConflict -
sync.constraint_violation invalid-request no fixRequest -
sync.missing_scopes internal no inspectServer 500
sync.crdt_merge_failed internal no inspectServer -
sync.idempotency_cache_miss internal yes retryLater -
sync.too_many_operations invalid-request no splitBatch 400
sync.not_found not-found no forceResync 404
sync.segment_expired not-found yes retryLater 404
sync.cursor_expired reset-required no rebootstrap -
sync.scope_revoked scope-revoked no checkPermissions -
sync.rate_limited rate-limited yes retryLater 429
sync.schema_mismatch schema-mismatch no regenerateClient 400
sync.client_schema_unsupported schema-mismatch no upgradeClient 400
sync.client_wire_unsupported schema-mismatch no upgradeClient 400
sync.websocket_connection_limit rate-limited yes retryLater 429
sync.schema_not_ready unavailable yes retryLater 503
blob.not_found not-found no fixRequest 404
blob.forbidden forbidden no checkPermissions 403
blob.hash_mismatch invalid-request no fixRequest 400
blob.too_large invalid-request no fixRequest 413
operation.unknown not-found no regenerateClient 404
operation.forbidden forbidden no checkPermissions 403
operation.invalid_request invalid-request no fixRequest 400
operation.result_too_large invalid-request no fixRequest 400
operation.storage_unsupported internal no inspectServer 500
operation.query_failed internal no inspectServer 500
operation.execution_failed internal no inspectServer 500`
  .trim()
  .split('\n')
  .map((row) => row.split(' '));

const RESERVED = [
  ...['sync.integrity_rejected', 'sync.websocket_not_configured', 'sync.unsupported_operation'],
  ...['sync.auth_lease_invalid', 'sync.auth_lease_scope_mismatch', 'sync.auth_lease_schema_mismatch'],
  ...[
    'sync.auth_lease_missing',
    'sync.auth_lease_business_rejected',
    'sync.offline',
    'sync.transport_failed',
  ],
  ...[
    'presence.forbidden',
    'presence.too_large',
    'sync.storage.scan_requires_scope',
    'toString',
    '__proto__',
    '',
  ],
];

describe('error catalogue (part 1.11)', () => {
  it('has exactly the rows of the table', () => {
    expect(Object.keys(ERROR_CATALOGUE).sort()).toStrictEqual(ROWS.map(([code]) => code).sort());
  });

  it.each(ROWS)('%s', (code, category, retryable, action, status) => {
    if (!isErrorCode(code!)) throw new Error(`${code} is missing`);
    const httpStatus = status === '-' ? null : Number(status);
    expect(ERROR_CATALOGUE[code]).toStrictEqual({
      category,
      retryable: retryable === 'yes',
      action,
      httpStatus,
    });
    const error = new SyncError(code, 'text', { details: { n: 1 } });
    expect(error.httpStatus).toBe(httpStatus ?? 500);
    expect(error.toBody()).toStrictEqual({
      code,
      category,
      retryable: retryable === 'yes',
      recommendedAction: action,
      message: 'text',
      details: { n: 1 },
    });
  });

  it.each(RESERVED)('%j is no code of the catalogue', (code) => {
    expect(isErrorCode(code)).toBe(false);
  });

  it('leaves absent details out of the body and takes another HTTP status (S-001)', () => {
    const error = new SyncError('sync.invalid_request', 'x', { httpStatus: 415 });
    expect(error.toBody()).not.toHaveProperty('details');
    expect(error.httpStatus).toBe(415);
    expect(error).not.toHaveProperty('cause');
    const cause = new TypeError('why');
    expect(new SyncError('sync.forbidden', 'x', { cause }).cause).toBe(cause);
  });

  it('is entered by one door', () => {
    const error = new SyncError('sync.forbidden', 'x');
    expect(SyncError.from(error)).toBe(error);
    expect(SyncError.from(new Error('x'))).toBeNull();
    expect(SyncError.from('sync.forbidden')).toBeNull();
  });
});

describe('close codes (architecture 6)', () => {
  it('have the class that a client acts on', () => {
    const classes = Object.keys(CLOSE_CODES).map((code) => [Number(code), reconnectClass(Number(code))]);
    expect(Object.fromEntries(classes)).toStrictEqual({
      1000: 'stop',
      1001: 'retry-now',
      1002: 'never',
      1007: 'never',
      1008: 'never',
      1009: 'never',
      1011: 'retry-backoff',
      1012: 'retry-now',
      1013: 'retry-backoff',
      4401: 'refresh-auth',
      4403: 'never',
      4408: 'retry-backoff',
      4409: 'never',
    });
  });

  it.each([1005, 1006, 4000, 4999, 0])('a socket that ends with %i backs off', (code) => {
    expect(reconnectClass(code)).toBe('retry-backoff');
  });
});

describe('limits', () => {
  it('the defaults agree with each other', () => {
    expect(() => assertLimits(DEFAULT_LIMITS)).not.toThrow();
  });

  it.each([-1, 0.5, Number.NaN, Number.POSITIVE_INFINITY])('refuse %d everywhere', (value) => {
    for (const name of Object.keys(DEFAULT_LIMITS) as (keyof Limits)[]) {
      expect(() => assertLimits({ ...DEFAULT_LIMITS, [name]: value }), name).toThrow(name);
    }
  });

  it('may be zero, where that makes sense to its owner', () => {
    expect(() => assertLimits({ ...DEFAULT_LIMITS, drainSpreadMs: 0 })).not.toThrow();
  });

  /** Every limit as close to every other as the relations allow. */
  const LEVEL: Limits = {
    ...(Object.fromEntries(Object.keys(DEFAULT_LIMITS).map((name) => [name, 1_000])) as Record<
      keyof Limits,
      number
    >),
    outboxBytesHigh: 1_001,
    livenessTimeoutMs: 1_001,
    responseFrameBytesMax: 1_001,
  };

  it('may touch where the relation is <=', () => {
    expect(() => assertLimits(LEVEL)).not.toThrow();
  });

  it.each([
    ['outboxBytesLow', '<', 'outboxBytesHigh'],
    ['deltaBytesMax', '<=', 'outboxBytesHigh'],
    ['segmentInlineBytesMax', '<=', 'segmentBytesMax'],
    ['segmentBytesMax', '<=', 'pullBytesMax'],
    ['segmentBlockBytes', '<=', 'segmentBytesMax'],
    ['pullChangesDefault', '<=', 'pullChangesMax'],
    ['snapshotRowsDefault', '<=', 'snapshotRowsMax'],
    ['snapshotPagesDefault', '<=', 'snapshotPagesMax'],
    ['frameBytesMax', '<=', 'requestBytesMax'],
    ['frameBytesMax', '<=', 'responseFrameBytesMax'],
    ['segmentBytesMax', '<', 'responseFrameBytesMax'],
    ['controlBytesMax', '<=', 'messageBytesMax'],
    ['commitBatchCommitsMax', '<=', 'commitQueueCommitsMax'],
    ['commitBatchBytesMax', '<=', 'commitQueueBytesMax'],
    ['heartbeatMs', '<', 'livenessTimeoutMs'],
  ] as const)('%s %s %s', (low, relation, high) => {
    const edge = LEVEL[high];
    const message = new RegExp(`${low}|${high}`);
    expect(() => assertLimits({ ...LEVEL, [low]: relation === '<' ? edge : edge + 1 })).toThrow(message);
    expect(() => assertLimits({ ...LEVEL, [high]: LEVEL[low] - 1 })).toThrow(message);
  });
});
