/** Writing: what is seen at once, what travels, and what each outcome does (part 2.15, 2.24). */
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { CommitOutcome } from '../../src/client/outbox.ts';
import type { PushResultFrame } from '../../src/protocol/frames.ts';
import {
  applied,
  bootstrap,
  commit,
  header,
  type Rig,
  refusal,
  rig,
  subEnd,
  subStart,
  task,
  taskBytes,
  titles,
  upsert,
} from './harness.ts';
import { answerEpoch, goLive } from './live.ts';

let it: Rig;

beforeEach(async () => {
  it = await rig();
});

afterEach(async () => {
  await it.close();
});

const rejected = (clientCommitId: string, result: PushResultFrame['results'][number]): PushResultFrame => ({
  type: 'PUSH_RESULT',
  clientCommitId,
  status: 'rejected',
  results: [result],
});

describe('optimistic writes', () => {
  test('are seen at once, stay seen until the replica has them, and never flicker', async () => {
    const { client } = it;
    const { connection } = await goLive(it, [task('a', 'old')]);
    const seen: string[][] = [];
    client.onChange('tasks', () => seen.push(titles(client)));
    const { clientCommitId, settled } = client.mutate([
      { table: 'tasks', op: 'upsert', row: task('a', 'mine') },
    ]);
    expect(titles(client)).toEqual(['mine']);
    expect(client.isPending('tasks', 'a')).toBe(true);
    expect(client.status.pendingCommits).toBe(1);

    await connection.request();
    connection.respond([
      header(),
      applied(clientCommitId, 6),
      subStart('s1'),
      commit(6, upsert(task('a', 'mine'), 2)),
      subEnd(6),
    ]);
    expect(await settled).toEqual({ status: 'applied', commitSeq: 6, replayed: false });
    expect(await connection.ack()).toBe(6);
    expect(client.isPending('tasks', 'a')).toBe(false);
    expect(client.version('tasks', 'a')).toBe(2);
    expect(client.status.pendingCommits).toBe(0);
    expect(seen.every((view) => view.length === 1 && view[0] === 'mine')).toBe(true);
  });

  test('an applied write stays visible while its commit has not arrived, then gives way to newer ones', async () => {
    const { client } = it;
    const { connection } = await goLive(it, [task('a', 'old')]);
    const { clientCommitId, settled } = client.mutate([
      { table: 'tasks', op: 'upsert', row: task('a', 'mine') },
    ]);
    await connection.request();
    // The window was cut before the commit.
    connection.respond([header(), applied(clientCommitId, 9), subStart('s1'), subEnd(8)]);
    await settled;
    await connection.ack();
    expect(titles(client)).toEqual(['mine']);
    connection.delta([
      header(),
      subStart('s1'),
      commit(9, upsert(task('a', 'mine'), 2)),
      commit(10, upsert(task('a', 'theirs'), 3)),
      subEnd(10),
    ]);
    await connection.ack();
    expect(titles(client)).toEqual(['theirs']);
  });

  test('a delete hides the row; two writes on one row are one after the other', async () => {
    const { client } = it;
    await goLive(it, [{ row: task('a'), version: 4 }]);
    client.mutate([{ table: 'tasks', op: 'delete', rowId: 'a' }]);
    expect(client.get('tasks', 'a')).toBeUndefined();
    expect(client.version('tasks', 'a')).toBe(0);
    client.mutate([{ table: 'tasks', op: 'upsert', row: task('a', 'again'), baseVersion: 0 }]);
    expect(client.version('tasks', 'a')).toBe(1);
    expect(titles(client)).toEqual(['again']);
  });

  test('version() counts what is pending, so that a second edit does not conflict with the first', async () => {
    const { client } = it;
    await goLive(it, [{ row: task('a'), version: 4 }]);
    client.mutate([{ table: 'tasks', op: 'upsert', row: task('a', 'x'), baseVersion: 4 }]);
    expect(client.version('tasks', 'a')).toBe(5);
  });

  test('rows() is the same array until something changes', async () => {
    const { client } = it;
    await goLive(it, [task('a')]);
    const before = client.rows('tasks');
    expect(client.rows('tasks')).toBe(before);
    expect(Object.isFrozen(before) && Object.isFrozen(before[0])).toBe(true);
    client.mutate([{ table: 'tasks', op: 'upsert', row: task('b') }]);
    expect(client.rows('tasks')).not.toBe(before);
    expect(before).toHaveLength(1);
  });
});

