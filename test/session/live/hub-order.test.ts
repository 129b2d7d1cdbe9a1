/** Commits are released in dense order; what is missing is read once per node and partition (architecture §4.2). */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { FakeConnection } from '../../support/fake-connection.ts';
import { LiveHarness, note, registered, stored, TENANT } from './support/live-harness.ts';
import { requestBytes } from './support/scripted-rounds.ts';

const P1 = { project: ['p1'] };
const HERE = 0;
const THERE = 1;

async function twoNodes(limits = {}) {
  const h = new LiveHarness({ nodes: 2, limits });
  const clients: FakeConnection[] = [];
  for (const clientId of ['a', 'b', 'c']) {
    clients.push(await h.connectLive([stored('s', P1)], { clientId, node: HERE }));
  }
  return { h, clients, client: clients[0]! };
}

describe('commits of another node', () => {
  test('arrive as deltas when the notice carries them, without a read', async () => {
    const { h, client } = await twoNodes();
    h.commit([note('p1')], { node: THERE });
    expect(client.story).toEqual(['delta 1']);
    expect(h.storage.calls.readCommits).toBe(0);
  });

  test('are read once for all sessions when the notice is empty', async () => {
    const { h, clients } = await twoNodes();
    const { logEpoch } = h.storage.partition(TENANT);
    const { commitSeq: head } = h.storage.append(TENANT, [note('p1')]);
    h.bus.deliver({ kind: 'commits', partition: TENANT, logEpoch, head, commits: [] }, HERE);
    await h.settle();
    for (const client of clients) expect(client.story).toEqual(['delta 1']);
    expect(h.storage.calls.readCommits).toBe(1);
  });

  test('R-079: a local commit behind an unseen one waits for the log read, never jumps', async () => {
    const { h, client } = await twoNodes();
    h.bus.fate = () => 'lose';
    h.commit([note('p1')], { node: THERE });
    h.commit([note('p1')], { node: HERE });
    expect(client.sent).toEqual([]);
    await h.settle();
    expect(client.deltaSeqs).toEqual([1, 2]);
    expect(h.storage.calls.readCommits).toBe(1);
  });

  test('R-079: an unacked delta, a foreign commit, a late ack, a local commit: no gap', async () => {
    const { h, client } = await twoNodes();
    for (let n = 0; n < 8; n++) h.commit([note('p9')], { node: HERE });
    h.bus.fate = () => 'lose';
    h.commit([note('p1')], { node: HERE });
    expect(client.story).toEqual(['delta 9']);
    h.commit([note('p1')], { node: THERE });
    client.ack(9);
    h.commit([note('p1')], { node: HERE });
    await h.settle();
    expect(client.deltaSeqs).toEqual([9, 10, 11]);
  });

  test('R-079, 3.5.2-10: when the read fails, observed rises with the notice, and a late ack does not lift', async () => {
    const { h, clients, client } = await twoNodes();
    h.commit([note('p1')], { node: HERE });
    h.bus.fate = () => 'lose';
    h.commit([note('p1')], { node: THERE });
    h.storage.fail('readSnapshot');
    h.commit([note('p1')], { node: HERE });
    await h.settle();
    for (const each of clients) expect(each.story).toEqual(['delta 1', 'wake catchup-required 3']);
    expect(h.eventsOf('feed.gap')).toMatchObject([{ afterSeq: 1, throughSeq: 3 }]);
    client.ack(1);
    client.ack(2);
    h.commit([note('p1')], { node: HERE });
    expect(client.story.at(-1)).toBe('wake catchup-required 4');
    client.ack(4);
    h.commit([note('p1')], { node: HERE });
    expect(client.story.at(-1)).toBe('delta 5');
  });

  test('a failed read wakes only connections that a commit may concern', async () => {
    const { h } = await twoNodes();
    const without = await h.connectLive([], { clientId: 'none', node: HERE });
    h.bus.fate = () => 'lose';
    h.commit([note('p1')], { node: THERE });
    h.storage.fail('readSnapshot');
    h.commit([note('p1')], { node: HERE });
    await h.settle();
    expect(without.sent).toEqual([]);
  });

  test('R-020: commits that were pruned before they could be read are a gap, what follows is not lost', async () => {
    const { h, client } = await twoNodes();
    h.bus.fate = () => 'lose';
    for (let n = 0; n < 4; n++) h.commit([note('p1')], { node: THERE });
    h.storage.partition(TENANT).horizon = 2;
    h.commit([note('p1')], { node: HERE });
    await h.settle();
    expect(client.deltas).toEqual([]);
    expect(client.wakes.map((wake) => wake.cursor)).toEqual([5]);
    expect(h.storage.calls.readCommits).toBe(1);
    client.ack(5);
    h.commit([note('p1')], { node: HERE });
    expect(client.story.at(-1)).toBe('delta 6');
  });
});

