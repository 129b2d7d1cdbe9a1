/** Everything that is a matter of time: heartbeat, liveness, slow requests and readers, expiry, drain (architecture §6). */
import { describe, expect, test } from 'vitest';
import type { FakeConnection } from '../../support/fake-connection.ts';
import { LiveHarness, note, registered, stored, TENANT } from './support/live-harness.ts';
import { requestBytes } from './support/scripted-rounds.ts';

const P1 = { project: ['p1'] };
const MINE = [stored('s', P1)];
const SECOND_MS = 1_000;

describe('heartbeat (3.9)', () => {
  test('R-035: on the interval, with nothing but a timestamp', async () => {
    const h = new LiveHarness({ limits: { heartbeatMs: 1_000 } });
    const client = await h.connectLive(MINE);
    h.clock.advance(2_500);
    expect(client.story).toEqual(['heartbeat', 'heartbeat']);
    const data = JSON.parse(client.texts[0]!).data;
    expect(data).toEqual({ timestamp: expect.any(Number) });
    expect(Number.isInteger(data.timestamp)).toBe(true);
  });

  test('R-035: also during a round, between its chunks', async () => {
    const h = new LiveHarness({ limits: { heartbeatMs: 1_000 } });
    const client = await h.connectLive(MINE);
    client.round(requestBytes());
    await h.settle();
    h.rounds.last.chunk('one');
    await h.settle();
    h.clock.advance(1_100);
    h.rounds.last.chunk('two');
    await h.settle();
    expect(client.story).toEqual(['round 3', 'heartbeat', 'round 3']);
  });

  test('R-035: the interval keeps its pace over many ticks', async () => {
    const h = new LiveHarness({ limits: { heartbeatMs: 70, sessionTickMs: 50 } });
    const client = await h.connectLive(MINE);
    for (let n = 0; n < 100; n++) {
      h.clock.advance(70);
      client.pong();
    }
    expect(client.texts.length).toBeGreaterThanOrEqual(98);
    expect(client.texts.length).toBeLessThanOrEqual(100);
  });

  test('none before hello', async () => {
    const h = new LiveHarness({ limits: { heartbeatMs: 1_000 } });
    h.storage.hold('admit');
    const client = h.open();
    h.clock.advance(5_000);
    expect(client.sent).toEqual([]);
  });
});

describe('signs of life (4408)', () => {
  const limits = { heartbeatMs: 10 * SECOND_MS, livenessTimeoutMs: 25 * SECOND_MS };

  test('a peer that answers pings is never closed, whatever else it does not say', async () => {
    const h = new LiveHarness({ limits });
    const client = await h.connectLive(MINE);
    const ping = client.ping.bind(client);
    client.ping = () => {
      ping();
      client.pong();
    };
    h.clock.advance(600 * SECOND_MS);
    expect(client.closed).toBeNull();
    expect(client.pings).toBeGreaterThan(20);
  });

  test('no pong and no byte closes with 4408', async () => {
    const h = new LiveHarness({ limits });
    const client = await h.connectLive(MINE);
    h.clock.advance(24 * SECOND_MS);
    expect(client.closed).toBeNull();
    expect(client.pings).toBe(2);
    h.clock.advance(2 * SECOND_MS);
    expect(client.closed).toEqual({ code: 4408, reason: 'no sign of life in time' });
    expect([h.live.sessionCount, h.node.hub.memberCount]).toEqual([0, 0]);
  });

  test('any byte is a sign of life, and a peer that speaks is not pinged', async () => {
    const h = new LiveHarness({ limits });
    const client = await h.connectLive(MINE);
    for (let n = 0; n < 10; n++) {
      h.clock.advance(9 * SECOND_MS);
      if (n % 2 === 0) client.text('{"type":"x"}');
      else client.binary(new Uint8Array(0));
    }
    expect(client.closed).toBeNull();
    expect(client.pings).toBe(0);
  });

  test('a request that is begun and not finished closes with 4408, one that is finished does not', async () => {
    const h = new LiveHarness({ limits: { requestTimeoutMs: 5 * SECOND_MS } });
    const slow = await h.connectLive(MINE, { clientId: 'slow' });
    const done = await h.connectLive(MINE, { clientId: 'done' });
    const request = requestBytes();
    for (const client of [slow, done]) client.round(request.subarray(0, 20));
    h.clock.advance(4 * SECOND_MS);
    slow.round(request.subarray(20, 21));
    done.round(request.subarray(20));
    h.clock.advance(2 * SECOND_MS);
    expect(slow.closed).toEqual({ code: 4408, reason: 'the request was not finished in time' });
    expect(done.closed).toBeNull();
  });
});

