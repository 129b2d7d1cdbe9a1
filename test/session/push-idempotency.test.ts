/** Idempotency (§2.3, §6.3): a commit is applied at most once, its result delivered as often as asked. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { encodeMessage } from '../../src/protocol/message.ts';
import type { PushOutcome } from '../../src/session/sync/sync-deps.ts';
import { ValidationRejection } from '../../src/session/sync/validation.ts';
import { overridden, withTx } from './support/faulty-storage.ts';
import { CLIENT, PARTITION, PushHarness, rejection, verdict } from './support/push-harness.ts';

let host: PushHarness;

beforeEach(async () => {
  host = await PushHarness.open({
    hooks: {
      rowValidators: new Map([
        [
          'tasks',
          ({ row }) => {
            if (row?.points === 13) {
              const details = { reason: 'unlucky', references: { rule: 'no-13', actor: 'ada' } };
              throw new ValidationRejection('app.unlucky', 'thirteen is “unlucky”', details);
            }
          },
        ],
      ]),
    },
  });
});

afterEach(async () => {
  await host.close();
});

function wireBytes({ result, details }: PushOutcome): Uint8Array {
  const header = { type: 'RESP_HEADER' } as const;
  const frames = details === null ? [header, result] : [header, result, details];
  return encodeMessage({ kind: 'response', wireVersion: 1, frames });
}

test('applied replays as cached with its commitSeq and records (S-037)', async () => {
  const commit = host.commit(host.task('t1'), host.delete('tasks', 'x'));
  const [first] = await host.send({ commits: [commit] });
  const [replay] = await host.send({ commits: [commit] });
  expect(replay).toEqual({ ...first, result: { ...first!.result, status: 'cached' } });
  expect(await host.log()).toHaveLength(1);
  expect(host.published).toHaveLength(1);
});

test.each<[string, (h: PushHarness) => ReturnType<PushHarness['task']>]>([
  ['a conflict', (h) => h.task('t1', { title: 'stale' }, 7)],
  ['an error', (h) => h.task('nobody', {}, 7)],
  ['a host rejection with details (S-132)', (h) => h.task('t2', { points: 13 })],
])('%s replays byte by byte, also when it would be applied by now (S-037)', async (_name, make) => {
  await host.push(host.task('t1', { title: 'now' }));
  const commit = host.commit(make(host));
  const [first] = await host.send({ commits: [commit] });
  await host.push(host.delete('tasks', 't1'));
  const [replay] = await host.send({ commits: [commit] });
  expect(first!.result.status).toBe('rejected');
  expect(wireBytes(replay!)).toEqual(wireBytes(first!));
  expect(host.eventsOf('push.rejected')).toHaveLength(1);
});

test('an id repeated within a request is processed once; later copies get the replay (S-128)', async () => {
  const good = host.commit(host.task('t1'));
  const bad = host.commit(host.task('t2', { points: 13 }));
  const outcomes = await host.send({ commits: [good, bad, good, bad, good] });
  expect(outcomes.map(({ result }) => result.status)).toEqual([
    'applied',
    'rejected',
    'cached',
    'rejected',
    'cached',
  ]);
  expect(outcomes[3]).toEqual(outcomes[1]);
  expect(await host.log()).toHaveLength(1);
});

test('an outcome that is not kept still answers the copies in its own request, and no other (S-128)', async () => {
  const commit = host.commit(host.task('t1'));
  const [denied, allowed] = await Promise.all([
    host.send({ commits: [commit, commit], grant: { kind: 'denied' } }),
    host.send({ commits: [commit] }),
  ]);
  expect(denied.map(verdict)).toEqual(['sync.forbidden', 'sync.forbidden']);
  expect(allowed.map(verdict)).toEqual(['applied']);
});

test('the key is per partition and client', async () => {
  const commit = host.commit(host.task('t1'));
  const statuses: string[] = [];
  for (const spec of [{}, { clientId: 'client-2' }, { partition: 'tenant-2' }, {}]) {
    const [outcome] = await host.send({ commits: [commit], ...spec });
    statuses.push(outcome!.result.status);
  }
  expect(statuses).toEqual(['applied', 'applied', 'applied', 'cached']);
  expect(await host.log('tenant-2')).toHaveLength(1);
});

test('client and commit ids do not run together', async () => {
  const ids = [
    ['a', 'bc'],
    ['ab', 'c'],
  ] as const;
  const outcomes = await Promise.all(
    ids.map(([clientId, clientCommitId]) =>
      host.send({ commits: [{ ...host.commit(host.task('t1')), clientCommitId }], clientId }),
    ),
  );
  expect(outcomes.flat().map(verdict)).toEqual(['applied', 'applied']);
});

test('100 parallel copies: one log entry, one validator call, one publication (S-129)', async () => {
  let calls = 0;
  await host.close();
  host = await PushHarness.open({ hooks: { rowValidators: new Map([['tasks', () => void calls++]]) } });
  const commit = host.commit(host.task('t1'));
  const outcomes = await Promise.all(Array.from({ length: 100 }, () => host.send({ commits: [commit] })));
  const statuses = outcomes.flat().map(({ result }) => result.status);
  expect(statuses.filter((status) => status === 'applied')).toHaveLength(1);
  expect(statuses.filter((status) => status === 'cached')).toHaveLength(99);
  expect(calls).toBe(1);
  expect(await host.log()).toHaveLength(1);
  expect(host.published).toHaveLength(1);
});

test('copies through two queues on one database: still one pipeline (S-129)', async () => {
  const other = host.newQueue();
  const commit = host.commit(host.task('t1'));
  const request = host.request({ commits: [commit] });
  const outcomes = await Promise.all([
    host.queue.push(request),
    other.push(request),
    host.queue.push(request),
  ]);
  const statuses = outcomes.flat().map(({ result }) => result.status);
  expect(statuses.sort()).toEqual(['applied', 'cached', 'cached']);
  expect(await host.log()).toHaveLength(1);
});

describe('key reuse with other content (decision 19)', () => {
  test.each<[string, (h: PushHarness) => ReturnType<PushHarness['task']>[]]>([
    ['another payload', (h) => [h.task('t1', { title: 'other' })]],
    ['another row', (h) => [h.task('t2')]],
    ['a baseVersion', (h) => [h.task('t1', {}, 0)]],
    ['another operation', (h) => [h.delete('tasks', 't1')]],
    ['one operation more', (h) => [h.task('t1'), h.task('t2')]],
  ])('%s: rejected with sync.invalid_request, not stored, the first result stays', async (_name, make) => {
    const first = host.commit(host.task('t1'));
    const reuse = { ...first, operations: make(host) };
    const [applied, inRequest] = await host.send({ commits: [first, reuse] });
    const [later] = await host.send({ commits: [reuse] });
    for (const outcome of [inRequest!, later!]) {
      expect(rejection(outcome)).toMatchObject({
        opIndex: 0,
        status: 'error',
        code: 'sync.invalid_request',
        retryable: false,
      });
    }
    const [replay] = await host.send({ commits: [first] });
    expect(replay!.result).toEqual({ ...applied!.result, status: 'cached' });
    expect(await host.log()).toHaveLength(1);
  });

  test('a commit re-encoded for another schema version has the same key and other bytes', async () => {
    await host.storage.transaction(PARTITION, (tx) =>
      tx.append({
        commits: [],
        rows: [],
        results: [
          {
            clientId: CLIENT,
            clientCommitId: 'older',
            result: '{"format":1,"applied":{"commitSeq":41,"operations":1}}',
            contentHash: 'of the older encoding',
            schemaVersion: 2,
            recordedAtMs: 1,
          },
        ],
      }),
    );
    const commit = { ...host.commit(host.task('t1')), clientCommitId: 'older' };
    const [outcome] = await host.send({ commits: [commit] });
    expect(outcome!.result).toMatchObject({ status: 'cached', commitSeq: 41 });
  });
});

test('an unreadable result is a cache miss: not stored, not run, repaired results replay (S-127)', async () => {
  const commit = host.commit(host.task('t1'));
  let damaged = true;
  await host.close();
  host = await PushHarness.open({
    wrap: (storage) =>
      withTx(storage, (tx) =>
        overridden(tx, {
          readResults: async (keys) => {
            const found = await tx.readResults(keys);
            return damaged ? found.map((record) => record && { ...record, result: '{"half' }) : found;
          },
        }),
      ),
  });
  const sent = { commits: [commit] };
  const [first] = await host.send(sent);
  expect(verdict(first!)).toBe('applied');
  for (let i = 0; i < 2; i++) {
    const [miss] = await host.send(sent);
    expect(rejection(miss!)).toMatchObject({
      opIndex: 0,
      status: 'error',
      code: 'sync.idempotency_cache_miss',
      retryable: true,
    });
    expect(miss!.result.commitSeq).toBeUndefined();
  }
  damaged = false;
  const [repaired] = await host.send(sent);
  expect(repaired!.result).toEqual({ ...first!.result, status: 'cached' });
  expect(await host.log()).toHaveLength(1);
});

test('a push without a pull is served in full, and its retry costs no commitSeq (S-168)', async () => {
  const commit = host.commit(host.task('t1'));
  await host.send({ commits: [commit], clientId: 'producer' });
  const [retry] = await host.send({ commits: [commit], clientId: 'producer' });
  expect(retry!.result).toMatchObject({ status: 'cached', commitSeq: 1 });
  const next = await host.pushAs({ clientId: 'producer' }, host.task('t2'));
  expect(next.result.commitSeq).toBe(2);
});
