import { expect, test } from 'vitest';
import * as tidegate from '../../src/index.ts';

test('the run-time exports of the package are these and no others', () => {
  expect(Object.keys(tidegate).sort()).toEqual([
    'BackfillError',
    'CommitValidationRejection',
    'DEFAULT_LIMITS',
    'ReadinessError',
    'SchemaError',
    'StorageConstraintError',
    'StorageError',
    'StorageQueryError',
    'SyncError',
    'ValidationRejection',
    'bearerToken',
    'compileSchema',
    'createGateway',
    'createJwtAuth',
    'createMemoryBusNetwork',
    'createRandom',
    'createRealClock',
    'createStaticTokens',
    'ensureReady',
    'openSqliteStorage',
    'runBackfill',
    'runBackfills',
  ]);
});
