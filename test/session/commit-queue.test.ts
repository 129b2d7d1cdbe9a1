/** Group commit: what shares a transaction, in which order, and what is refused (architecture §3). */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { PushOutcome } from '../../src/session/sync/sync-deps.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { FaultyStorage, overridden } from './support/faulty-storage.ts';
import { type HarnessOptions, PARTITION, PushHarness, verdict } from './support/push-harness.ts';

let host: PushHarness;
let seam: FaultyStorage;

async function open(options: HarnessOptions = {}): Promise<void> {
  const wrap = (storage: Storage): Storage => {
    seam = new FaultyStorage(options.wrap?.(storage) ?? storage);
    return seam.storage;
  };
  host = await PushHarness.open({ ...options, wrap });
}

beforeEach(() => open());

afterEach(async () => {
  await host.close();
});

const reopen = async (options: HarnessOptions): Promise<void> => {
  await host.close();
  await open(options);
};
const settled = () => host.clock.settle();
const batches = () => host.eventsOf('commit.batch').map(({ commits }) => commits);
const seqs = (outcomes: readonly PushOutcome[]) => outcomes.map(({ result }) => result.commitSeq);

/** A transaction is running, and stays so until `seam.release`. */
async function occupied(): Promise<{ readonly first: Promise<PushOutcome> }> {
  seam.hold(PARTITION);
  const first = host.push(host.task('first'));
  await host.clock.until(() => seam.begun.length === 1);
  return { first };
}

describe('what shares a transaction', () => {
  test('N pushes that wait while one transaction runs take exactly one further one', async () => {
    await occupied();
    const waiting = Array.from({ length: 50 }, (_, i) => host.push(host.task(`t${i}`)));
    await settled();
    expect(seam.begun).toHaveLength(1);
    expect(host.queue.depth).toBe(51);
    seam.release(PARTITION);
    expect(seqs(await Promise.all(waiting))).toEqual(Array.from({ length: 50 }, (_, i) => i + 2));
    expect(seam.begun).toHaveLength(2);
    expect(batches()).toEqual([1, 50]);
    expect(host.queue.depth).toBe(0);
  });

  test('pushes of one turn of the event loop share one transaction, also when the queue was idle', async () => {
    await Promise.all(Array.from({ length: 20 }, (_, i) => host.push(host.task(`t${i}`))));
    expect(seam.begun).toHaveLength(1);
  });

  test('an idle partition starts without a timer', async () => {
    await host.push(host.task('t1'));
    await host.push(host.task('t2'));
    expect(host.clock.timersWaiting).toBe(0);
    expect(batches()).toEqual([1, 1]);
  });

  test('a batch ends at the bound of commits; a larger request is continued in order', async () => {
    await reopen({ limits: { commitBatchCommitsMax: 4 } });
    await occupied();
    const requests = [3, 6, 1].map((size, at) =>
      host.send({ commits: Array.from({ length: size }, (_, i) => host.commit(host.task(`r${at}-${i}`))) }),
    );
    seam.release(PARTITION);
    const answers = await Promise.all(requests);
    expect(answers.map(seqs)).toEqual([[2, 3, 4], [5, 6, 7, 8, 9, 10], [11]]);
    expect(batches()).toEqual([1, 4, 4, 2]);
  });

  test('a batch ends at the bound of bytes; a commit over it goes alone', async () => {
    await reopen({ limits: { commitBatchBytesMax: 4_000 } });
    await occupied();
    const sizes = [1_500, 1_500, 1_500, 9_000, 10];
    const waiting = sizes.map((size, i) => host.push(host.task(`t${i}`, { title: 'x'.repeat(size) })));
    seam.release(PARTITION);
    await Promise.all(waiting);
    expect(batches()).toEqual([1, 2, 1, 1, 1]);
  });

  test('partitions do not wait for each other', async () => {
    const held = await occupied();
    const other = await host.pushAs({ partition: 'tenant-2' }, host.task('t1'));
    expect(verdict(other)).toBe('applied');
    expect(host.queue.depth).toBe(1);
    seam.release(PARTITION);
    expect(verdict(await held.first)).toBe('applied');
  });
});

