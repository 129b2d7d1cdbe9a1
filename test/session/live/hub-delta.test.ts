/** What deltas hold, and that they are made once for everybody who gets the same. */
import { describe, expect, test } from 'vitest';
import type { CommitFrame, SubStartFrame } from '../../../src/protocol/frames.ts';
import { commitsOf, type FakeConnection, sectionsOf } from '../../support/fake-connection.ts';
import { change, LiveHarness, note, removal, stored, TENANT } from './support/live-harness.ts';

const P1 = { project: ['p1'] };
const P2 = { project: ['p2'] };

describe('content of a delta (3.5.1)', () => {
  test('R-016, R-018: one complete tagged response with an active section and the full effective echo', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive([stored('s1', { project: ['p1', 'p2'] })]);
    const seq = h.commit([note('p1')]);
    expect(client.story).toEqual([`delta ${seq}`]);
    const [message] = client.deltaMessages;
    expect(message).toMatchObject({ kind: 'response', wireVersion: 2 });
    expect(message!.frames.map((frame) => frame.type)).toEqual([
      'RESP_HEADER',
      'SUB_START',
      'COMMIT',
      'SUB_END',
    ]);
    const start = message!.frames[1] as SubStartFrame;
    expect(start).toMatchObject({ id: 's1', status: 'active', reasonCode: '', bootstrap: false });
    expect(start.effectiveScopes).toEqual({ project: ['p1', 'p2'] });
    expect(message!.frames[3]).toEqual({ type: 'SUB_END', nextCursor: seq, bootstrapState: undefined });
  });

  test('R-027: a version 2 delta carries the log epoch and resetRequired false, version 1 neither', async () => {
    const h = new LiveHarness();
    h.storage.record(TENANT, {
      clientId: 'old',
      cursor: 0,
      wireVersion: 1,
      subscriptions: [stored('s', P1)],
    });
    const old = await h.connect({ clientId: 'old' });
    const client = await h.connectLive([stored('s', P1)]);
    h.commit([note('p1')]);
    expect(client.deltaMessages[0]!.frames[0]).toMatchObject({
      logEpoch: `epoch-of-${TENANT}`,
      resetRequired: false,
    });
    expect(old.deltaMessages[0]).toMatchObject({ wireVersion: 1 });
    expect(old.deltaMessages[0]!.frames[0]).toEqual({
      type: 'RESP_HEADER',
      requiredSchemaVersion: undefined,
      latestSchemaVersion: undefined,
      logEpoch: undefined,
      resetRequired: undefined,
    });
  });

  test('R-017: only affected subscriptions, in subscription order, each with exactly its changes', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive([
      stored('z', P1),
      stored('quiet', { project: ['p9'] }),
      stored('a', { project: ['p1', 'p3'] }),
      stored('tasks', { project: ['p1'], owner: ['me'] }, { table: 'tasks' }),
    ]);
    const mine = { project: 'p1', owner: 'me' };
    h.commit([
      note('p2', 'n0'),
      note('p1', 'n1'),
      change('tasks', mine, 't1'),
      change('tasks', { project: 'p1', owner: 'you' }, 't2'),
      note('p3', 'n3'),
      removal('notes', { project: 'p1' }, 'n4'),
    ]);
    const [message] = client.deltaMessages;
    expect(sectionsOf(message!).map(({ id }) => id)).toEqual(['z', 'a', 'tasks']);
    const rows = (commit: CommitFrame) => commit.changes.map(({ rowId, op }) => `${op} ${rowId}`);
    expect(commitsOf(message!).map(rows)).toEqual([
      ['upsert n1', 'delete n4'],
      ['upsert n1', 'upsert n3', 'delete n4'],
      ['upsert t1'],
    ]);
    expect(commitsOf(message!).map(({ tables }) => tables)).toEqual([['notes'], ['notes'], ['tasks']]);
  });

  test('R-019: silence for commits that match nothing, and for commits without changes (3.6)', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive([stored('s', P1)]);
    h.commit([note('p2')]);
    h.commit([change('tasks', { project: 'p1', owner: 'me' })]);
    h.commit([]);
    const seq = h.commit([note('p1')]);
    expect(client.story).toEqual([`delta ${seq}`]);
  });

  test('R-013: partitions are apart', async () => {
    const h = new LiveHarness();
    const here = await h.connectLive([stored('s', P1)]);
    const there = await h.connectLive([stored('s', P1)], { clientId: 'c2', partition: 'other' });
    h.commit([note('p1')], { partition: 'other' });
    expect(here.story).toEqual([]);
    expect(there.story).toEqual(['delta 1']);
  });

  test('R-012: rows of a schema version that is not served become reset-required (3.16 A-7)', async () => {
    const h = new LiveHarness();
    const record = { clientId: 'c', cursor: 0, schemaVersion: 9, subscriptions: [stored('s', P1)] };
    h.storage.record(TENANT, record);
    const client = await h.connect({ clientId: 'c' });
    client.clear();
    const seq = h.commit([note('p1')]);
    expect(client.wakes).toEqual([{ cursor: seq, reason: 'reset-required' }]);
    expect(client.deltas).toEqual([]);
  });
});