describe('outcomes', () => {
  test('a conflict rolls the whole commit back and hands over the server row (§6.2)', async () => {
    const { client } = it;
    const { connection } = await goLive(it, [{ row: task('a', 'old'), version: 4 }]);
    const { clientCommitId, settled } = client.mutate([
      { table: 'tasks', op: 'upsert', row: task('b', 'sibling') },
      { table: 'tasks', op: 'upsert', row: task('a', 'mine'), baseVersion: 4 },
    ]);
    expect(titles(client)).toEqual(['mine', 'sibling']);
    const request = await connection.request();
    expect(request.pushes[0]?.operations[1]).toMatchObject({ rowId: 'a', op: 'upsert', baseVersion: 4 });
    connection.respond([
      header(),
      rejected(clientCommitId, {
        opIndex: 1,
        status: 'conflict',
        code: 'sync.version_conflict',
        message: 'newer',
        serverVersion: 5,
        serverRow: taskBytes(task('a', 'theirs')),
      }),
      subStart('s1'),
      commit(6, upsert(task('a', 'theirs'), 5)),
      subEnd(6),
    ]);
    expect(await settled).toEqual({
      status: 'rejected',
      code: 'sync.version_conflict',
      message: 'newer',
      opIndex: 1,
      conflict: { table: 'tasks', rowId: 'a', serverVersion: 5, serverRow: task('a', 'theirs') },
      details: null,
    });
    await connection.ack();
    expect(titles(client)).toEqual(['theirs']);
    expect(client.status.pendingCommits).toBe(0);
  });

  test("a host's rejection carries its code and its details (§6.3.1)", async () => {
    const { client } = it;
    const { connection } = await goLive(it);
    const { clientCommitId, settled } = client.mutate([{ table: 'tasks', op: 'upsert', row: task('a') }]);
    await connection.request();
    connection.respond([
      header(),
      rejected(clientCommitId, {
        opIndex: 0,
        status: 'error',
        code: 'tasks.too_many',
        message: 'full',
        retryable: false,
      }),
      {
        type: 'PUSH_RESULT_DETAILS',
        clientCommitId,
        entries: [{ opIndex: 0, detailsJson: '{"reason":"list.full"}' }],
      },
      subStart('s1'),
      subEnd(5),
    ]);
    expect(await settled).toMatchObject({
      status: 'rejected',
      code: 'tasks.too_many',
      details: { reason: 'list.full' },
    });
    expect(client.rows('tasks')).toEqual([]);
  });

  test('two rejections in a row are two outcomes', async () => {
    const { client } = it;
    const { connection } = await goLive(it);
    const one = client.mutate([{ table: 'tasks', op: 'upsert', row: task('a') }]);
    const two = client.mutate([{ table: 'tasks', op: 'upsert', row: task('b') }]);
    await connection.request();
    const refused = (code: string) =>
      ({ opIndex: 0, status: 'error', code, message: 'no', retryable: false }) as const;
    connection.respond([
      header(),
      rejected(one.clientCommitId, refused('host.one')),
      rejected(two.clientCommitId, refused('host.two')),
      subStart('s1'),
      subEnd(5),
    ]);
    expect(await one.settled).toMatchObject({ status: 'rejected', code: 'host.one' });
    expect(await two.settled).toMatchObject({ status: 'rejected', code: 'host.two' });
    expect(client.rows('tasks')).toEqual([]);
  });

  test('a retryable refusal is tried again under backoff, and counts as rejected in the end', async () => {
    await it.close();
    it = await rig({ limits: { commitRetriesMax: 2 } });
    const { client, clock } = it;
    const { connection } = await goLive(it);
    const { clientCommitId, settled } = client.mutate([{ table: 'tasks', op: 'upsert', row: task('a') }]);
    for (let attempt = 0; attempt < 3; attempt++) {
      const request = await connection.request();
      expect(request.pushes[0]?.clientCommitId).toBe(clientCommitId);
      connection.respond([
        header(),
        rejected(clientCommitId, {
          opIndex: 0,
          status: 'error',
          code: 'sync.idempotency_cache_miss',
          message: 'unreadable',
          retryable: true,
        }),
        subStart('s1'),
        subEnd(5),
      ]);
      await connection.ack();
      if (attempt < 2) {
        expect(client.status.pendingCommits).toBe(1);
        await clock.settle();
        clock.advance(5_000);
      }
    }
    expect(await settled).toMatchObject({ status: 'rejected', code: 'sync.idempotency_cache_miss' });
  });
});