describe('what is told when', () => {
  test('nobody is answered and nothing published before COMMIT has returned (S-136)', async () => {
    let commit: () => void = () => undefined;
    const staged = new Promise<void>((resolve) => {
      commit = resolve;
    });
    let isStaged = false;
    await reopen({
      wrap: (storage) =>
        overridden(storage, {
          transaction: (partition, fn) =>
            storage.transaction(partition, async (tx) => {
              const result = await fn(tx);
              isStaged = true;
              await staged;
              return result;
            }),
        }),
    });
    let isAnswered = false;
    const push = host.push(host.task('t1')).then(() => {
      isAnswered = true;
    });
    await host.clock.until(() => isStaged);
    await settled();
    expect([isAnswered, host.published.length, await host.log()]).toEqual([false, 0, []]);
    commit();
    await push;
    expect(host.published).toHaveLength(1);
  });

  test('the sink has a batch before its writers are answered, in commit order', async () => {
    const order: string[] = [];
    const answers = await Promise.all(
      ['a', 'b', 'c'].map(async (id) => {
        const outcome = await host.push(host.task(id));
        order.push(`${outcome.result.commitSeq} behind ${host.published.length}`);
        return outcome;
      }),
    );
    expect(seqs(answers)).toEqual([1, 2, 3]);
    expect(order).toEqual(['1 behind 3', '2 behind 3', '3 behind 3']);
    expect(host.unansweredAtSink).toEqual([3]);
    expect(host.published.map(({ commitSeq }) => commitSeq)).toEqual([1, 2, 3]);
  });

  test('commitSeq is strictly increasing and dense over parallel pushes (S-025)', async () => {
    const push = (i: number) =>
      i % 5 === 4 ? host.push(host.task('x', {}, 9)) : host.push(host.task(`t${i}`));
    const outcomes = await Promise.all(Array.from({ length: 60 }, (_, i) => push(i)));
    const applied = outcomes.filter(({ result }) => result.status === 'applied');
    expect(seqs(applied)).toEqual(Array.from({ length: 48 }, (_, i) => i + 1));
    expect((await host.log()).map(({ commitSeq }) => commitSeq)).toEqual(seqs(applied));
  });

  test('partitions have logs of their own (S-026)', async () => {
    await Promise.all([
      host.push(host.task('t1', { title: 'one' })),
      host.pushAs({ partition: 'tenant-2' }, host.task('t1', { title: 'two' })),
    ]);
    expect(await host.row('tasks', 't1')).toMatchObject({ title: 'one' });
    expect(await host.log('tenant-2')).toMatchObject([{ commitSeq: 1, changes: [{ rowVersion: 1 }] }]);
  });

  test('a batch is reported with its commits and rejections', async () => {
    await Promise.all([host.push(host.task('t1')), host.push(host.task('t2', {}, 3))]);
    expect(host.events).toEqual([
      { type: 'push.rejected', partition: PARTITION, actorId: 'ada', code: 'sync.row_missing', opIndex: 0 },
      { type: 'commit.batch', partition: PARTITION, commits: 1, rejected: 1, durationMs: 0 },
    ]);
  });
});

describe('what is refused', () => {
  const limits = { commitQueueCommitsMax: 5, commitBatchCommitsMax: 5, commitQueueRetryAfterMs: 400 };
  const commits = (count: number) => Array.from({ length: count }, (_, i) => host.commit(host.task(`t${i}`)));

  test('over the bound of waiting commits: sync.rate_limited with a retry hint, nothing applied', async () => {
    await reopen({ limits });
    await occupied();
    const waiting = host.send({ commits: commits(4) });
    await expect(host.send({ commits: commits(2) })).rejects.toMatchObject({
      code: 'sync.rate_limited',
      details: { retryAfterMs: 600 },
    });
    const last = host.send({ commits: commits(1) });
    await expect(host.push(host.task('more'))).rejects.toMatchObject({ code: 'sync.rate_limited' });
    expect(host.eventsOf('request.refused')).toHaveLength(2);
    seam.release(PARTITION);
    expect(await waiting).toHaveLength(4);
    expect(await last).toHaveLength(1);
    expect(verdict(await host.push(host.task('more')))).toBe('applied');
    expect(host.queue.depth).toBe(0);
  });

  test('over the bound of waiting bytes', async () => {
    await reopen({ limits: { commitQueueBytesMax: 3_000, commitBatchBytesMax: 3_000 } });
    await occupied();
    const push = () => host.push(host.task('t', { title: 'x'.repeat(2_000) }));
    const waiting = push();
    await expect(push()).rejects.toMatchObject({ code: 'sync.rate_limited' });
    seam.release(PARTITION);
    await waiting;
  });

  test('a request that alone exceeds the bound is served when nobody waits', async () => {
    await reopen({ limits });
    expect(await host.send({ commits: commits(12) })).toHaveLength(12);
    expect(batches()).toEqual([5, 5, 2]);
  });

  test('no commits, no transaction', async () => {
    expect(await host.send({ commits: [] })).toEqual([]);
    expect(seam.begun).toEqual([]);
  });

  test('a schema version that is not served, and a client id that no database can hold', async () => {
    const refused = (spec: object) => expect(host.send({ commits: commits(1), ...spec })).rejects;
    await refused({ schemaVersion: 2 }).toMatchObject({ code: 'sync.client_schema_unsupported' });
    await refused({ clientId: 'c\0' }).toMatchObject({ code: 'sync.invalid_client_id' });
    expect(seam.begun).toEqual([]);
  });

  test('close refuses new pushes and waits for those that are in', async () => {
    const { first } = await occupied();
    const waiting = host.push(host.task('waiting'));
    let isClosed = false;
    const closing = host.queue.close().then(() => {
      isClosed = true;
    });
    await expect(host.push(host.task('late'))).rejects.toMatchObject({ code: 'sync.rate_limited' });
    await settled();
    expect(isClosed).toBe(false);
    seam.release(PARTITION);
    expect([verdict(await first), verdict(await waiting)]).toEqual(['applied', 'applied']);
    await closing;
    await host.queue.close();
  });
});