describe('slow readers (1013)', () => {
  const limits = { outboxBytesHigh: 500, outboxBytesLow: 100, deltaBytesMax: 500, drainTimeoutMs: 10_000 };

  test('a socket that stays above the high mark too long is closed, and nothing later is ever sent', async () => {
    const h = new LiveHarness({ limits });
    const client = await h.connectLive(MINE);
    client.stall();
    while (client.bufferedBytes <= 500) h.commit([note('p1', 'n', 200)]);
    h.commit([note('p1')]);
    h.clock.advance(9_000);
    expect(client.closed).toBeNull();
    h.clock.advance(2_000);
    expect(client.closed).toEqual({ code: 1013, reason: 'the consumer is too slow' });
    const sent = client.sent.length;
    h.commit([note('p1')]);
    h.clock.advance(60_000);
    await h.settle();
    expect(client.sent.length).toBe(sent);
    expect(h.live.sessionCount).toBe(0);
  });

  test('a slow one that moves is not', async () => {
    const h = new LiveHarness({ limits });
    const client = await h.connectLive(MINE, { lowBytes: 100 });
    client.stall();
    client.bufferedBytes = 600;
    h.commit([note('p1')]);
    h.clock.advance(9_000);
    client.bufferedBytes = 400;
    h.clock.advance(9_000);
    expect(client.closed).toBeNull();
    client.drain();
    await h.settle();
    expect(client.wakes.length).toBe(1);
    h.clock.advance(20_000);
    expect(client.closed).toBeNull();
  });

  test('a paused response counts as well', async () => {
    const h = new LiveHarness({ limits });
    const client = await h.connectLive(MINE);
    client.stall();
    client.round(requestBytes());
    await h.settle();
    h.rounds.last.chunk('.'.repeat(600)).chunk('more');
    await h.settle();
    h.clock.advance(11_000);
    expect(client.closed?.code).toBe(1013);
    await h.settle();
    expect(h.rounds.last.isOver).toBe(true);
  });
});

describe('the grant is bound to time (4401)', () => {
  test('closes when the identity expires; nothing leaves afterwards', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE, { expiresAtMs: h.clock.nowMs() + 60_000 });
    h.clock.advance(59_000);
    client.pong();
    expect(client.closed).toBeNull();
    h.commit([note('p1')]);
    h.clock.advance(1_100);
    expect(client.closed).toEqual({ code: 4401, reason: 'sync.auth_required' });
    h.commit([note('p1')]);
    expect(client.deltaSeqs).toEqual([1]);
  });

  test('between two ticks neither a delta nor a chunk leaves for a grant that ended', async () => {
    const h = new LiveHarness({ limits: { sessionTickMs: 10_000 } });
    const expiresAtMs = h.clock.nowMs() + 20_500;
    const live = await h.connectLive(MINE, { clientId: 'live', expiresAtMs });
    const busy = await h.connectLive(MINE, { clientId: 'busy', expiresAtMs });
    busy.round(requestBytes('busy'));
    await h.settle();
    h.clock.advance(20_600);
    expect([live.closed, busy.closed]).toEqual([null, null]);
    live.clear();
    h.rounds.last.pulled([registered('s', P1)], 0);
    await h.settle();
    h.commit([note('p1')]);
    expect([live.closed?.code, busy.closed?.code]).toEqual([4401, 4401]);
    expect([live.sent, busy.binaries]).toEqual([[], []]);
    expect(h.rounds.last.handedOver).toBe(0);
  });

  test('cuts a round in flight', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE, { expiresAtMs: h.clock.nowMs() + 5_000 });
    client.round(requestBytes());
    await h.settle();
    h.rounds.last.chunk('part');
    await h.settle();
    h.clock.advance(5_100);
    expect(client.closed?.code).toBe(4401);
    h.rounds.last.chunk('more').pulled([registered('s', P1)], 0);
    await h.settle();
    expect(client.story).toEqual(['round 4']);
    expect(h.rounds.last.isOver).toBe(true);
  });
});