describe('a hole that was skipped', () => {
  test('R-077: is no part of the ring: a round that read before it ends behind', async () => {
    const { h } = await twoNodes();
    const client = await h.connectLive([], { clientId: 'new', node: HERE });
    client.round(requestBytes('new'));
    await h.settle();
    h.commit([note('p9')], { node: HERE });
    h.bus.fate = () => 'lose';
    h.commit([note('p1')], { node: THERE });
    h.storage.fail('readSnapshot');
    h.commit([note('p9')], { node: HERE });
    await h.settle();
    h.commit([note('p9')], { node: HERE });
    h.rounds.last.pulled([registered('s', P1)], 1);
    await h.settle();
    expect(client.story).toEqual(['wake catchup-required 4', 'round 3']);
  });
});

test('R-062: a hole that waits for its turn counts as told at the end of a round', async () => {
  const { h, client } = await twoNodes();
  client.round(requestBytes('a'));
  await h.settle();
  h.bus.fate = () => 'lose';
  h.commit([note('p1')], { node: THERE });
  h.storage.fail('readSnapshot');
  h.accept([note('p9')], { node: HERE });
  await h.clock.promises();
  h.rounds.last.pushed();
  await h.clock.promises();
  expect(client.story).toEqual(['wake catchup-required 2', 'round 3']);
});