describe('what travels', () => {
  test('B.3: a lost answer is met by the identical commit after the reconnect, answered cached', async () => {
    const { client, clock, server } = it;
    const { connection } = await goLive(it);
    const { clientCommitId, settled } = client.mutate([
      { table: 'tasks', op: 'upsert', row: task('a') },
      { table: 'tasks', op: 'delete', rowId: 'zz' },
    ]);
    const first = await connection.request();
    connection.cut();
    await client.until(({ retryAtMs }) => retryAtMs !== null);
    expect(titles(client)).toEqual(['task a']);

    clock.advance(1_500);
    const again = await server.greeted({ latestCursor: 6, cursor: 5, requiresSync: true });
    const second = await again.request();
    expect(second.pushes).toEqual(first.pushes);
    again.respond([
      header(),
      { ...applied(clientCommitId, 6, 2), status: 'cached' },
      subStart('s1'),
      commit(6, upsert(task('a'))),
      subEnd(6),
    ]);
    expect(await settled).toEqual({ status: 'applied', commitSeq: 6, replayed: true });
    await again.ack();
    expect(titles(client)).toEqual(['task a']);
  });

  test('a result read before the stream broke counts; the rows stay seen until the next pull', async () => {
    const { client, server, clock } = it;
    const { connection } = await goLive(it);
    const { clientCommitId, settled } = client.mutate([{ table: 'tasks', op: 'upsert', row: task('a') }]);
    await connection.request();
    connection.respond([
      header(),
      applied(clientCommitId, 6),
      {
        type: 'ERROR',
        code: 'sync.rate_limited',
        message: 'later',
        category: 'rate-limited',
        retryable: true,
        recommendedAction: 'retryLater',
      },
    ]);
    expect(await settled).toMatchObject({ status: 'applied', commitSeq: 6 });
    expect(titles(client)).toEqual(['task a']);
    await clock.settle();
    clock.advance(1_500);
    expect((await connection.request()).pushes).toEqual([]);
    expect(server.upgrades).toBe(1);
  });

  test('commits written offline go out in order, in batches that fit', async () => {
    await it.close();
    it = await rig({ limits: { roundOperationsMax: 3, commitOperationsMax: 3 } });
    const { client, server } = it;
    const written = ['a', 'b', 'c', 'd'].map((id) =>
      client.mutate([
        { table: 'tasks', op: 'upsert', row: task(id) },
        { table: 'notes', op: 'upsert', row: { id, list: 'l1' } },
      ]),
    );
    expect(client.status.pendingCommits).toBe(4);
    client.connect();
    const connection = await server.greeted();
    await answerEpoch(connection);
    for (const { clientCommitId, settled } of written) {
      const request = await connection.request();
      expect(request.pushes.map((push) => push.clientCommitId)).toEqual([clientCommitId]);
      connection.respond([header(), applied(clientCommitId, 1, 2)]);
      await settled;
    }
    expect(client.status.pendingCommits).toBe(0);
    // No subscription will ever show these rows.
    await it.clock.until(() => client.rows('tasks').length === 0);
  });

  test('sync.too_many_operations halves the batch; a commit that is over alone is rejected (§6.1)', async () => {
    const { client } = it;
    const { connection } = await goLive(it);
    const one = client.mutate([{ table: 'tasks', op: 'upsert', row: task('a') }]);
    const two = client.mutate([{ table: 'tasks', op: 'upsert', row: task('b') }]);
    expect((await connection.request()).pushes).toHaveLength(2);
    connection.respond(refusal('sync.too_many_operations', false));
    expect((await connection.request()).pushes.map((push) => push.clientCommitId)).toEqual([
      one.clientCommitId,
    ]);
    connection.respond(refusal('sync.too_many_operations', false));
    expect(await one.settled).toMatchObject({ status: 'rejected', code: 'sync.too_many_operations' });
    expect((await connection.request()).pushes.map((push) => push.clientCommitId)).toEqual([
      two.clientCommitId,
    ]);
    expect(titles(client)).toEqual(['task b']);
  });

  test('what is written during a round goes out in the next one, at once', async () => {
    const { client } = it;
    const { connection } = await goLive(it);
    const one = client.mutate([{ table: 'tasks', op: 'upsert', row: task('a') }]);
    await connection.request();
    const two = client.mutate([{ table: 'tasks', op: 'upsert', row: task('b') }]);
    expect(connection.requestsSeen).toBe(3);
    connection.respond([
      header(),
      applied(one.clientCommitId, 6),
      subStart('s1'),
      commit(6, upsert(task('a'))),
      subEnd(6),
    ]);
    const next = await connection.request();
    expect(next.pushes.map((push) => push.clientCommitId)).toEqual([two.clientCommitId]);
    expect(next.subscriptions[0]?.cursor).toBe(6);
  });
});

