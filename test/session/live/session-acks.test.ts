/** Behind and live: suppression, acks, wake-ups, flow control (part 3, 3.5 and 3.7). */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { DeltaBudget } from '../../../src/session/live/delta-budget.ts';
import { LiveHarness, note, registered, stored, TENANT } from './support/live-harness.ts';
import { requestBytes } from './support/scripted-rounds.ts';

const P1 = { project: ['p1'] };
const MINE = [stored('s', P1)];

/** A client that has `behind` commits to catch up with when it connects. */
async function connectBehind(h: LiveHarness, behind = 1) {
  h.storage.record(TENANT, { clientId: 'client-1', cursor: 0, subscriptions: MINE });
  for (let n = 0; n < behind; n++) h.commit([note('p1')]);
  const client = await h.connect();
  client.clear();
  return client;
}

describe('suppression (3.5.2)', () => {
  test('R-020, R-021: behind at connect: no delta, a wake-up for every matching commit, silence for others', async () => {
    const h = new LiveHarness();
    const client = await connectBehind(h);
    h.commit([note('p1')]);
    h.commit([note('p2')]);
    h.commit([note('p1')]);
    expect(client.story).toEqual(['wake catchup-required 2', 'wake catchup-required 4']);
  });

  test('R-022: an ack that reaches observed lifts it; nothing is sent because of that alone', async () => {
    const h = new LiveHarness();
    const client = await connectBehind(h);
    h.commit([note('p1')]);
    client.ack(2);
    expect(client.story).toEqual(['wake catchup-required 2']);
    h.commit([note('p1')]);
    expect(client.story.at(-1)).toBe('delta 3');
  });

  test('R-023: an ack one below the newest matching commit keeps it', async () => {
    const h = new LiveHarness();
    const client = await connectBehind(h);
    h.commit([note('p1')]);
    client.ack(1);
    h.commit([note('p1')]);
    expect(client.story).toEqual(['wake catchup-required 2', 'wake catchup-required 3']);
  });

  test('R-022: on an empty partition the ack that lifts may be 0', async () => {
    const h = new LiveHarness();
    h.storage.record(TENANT, { clientId: 'client-1', cursor: -1, subscriptions: MINE });
    const client = await h.connect();
    expect(client.controlsOf('hello')[0]).toMatchObject({ cursor: -1, latestCursor: 0, requiresSync: true });
    client.ack(0);
    h.commit([note('p1')]);
    expect(client.story).toEqual(['hello', 'delta 1']);
  });

  test('3.5.2-11: commits that match nothing do not raise observed', async () => {
    const h = new LiveHarness();
    const client = await connectBehind(h);
    h.commit([note('p1')]);
    h.commit([note('p9')]);
    client.ack(2);
    h.commit([note('p1')]);
    expect(client.story.at(-1)).toBe('delta 4');
  });

  test('3.5.2-9: a delta on its way is not an ack', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    h.commit([note('p1')]);
    h.live.resync(TENANT);
    h.commit([note('p1')]);
    expect(client.story).toEqual(['delta 1', 'wake reset-required 1', 'wake catchup-required 2']);
    client.ack(1);
    h.commit([note('p1')]);
    expect(client.story.at(-1)).toBe('wake catchup-required 3');
  });

  test('R-020: an ack that lifts while commits wait for their turn: they are deltas, none is skipped', async () => {
    const h = new LiveHarness();
    const client = await connectBehind(h);
    h.accept([note('p1')]);
    h.accept([note('p1')]);
    client.ack(1);
    h.clock.turns();
    expect(client.story).toEqual(['delta 2,3']);
  });

  test('R-020: an ack in the middle of what waits leaves the rest', async () => {
    const h = new LiveHarness();
    const client = await connectBehind(h);
    for (let n = 0; n < 3; n++) h.accept([note('p1')]);
    client.ack(3);
    h.clock.turns();
    expect(client.story).toEqual(['delta 4']);
  });
});

