/** What a round leaves behind: the stored list, the cursor, and the registrations of its connection. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { loadRegistrations } from '../../src/session/sync/registrations.ts';
import type { RoundOutcome } from '../../src/session/sync/round-outcome.ts';
import { type Intercept, interceptStorage } from '../support/intercepted-storage.ts';
import { PARTITION, type RoundSpec, SyncHarness, subscription } from '../support/sync-harness.ts';
import { sectionOf } from '../support/sync-sections.ts';

let h: SyncHarness;
let intercept: Intercept;
let calls: string[];
beforeEach(async () => {
  intercept = () => undefined;
  calls = [];
  h = await SyncHarness.open({
    wrapStorage: (storage) =>
      interceptStorage(storage, (call) => {
        calls.push(call.method);
        return intercept(call);
      }),
  });
});
afterEach(() => h.close());

const P1 = { project: ['p1'] };
const notes = (id: string, cursor: number, rest = {}) => subscription(id, 'notes', P1, { cursor, ...rest });

function served(outcome: RoundOutcome): Extract<RoundOutcome, { kind: 'served' }> {
  if (outcome.kind !== 'served') throw new Error(`the round was ${outcome.kind}`);
  return outcome;
}

const write = (id: string): Promise<number> => h.commit([h.note(id, 'p1')]);

async function storedCursor(clientId = 'client-1'): Promise<number | undefined> {
  await h.cursors.flushAll();
  return (await h.clientRecord(clientId))?.cursor;
}

describe('S-056, R-008: list and versions', () => {
  test('are stored with requested scopes and where each subscription stands', async () => {
    h.grants.set('actor-1', { project: ['p1', 'p2'] });
    for (const id of ['a', 'b', 'c']) await write(id);
    await h.storage.pruneLog({ partition: PARTITION, horizon: 2, commitsMax: 10 });
    const pull = { limitSnapshotRows: 1, maxSnapshotPages: 2 };
    const subscriptions = [
      notes('live', 3),
      subscription('paged', 'notes', { project: ['p9', 'p1'] }),
      notes('reset', 1),
      subscription('revoked', 'tasks', { owner: ['x'] }),
    ];
    await h.round({ pull, subscriptions });
    expect(await h.clientRecord()).toMatchObject({
      actorId: 'actor-1',
      wireVersion: 2,
      schemaVersion: 7,
      subscriptions: [
        { id: 'live', table: 'notes', scopes: P1, state: 'live' },
        { id: 'paged', table: 'notes', scopes: { project: ['p9', 'p1'] }, state: 'bootstrapping' },
        { id: 'reset', table: 'notes', scopes: P1, state: 'reset' },
        { id: 'revoked', table: 'tasks', scopes: { owner: ['x'] }, state: 'revoked' },
      ],
    });
  });

  test('S-055: a list replaces the stored one', async () => {
    await h.round({ subscriptions: [notes('a', -1), notes('b', -1)] });
    await h.round({ subscriptions: [notes('b', 0)] });
    expect((await h.clientRecord())?.subscriptions.map(({ id }) => id)).toEqual(['b']);
    await h.round({ subscriptions: [] });
    expect((await h.clientRecord())?.subscriptions).toEqual([]);
  });

  test('are there before END leaves', async () => {
    const { outcome } = await h.drain(await h.start({ subscriptions: [notes('a', -1)] }));
    expect(served(outcome).finalChunk.length).toBeGreaterThan(0);
    expect((await h.clientRecord())?.subscriptions).toHaveLength(1);
  });

  test('are written only when they changed', async () => {
    const spec: RoundSpec = { logEpoch: await h.admit(), subscriptions: [notes('a', 0), notes('b', 0)] };
    const saves = async (changed: Partial<RoundSpec> = {}): Promise<number> => {
      calls = [];
      await h.round({ ...spec, ...changed });
      return calls.filter((method) => method === 'saveClient').length;
    };
    expect(await saves()).toBe(1);
    expect(await saves()).toBe(0);
    const scoped = subscription('a', 'notes', { project: ['p2'] }, { cursor: 0 });
    expect(await saves({ subscriptions: [scoped, notes('b', 0)] })).toBe(1);
    expect(await saves({ wireVersion: 1, logEpoch: null })).toBe(1);
    expect(await saves({ wireVersion: 1, logEpoch: null })).toBe(0);
    expect(await saves({ subscriptions: [notes('b', 0), notes('a', 0)] })).toBe(1);
  });

  test('a push-only round keeps the list and takes the versions; without a record it makes none', async () => {
    await h.round({ pushes: [h.push([h.note('a', 'p1')])] });
    expect(await h.clientRecord()).toBeNull();
    await h.round({ subscriptions: [notes('a', 0)] });
    await h.round({ wireVersion: 1, pushes: [h.push([h.note('b', 'p1')])] });
    expect(await h.clientRecord()).toMatchObject({ wireVersion: 1, subscriptions: [{ id: 'a' }] });
    expect(await storedCursor()).toBe(1);
  });
});

test('S-032: a rotation before the list is stored: no record of the old timeline comes back', async () => {
  await write('a');
  intercept = async ({ method }) => {
    if (method === 'saveClient') await h.storage.rotateEpoch({ partition: PARTITION, logEpoch: 'restored' });
  };
  const { outcome } = await h.round({ subscriptions: [notes('a', -1)] });
  expect(served(outcome).registrations).toHaveLength(1);
  await h.cursors.flushAll();
  expect(await h.clientRecord()).toBeNull();
});

describe('S-063: the stored cursor', () => {
  test('is the lowest nextCursor of the active subscriptions, with a time', async () => {
    for (const id of ['a', 'b', 'c', 'd']) await write(id);
    h.grants.set('actor-1', P1);
    const lost = subscription('lost', 'notes', { project: ['p9'] }, { cursor: 0 });
    h.clock.advance(5);
    await h.round({ pull: { limitCommits: 1 }, subscriptions: [notes('a', 3), notes('b', 1), lost] });
    await h.cursors.flushAll();
    expect(await h.clientRecord()).toMatchObject({ cursor: 2, updatedAtMs: h.clock.nowMs() });
  });

  test('a bootstrap counts with its pin', async () => {
    for (const id of ['a', 'b', 'c']) await write(id);
    const pull = { limitSnapshotRows: 1, maxSnapshotPages: 1 };
    const { frames } = await h.round({ pull, subscriptions: [notes('new', -1)] });
    expect(await storedCursor()).toBe(3);
    await write('d');
    const { bootstrapState } = sectionOf(frames, 'new').end;
    await h.round({ pull, subscriptions: [notes('old', 4), notes('new', 3, { bootstrapState })] });
    expect(await storedCursor()).toBe(3);
  });

  test('decision 29: no active subscription leaves it as it was', async () => {
    await write('a');
    await h.round({ subscriptions: [notes('a', 0)] });
    expect(await storedCursor()).toBe(1);
    h.grants.set('actor-1', { project: ['p9'] });
    await h.round({ subscriptions: [notes('a', 1)] });
    expect(await storedCursor()).toBe(1);
    await h.round({ subscriptions: [] });
    expect(await storedCursor()).toBe(1);
  });

  test('3.11.8: counts only once END was handed over', async () => {
    await write('a');
    const first = await h.drain(await h.start({ subscriptions: [notes('a', 0)] }));
    expect(await storedCursor()).toBe(-1);
    served(first.outcome).handedOver();
    expect(await storedCursor()).toBe(1);
    await write('b');
    const second = await h.drain(await h.start({ subscriptions: [notes('a', 1)] }));
    expect(await storedCursor()).toBe(1);
    served(second.outcome).handedOver();
    expect(await storedCursor()).toBe(2);
  });

  test('3.11.8: a lost response that made a subscription live leaves the client behind', async () => {
    await write('a');
    await h.round({ subscriptions: [notes('a', 0)] });
    expect(await storedCursor()).toBe(1);
    const lost = await h.drain(await h.start({ subscriptions: [notes('a', 1), notes('b', -1)] }));
    expect(await h.clientRecord()).toMatchObject({ cursor: -1, subscriptions: [{ id: 'a' }, { id: 'b' }] });
    served(lost.outcome).handedOver();
    expect(await storedCursor()).toBe(1);
  });
});

describe('registrations', () => {
  const registered = (outcome: RoundOutcome) => served(outcome).registrations;

  test('of a pull: effective scopes, state, cursor; R-078 what is not live says so; revoked ones are not there', async () => {
    for (const id of ['a', 'b', 'c']) await write(id);
    await h.storage.pruneLog({ partition: PARTITION, horizon: 1, commitsMax: 10 });
    h.grants.set('actor-1', { project: ['p1', 'p2'] });
    const { outcome } = await h.round({
      pull: { limitCommits: 1, limitSnapshotRows: 1, maxSnapshotPages: 1 },
      subscriptions: [
        subscription('narrowed', 'notes', { project: ['p3', 'p1'] }, { cursor: 2 }),
        notes('cut', 1),
        notes('paged', -1),
        notes('expired', 0),
        subscription('lost', 'notes', { project: ['p3'] }),
      ],
    });
    const of = (id: string, rest: object) => ({ id, table: 'notes', effective: P1, ...rest });
    expect(registered(outcome)).toEqual([
      of('narrowed', { state: 'live', nextCursor: 3, caughtUp: true }),
      of('cut', { state: 'live', nextCursor: 2, caughtUp: false }),
      of('paged', { state: 'bootstrapping', nextCursor: 3, caughtUp: false }),
      of('expired', { state: 'reset', nextCursor: 0, caughtUp: false }),
    ]);
    expect(served(outcome).snapshotHead).toBe(3);
  });

  test('R-068: a push-only round leaves them alone', async () => {
    const { outcome } = await h.round({ pushes: [h.push([h.note('a', 'p1')])] });
    expect(registered(outcome)).toBeNull();
  });

  test('R-010, 3.2.1: of a connect: what the schema and the grant still allow', async () => {
    await write('a');
    await h.round({
      pull: { limitSnapshotRows: 1 },
      subscriptions: [notes('a', 0), subscription('b', 'notes', { project: ['p1', 'p2'] }, { cursor: 1 })],
    });
    await h.cursors.flushAll();
    const record = (await h.clientRecord())!;
    const { schema } = h;
    const load = (grant: Parameters<typeof loadRegistrations>[0]['grant'], changed = {}) =>
      loadRegistrations({ record: { ...record, ...changed }, grant, schema });
    const of = (id: string) => ({
      id,
      table: 'notes',
      effective: P1,
      state: 'live',
      nextCursor: 1,
      caughtUp: true,
    });
    expect(load({ kind: 'granted', allowed: P1 })).toEqual([of('a'), of('b')]);
    expect(load({ kind: 'granted', allowed: { project: ['p2'] } })).toMatchObject([
      { id: 'b', effective: { project: ['p2'] } },
    ]);
    expect(load({ kind: 'denied' })).toEqual([]);
    const stored = (id: string, table: string, scopes: object, state = 'live') => ({
      id,
      table,
      scopes,
      state,
    });
    const everything = { project: ['*'], person: ['*'], team: ['*'] };
    const subscriptions = [
      stored('gone', 'dropped', P1),
      stored('variable', 'notes', { ...P1, colour: ['red'] }),
      stored('unfenced', 'letters', { person: ['x'] }),
      stored('revoked', 'notes', P1, 'revoked'),
      stored('reset', 'notes', P1, 'reset'),
      stored('fine', 'letters', { person: ['x'], team: ['t'] }, 'bootstrapping'),
    ];
    expect(load({ kind: 'granted', allowed: everything }, { subscriptions })).toMatchObject([
      { id: 'reset', state: 'reset', caughtUp: false },
      { id: 'fine', state: 'bootstrapping', caughtUp: false },
    ]);
  });
});

describe('cost', () => {
  test('a pull with nothing to deliver is one admission and one look at the snapshot', async () => {
    await write('a');
    const logEpoch = await h.admit();
    const spec = { logEpoch, subscriptions: [notes('a', 1), subscription('b', 'tasks', P1, { cursor: 1 })] };
    await h.round(spec);
    calls = [];
    const { outcome } = await h.round(spec);
    expect(calls).toEqual(['admit', 'readSnapshot', 'state']);
    expect(served(outcome).registrations).toMatchObject([{ caughtUp: true }, { caughtUp: true }]);
  });
});
