/** Group commit when the database refuses, is busy, or loses the answer to COMMIT (architecture §3). */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { PushOutcome } from '../../src/session/sync/sync-deps.ts';
import { ValidationRejection } from '../../src/session/sync/validation.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { FaultyStorage, overridden, withTx } from './support/faulty-storage.ts';
import { type HarnessOptions, PARTITION, PushHarness, rejection, verdict } from './support/push-harness.ts';

let host: PushHarness;
let seam: FaultyStorage;
let validatorRuns: string[];

async function open(options: HarnessOptions = {}): Promise<void> {
  validatorRuns = [];
  const wrap = (storage: Storage): Storage => {
    seam = new FaultyStorage(options.wrap?.(storage) ?? storage);
    return seam.storage;
  };
  const rowValidators = new Map([
    [
      'tasks',
      ({ rowId, row }: { readonly rowId: string; readonly row: object | undefined }) => {
        validatorRuns.push(rowId);
        if (row !== undefined && 'title' in row && row.title === 'bad')
          throw new ValidationRejection('app.bad');
      },
    ],
  ]);
  host = await PushHarness.open({ ...options, hooks: { rowValidators, ...options.hooks }, wrap });
}

beforeEach(() => open());

afterEach(async () => {
  await host.close();
});

const user = (id: string, email: string | null, more = {}) =>
  host.upsert('users', { id, project_id: 'p1', email, ...more });

/** Lets the waits between tries pass. */
async function waited<T>(promise: Promise<T>): Promise<T> {
  let isSettled = false;
  const watched = promise.finally(() => {
    isSettled = true;
  });
  watched.catch(() => undefined);
  await host.clock.until(() => {
    if (host.clock.timersWaiting > 0) host.clock.advance(10);
    return isSettled;
  });
  return watched;
}

const statuses = (outcomes: readonly PushOutcome[]) => outcomes.map(({ result }) => result.status);

describe('the answer to COMMIT is lost', () => {
  const commits = () => [
    host.commit(host.task('t1')),
    host.commit(host.task('t2', { title: 'bad' })),
    host.commit(host.task('t3')),
  ];

  test('it had landed: nothing runs again, everybody gets the first answers, one publication', async () => {
    seam.fail(PARTITION, 'lost-after');
    const outcomes = await waited(host.send({ commits: commits() }));
    expect(outcomes.map(verdict)).toEqual(['applied', 'app.bad', 'applied']);
    expect(validatorRuns).toEqual(['t1', 't2', 't3']);
    expect(host.published.map(({ commitSeq }) => commitSeq)).toEqual([1, 2]);
    expect(await host.log()).toHaveLength(2);
    expect(seam.begun).toHaveLength(2);
  });

  test('it had not landed: it runs again, once', async () => {
    seam.fail(PARTITION, 'lost-before');
    const outcomes = await waited(host.send({ commits: commits() }));
    expect(outcomes.map(verdict)).toEqual(['applied', 'app.bad', 'applied']);
    expect(validatorRuns).toEqual(['t1', 't2', 't3', 't1', 't2', 't3']);
    expect(host.published).toHaveLength(2);
    expect(await host.log()).toHaveLength(2);
    expect(host.eventsOf('push.rejected')).toHaveLength(1);
  });

  test('several answers in a row are lost, the look-up’s too', async () => {
    seam.fail(PARTITION, 'lost-before', 'busy', 'lost-after', 'lost-after', 'lost-before');
    const outcomes = await waited(host.send({ commits: commits() }));
    expect(statuses(outcomes)).toEqual(['applied', 'rejected', 'applied']);
    expect(host.published).toHaveLength(2);
    expect(await host.log()).toHaveLength(2);
  });

  test('a twin of one of its commits landed elsewhere meanwhile: the others are not taken for landed', async () => {
    const [one, two] = [host.commit(host.task('t1')), host.commit(host.task('t2'))];
    seam.fail(PARTITION, 'lost-before');
    const push = host.send({ commits: [one, two] });
    await host.clock.until(() => seam.begun.length === 1 && host.clock.timersWaiting > 0);
    // Same key, same place in the log, same time of the clock: only the record of the other commit is missing.
    const [twin] = await host.newQueue().push(host.request({ commits: [one] }));
    expect(twin!.result).toMatchObject({ status: 'applied', commitSeq: 1 });
    const outcomes = await waited(push);
    expect(statuses(outcomes)).toEqual(['cached', 'applied']);
    expect((await host.log()).map(({ clientCommitId }) => clientCommitId)).toEqual([
      one.clientCommitId,
      two.clientCommitId,
    ]);
  });

  test('it stays unknown: the requests fail with the storage’s error, a retry is cached', async () => {
    await host.close();
    await open({ limits: { commitAttemptsMax: 3 } });
    const commit = host.commit(host.task('t1'));
    seam.fail(PARTITION, 'lost-after', 'busy', 'busy');
    await expect(waited(host.send({ commits: [commit] }))).rejects.toMatchObject({
      code: 'sync.storage.busy',
    });
    const [retry] = await host.send({ commits: [commit] });
    expect(retry!.result).toMatchObject({ status: 'cached', commitSeq: 1 });
  });
});