describe('acks (3.5.3)', () => {
  test('R-024: they reach the record behind, joined per client, one write per interval for all', async () => {
    const h = new LiveHarness({ limits: { cursorFlushMs: 1_000 } });
    const a = await h.connectLive(MINE, { clientId: 'a' });
    const b = await h.connectLive(MINE, { clientId: 'b' });
    for (let n = 0; n < 3; n++) {
      const seq = h.commit([note('p1')]);
      a.ack(seq);
      b.ack(seq);
    }
    expect(h.storage.saved).toEqual([]);
    await h.clock.advanceSettled(1_000, 1_000);
    expect(h.storage.saved.length).toBe(1);
    expect(h.storage.saved[0]!.map(({ clientId, mode, cursor }) => [clientId, mode, cursor])).toEqual([
      ['a', 'raise', 3],
      ['b', 'raise', 3],
    ]);
  });

  test('R-024: they are written when the session ends', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    client.ack(h.commit([note('p1')]));
    client.vanish();
    await h.settle();
    expect(h.storage.partition(TENANT).clients.get('client-1')?.cursor).toBe(1);
  });

  test('R-080: a lie is clamped to latest before it is stored', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    h.commit([note('p9')]);
    client.ack(Number.MAX_SAFE_INTEGER);
    await h.node.deps.cursors.flushAll();
    expect(h.storage.partition(TENANT).clients.get('client-1')?.cursor).toBe(1);
  });

  test('never move backwards; negative and malformed ones are ignored (3.3-5)', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    for (let n = 0; n < 3; n++) h.commit([note('p1')]);
    client.ack(3);
    for (const text of ['{"type":"ack","cursor":1.5}', '{"type":"ack"}', '{"type":"ack","cursor":"3"}']) {
      client.text(text);
    }
    await h.node.deps.cursors.flushAll();
    client.ack(1);
    client.ack(-7);
    await h.node.deps.cursors.flushAll();
    expect(h.storage.saved.flat().map(({ cursor }) => cursor)).toEqual([3]);
    expect(client.closed).toBeNull();
    h.commit([note('p1')]);
    expect(client.story.at(-1)).toBe('delta 4');
  });

  test('R-015: unknown and unreadable texts are ignored', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    for (const text of ['{"type":"x"}', '{"event":"y"}', 'no json', '[1]', '7', '']) client.text(text);
    expect(client.closed).toBeNull();
    h.commit([note('p1')]);
    expect(client.story).toEqual(['delta 1']);
  });
});

describe('wake-ups (3.7)', () => {
  test('R-029, R-031: exactly four keys, requiresPull literally true, integer cursor', async () => {
    const h = new LiveHarness();
    const client = await connectBehind(h);
    h.commit([note('p1')]);
    expect(JSON.parse(client.texts[0]!)).toEqual({
      event: 'sync',
      data: { cursor: 2, requiresPull: true, reason: 'catchup-required', timestamp: h.clock.nowMs() },
    });
  });

  test('R-083: an unwritten wake-up absorbs later ones, a written one does not', async () => {
    const h = new LiveHarness({ limits: { outboxBytesHigh: 500, outboxBytesLow: 100 } });
    const client = await connectBehind(h);
    client.stall();
    client.bufferedBytes = 501;
    for (let n = 0; n < 4; n++) h.commit([note('p1')]);
    expect(client.sent).toEqual([]);
    client.drain();
    await h.settle();
    expect(client.story).toEqual(['wake catchup-required 5']);
    h.commit([note('p1')]);
    expect(client.story).toEqual(['wake catchup-required 5', 'wake catchup-required 6']);
  });

  test('R-030: of the reasons that one unwritten wake-up joins, the gravest is told', async () => {
    const h = new LiveHarness({ limits: { outboxBytesHigh: 500, outboxBytesLow: 100 } });
    const client = await connectBehind(h);
    client.stall();
    client.bufferedBytes = 501;
    h.commit([note('p1')]);
    h.live.resync(TENANT);
    h.commit([note('p1')]);
    client.drain();
    await h.settle();
    expect(client.story).toEqual(['wake reset-required 3']);
  });
});