describe('the serve gate, under the lock (part 4, 4.3)', () => {
  test('a request admitted under another epoch is refused whole; its neighbours go on', async () => {
    const stale = host.send({
      commits: [host.commit(host.task('t1')), host.commit(host.task('t2'))],
      logEpoch: 'epoch-0',
    });
    const good = host.push(host.task('t3'));
    await expect(stale).rejects.toMatchObject({
      code: 'sync.schema_not_ready',
      details: { logEpochChanged: true },
    });
    expect((await good).result).toMatchObject({ status: 'applied', commitSeq: 1 });
    expect(seam.begun).toHaveLength(1);
    expect(host.eventsOf('request.refused')).toMatchObject([{ code: 'sync.schema_not_ready' }]);
    expect(host.queue.depth).toBe(0);
  });

  test('a refused commit leaves no result: under the new epoch it is applied', async () => {
    const commit = host.commit(host.task('t1'));
    await host.storage.rotateEpoch({ partition: PARTITION, logEpoch: 'epoch-2' });
    await expect(host.send({ commits: [commit] })).rejects.toMatchObject({ code: 'sync.schema_not_ready' });
    const [outcome] = await host.send({ commits: [commit], logEpoch: 'epoch-2' });
    expect(verdict(outcome!)).toBe('applied');
  });

  test('a database at another schema version is not written', async () => {
    await reopen({
      wrap: (storage) =>
        overridden(storage, {
          transaction: (partition, fn) =>
            storage.transaction(partition, (tx) =>
              fn(overridden(tx, { state: { ...tx.state, storedSchemaVersion: 4 } })),
            ),
        }),
    });
    await expect(host.push(host.task('t1'))).rejects.toMatchObject({
      code: 'sync.schema_not_ready',
      details: { storedSchemaVersion: 4, runningSchemaVersion: 3 },
    });
    expect(await host.log()).toEqual([]);
  });

  test('a rotation between two batches of one request: what landed stays, the rest is refused', async () => {
    await reopen({ limits: { commitBatchCommitsMax: 1 } });
    const commits = [host.commit(host.task('t1')), host.commit(host.task('t2'))];
    seam.hold(PARTITION);
    const push = host.send({ commits });
    push.catch(() => undefined);
    await host.clock.until(() => seam.begun.length === 1);
    seam.release(PARTITION);
    seam.hold(PARTITION);
    await host.clock.until(() => seam.begun.length === 2);
    await host.storage.rotateEpoch({ partition: PARTITION, logEpoch: 'epoch-2' });
    seam.release(PARTITION);
    await expect(push).rejects.toMatchObject({ code: 'sync.schema_not_ready' });
    const retry = await host.send({ commits, logEpoch: 'epoch-2' });
    expect(retry.map(({ result }) => [result.status, result.commitSeq])).toEqual([
      ['cached', 1],
      ['applied', 2],
    ]);
  });
});
