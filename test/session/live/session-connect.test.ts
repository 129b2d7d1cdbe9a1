/** From upgrade to `hello` (part 3, 3.2): who is let in, what it is told, and that nothing between is lost. */
import { describe, expect, test } from 'vitest';
import { LiveHarness, note, registered, stored, TENANT } from './support/live-harness.ts';
import { requestBytes } from './support/scripted-rounds.ts';

const P1 = { project: ['p1'] };

describe('hello (3.2.2)', () => {
  test('R-004, R-005, R-006: first message, eight typed fields, for a client that never pulled', async () => {
    const h = new LiveHarness();
    h.commit([note('p1')]);
    const client = await h.connect();
    expect(client.sent.length).toBe(1);
    expect(JSON.parse(client.texts[0]!)).toEqual({
      event: 'hello',
      data: {
        protocolVersion: 1,
        sessionId: expect.any(String),
        actorId: 'actor-1',
        clientId: 'client-1',
        cursor: -1,
        latestCursor: 1,
        requiresSync: true,
        timestamp: h.clock.nowMs(),
      },
    });
    const again = await h.connect({ clientId: 'client-2' });
    const ids = [client, again].map((each) => each.controlsOf('hello')[0]!.sessionId);
    expect(new Set(ids).size).toBe(2);
  });

  test.each([
    { cursor: 2, requiresSync: true, first: 'wake catchup-required 4' },
    { cursor: 3, requiresSync: false, first: 'delta 4' },
    { cursor: 9, requiresSync: true, first: 'wake catchup-required 4' },
  ])('R-007, R-008, R-021: cursor $cursor of 3', async ({ cursor, requiresSync, first }) => {
    const h = new LiveHarness();
    for (let n = 0; n < 3; n++) h.commit([note('p9')]);
    h.storage.record(TENANT, { clientId: 'client-1', cursor, subscriptions: [stored('s', P1)] });
    const client = await h.connect();
    expect(client.controlsOf('hello')[0]).toMatchObject({ cursor, latestCursor: 3, requiresSync });
    h.commit([note('p1')]);
    expect(client.story.slice(1)).toEqual([first]);
  });

  test('R-009: no registrations, no delta, no wake-up', async () => {
    const h = new LiveHarness();
    const client = await h.connect();
    h.commit([note('p1')]);
    expect(client.story).toEqual(['hello']);
  });

  test('R-010: effective scopes are those of the moment; a revoked or failing resolver registers nothing', async () => {
    const h = new LiveHarness();
    h.grants.set('narrow', { project: ['p2'], owner: [] });
    h.grants.set('broken', new Error('directory is down'));
    const narrow = await h.connectLive([stored('one', P1), stored('two', { project: ['p2'] })], {
      clientId: 'n',
      actorId: 'narrow',
    });
    const broken = await h.connectLive([stored('s', P1)], { clientId: 'b', actorId: 'broken' });
    h.commit([note('p1')]);
    h.commit([note('p2')]);
    expect(narrow.story).toEqual(['delta 2']);
    expect(broken.story).toEqual([]);
    expect(broken.closed).toBeNull();
  });

  test('R-024: an ack is in the record by the time the client comes back', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive([stored('s', P1)]);
    h.commit([note('p1')]);
    client.ack(1);
    const again = await h.connect();
    expect(again.controlsOf('hello')[0]).toMatchObject({ cursor: 1, requiresSync: false });
  });
});