describe('the storage is busy or down', () => {
  test('busy is tried again after growing waits, bounded', async () => {
    await host.close();
    await open({ limits: { commitAttemptsMax: 4, commitRetryFirstMs: 20, commitRetryMaxMs: 50 } });
    seam.fail(PARTITION, 'busy', 'busy', 'busy', 'busy');
    const push = host.push(host.task('t1'));
    push.catch(() => undefined);
    // Three quarters of 20, 40 and 50 ms: the test's randomness is always in the middle.
    for (const [index, waitMs] of [15, 30, 38].entries()) {
      await host.clock.until(() => seam.begun.length === index + 1 && host.clock.timersWaiting === 1);
      host.clock.advance(waitMs - 1);
      await host.clock.settle();
      expect(seam.begun).toHaveLength(index + 1);
      host.clock.advance(1);
    }
    await expect(push).rejects.toMatchObject({ code: 'sync.storage.busy' });
    expect(seam.begun).toHaveLength(4);
    expect(host.eventsOf('storage.failed')).toHaveLength(4);
  });

  test('a failed batch wedges nothing: later pushes and other partitions are served', async () => {
    seam.fail(PARTITION, 'down');
    const failed = host.push(host.task('t1'));
    const other = host.pushAs({ partition: 'tenant-2' }, host.task('t1'));
    await expect(failed).rejects.toMatchObject({ code: 'sync.storage.unavailable' });
    expect(verdict(await other)).toBe('applied');
    expect(verdict(await host.push(host.task('t2')))).toBe('applied');
    expect(host.queue.depth).toBe(0);
  });

  test('the rest of a failed request does not run: it may build on what did not land', async () => {
    await host.close();
    await open({ limits: { commitBatchCommitsMax: 2 } });
    seam.fail(PARTITION, 'none', 'down');
    const commits = ['t1', 't2', 't3', 't4', 't5'].map((id) => host.commit(host.task(id)));
    const failed = host.send({ commits });
    const neighbour = host.push(host.task('n1'));
    await expect(failed).rejects.toMatchObject({ code: 'sync.storage.unavailable' });
    expect(verdict(await neighbour)).toBe('applied');
    expect((await host.log()).map(({ changes }) => changes[0]!.rowId)).toEqual(['t1', 't2', 'n1']);
    expect(host.queue.depth).toBe(0);
    expect(statuses(await host.send({ commits }))).toEqual([
      'cached',
      'cached',
      'applied',
      'applied',
      'applied',
    ]);
  });
});

