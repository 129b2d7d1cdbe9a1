/** Request-level findings: the whole request fails, and always before the first commit is applied. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SyncError } from '../../src/protocol/errors.ts';
import { runRound } from '../../src/session/sync/round.ts';
import {
  PARTITION,
  type RoundSpec,
  SyncHarness,
  type SyncHarnessOptions,
  subscription,
} from '../support/sync-harness.ts';

let h: SyncHarness;
const open = async (options: SyncHarnessOptions = {}): Promise<void> => {
  h = await SyncHarness.open(options);
};
beforeEach(() => open());
afterEach(() => h.close());

const P1 = { project: ['p1'] };

async function refusal(spec: RoundSpec): Promise<SyncError> {
  const generator = await h.start(spec);
  const failure = await generator.next().catch((error: unknown) => error);
  if (failure instanceof SyncError) return failure;
  throw new Error('the request was not refused', { cause: failure });
}

describe('decision 25: a push half is not applied when the request fails', () => {
  const cases: readonly (readonly [string, string, Omit<RoundSpec, 'pushes'>])[] = [
    [
      'S-020: two subscriptions with one id',
      'sync.invalid_subscription',
      { subscriptions: [subscription('a', 'notes', P1), subscription('a', 'tasks', P1)] },
    ],
    [
      "S-020: the scope value '*'",
      'sync.invalid_subscription',
      { subscriptions: [subscription('a', 'notes', { project: ['p1', '*'] })] },
    ],
    [
      'S-020: a scope the table does not declare',
      'sync.invalid_subscription',
      { subscriptions: [subscription('a', 'notes', { project: ['p1'], owner: ['o'] })] },
    ],
    ['S-020: an unknown table', 'sync.unknown_table', { subscriptions: [subscription('a', 'nothing', P1)] }],
    [
      'decision 8: a required scope left out',
      'sync.invalid_subscription',
      { subscriptions: [subscription('a', 'letters', { person: ['x'] })] },
    ],
    [
      'S-024: accept takes no rows segment',
      'sync.invalid_request',
      { pull: { accept: 0b0100 }, subscriptions: [] },
    ],
    [
      'a subscription id too long',
      'sync.invalid_request',
      { subscriptions: [subscription('a'.repeat(257), 'notes', P1)] },
    ],
    [
      'a NUL in a scope value',
      'sync.invalid_request',
      { subscriptions: [subscription('a', 'notes', { project: ['a\0'] })] },
    ],
  ];

  test.each(cases)('%s', async (_title, code, spec) => {
    expect((await refusal({ ...spec, pushes: [h.push([h.note('n', 'p1')])] })).code).toBe(code);
    expect((await h.readState()).head).toBe(0);
    expect(await h.clientRecord()).toBeNull();
  });

  test('S-045: a resolved scope that no table declares', async () => {
    h.grants.set('actor-1', { project: ['p1'], stray: ['x'] });
    const pushes = [h.push([h.note('n', 'p1')])];
    expect((await refusal({ pushes })).code).toBe('sync.invalid_subscription');
    expect((await refusal({ subscriptions: [subscription('a', 'notes', P1)] })).code).toBe(
      'sync.invalid_subscription',
    );
    expect((await h.readState()).head).toBe(0);
    expect(h.events).toContainEqual(expect.objectContaining({ type: 'host.failed', hook: 'resolveScopes' }));
  });

  test('S-045: a resolved scope of another table plays no part', async () => {
    h.grants.set('actor-1', { project: ['p1'], person: ['x'] });
    const { frames } = await h.round({ subscriptions: [subscription('a', 'notes', P1)] });
    expect(frames).toContainEqual(expect.objectContaining({ type: 'SUB_START', status: 'active' }));
  });

  test('S-023: 501 operations over two commits, nothing applied; 500 are fine', async () => {
    const notes = (from: number, count: number) =>
      Array.from({ length: count }, (_, i) => h.note(`n${from + i}`, 'p1'));
    const error = await refusal({ pushes: [h.push(notes(0, 250)), h.push(notes(250, 251))] });
    expect(error.code).toBe('sync.too_many_operations');
    expect(error.details).toEqual({ operations: 501, operationsMax: 500 });
    expect((await h.readState()).head).toBe(0);
    await h.round({ pushes: [h.push(notes(0, 250)), h.push(notes(250, 250))] });
    expect((await h.readState()).head).toBe(2);
  });

  test('a clientCommitId that is no database key', async () => {
    const pushes = [h.push([h.note('a', 'p1')]), h.push([h.note('b', 'p1')], 'x'.repeat(257))];
    expect((await refusal({ pushes })).code).toBe('sync.invalid_request');
    expect((await h.readState()).head).toBe(0);
  });
});

describe('bounds of a pull', () => {
  test('subscriptions and scope values', async () => {
    await h.close();
    await open({ limits: { subscriptionsMax: 2, scopeValuesMax: 3 } });
    const sub = (id: string, ...project: string[]) => subscription(id, 'notes', { project });
    const { code } = await refusal({ subscriptions: [sub('a', 'p'), sub('b', 'p'), sub('c', 'p')] });
    expect(code).toBe('sync.invalid_request');
    expect((await refusal({ subscriptions: [sub('a', 'p', 'q'), sub('b', 'r', 's')] })).code).toBe(
      'sync.invalid_request',
    );
    await h.round({ subscriptions: [sub('a', 'p', 'q'), sub('b', 'r')] });
  });
});

describe('S-044: the resolver', () => {
  test('is called once for a push and three subscriptions', async () => {
    await h.round({
      pushes: [h.push([h.note('a', 'p1')]), h.push([h.note('b', 'p2')])],
      subscriptions: ['a', 'b', 'c'].map((id) => subscription(id, 'notes', P1)),
    });
    expect(h.resolved).toBe(1);
  });

  test('is not called for a pull without subscriptions', async () => {
    const { outcome } = await h.round({ subscriptions: [] });
    expect(h.resolved).toBe(0);
    expect(outcome).toMatchObject({ kind: 'served', registrations: [] });
  });
});

test('S-019: what the decoder refuses is refused before the storage is asked', async () => {
  const bytes = (await h.request({ subscriptions: [] })).slice(0, -1);
  const context = {
    who: h.who({ partition: 'never' }),
    clientId: null,
    signal: new AbortController().signal,
  };
  const failure = await runRound(bytes, context, h.deps)
    .next()
    .catch((error: unknown) => error);
  expect(failure).toMatchObject({ code: 'sync.invalid_request' });
  const partitions = await h.storage.listPartitions({ afterPartition: null, max: 10 });
  expect(partitions.map(({ partition }) => partition)).toEqual([PARTITION]);
});