describe('who is let in', () => {
  test('R-002, R-003: refused before the upgrade', async () => {
    const h = new LiveHarness();
    h.storage.record(TENANT, { clientId: 'theirs', actorId: 'actor-2' });
    const ask = async (clientId: string | null) =>
      (await h.live.refusal({ who: h.who(), clientId }))?.code ?? null;
    expect(await ask('theirs')).toBe('sync.invalid_client_id');
    expect(await ask('["remote-command",1]')).toBe('sync.invalid_client_id');
    expect(await ask('')).toBe('sync.invalid_request');
    expect(await ask(null)).toBe('sync.invalid_request');
    expect(await ask('mine')).toBeNull();
  });

  test('R-001, R-002, R-003: what is found after the upgrade closes without a hello (3.2-8)', async () => {
    const h = new LiveHarness();
    h.storage.record(TENANT, { clientId: 'theirs', actorId: 'actor-2' });
    for (const clientId of ['theirs', '["remote-command",1]', '']) {
      const client = await h.connect({ clientId });
      expect(client.closed?.code, clientId).toBe(1008);
      expect(client.sent).toEqual([]);
    }
    const expired = await h.connect({ expiresAtMs: h.clock.nowMs() });
    expect(expired.closed).toEqual({ code: 4401, reason: 'sync.auth_required' });
    expect(expired.sent).toEqual([]);
    expect(h.live.sessionCount).toBe(0);
  });

  test('a load that fails closes with 1011', async () => {
    const h = new LiveHarness();
    h.storage.fail('admit');
    const client = await h.connect();
    expect(client.closed?.code).toBe(1011);
    expect(h.eventsOf('session.failed').length).toBe(1);
    expect(h.live.sessionCount).toBe(0);
  });

  test('the cap on connections: refused before, 1013 after the upgrade', async () => {
    const h = new LiveHarness({ limits: { connectionsMax: 2 } });
    await h.connect({ clientId: 'a' });
    const second = await h.connect({ clientId: 'b' });
    const refusal = await h.live.refusal({ who: h.who(), clientId: 'c' });
    expect(refusal?.code).toBe('sync.websocket_connection_limit');
    const third = await h.connect({ clientId: 'c' });
    expect(third.closed).toEqual({ code: 1013, reason: 'sync.websocket_connection_limit' });
    second.vanish();
    expect(await h.live.refusal({ who: h.who(), clientId: 'c' })).toBeNull();
  });

  test('S-027, S-028: connecting creates the epoch and notes the partition as seen, once per interval', async () => {
    const h = new LiveHarness({ limits: { lastSeenFlushMs: 1_000 } });
    await h.live.refusal({ who: h.who({ partition: 'fresh' }), clientId: 'a' });
    await h.connect({ partition: 'fresh' });
    expect(h.storage.partitions.has('fresh')).toBe(true);
    expect(h.storage.touched).toEqual([]);
    await h.clock.advanceSettled(1_000, 1_000);
    expect(h.storage.touched.map((seen) => [...seen.keys()])).toEqual([['fresh']]);
  });
});