describe('flow control (3.5.4)', () => {
  test('R-026: unacked deltas are bounded; an ack of all of them opens the way again', async () => {
    const h = new LiveHarness({ limits: { deltasInFlightMax: 3 } });
    const client = await h.connectLive(MINE);
    for (let n = 0; n < 5; n++) h.commit([note('p1')]);
    const full = ['delta 1', 'delta 2', 'delta 3', 'wake catchup-required 4', 'wake catchup-required 5'];
    expect(client.story).toEqual(full);
    client.ack(3);
    h.commit([note('p1')]);
    expect(client.story.at(-1)).toBe('wake catchup-required 6');
    client.ack(6);
    h.commit([note('p1')]);
    expect(client.story.at(-1)).toBe('delta 7');
  });

  test('R-026: a client that acks goes on for ever', async () => {
    const h = new LiveHarness({ limits: { deltasInFlightMax: 4 } });
    const client = await h.connectLive(MINE);
    for (let n = 0; n < 50; n++) {
      const seq = h.commit([note('p1')]);
      if (seq > 1) client.ack(seq - 1);
    }
    expect(client.deltaSeqs.length).toBe(50);
  });

  test('R-026: deltas per window are bounded', async () => {
    const h = new LiveHarness({ limits: { deltasPerWindowMax: 2, deltaWindowMs: 1_000 } });
    const client = await h.connectLive(MINE);
    for (let n = 0; n < 3; n++) client.ack(h.commit([note('p1')]) - 1);
    expect(client.story).toEqual(['delta 1', 'delta 2', 'wake catchup-required 3']);
    h.clock.advance(1_000);
    client.ack(3);
    h.commit([note('p1')]);
    expect(client.story.at(-1)).toBe('delta 4');
  });

  test('R-063: above the high mark a delta becomes a wake-up, which waits for room', async () => {
    const h = new LiveHarness({ limits: { outboxBytesHigh: 500, outboxBytesLow: 100 } });
    const client = await h.connectLive(MINE);
    client.stall();
    while (client.bufferedBytes <= 500) h.commit([note('p1', 'n', 200)]);
    const deltas = client.deltas.length;
    const buffered = client.bufferedBytes;
    for (let n = 0; n < 5; n++) h.commit([note('p1')]);
    expect(client.deltas.length).toBe(deltas);
    expect(client.bufferedBytes).toBe(buffered);
    client.drain();
    await h.settle();
    expect(client.wakes).toEqual([{ cursor: h.storage.head(TENANT), reason: 'catchup-required' }]);
  });

  test('R-026: the count of unacked deltas is never too low, and at most twice what it is', () => {
    const action = fc.oneof(fc.constant('send' as const), fc.record({ ack: fc.nat(4) }));
    fc.assert(
      fc.property(fc.array(action, { maxLength: 80 }), (actions) => {
        const budget = new DeltaBudget();
        let unacked: number[] = [];
        let acked = 0;
        let seq = 0;
        let most = 0;
        for (const step of actions) {
          if (step === 'send') {
            budget.sent(++seq);
            unacked.push(seq);
          } else {
            acked = Math.min(seq, acked + step.ack);
            unacked = unacked.filter((each) => each > acked);
            budget.acked(acked);
          }
          most = Math.max(most, unacked.length);
          expect(budget.inFlight).toBeGreaterThanOrEqual(unacked.length);
          expect(budget.inFlight).toBeLessThanOrEqual(2 * most);
          if (unacked.length === 0) expect(budget.inFlight).toBe(0);
        }
      }),
    );
  });
});

test('R-022: an ack of what the connection pulled makes it live, though its node has not heard of all of it yet', async () => {
  const h = new LiveHarness({ nodes: 2 });
  const client = await h.connectLive(MINE);
  client.round(requestBytes());
  await h.settle();
  // Told during the round, so it is behind until it acks.
  h.commit([note('p1')]);
  h.bus.fate = () => 'lose';
  for (let n = 0; n < 2; n++) h.accept([note('p1')], { node: 1 });
  h.rounds.last.pulled([registered('s', P1)], 3);
  await h.settle();
  client.ack(3);
  client.clear();
  h.bus.fate = () => 'deliver';
  h.commit([note('p1')]);
  await h.settle();
  expect(client.story).toEqual(['delta 4']);
});