describe('backstops', () => {
  test('a lost notice costs latency only: the head poll finds it', async () => {
    const { h, clients } = await twoNodes({
      headPollMs: 1_000,
      heartbeatMs: 60_000,
      livenessTimeoutMs: 90_000,
    });
    h.bus.fate = () => 'lose';
    h.commit([note('p1')], { node: THERE });
    h.clock.advance(999);
    await h.settle();
    expect(clients[0]!.deltas).toEqual([]);
    h.clock.advance(1);
    await h.settle();
    for (const client of clients) expect(client.deltaSeqs).toEqual([1]);
  });

  test('polls end with the last session of a partition', async () => {
    const { h, clients } = await twoNodes({ headPollMs: 1_000 });
    for (const client of clients) client.vanish();
    const before = h.storage.calls.readSnapshot;
    await h.clock.advanceSettled(5_000, 1_000);
    expect(h.storage.calls.readSnapshot).toBe(before);
  });

  test('after an outage of the bus each partition is read once', async () => {
    const { h, client } = await twoNodes();
    h.bus.fate = () => 'lose';
    for (let n = 0; n < 3; n++) h.commit([note('p1')], { node: THERE });
    h.bus.reconnect();
    await h.settle();
    expect(client.deltaSeqs).toEqual([1, 2, 3]);
    expect(h.storage.calls.readCommits).toBe(1);
  });

  test('an outage that ends while a read runs is read for again: the read may have begun too early', async () => {
    const { h, client } = await twoNodes();
    h.bus.fate = () => 'lose';
    h.commit([note('p1')], { node: THERE });
    const release = h.storage.hold('readCommits');
    h.commit([note('p1')], { node: HERE });
    await h.settle();
    h.commit([note('p1')], { node: THERE });
    h.bus.reconnect();
    release();
    await h.settle();
    expect(client.deltaSeqs).toEqual([1, 2, 3]);
  });

  test('notices during a read join it and are not read again each', async () => {
    const { h, client } = await twoNodes();
    const { logEpoch } = h.storage.partition(TENANT);
    const release = h.storage.hold('readCommits');
    for (let n = 0; n < 20; n++) {
      const { commitSeq: head } = h.storage.append(TENANT, [note('p1')]);
      h.bus.deliver({ kind: 'commits', partition: TENANT, logEpoch, head, commits: [] }, HERE);
    }
    await h.settle();
    release();
    await h.settle();
    expect(client.deltaSeqs.length).toBe(20);
    expect(h.storage.calls.readCommits).toBeLessThanOrEqual(2);
  });

  test('a long hole is read in slices, a hopeless one becomes one wake-up', async () => {
    const limits = { ringCommitsMax: 10, catchUpCommitsMax: 40, headPollMs: 1_000_000 };
    for (const [commits, expected] of [
      [35, 'deltas'],
      [80, 'wake-up'],
    ] as const) {
      const { h, client } = await twoNodes(limits);
      h.bus.fate = () => 'lose';
      for (let n = 0; n < commits; n++) h.storage.append(TENANT, [note('p1')]);
      h.bus.reconnect();
      await h.settle();
      if (expected === 'deltas') {
        expect(client.deltaSeqs).toEqual(Array.from({ length: commits }, (_, at) => at + 1));
      } else {
        expect(client.wakes.at(-1)).toEqual({ cursor: commits, reason: 'catchup-required' });
        client.ack(commits);
        h.commit([note('p1')], { node: HERE });
        expect(client.deltaSeqs.at(-1)).toBe(commits + 1);
      }
    }
  });

  test('a notice that names a commit which does not exist is corrected by the read', async () => {
    const { h, client } = await twoNodes();
    const { logEpoch } = h.storage.partition(TENANT);
    h.bus.deliver({ kind: 'commits', partition: TENANT, logEpoch, head: 99, commits: [] }, HERE);
    await h.settle();
    expect(client.sent).toEqual([]);
    client.ack(99);
    h.commit([note('p1')], { node: HERE });
    expect(client.story).toEqual(['delta 1']);
  });

  test('a notice of another epoch is checked against the storage, not believed', async () => {
    const { h, client } = await twoNodes();
    const stale = { kind: 'commits', partition: TENANT, logEpoch: 'stale', head: 7, commits: [] } as const;
    h.bus.deliver(stale, HERE);
    await h.settle();
    expect(client.closed).toBeNull();
    await h.storage.rotateEpoch({ partition: TENANT, logEpoch: 'next' });
    h.bus.deliver({ ...stale, logEpoch: 'next' }, HERE);
    await h.settle();
    expect(client.closed).toEqual({ code: 1012, reason: 'the log epoch was rotated' });
  });
});

test('R-028: whatever the bus does to notices, every session sees every commit once, in order', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(
        fc.record({
          node: fc.constantFrom(HERE, THERE),
          fate: fc.constantFrom('deliver' as const, 'lose' as const, 'hold' as const),
          next: fc.constantFrom('turn', 'release', 'settle', 'repeat', 'nothing'),
          pick: fc.nat(1_000),
        }),
        { minLength: 1, maxLength: 30 },
      ),
      async (steps) => {
        const { h, clients } = await twoNodes({ ringCommitsMax: 64 });
        for (const { node, fate, next, pick } of steps) {
          h.bus.fate = () => fate;
          h.accept([note('p1')], { node });
          if (next === 'turn') h.clock.turn();
          if (next === 'release') h.bus.release((held) => pick % held);
          if (next === 'settle') await h.settle();
          if (next === 'repeat') {
            const seen = h.bus.announced[pick % h.bus.announced.length]!;
            h.bus.deliver(seen, HERE);
          }
        }
        h.bus.release();
        h.bus.reconnect();
        await h.settle();
        const all = steps.map((_, at) => at + 1);
        for (const client of clients) {
          expect(client.deltaSeqs).toEqual(all);
          expect(client.wakes).toEqual([]);
        }
      },
    ),
    { numRuns: 60 },
  );
});