describe('the database refuses a row', () => {
  test('poison in the middle of a batch: only the culprit is rejected, and replays identically', async () => {
    await host.push(user('u0', 'taken@x'));
    const specs = [user('u1', 'a@x'), user('u2', 'taken@x'), user('u3', 'b@x'), host.task('t1')];
    const commits = specs.map((operation) => host.commit(operation));
    const outcomes = (await Promise.all(commits.map((commit) => host.send({ commits: [commit] })))).flat();
    expect(outcomes.map(verdict)).toEqual(['applied', 'sync.constraint_violation', 'applied', 'applied']);
    expect(outcomes.map(({ result }) => result.commitSeq)).toEqual([2, undefined, 3, 4]);
    expect(rejection(outcomes[1]!)).toMatchObject({ opIndex: 0, status: 'error', retryable: false });
    expect(JSON.stringify(outcomes)).not.toMatch(/users|UNIQUE|email/i);
    expect(host.eventsOf('commit.slow_path')).toEqual([
      { type: 'commit.slow_path', partition: PARTITION, commits: 4, cause: 'unique' },
    ]);
    expect(host.published.map(({ commitSeq }) => commitSeq)).toEqual([1, 2, 3, 4]);
    await host.push(host.delete('users', 'u0'));
    const [replay] = await host.send({ commits: [commits[1]!] });
    expect(replay).toEqual(outcomes[1]);
    expect(await host.stored('users', 'u2')).toBeNull();
  });

  test('the slow path shares one transaction and runs the host again; each outcome is of one run', async () => {
    await host.push(user('u0', 'taken@x'));
    const before = seam.begun.length;
    const pushes = [
      host.task('t1'),
      user('u1', 'taken@x'),
      host.task('t2', { title: 'bad' }),
      host.task('t3'),
    ];
    const outcomes = await Promise.all(pushes.map((operation) => host.push(operation)));
    expect(outcomes.map(verdict)).toEqual(['applied', 'sync.constraint_violation', 'app.bad', 'applied']);
    expect(seam.begun.length - before).toBe(2);
    expect(validatorRuns).toEqual(['t1', 't2', 't3', 't1', 't2', 't3']);
    expect(host.eventsOf('push.rejected')).toHaveLength(2);
  });

  test('a later push of the batch does not see the culprit', async () => {
    await host.push(user('u0', 'taken@x'));
    const outcomes = await host.send({
      commits: [
        host.commit(user('u1', 'taken@x')),
        host.commit({ ...user('u1', 'free@x'), baseVersion: 1 }),
        host.commit({ ...user('u1', 'free@x'), baseVersion: 0 }),
      ],
    });
    expect(outcomes.map(verdict)).toEqual(['sync.constraint_violation', 'sync.row_missing', 'applied']);
  });

  test.each([0, 1, 6, 7])('the record names the operation that was refused: %d of 8', async (culprit) => {
    await host.push(user('u', 'taken@x'));
    const operations = Array.from({ length: 8 }, (_, i) => user(`u${i}`, i === culprit ? 'taken@x' : null));
    // Operations that write no row stand between those that do.
    operations.splice(2, 0, host.delete('users', 'nobody'));
    const record = rejection(await host.push(...operations));
    expect(record).toMatchObject({
      opIndex: culprit < 2 ? culprit : culprit + 1,
      code: 'sync.constraint_violation',
    });
    expect(await host.log()).toHaveLength(1);
  });

  test.each<[string, () => Promise<void>, () => ReturnType<typeof user>[][]]>([
    [
      'the same row is moved out of the clash',
      async () => void (await host.push(user('u0', 'k@x'))),
      () => [[user('u1', 'k@x')], [user('u1', 'other@x')]],
    ],
    [
      'the other row gives the key up',
      async () => void (await host.push(user('u0', 'k@x'))),
      () => [[user('u1', 'k@x')], [user('u0', 'other@x')]],
    ],
    [
      'the other row is deleted',
      async () => void (await host.push(user('u0', 'k@x'))),
      () => [[user('u1', 'k@x')], [host.delete('users', 'u0')]],
    ],
  ])('a violation is not hidden by a later commit of the batch: %s', async (_name, prepare, make) => {
    await prepare();
    const commits = make().map((operations) => host.commit(...operations));
    const outcomes = await host.send({ commits });
    expect(outcomes.map(verdict)).toEqual(['sync.constraint_violation', 'applied']);
  });

  test('keys that move on from commit to commit stay in one transaction, without the slow path', async () => {
    await host.push(user('u0', 'k@x'), user('u1', 'l@x'));
    const before = seam.begun.length;
    const outcomes = await host.send({
      commits: [
        host.commit(user('u1', 'l@x', { age: 5 })),
        host.commit(host.delete('users', 'u0')),
        host.commit(user('u2', 'k@x')),
        host.commit(user('u2', 'm@x')),
        host.commit(user('u1', 'k@x')),
      ],
    });
    expect(statuses(outcomes)).toEqual(Array.from({ length: 5 }, () => 'applied'));
    expect(seam.begun.length - before).toBe(1);
    expect(host.eventsOf('commit.slow_path')).toEqual([]);
  });

  test('a key that an earlier commit gave up does not cost the slow path, whichever row was touched first', async () => {
    await host.push(user('u0', 'k@x'), user('u1', 'l@x'));
    const outcomes = await host.send({
      commits: [
        host.commit(user('u1', 'l@x', { age: 5 })),
        host.commit(user('u0', 'n@x')),
        host.commit(user('u1', 'k@x')),
      ],
    });
    expect(statuses(outcomes)).toEqual(['applied', 'applied', 'applied']);
    expect(host.eventsOf('commit.slow_path')).toEqual([]);
  });

  test('the answer to the slow path’s COMMIT is lost', async () => {
    await host.push(user('u0', 'taken@x'));
    seam.fail(PARTITION, 'none', 'lost-after');
    const outcomes = await waited(
      host.send({ commits: [user('u1', 'taken@x'), user('u2', 'b@x')].map((op) => host.commit(op)) }),
    );
    expect(outcomes.map(verdict)).toEqual(['sync.constraint_violation', 'applied']);
    expect(await host.log()).toHaveLength(2);
    expect(host.published).toHaveLength(2);
  });
});