describe('encode once per cohort', () => {
  test('members of a cohort get the very same bytes', async () => {
    const h = new LiveHarness();
    const clients: FakeConnection[] = [];
    for (const clientId of ['a', 'b', 'c'])
      clients.push(await h.connectLive([stored('s', P1)], { clientId }));
    const narrow = await h.connectLive([stored('t', P1)], { clientId: 'd' });
    h.commit([note('p1')]);
    const [first, ...others] = clients.map((client) => client.binaries[0]!);
    for (const bytes of others) expect(bytes).toBe(first);
    expect(narrow.binaries[0]).not.toBe(first);
    expect(sectionsOf(narrow.deltaMessages[0]!)[0]!.id).toBe('t');
  });

  test('R-028: what is ready within one turn leaves as one delta, commits whole and in order', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive([stored('a', P1), stored('b', P2)]);
    for (const project of ['p1', 'p2', 'p9', 'p1']) h.accept([note(project)]);
    expect(client.sent).toEqual([]);
    h.clock.turn();
    expect(client.story).toEqual(['delta 1,4 | 2']);
  });

  test('a delta over the bound is split between commits (3.5.4)', async () => {
    const h = new LiveHarness({ limits: { deltaBytesMax: 1_000 } });
    const client = await h.connectLive([stored('s', P1)]);
    for (let commit = 0; commit < 7; commit++) h.accept([note('p1', 'n', 300)]);
    h.clock.turns();
    expect(client.story).toEqual(['delta 1,2', 'delta 3,4', 'delta 5,6', 'delta 7']);
    for (const bytes of client.deltas) expect(bytes.length).toBeLessThanOrEqual(1_000);
  });

  test('R-025: the size bound is strict: its value still leaves as a delta, one byte more does not', async () => {
    const measured = new LiveHarness();
    const probe = await measured.connectLive([stored('s', P1)]);
    measured.commit([note('p1')]);
    const bytes = probe.deltas[0]!.length;
    for (const [deltaBytesMax, reason] of [
      [bytes, null],
      [bytes - 1, 'delta-too-large'],
    ] as const) {
      const h = new LiveHarness({ limits: { deltaBytesMax } });
      const client = await h.connectLive([stored('s', P1)]);
      h.commit([note('p1')]);
      expect(client.deltas.length).toBe(reason === null ? 1 : 0);
      expect(client.wakes.map((wake) => wake.reason)).toEqual(reason === null ? [] : [reason]);
    }
  });

  test('R-025: a commit over the bound alone wakes delta-too-large and suppresses until its ack', async () => {
    const h = new LiveHarness({ limits: { deltaBytesMax: 600 } });
    const client = await h.connectLive([stored('s', P1)]);
    h.accept([note('p1')]);
    h.accept([note('p1', 'big', 5_000)]);
    h.accept([note('p1')]);
    h.clock.turns();
    expect(client.story).toEqual(['delta 1', 'wake delta-too-large 3']);
    client.ack(2);
    expect(h.commit([note('p1')])).toBe(4);
    expect(client.story.at(-1)).toBe('wake catchup-required 4');
    client.ack(4);
    h.commit([note('p1')]);
    expect(client.story.at(-1)).toBe('delta 5');
  });

  test('a commit that has no encoding wakes its sessions and lets nobody down', async () => {
    const h = new LiveHarness();
    const clients: FakeConnection[] = [];
    for (const clientId of ['a', 'b']) clients.push(await h.connectLive([stored('s', P1)], { clientId }));
    const elsewhere = await h.connectLive([stored('s', P2)], { clientId: 'c' });
    h.commit([note('p1', 'lone \ud800 surrogate')]);
    h.commit([note('p2')]);
    for (const client of clients) expect(client.wakes.length).toBe(1);
    expect(elsewhere.deltaSeqs).toEqual([2]);
    expect(h.eventsOf('fanout.failed').length).toBe(1);
  });
});

