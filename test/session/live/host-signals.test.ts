/** What a host may say about live connections (part 3, 3.13, 3.14): scopes, revocation, epochs, resync, newer connections. */
import { describe, expect, test } from 'vitest';
import type { Presence } from '../../../src/session/live/presence.ts';
import type { FakeConnection } from '../../support/fake-connection.ts';
import { LiveHarness, note, registered, stored, TENANT } from './support/live-harness.ts';
import { requestBytes } from './support/scripted-rounds.ts';

const P1 = { project: ['p1'] };
const BOTH = [stored('one', P1), stored('two', { project: ['p2'] })];

describe('scopes changed', () => {
  test('R-047: lost scopes get nothing from that moment on, the client is told to pull', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(BOTH);
    h.grants.set('actor-1', { project: ['p2'], owner: [] });
    h.live.scopesChanged(TENANT, 'actor-1');
    h.commit([note('p1')]);
    await h.settle();
    h.commit([note('p1')]);
    expect(client.story).toEqual(['wake catchup-required 1']);
    h.commit([note('p2')]);
    expect(client.story.at(-1)).toBe('wake catchup-required 3');
    client.ack(3);
    h.commit([note('p1')]);
    h.commit([note('p2')]);
    expect(client.story.at(-1)).toBe('delta 5');
  });

  test('R-047: what was released before the signal and waits for its turn does not leave for a lost scope', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(BOTH);
    h.grants.set('actor-1', { project: ['p2'], owner: [] });
    h.accept([note('p1')]);
    h.live.scopesChanged(TENANT, 'actor-1');
    await h.settle();
    expect(client.deltas).toEqual([]);
  });

  test('R-082: when they cannot be resolved, nothing is registered', async () => {
    for (const how of ['resolver', 'storage'] as const) {
      const h = new LiveHarness();
      const client = await h.connectLive(BOTH);
      if (how === 'resolver') h.grants.set('actor-1', new Error('directory is down'));
      else h.storage.fail('readSnapshot');
      h.live.scopesChanged(TENANT, 'actor-1');
      await h.settle();
      client.clear();
      h.commit([note('p1')]);
      client.ack(1);
      h.commit([note('p2')]);
      expect(client.story).toEqual([]);
      expect(client.closed).toBeNull();
    }
  });

  test('only the actor it is about, on every node', async () => {
    const h = new LiveHarness({ nodes: 2 });
    const mine = await h.connectLive(BOTH, { clientId: 'a', node: 1 });
    const other = await h.connectLive(BOTH, { clientId: 'b', actorId: 'actor-2' });
    h.live.scopesChanged(TENANT, 'actor-1');
    await h.settle();
    expect(mine.wakes.length).toBe(1);
    expect(other.sent).toEqual([]);
  });

  test('during a round: the scopes that it resolved before the signal do not come into force', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(BOTH);
    client.round(requestBytes());
    await h.settle();
    h.grants.set('actor-1', { project: ['p2'], owner: [] });
    h.live.scopesChanged(TENANT, 'actor-1');
    await h.settle();
    h.rounds.last.pulled([registered('one', P1), registered('two', { project: ['p2'] })], 0);
    await h.settle();
    client.ack(0);
    client.clear();
    h.commit([note('p1')]);
    h.commit([note('p2')]);
    expect(client.story).toEqual(['delta 2']);
  });

  test('during a round that ends before the new scopes are known', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(BOTH);
    client.round(requestBytes());
    await h.settle();
    const release = h.storage.hold('readSnapshot');
    h.grants.set('actor-1', { project: ['p2'], owner: [] });
    h.live.scopesChanged(TENANT, 'actor-1');
    h.rounds.last.pulled([registered('one', P1)], 0);
    await h.settle();
    client.ack(0);
    h.commit([note('p1')]);
    expect(client.deltas).toEqual([]);
    release();
    await h.settle();
    client.ack(1);
    client.clear();
    h.commit([note('p1')]);
    h.commit([note('p2')]);
    expect(client.story).toEqual(['delta 3']);
  });

  test('a round that began after the signal knows better than a resolution that is still running', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(BOTH);
    const release = h.storage.hold('readSnapshot');
    h.live.scopesChanged(TENANT, 'actor-1');
    client.round(requestBytes());
    await h.settle();
    h.rounds.last.pulled([registered('only', { project: ['p3'] })], 0);
    await h.settle();
    release();
    await h.settle();
    client.ack(0);
    client.clear();
    h.commit([note('p1')]);
    h.commit([note('p3')]);
    expect(client.story).toEqual(['delta 2']);
  });

  test('while connecting: the load is taken again', async () => {
    const h = new LiveHarness();
    h.storage.record(TENANT, { clientId: 'client-1', cursor: 0, subscriptions: BOTH });
    const release = h.storage.hold('admitReply');
    const client = h.open();
    await h.settle();
    h.grants.set('actor-1', { project: ['p2'], owner: [] });
    h.live.scopesChanged(TENANT, 'actor-1');
    release();
    await h.settle();
    h.commit([note('p1')]);
    h.commit([note('p2')]);
    expect(client.story).toEqual(['hello', 'delta 2']);
    expect(h.storage.calls.admit).toBe(2);
  });
});