describe('while connecting', () => {
  test('R-075: what arrives before hello is kept and processed in order after it', async () => {
    const h = new LiveHarness();
    h.commit([note('p1')]);
    h.storage.record(TENANT, { clientId: 'client-1', cursor: 0, subscriptions: [stored('s', P1)] });
    const release = h.storage.hold('admit');
    const client = h.open();
    client.ack(1);
    const request = requestBytes();
    client.round(request.subarray(0, 3));
    client.round(request.subarray(3));
    client.text({ type: 'future' });
    await h.settle();
    expect(client.sent).toEqual([]);
    expect(h.rounds.started).toEqual([]);
    release();
    await h.settle();
    expect(client.story).toEqual(['hello']);
    expect(h.rounds.started.map((round) => [...round.request])).toEqual([[...request]]);
    h.rounds.last.pulled([registered('s', P1)], 1);
    await h.settle();
    expect(client.story).toEqual(['hello', 'round 3']);
  });

  test('R-075: too much closes with 1009, and reading is paused before', async () => {
    const h = new LiveHarness({ limits: { heldMessagesMax: 4 } });
    h.storage.hold('admit');
    const client = h.open();
    client.ack(1);
    expect(client.readingPaused).toBe(false);
    client.ack(2);
    expect(client.readingPaused).toBe(true);
    for (let n = 3; n < 5; n++) client.ack(n);
    expect(client.closed).toBeNull();
    client.ack(5);
    expect(client.closed?.code).toBe(1009);
  });

  test('R-075: reading goes on after hello', async () => {
    const h = new LiveHarness({ limits: { heldBytesMax: 300 } });
    const release = h.storage.hold('admit');
    const client = h.open();
    client.text({ type: 'a long message about nothing, just to fill up the room' });
    expect(client.readingPaused).toBe(true);
    release();
    await h.settle();
    expect(client.readingPaused).toBe(false);
  });

  test('R-075: a violation that was held closes after hello', async () => {
    const h = new LiveHarness();
    const release = h.storage.hold('admit');
    const client = h.open();
    client.binary(Uint8Array.of(0x07));
    release();
    await h.settle();
    expect(client.story).toEqual(['hello']);
    expect(client.closed?.code).toBe(1008);
  });

  test('R-076: a commit between the read and hello reaches a live session as a delta', async () => {
    const h = new LiveHarness();
    h.storage.record(TENANT, { clientId: 'client-1', cursor: 0, subscriptions: [stored('s', P1)] });
    // Another session keeps the feed open, so that it does not start from the late reading.
    await h.connect({ clientId: 'other' });
    const release = h.storage.hold('admitReply');
    const client = h.open();
    await h.settle();
    h.accept([note('p1')]);
    h.accept([note('p9')]);
    h.accept([note('p1')]);
    h.clock.turns();
    release();
    await h.settle();
    expect(client.story).toEqual(['hello', 'delta 1,3']);
    expect(client.controlsOf('hello')[0]).toMatchObject({ latestCursor: 0, requiresSync: false });
    expect(h.commit([note('p1')])).toBe(4);
    expect(client.story.at(-1)).toBe('delta 4');
  });

  test('R-076: joined before it reads: no commit is lost however the load and the commits interleave', async () => {
    for (let delay = 0; delay < 12; delay++) {
      const h = new LiveHarness();
      h.storage.record(TENANT, { clientId: 'client-1', cursor: 0, subscriptions: [stored('s', P1)] });
      const client = h.open();
      for (let step = 0; step < delay; step++) await Promise.resolve();
      for (let n = 0; n < 3; n++) {
        h.accept([note('p1')]);
        await Promise.resolve();
        h.clock.turn();
      }
      await h.settle();
      const { latestCursor, requiresSync } = client.controlsOf('hello')[0]!;
      const told = new Set([...client.deltaSeqs, ...client.wakes.map((wake) => wake.cursor)]);
      const highest = Math.max(latestCursor, ...told);
      expect(highest, `after ${delay} steps`).toBe(3);
      if (!requiresSync) expect(client.deltaSeqs, `after ${delay} steps`).toEqual([1, 2, 3]);
    }
  });

  test('R-076: a commit that hello covers and that waits for its turn is not told again', async () => {
    for (const cursor of [0, 1]) {
      const h = new LiveHarness();
      h.storage.record(TENANT, { clientId: 'client-1', cursor, subscriptions: [stored('s', P1)] });
      await h.connect({ clientId: 'other' });
      h.accept([note('p1')]);
      const client = h.open();
      await h.clock.promises();
      expect(client.controlsOf('hello')[0]).toMatchObject({ latestCursor: 1, requiresSync: cursor === 0 });
      h.clock.turns();
      expect(client.story).toEqual(['hello']);
    }
  });

  test('what was accepted under another epoch before the feed was opened is dropped', async () => {
    const h = new LiveHarness();
    h.storage.record(TENANT, { clientId: 'client-1', cursor: 0, subscriptions: [stored('s', P1)] });
    const release = h.storage.hold('admit');
    const client = h.open();
    const stale = { ...h.storage.append('elsewhere', [note('p1')]), commitSeq: 1 };
    h.node.hub.accept(TENANT, 'stale', [stale]);
    release();
    await h.settle();
    expect(client.story).toEqual(['hello']);
    h.commit([note('p1')]);
    expect(client.story).toEqual(['hello', 'delta 1']);
  });

  test('R-076: when the ring does not reach back to the reading, the session is woken', async () => {
    const h = new LiveHarness({ limits: { ringCommitsMax: 2 } });
    h.storage.record(TENANT, { clientId: 'client-1', cursor: 0, subscriptions: [stored('s', P1)] });
    await h.connect({ clientId: 'other' });
    const release = h.storage.hold('admitReply');
    const client = h.open();
    await h.settle();
    for (let n = 0; n < 5; n++) h.accept([note('p1')]);
    release();
    await h.settle();
    expect(client.story).toEqual(['hello', 'wake catchup-required 5']);
  });

  test('a socket that goes away while loading leaves nothing behind', async () => {
    const h = new LiveHarness();
    const release = h.storage.hold('admit');
    const client = h.open();
    client.vanish();
    release();
    await h.settle();
    expect(client.sent).toEqual([]);
    expect([h.live.sessionCount, h.node.hub.memberCount]).toEqual([0, 0]);
  });
});