describe('a defect in one commit', () => {
  test('fails its own request, not the neighbours', async () => {
    const defect = new TypeError('a defect');
    await host.close();
    await open({
      wrap: (storage) =>
        withTx(storage, (tx) =>
          overridden(tx, {
            append: (batch) =>
              batch.commits.some(({ changes }) => changes.some(({ rowId }) => rowId === 'odd'))
                ? Promise.reject(defect)
                : tx.append(batch),
          }),
        ),
    });
    const good = host.push(host.task('t1'));
    const bad = host.send({ commits: ['t2', 'odd', 't3'].map((id) => host.commit(host.task(id))) });
    const later = host.push(host.task('t4'));
    await expect(bad).rejects.toBe(defect);
    expect([verdict(await good), verdict(await later)]).toEqual(['applied', 'applied']);
    expect((await host.log()).map(({ changes }) => changes[0]!.rowId)).toEqual(['t1', 't2', 't4']);
    expect(await host.stored('tasks', 'odd')).toBeNull();
    expect(host.queue.depth).toBe(0);
  });

  test('alone in its batch it fails at once', async () => {
    seam.fail(PARTITION, 'defect');
    await expect(host.push(host.task('t1'))).rejects.toBeInstanceOf(TypeError);
    expect(seam.begun).toHaveLength(1);
    expect(verdict(await host.push(host.task('t2')))).toBe('applied');
  });

  test('a refusal that the slow path meets again is the requests’ failure', async () => {
    await host.close();
    await open({
      wrap: (storage) =>
        withTx(storage, (tx) => overridden(tx, { append: () => Promise.reject(new RangeError()) })),
    });
    const pushes = [host.push(host.task('t1')), host.push(host.task('t2'))];
    const results = await Promise.allSettled(pushes);
    expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
  });
});
