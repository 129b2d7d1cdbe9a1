/** Expired segments leave the store, in bounded batches, and a late download still learns why (§5.1, S-094). */
import { expect, onTestFinished, test } from 'vitest';
import { createGateway } from '../../src/gateway/gateway.ts';
import { startSegmentSweep } from '../../src/gateway/segment-sweep.ts';
import { openSqliteStorage } from '../../src/storage/sqlite/sqlite-storage.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { gatewayOptions } from './support/live-gateway.ts';

const BOUNDS = { segmentSweepMs: 1_000, segmentSweepEntriesMax: 3, segmentKeepExpiredMs: 5_000 };
const MINUTE_MS = 60 * 1_000;
const DAY_MS = 24 * 60 * MINUTE_MS;

function setUp(removals: readonly (number | Error)[]) {
  const clock = new ManualClock();
  const asked: { expiredBeforeMs: number; max: number }[] = [];
  const errors: object[] = [];
  const ignore = (): void => undefined;
  const logger = { debug: ignore, info: ignore, warn: ignore, error: (entry: object) => errors.push(entry) };
  const segments = {
    find: () => Promise.resolve(null),
    put: () => Promise.resolve(),
    entries: () => Promise.resolve([]),
    read: () => Promise.resolve(null),
    sweep: (request: { expiredBeforeMs: number; max: number }) => {
      const removed = removals[asked.length] ?? 0;
      asked.push(request);
      return removed instanceof Error ? Promise.reject(removed) : Promise.resolve(removed);
    },
  };
  const sweep = startSegmentSweep({ segments, clock, limits: BOUNDS, logger });
  return { clock, asked, errors, sweep };
}

test('on the interval, and at once again while a batch was full', async () => {
  const { clock, asked } = setUp([3, 3, 1]);
  await clock.advanceSettled(999, 999);
  expect(asked).toEqual([]);
  await clock.advanceSettled(1, 1);
  await clock.advanceSettled(1, 1);
  await clock.advanceSettled(1, 1);
  expect(asked).toHaveLength(3);
  expect(asked[0]).toEqual({ expiredBeforeMs: clock.nowMs() - 2 - 5_000, max: 3 });
  await clock.advanceSettled(900, 900);
  expect(asked).toHaveLength(3);
  await clock.advanceSettled(100, 100);
  expect(asked).toHaveLength(4);
});

test('a failure is logged and the next interval tries again', async () => {
  const { clock, asked, errors } = setUp([new Error('locked')]);
  await clock.advanceSettled(1_000, 1_000);
  expect(errors).toMatchObject([{ err: { message: 'locked' } }]);
  await clock.advanceSettled(1_000, 1_000);
  expect(asked).toHaveLength(2);
});

test('stops for good', async () => {
  const { clock, asked, sweep } = setUp([]);
  await sweep.stop();
  await clock.advanceSettled(5_000, 1_000);
  expect(asked).toEqual([]);
  expect(clock.timersWaiting).toBe(0);
});

test('S-094: a gateway forgets the segments of its storage some time after they expired', async () => {
  const opened = await openSqliteStorage({ path: ':memory:', clock: new ManualClock() });
  onTestFinished(() => opened.storage.close());
  const clock = new ManualClock();
  const gateway = await createGateway(gatewayOptions({ storage: opened, clock }));
  const nowMs = clock.nowMs();
  const key = {
    partition: 'p',
    logEpoch: 'e',
    table: 'notes',
    schemaVersion: 1,
    scopeDigest: '',
    paramsDigest: '',
    asOfCommitSeq: 1,
    rowCursor: null,
    rowsMax: 1,
  };
  const entry = { ...key, segmentId: 'sha256:a', byteLength: 1, rowCount: 0, nextRowCursor: null };
  await opened.segments.put({ ...entry, createdAtMs: nowMs, expiresAtMs: nowMs + DAY_MS }, Uint8Array.of(1));
  const entries = async () => (await opened.segments.entries('p', 'sha256:a')).length;
  await clock.advanceSettled(DAY_MS, DAY_MS);
  expect(await entries()).toBe(1);
  await clock.advanceSettled(DAY_MS, DAY_MS);
  await clock.advanceSettled(MINUTE_MS, MINUTE_MS);
  expect(await entries()).toBe(0);
  await gateway.close();
});