describe('fanout over turns (architecture §4.8)', () => {
  test('accept does no delivery itself, and a large fanout takes several turns in order', async () => {
    const h = new LiveHarness({ limits: { fanoutSessionsPerTurn: 4 } });
    const clients: FakeConnection[] = [];
    for (let n = 0; n < 10; n++) clients.push(await h.connectLive([stored('s', P1)], { clientId: `c${n}` }));
    h.accept([note('p1')]);
    expect(clients.flatMap((client) => client.sent)).toEqual([]);
    const served = () => clients.filter((client) => client.sent.length > 0).length;
    h.clock.turn();
    expect(served()).toBe(4);
    h.accept([note('p1')]);
    h.accept([note('p1')]);
    h.clock.turn();
    expect(served()).toBe(8);
    h.clock.turns();
    for (const client of clients) expect(client.story).toEqual(['delta 1', 'delta 2,3']);
  });

  test('a session that leaves in the middle of a fanout is not served, the others are', async () => {
    const h = new LiveHarness({ limits: { fanoutSessionsPerTurn: 2 } });
    const clients: FakeConnection[] = [];
    for (let n = 0; n < 6; n++) clients.push(await h.connectLive([stored('s', P1)], { clientId: `c${n}` }));
    h.accept([note('p1')]);
    h.clock.turn();
    clients[0]!.vanish();
    clients[3]!.vanish();
    h.clock.turns();
    expect(clients.map((client) => client.sent.length)).toEqual([1, 1, 1, 0, 1, 1]);
    expect(h.live.sessionCount).toBe(4);
  });

  test('when commits come faster than they can be matched, one wake-up stands for all of them', async () => {
    const h = new LiveHarness({ limits: { fanoutBacklogCommitsMax: 5 } });
    const client = await h.connectLive([stored('s', P1)]);
    for (let n = 0; n < 8; n++) h.accept([note('p1')]);
    h.clock.turns();
    expect(client.story).toEqual(['wake catchup-required 8']);
    expect(h.eventsOf('fanout.backlog_dropped')).toMatchObject([{ throughSeq: 6 }]);
    client.ack(8);
    h.commit([note('p1')]);
    expect(client.story.at(-1)).toBe('delta 9');
  });

  test('matching goes on over turns as well', async () => {
    const h = new LiveHarness({ limits: { fanoutSessionsPerTurn: 1 } });
    const client = await h.connectLive([stored('s', P1)]);
    for (let n = 0; n < 100; n++) h.accept([note(n % 10 === 0 ? 'p1' : 'p2')]);
    h.clock.turns();
    expect(client.deltaSeqs).toEqual([1, 11, 21, 31, 41, 51, 61, 71, 81, 91]);
    expect(client.binaries.length).toBeGreaterThan(1);
  });

  test('two busy partitions share the turns', async () => {
    const h = new LiveHarness({ limits: { fanoutSessionsPerTurn: 1 } });
    const a = await h.connectLive([stored('s', P1)], { clientId: 'a' });
    const b = await h.connectLive([stored('s', P1)], { clientId: 'b', partition: 'other' });
    h.accept([note('p1')]);
    h.accept([note('p1')], { partition: 'other' });
    h.clock.turn();
    h.clock.turn();
    expect([a.story, b.story]).toEqual([['delta 1'], ['delta 1']]);
  });
});