describe('drain (architecture §6)', () => {
  test('idle sockets close with 1012, spread over the interval', async () => {
    const h = new LiveHarness({ limits: { drainSpreadMs: 4_000 } });
    const clients: FakeConnection[] = [];
    for (let n = 0; n < 4; n++) clients.push(await h.connectLive(MINE, { clientId: `c${n}` }));
    const delays = [0.1, 0.3, 0.6, 0.9];
    Object.assign(h.node.deps.random, { unit: () => delays.shift() ?? 0 });
    let isDrained = false;
    const drained = h.live.drain().then(() => {
      isDrained = true;
    });
    const closed = () => clients.filter((client) => client.closed !== null).length;
    const seen = [closed()];
    for (let second = 0; second < 4; second++) {
      h.clock.advance(1_000);
      seen.push(closed());
    }
    expect(seen).toEqual([0, 1, 2, 3, 4]);
    await drained;
    expect(isDrained).toBe(true);
    for (const client of clients)
      expect(client.closed).toEqual({ code: 1012, reason: 'the server restarts' });
  });

  test('while draining no delta leaves, acks still count, a new round closes', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    h.commit([note('p1')]);
    void h.live.drain();
    h.commit([note('p1')]);
    client.ack(1);
    expect(client.deltaSeqs).toEqual([1]);
    client.round(requestBytes());
    expect(client.closed?.code).toBe(1012);
    await h.settle();
    expect(h.rounds.started).toEqual([]);
    expect(h.storage.partition(TENANT).clients.get('client-1')?.cursor).toBe(1);
  });

  test('a round in flight finishes, registrations and cursor included, then its socket closes', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    client.round(requestBytes());
    await h.settle();
    const drained = h.live.drain();
    h.clock.advance(5_000);
    expect(client.closed).toBeNull();
    h.rounds.last.chunk('part').pulled([registered('s', P1)], 0);
    await h.settle();
    expect(Buffer.from(client.roundBytes).toString()).toBe('partEND');
    expect(h.rounds.last.handedOver).toBe(1);
    expect(client.closed?.code).toBe(1012);
    await drained;
  });

  test('a round that does not finish within the limit is cut', async () => {
    const h = new LiveHarness({ limits: { shutdownRoundsMs: 5_000 } });
    const client = await h.connectLive(MINE);
    client.round(requestBytes());
    await h.settle();
    const drained = h.live.drain();
    h.clock.advance(5_100);
    expect(client.closed?.code).toBe(1012);
    await drained;
    await h.settle();
    expect(h.rounds.last.isOver).toBe(true);
  });

  test('a connection that comes while draining is turned away', async () => {
    const h = new LiveHarness();
    await h.live.drain();
    const client = await h.connect();
    expect(client.closed?.code).toBe(1012);
    expect(client.sent).toEqual([]);
  });

  test('close ends everything at once and leaves no timer behind', async () => {
    const h = new LiveHarness();
    const clients = [await h.connectLive(MINE), await h.connect({ clientId: 'b' })];
    h.storage.hold('admit');
    clients.push(h.open({ clientId: 'c' }));
    h.live.close();
    for (const client of clients) expect(client.closed?.code).toBe(1012);
    h.clock.advance(h.limits.sessionTickMs * 2);
    h.node.hub.close();
    await h.node.deps.cursors.flushAll();
    await h.clock.advanceSettled(h.limits.lastSeenFlushMs, h.limits.lastSeenFlushMs);
    expect(h.clock.timersWaiting).toBe(0);
  });
});