describe('ends', () => {
  test('an actor that is cut off closes with 4401, on every node, in any state', async () => {
    const h = new LiveHarness({ nodes: 2 });
    const idle = await h.connectLive(BOTH, { clientId: 'a', node: 1 });
    const busy = await h.connectLive(BOTH, { clientId: 'b' });
    busy.round(requestBytes('b'));
    await h.settle();
    const other = await h.connectLive(BOTH, { clientId: 'c', actorId: 'actor-2' });
    h.storage.hold('admit');
    const loading = h.open({ clientId: 'd' });
    h.live.revokeActor(TENANT, 'actor-1');
    for (const client of [idle, busy, loading]) expect(client.closed?.code).toBe(4401);
    expect(other.closed).toBeNull();
  });

  test('R-032: a rotated epoch closes every connection with 1012; no delta carries either epoch', async () => {
    const h = new LiveHarness({ nodes: 2 });
    const clients = [
      await h.connectLive(BOTH, { clientId: 'a' }),
      await h.connectLive(BOTH, { clientId: 'b', node: 1 }),
    ];
    const elsewhere = await h.connectLive(BOTH, { clientId: 'c', partition: 'other' });
    h.accept([note('p1')]);
    await h.storage.rotateEpoch({ partition: TENANT, logEpoch: 'next' });
    h.live.epochRotated(TENANT, 'next');
    h.clock.turns();
    for (const client of clients) {
      expect(client.closed).toEqual({ code: 1012, reason: 'the log epoch was rotated' });
      expect(client.deltas).toEqual([]);
    }
    expect(elsewhere.closed).toBeNull();
    const again = await h.connectLive(BOTH, { clientId: 'a' });
    h.commit([note('p1')]);
    expect(again.deltaMessages[0]!.frames[0]).toMatchObject({ logEpoch: 'next' });
    h.live.epochRotated(TENANT, 'next');
    expect(again.closed).toBeNull();
  });

  test('R-032: without a signal, the head poll finds it out', async () => {
    const h = new LiveHarness({ limits: { headPollMs: 1_000 } });
    const client = await h.connectLive(BOTH);
    await h.storage.rotateEpoch({ partition: TENANT, logEpoch: 'next' });
    await h.clock.advanceSettled(1_000, 1_000);
    expect(client.closed?.code).toBe(1012);
    expect(h.eventsOf('feed.fenced')).toMatchObject([{ partition: TENANT, sessions: 1 }]);
  });

  test('R-032: a connection that read the old epoch while it was rotated is turned away', async () => {
    const h = new LiveHarness();
    const release = h.storage.hold('admitReply');
    const late = h.open({ clientId: 'late' });
    await h.settle();
    await h.storage.rotateEpoch({ partition: TENANT, logEpoch: 'next' });
    h.live.epochRotated(TENANT, 'next');
    release();
    await h.settle();
    expect(late.closed?.code).toBe(1012);
    expect(late.sent).toEqual([]);
  });

  test('a newer connection of the client: the older closes with 4409 once the newer was greeted (3.13)', async () => {
    const h = new LiveHarness();
    const older = await h.connectLive(BOTH);
    const release = h.storage.hold('admit');
    const newer = h.open();
    await h.settle();
    h.commit([note('p1')]);
    expect(older.story).toEqual(['delta 1']);
    release();
    await h.settle();
    expect(older.closed).toEqual({ code: 4409, reason: 'replaced by a newer connection of the same client' });
    expect(newer.story[0]).toBe('hello');
    older.vanish();
    const newest = await h.connect();
    expect(newer.closed?.code).toBe(4409);
    expect(newest.closed).toBeNull();
    expect(h.live.sessionCount).toBe(1);
  });

  test('a connection that is greeted after a newer one gives way itself', async () => {
    const h = new LiveHarness();
    const release = h.storage.hold('admitReply');
    const slow = h.open();
    await h.settle();
    h.storage.pass('admitReply');
    const newer = await h.connect();
    expect(newer.story).toEqual(['hello']);
    release();
    await h.settle();
    expect(slow.closed?.code).toBe(4409);
    expect(slow.sent).toEqual([]);
    expect(newer.closed).toBeNull();
  });

  test('the same id of another actor or partition is another client; keep leaves both', async () => {
    const h = new LiveHarness({ duplicateClients: 'keep' });
    const first = await h.connectLive(BOTH);
    const second = await h.connectLive(BOTH);
    expect([first.closed, second.closed]).toEqual([null, null]);
    h.commit([note('p1')]);
    expect([first.deltaSeqs, second.deltaSeqs]).toEqual([[1], [1]]);
    const strict = new LiveHarness();
    const here = await strict.connect();
    const there = await strict.connect({ partition: 'other' });
    expect([here.closed, there.closed]).toEqual([null, null]);
  });
});