describe('refusals before anything is written', () => {
  const cases: readonly [string, unknown][] = [
    ['client.invalid_mutation', []],
    ['client.invalid_mutation', [{ table: 'tasks', op: 'upsert', row: { id: 'a' } }]],
    ['client.invalid_mutation', [{ table: 'tasks', op: 'upsert', row: { ...task('a'), extra: 1 } }]],
    ['client.invalid_mutation', [{ table: 'tasks', op: 'upsert', row: { ...task('a'), done: 1 } }]],
    ['client.invalid_mutation', [{ table: 'tasks', op: 'upsert', row: task('') }]],
    ['client.invalid_mutation', [{ table: 'tasks', op: 'upsert', row: task('a'), baseVersion: 0.5 }]],
    ['client.invalid_mutation', [{ table: 'tasks', op: 'delete', rowId: '' }]],
    ['client.invalid_mutation', [{ table: 'tasks', op: 'delete', rowId: '\ud800' }]],
    ['client.invalid_mutation', [{ table: 'tasks', op: 'upsert', row: task('a', '\ud800') }]],
    ['client.invalid_mutation', [{ table: 'tasks', op: 'replace', rowId: 'a' }]],
    ['client.unknown_table', [{ table: 'nope', op: 'delete', rowId: 'a' }]],
  ];

  test.each(cases)('%s for %j', (code, mutations) => {
    const { client } = it;
    expect(() => client.mutate(mutations as Parameters<typeof client.mutate>[0])).toThrow(
      expect.objectContaining({ code }),
    );
    expect(client.status.pendingCommits).toBe(0);
    expect(client.rows('tasks')).toEqual([]);
  });

  test('a full outbox refuses with its bounds and keeps what it has', async () => {
    await it.close();
    it = await rig({ limits: { outboxCommitsMax: 2 } });
    const { client } = it;
    client.mutate([{ table: 'tasks', op: 'upsert', row: task('a') }]);
    client.mutate([{ table: 'tasks', op: 'upsert', row: task('b') }]);
    expect(() => client.mutate([{ table: 'tasks', op: 'upsert', row: task('c') }])).toThrow(
      expect.objectContaining({
        code: 'client.outbox_full',
        details: expect.objectContaining({ commits: 2, commitsMax: 2 }),
      }),
    );
    expect(titles(client)).toEqual(['task a', 'task b']);
  });

  test('a commit over its bounds is refused by name', async () => {
    await it.close();
    it = await rig({ limits: { commitOperationsMax: 1, commitBytesMax: 200 } });
    const { client } = it;
    const write = (...rows: ReturnType<typeof task>[]) =>
      client.mutate(rows.map((row) => ({ table: 'tasks', op: 'upsert', row })));
    expect(() => write(task('a'), task('b'))).toThrow(
      expect.objectContaining({
        code: 'client.commit_too_large',
        details: expect.objectContaining({ limit: 'commitOperationsMax' }),
      }),
    );
    expect(() => write(task('a', 'x'.repeat(300)))).toThrow(
      expect.objectContaining({
        code: 'client.commit_too_large',
        details: expect.objectContaining({ limit: 'commitBytesMax' }),
      }),
    );
  });
});

