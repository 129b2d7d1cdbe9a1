/** `runBackfill` of a gateway and by itself (part 4, 4.4): subscribers get its commits, `close` ends it, a version must fit. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createGateway, type Gateway } from '../../src/gateway/gateway.ts';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { openStorage } from '../../src/gateway/storage-option.ts';
import {
  BackfillError,
  createStaticTokens,
  ReadinessError,
  runBackfill,
  runBackfills,
} from '../../src/index.ts';
import { admitTo, failureOf, write } from '../contract/storage/fixture.ts';
import {
  CHECKPOINT,
  compare,
  DECLARED,
  DOCUMENT_2,
  PARTITION,
  SCHEMA_2,
  seed,
  task,
  totalsBatch,
} from '../session/support/backfill-fixture.ts';

const REQUEST = { partition: PARTITION, name: CHECKPOINT, sources: ['tasks'], batch: totalsBatch };

async function newDatabase(count = 60) {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-backfill-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const path = join(folder, 'app.db');
  const { storage, release } = await openStorage({ path }, createRealClock());
  onTestFinished(release);
  await seed(storage, { count });
  return { path, storage };
}

async function gatewayOn(path: string): Promise<Gateway> {
  const gateway = await createGateway({
    schema: DOCUMENT_2,
    storage: { path },
    checkpoints: [DECLARED],
    limits: { backfillBatchRowsMax: 10 },
    ...createStaticTokens(new Map()),
  });
  onTestFinished(() => gateway.close());
  return gateway;
}

test('by itself, on a database that gateways serve', async () => {
  const { path, storage } = await newDatabase();
  const result = await runBackfill({ ...REQUEST, schema: DOCUMENT_2, storage: { path } });
  expect(result).toMatchObject({ status: 'activated', observedRows: 60 });
  const { stored, expected } = await compare(storage);
  expect(stored).toEqual(expected);
});

test('several partitions, so many at a time; the first failure is thrown when those that run have ended', async () => {
  const { path, storage } = await newDatabase();
  const partitions = ['p1', 'p2', 'p3', 'p4'];
  for (const partition of partitions) {
    await admitTo(storage, partition);
    await write(storage, partition, [task('t1', 'a', 3)]);
    await storage.declareCheckpoint({ ...DECLARED, partition, nowMs: 0 });
  }
  let running = 0;
  let most = 0;
  const target = { schema: DOCUMENT_2, storage: { path } };
  const shared = { name: CHECKPOINT, sources: ['tasks'], ...target };
  const results = await runBackfills({
    ...shared,
    partitions: [...partitions.slice(0, 3), 'p1'],
    concurrency: 2,
    batch: async (input) => {
      most = Math.max(most, ++running);
      const rows = await totalsBatch(input);
      running--;
      return rows;
    },
  });
  expect([...results].map(([partition, { status }]) => [partition, status])).toEqual([
    ['p1', 'activated'],
    ['p2', 'activated'],
    ['p3', 'activated'],
  ]);
  expect(most).toBeLessThanOrEqual(2);
  const thrown = new Error('of the host');
  const batch = (): never => {
    throw thrown;
  };
  expect(
    await failureOf(runBackfills({ ...shared, partitions: ['p4', 'nobody'], concurrency: 1, batch })),
  ).toBe(thrown);
  const failure = failureOf(runBackfills({ ...shared, partitions, concurrency: 0, batch }));
  expect(await failure).toBeInstanceOf(RangeError);
});

test('a schema that is not valid, or not the one of the database', async () => {
  const { path, storage } = await newDatabase();
  const invalid = { ...DOCUMENT_2, version: 0 };
  const refused = await failureOf(runBackfill({ ...REQUEST, schema: invalid, storage: { path } }));
  expect(refused).toBeInstanceOf(ReadinessError);
  const newer = { ...DOCUMENT_2, version: SCHEMA_2.version + 1 };
  const failure = await failureOf(runBackfill({ ...REQUEST, schema: newer, storage: { path } }));
  expect(failure).toBeInstanceOf(BackfillError);
  expect((failure as Error).message).toBe(
    'the database is at schema version 2, the backfill is for 3; migrate first',
  );
  expect((await storage.readCheckpoints(PARTITION)).get(CHECKPOINT)!.ownerEpoch).toBe(0);
});

test('the gateway that closes ends its backfill between two batches; the next one goes on', async () => {
  const { path, storage } = await newDatabase();
  const gateway = await gatewayOn(path);
  let closed: Promise<void> | null = null;
  let seen = 0;
  const result = await gateway.runBackfill({
    ...REQUEST,
    batch: (input) => {
      seen += input.rows.length;
      if (seen === 30) closed = gateway.close();
      return totalsBatch(input);
    },
  });
  expect(result).toMatchObject({ status: 'cancelled', observedRows: 30 });
  await closed;
  await expect(gateway.runBackfill(REQUEST)).rejects.toThrow('closed');
  const next = await gatewayOn(path);
  expect(await next.runBackfill(REQUEST)).toMatchObject({ status: 'activated', observedRows: 60 });
  const { stored, expected } = await compare(storage);
  expect(stored).toEqual(expected);
});