describe('forced resync', () => {
  test('R-030: every connection of the partition is woken with reset-required, once each, and is behind', async () => {
    const h = new LiveHarness({ nodes: 2 });
    const clients = [
      await h.connectLive(BOTH, { clientId: 'a' }),
      await h.connectLive([], { clientId: 'b' }),
      await h.connectLive(BOTH, { clientId: 'c', node: 1 }),
    ];
    h.live.resync(TENANT);
    for (const client of clients) expect(client.story).toEqual(['wake reset-required 0']);
    h.commit([note('p1')]);
    expect(clients[0]!.deltas).toEqual([]);
    clients[0]!.ack(1);
    h.commit([note('p1')]);
    expect(clients[0]!.story.at(-1)).toBe('delta 2');
  });

  test('while connecting: after hello', async () => {
    const h = new LiveHarness();
    const release = h.storage.hold('admitReply');
    const client = h.open();
    await h.settle();
    h.live.resync(TENANT);
    release();
    await h.settle();
    expect(client.story).toEqual(['hello', 'wake reset-required 0']);
  });
});

describe('the seam of presence', () => {
  function recording() {
    const calls: string[] = [];
    const presence: Presence = {
      registered: (peer, registrations) => {
        calls.push(
          `registered ${peer.clientId} ${registrations.map((each) => JSON.stringify(each.effective))}`,
        );
      },
      suspended: (peer) => void calls.push(`suspended ${peer.clientId}`),
      received: (peer, message) => void calls.push(`${message.kind} ${peer.clientId} ${message.scopeKey}`),
      drained: (peer) => void calls.push(`drained ${peer.clientId}`),
      closed: (peer) => void calls.push(`closed ${peer.clientId}`),
    };
    return { calls, presence };
  }

  const publish = (client: FakeConnection, data: unknown) => client.text({ event: 'presence', data });

  test('registrations at hello, at round end and when scopes change; messages; the end', async () => {
    const { calls, presence } = recording();
    const h = new LiveHarness({ presence });
    const client = await h.connectLive([stored('one', P1)]);
    publish(client, { scopeKey: 'project:p1', doc: { x: 0.5 } });
    publish(client, { scopeKey: 'project:p1', doc: null });
    client.round(requestBytes());
    await h.settle();
    h.rounds.last.pulled([registered('two', { project: ['p2'] })], 0);
    await h.settle();
    h.grants.set('actor-1', { project: [], owner: [] });
    h.live.scopesChanged(TENANT, 'actor-1');
    await h.settle();
    client.vanish();
    expect(calls).toEqual([
      'registered client-1 {"project":["p1"]}',
      'presence-publish client-1 project:p1',
      'presence-leave client-1 project:p1',
      'registered client-1 {"project":["p2"]}',
      'suspended client-1',
      'registered client-1 ',
      'closed client-1',
    ]);
  });

  test('R-045: a malformed publish closes with 1008, also with presence off', async () => {
    for (const data of [
      undefined,
      {},
      { scopeKey: '', doc: {} },
      { scopeKey: 'k', doc: [1] },
      { scopeKey: 'k' },
    ]) {
      const { calls, presence } = recording();
      const h = new LiveHarness({ presence });
      const client = await h.connect();
      publish(client, data);
      expect(client.closed).toEqual({ code: 1008, reason: 'malformed presence message' });
      expect(calls.at(-1)).toBe('closed client-1');
    }
  });

  test('presence off ignores a valid publish', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive([stored('one', P1)]);
    publish(client, { scopeKey: 'project:p1', doc: {} });
    expect([client.sent, client.closed]).toEqual([[], null]);
  });

  test('a connection that was never greeted is never closed towards presence', async () => {
    const { calls, presence } = recording();
    const h = new LiveHarness({ presence });
    h.storage.hold('admit');
    h.open().vanish();
    expect(calls).toEqual([]);
  });
});