describe('close', () => {
  test('tells every pending writer that the outcome is unknown', async () => {
    const { client } = it;
    const { settled } = client.mutate([{ table: 'tasks', op: 'upsert', row: task('a') }]);
    await client.close();
    expect(await settled).toEqual<CommitOutcome>({ status: 'unknown', reason: 'closed' });
    expect(() => client.mutate([{ table: 'tasks', op: 'delete', rowId: 'a' }])).toThrow(
      expect.objectContaining({ code: 'client.closed' }),
    );
  });
});

test('property: the view is the confirmed rows with the pending writes laid over in order', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(fc.tuple(fc.constantFrom('a', 'b', 'c'), fc.constantFrom('w', 'd'), fc.nat(9)), {
        maxLength: 12,
      }),
      fc.uniqueArray(fc.constantFrom('a', 'b', 'c'), { maxLength: 3 }),
      async (writes, held) => {
        const own = await rig();
        try {
          const { client } = own;
          await goLive(
            own,
            held.map((id) => task(id, `held ${id}`)),
          );
          const expected = new Map(held.map((id) => [id, `held ${id}`]));
          for (const [id, kind, value] of writes) {
            if (kind === 'w') {
              client.mutate([{ table: 'tasks', op: 'upsert', row: task(id, `write ${value}`) }]);
              expected.set(id, `write ${value}`);
            } else {
              client.mutate([{ table: 'tasks', op: 'delete', rowId: id }]);
              expected.delete(id);
            }
          }
          expect(Object.fromEntries(client.rows('tasks').map(({ id, title }) => [id, title]))).toEqual(
            Object.fromEntries(expected),
          );
        } finally {
          await own.close();
        }
      },
    ),
    { numRuns: 25 },
  );
});

test('bootstrapped rows are there for a write that was made before (order of arrival)', async () => {
  const { client, server } = it;
  client.mutate([{ table: 'tasks', op: 'upsert', row: task('a', 'mine') }]);
  client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
  client.connect();
  const connection = await server.greeted();
  await answerEpoch(connection);
  const request = await connection.request();
  connection.respond([
    header(),
    applied(request.pushes[0]!.clientCommitId, 1),
    ...bootstrap('s1', [{ row: task('a', 'mine'), version: 1 }], 1),
  ]);
  expect(await connection.ack()).toBe(1);
  expect(client.isPending('tasks', 'a')).toBe(false);
});
