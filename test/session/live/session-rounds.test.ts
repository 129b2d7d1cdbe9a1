/** Sync rounds over the socket (part 3, 3.11), with rounds whose every step the test decides. */
import { describe, expect, test } from 'vitest';
import { SyncError } from '../../../src/protocol/errors.ts';
import { decodeMessage } from '../../../src/protocol/message.ts';
import { StorageError } from '../../../src/storage/storage-error.ts';
import type { FakeConnection } from '../../support/fake-connection.ts';
import { LiveHarness, note, registered, stored, TENANT } from './support/live-harness.ts';
import { requestBytes } from './support/scripted-rounds.ts';

const P1 = { project: ['p1'] };
const P2 = { project: ['p2'] };
const MINE = [stored('s', P1)];
const REGISTERED = [registered('s', P1)];

/** A live client whose round is running and has answered nothing yet. */
async function inFlight(h: LiveHarness, options = {}): Promise<FakeConnection> {
  const client = await h.connectLive(MINE, options);
  client.round(requestBytes());
  await h.settle();
  return client;
}

describe('framing (3.11.1)', () => {
  test('R-052: a request may come byte by byte', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    const request = requestBytes();
    for (const byte of request) client.round(Uint8Array.of(byte));
    await h.settle();
    expect([...h.rounds.last.request]).toEqual([...request]);
    expect(h.rounds.last.context).toMatchObject({ clientId: 'client-1', who: { actorId: 'actor-1' } });
  });

  test('R-053, R-065: chunks leave as they come, the last message ends with END', async () => {
    const h = new LiveHarness();
    const client = await inFlight(h);
    h.rounds.last.chunk('first');
    await h.settle();
    expect(client.story).toEqual(['round 5']);
    h.rounds.last.chunk('second').pulled(REGISTERED, 0);
    await h.settle();
    expect(Buffer.from(client.roundBytes).toString()).toBe('firstsecondEND');
    expect(h.rounds.last.handedOver).toBe(1);
  });

  test('R-054: the next round may start in the very moment END is there, 100 times', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    const request = requestBytes();
    let rounds = 0;
    const send = client.send.bind(client);
    client.send = (message) => {
      const result = send(message);
      const isEnd = typeof message !== 'string' && Buffer.from(message).toString().endsWith('END');
      if (isEnd && ++rounds < 100) queueMicrotask(() => client.round(request));
      return result;
    };
    client.round(request);
    for (let round = 0; round < 100; round++) {
      await h.clock.until(() => h.rounds.started.length > round, `round ${round}`);
      h.rounds.last.pulled(REGISTERED, 0);
    }
    await h.settle();
    expect(rounds).toBe(100);
    expect(client.closed).toBeNull();
  });

  test('an empty binary message is ignored; an empty chunk counts as round bytes (3.3-5)', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    client.binary(new Uint8Array(0));
    client.round(new Uint8Array(0));
    expect(client.closed).toBeNull();
    client.round(requestBytes());
    await h.settle();
    client.binary(new Uint8Array(0));
    expect(client.closed).toBeNull();
    client.round(new Uint8Array(0));
    expect(client.closed?.code).toBe(1008);
  });
});

describe('one at a time (3.11.3)', () => {
  test('R-059: round bytes during a response close with 1008 and are not processed', async () => {
    const h = new LiveHarness();
    const client = await inFlight(h);
    const { signal } = h.rounds.last.context;
    client.round(requestBytes());
    expect(client.closed).toEqual({ code: 1008, reason: 'round bytes while a response is in flight' });
    expect(signal.aborted).toBe(true);
    await h.settle();
    expect(h.rounds.started.length).toBe(1);
    expect(h.rounds.last.isOver).toBe(true);
    expect(client.sent).toEqual([]);
    expect(h.live.sessionCount).toBe(0);
  });

  test('R-060: bytes past END close, and the request before them is not executed', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    client.round(Buffer.concat([requestBytes(), requestBytes().subarray(0, 1)]));
    await h.settle();
    expect(client.closed?.code).toBe(1008);
    expect(h.rounds.started).toEqual([]);
  });
});

describe('failures (3.11.4)', () => {
  test.each([
    ['magic', 0, 0],
    ['wire version', 4, 9],
    ['message kind', 6, 2],
    ['flags', 7, 1],
  ])('R-055: a bad %s in the header closes with 1008 and no answer', async (_what, at, byte) => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    const request = Uint8Array.from(requestBytes());
    request[at] = byte;
    client.round(request);
    await h.settle();
    expect(client.closed?.code).toBe(1008);
    expect(client.binaries).toEqual([]);
  });

  test('a tag of the future closes with 1008', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    client.binary(Uint8Array.of(0x00, 1, 2));
    expect(client.closed).toEqual({ code: 1008, reason: 'unknown channel tag or message' });
  });

  test('R-056, R-057: a request-level failure is a whole error stream, and the next round is served', async () => {
    const h = new LiveHarness();
    const client = await inFlight(h);
    h.rounds.last.fail(new SyncError('sync.invalid_subscription', 'twice the same id'));
    await h.settle();
    const { frames, wireVersion } = decodeMessage(client.roundBytes);
    expect(wireVersion).toBe(2);
    expect(frames).toMatchObject([
      { type: 'RESP_HEADER', logEpoch: `epoch-of-${TENANT}`, resetRequired: false },
      { type: 'ERROR', code: 'sync.invalid_subscription', category: 'invalid-request' },
    ]);
    client.clear();
    client.round(requestBytes());
    await h.settle();
    h.rounds.last.pulled(REGISTERED, 0);
    await h.settle();
    expect(client.story).toEqual(['round 3']);
  });

  test('the error stream speaks the wire version of the request', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    client.round(requestBytes('client-1', 1));
    await h.settle();
    h.rounds.last.fail(new SyncError('sync.client_wire_unsupported', 'too old'));
    await h.settle();
    expect(decodeMessage(client.roundBytes).wireVersion).toBe(1);
  });

  test.each([
    ['before the first chunk', 0],
    ['after it', 1],
  ])('row 7: a failure without a code %s closes with 1011 and no END', async (_when, chunks) => {
    const h = new LiveHarness();
    const client = await inFlight(h);
    for (let n = 0; n < chunks; n++) h.rounds.last.chunk('part');
    await h.settle();
    h.rounds.last.fail(new StorageError('sync.storage.unavailable', 'gone'));
    await h.settle();
    expect(client.closed).toEqual({ code: 1011, reason: 'the round failed' });
    expect(client.binaries.length).toBe(chunks);
    expect(h.eventsOf('session.failed').length).toBe(1);
  });

  test('row 6: a failure with a code after chunks is the outcome of the round and leaves as it is', async () => {
    const h = new LiveHarness();
    const client = await inFlight(h);
    const error = new SyncError('sync.cursor_expired', 'too late');
    h.rounds.last.chunk('part').finish({ kind: 'failed', error, finalChunk: Buffer.from('ERROR END') });
    await h.settle();
    expect(Buffer.from(client.roundBytes).toString()).toBe('partERROR END');
    expect(client.closed).toBeNull();
  });

  test('a request over its bound closes with 1009', async () => {
    const h = new LiveHarness({ limits: { requestBytesMax: 40 } });
    const client = await h.connectLive(MINE);
    client.round(requestBytes());
    expect(client.closed?.code).toBe(1009);
  });

  test('messages over their bound close with 1009', async () => {
    const h = new LiveHarness({ limits: { controlBytesMax: 40, messageBytesMax: 400 } });
    const text = await h.connectLive(MINE);
    text.text(JSON.stringify({ type: 'é'.repeat(20) }));
    expect(text.closed?.code).toBe(1009);
    const binary = await h.connectLive(MINE, { clientId: 'b' });
    binary.round(new Uint8Array(400));
    expect(binary.closed?.code).toBe(1009);
  });
});

describe('interleaving (3.11.5)', () => {
  test('R-061, R-062: during a response matching commits are wake-ups, others nothing', async () => {
    const h = new LiveHarness();
    const client = await inFlight(h);
    h.rounds.last.chunk('part');
    await h.settle();
    h.commit([note('p1')]);
    h.commit([note('p2')]);
    expect(client.story).toEqual(['round 4', 'wake catchup-required 1']);
    h.rounds.last.pulled(REGISTERED, 2);
    await h.settle();
    expect(client.deltas).toEqual([]);
    client.ack(2);
    h.commit([note('p1')]);
    expect(client.story).toEqual(['round 4', 'wake catchup-required 1', 'round 3', 'delta 3']);
  });

  test('R-062: an own push that is answered before its fanout ran wakes all the same, before END', async () => {
    const h = new LiveHarness();
    const client = await inFlight(h);
    h.accept([note('p1')]);
    h.rounds.last.pulled(REGISTERED, 1);
    await h.clock.until(() => client.binaries.length === 1, 'END');
    expect(client.story).toEqual(['wake catchup-required 1', 'round 3']);
    await h.settle();
    client.ack(1);
    h.commit([note('p1')]);
    expect(client.story.slice(2)).toEqual(['delta 2']);
  });

  test('R-062: the same for a round that fails or has no pull', async () => {
    for (const end of ['pushed', 'refused'] as const) {
      const h = new LiveHarness();
      const client = await inFlight(h);
      h.accept([note('p1')]);
      if (end === 'pushed') h.rounds.last.pushed();
      else h.rounds.last.fail(new SyncError('sync.schema_not_ready', 'not now'));
      await h.settle();
      expect(client.story[0]).toBe('wake catchup-required 1');
      expect(client.deltas).toEqual([]);
    }
  });

  test('an ack during the response is taken, and still no delta before END', async () => {
    const h = new LiveHarness();
    const client = await inFlight(h);
    h.commit([note('p1')]);
    client.ack(1);
    h.commit([note('p1')]);
    expect(client.story).toEqual(['wake catchup-required 1', 'wake catchup-required 2']);
    client.ack(2);
    h.rounds.last.pulled(REGISTERED, 2);
    await h.settle();
    h.commit([note('p1')]);
    expect(client.story.at(-1)).toBe('delta 3');
  });

  test('deltas still flow while a request is only partly there (3.11.2)', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    client.round(requestBytes().subarray(0, 20));
    h.commit([note('p1')]);
    expect(client.story).toEqual(['delta 1']);
  });
});

describe('registration at round end (3.11.7)', () => {
  test('R-066, R-067: the list is replaced at END, at once', async () => {
    const h = new LiveHarness();
    const client = await inFlight(h);
    h.rounds.last.pulled([registered('new', P2)], 0);
    await h.settle();
    h.commit([note('p1')]);
    h.commit([note('p2')]);
    expect(client.story).toEqual(['round 3', 'delta 2']);
  });

  test('R-074: windows slide by inclusion, the rest goes on', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive([stored('w1', P1)]);
    const windows = [
      [registered('w1', P1), registered('w2', P2)],
      [registered('w2', P2)],
      [registered('w2', P2), registered('w1', P1)],
    ];
    const expected = ['delta 1 | 1', 'delta 2', 'delta 3 | 3'];
    for (const [at, list] of windows.entries()) {
      client.round(requestBytes());
      await h.settle();
      h.rounds.last.pulled(list, h.storage.head(TENANT));
      await h.settle();
      h.commit([note('p1', 'a'), note('p2', 'b')]);
      expect(client.story.at(-1)).toBe(expected[at]);
    }
  });

  test('R-068, R-069: failed, push-only and header-only rounds change nothing', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive(MINE);
    const ends = [
      () => h.rounds.last.fail(new SyncError('sync.invalid_subscription', 'no')),
      () => h.rounds.last.pushed(),
      () => h.rounds.last.finish({ kind: 'header-only', wireVersion: 1, finalChunk: Buffer.from('END') }),
    ];
    for (const end of ends) {
      client.round(requestBytes());
      await h.settle();
      end();
      await h.settle();
      const seq = h.commit([note('p1')]);
      expect(client.story.at(-1)).toBe(`delta ${seq}`);
      expect(client.deltaMessages.at(-1)!.wireVersion).toBe(2);
    }
  });

  test('R-012: deltas take the wire version of the completed round, push-only included', async () => {
    const h = new LiveHarness();
    h.storage.record(TENANT, { clientId: 'client-1', cursor: 0, wireVersion: 1, subscriptions: MINE });
    const client = await h.connect();
    h.commit([note('p1')]);
    client.round(requestBytes());
    await h.settle();
    h.rounds.last.pushed();
    await h.settle();
    h.commit([note('p1')]);
    expect(client.deltaMessages.map(({ wireVersion }) => wireVersion)).toEqual([1, 2]);
  });

  test('R-012: a change of the version loses no commit that waits for its turn', async () => {
    const h = new LiveHarness();
    h.storage.record(TENANT, { clientId: 'client-1', cursor: 0, wireVersion: 1, subscriptions: MINE });
    const client = await h.connect();
    client.round(requestBytes());
    await h.clock.until(() => h.rounds.started.length === 1, 'the round');
    h.rounds.last.pushed();
    h.accept([note('p1')]);
    await h.settle();
    expect(client.wakes.map(({ cursor }) => cursor)).toEqual([1]);
  });

  test('R-077: a commit after the snapshot that only the new list matches wakes, without a further commit', async () => {
    const h = new LiveHarness();
    const client = await inFlight(h);
    h.commit([note('p2')]);
    expect(client.sent).toEqual([]);
    h.rounds.last.pulled([...REGISTERED, registered('new', P2)], 0);
    await h.settle();
    expect(client.story).toEqual(['wake catchup-required 1', 'round 3']);
    h.commit([note('p2')]);
    expect(client.story.at(-1)).toBe('wake catchup-required 2');
    client.ack(2);
    h.commit([note('p2')]);
    expect(client.story.at(-1)).toBe('delta 3');
  });

  test('R-077: a commit at or below the snapshot is covered', async () => {
    const h = new LiveHarness();
    const client = await inFlight(h);
    h.commit([note('p2')]);
    h.rounds.last.pulled([...REGISTERED, registered('new', P2)], 1);
    await h.settle();
    expect(client.story).toEqual(['round 3']);
    h.commit([note('p2')]);
    expect(client.story.at(-1)).toBe('delta 2');
  });

  test('R-077: so is one that still waits for its turn', async () => {
    const h = new LiveHarness();
    const client = await inFlight(h);
    h.accept([note('p2')]);
    h.rounds.last.pulled([...REGISTERED, registered('new', P2)], 1);
    await h.clock.promises();
    h.clock.turns();
    expect(client.story).toEqual(['round 3']);
  });

  test('R-077: a window that was cut leaves the session behind until a pull reached the snapshot', async () => {
    const h = new LiveHarness();
    for (let n = 0; n < 6; n++) h.commit([note('p1')]);
    const client = await inFlight(h);
    h.rounds.last.pulled([registered('s', P1, { nextCursor: 3, caughtUp: false })], 6);
    await h.settle();
    expect(client.story).toEqual(['wake catchup-required 6', 'round 3']);
    client.ack(3);
    h.commit([note('p1')]);
    expect(client.deltas).toEqual([]);
    client.ack(7);
    h.commit([note('p1')]);
    expect(client.story.at(-1)).toBe('delta 8');
  });

  test('R-077: when the ring does not reach back to the snapshot, the head stands for what may be there', async () => {
    const h = new LiveHarness({ limits: { ringCommitsMax: 2 } });
    const client = await inFlight(h);
    for (let n = 0; n < 5; n++) h.commit([note('p9')]);
    h.rounds.last.pulled(REGISTERED, 0);
    await h.settle();
    expect(client.story).toEqual(['wake catchup-required 5', 'round 3']);
  });

  test('R-078: reset and bootstrapping subscriptions take no sections', async () => {
    const h = new LiveHarness();
    const client = await inFlight(h);
    const state = (id: string, value: 'live' | 'reset' | 'bootstrapping') =>
      registered(id, P1, { state: value, caughtUp: value === 'live' });
    h.rounds.last.pulled([state('r', 'reset'), state('l', 'live'), state('b', 'bootstrapping')], 0);
    await h.settle();
    h.commit([note('p1')]);
    expect(client.story).toEqual(['round 3', 'delta 1']);
    expect(client.deltaMessages[0]!.frames[1]).toMatchObject({ type: 'SUB_START', id: 'l' });
  });

  test('R-078: the state is known again at the next connect', async () => {
    const h = new LiveHarness();
    const list = [stored('r', P1, { state: 'reset' }), stored('b', P1, { state: 'bootstrapping' })];
    const client = await h.connectLive(list);
    h.commit([note('p1')]);
    expect(client.story).toEqual([]);
  });

  test('R-082: a commit in the moment of END is seen, 100 times', async () => {
    const h = new LiveHarness();
    const client = await h.connectLive([]);
    const send = client.send.bind(client);
    let rounds = 0;
    client.send = (message) => {
      const result = send(message);
      if (typeof message !== 'string' && Buffer.from(message).toString().endsWith('END')) {
        h.accept([note(`p${rounds}`)]);
      }
      return result;
    };
    for (; rounds < 100; rounds++) {
      const head = h.storage.head(TENANT);
      client.round(requestBytes());
      await h.settle();
      h.rounds.last.pulled([registered('s', { project: [`p${rounds}`] })], head);
      await h.settle();
      expect(client.story.at(-1)).toBe(`delta ${head + 1}`);
      client.ack(head + 1);
    }
  });
});

describe('the reader decides the pace (3.11.6)', () => {
  const limits = { outboxBytesHigh: 100, outboxBytesLow: 10, deltaBytesMax: 100 };

  test('R-063, R-064: above the high mark the response pauses, one chunk ahead, and goes on complete', async () => {
    const h = new LiveHarness({ limits });
    const client = await inFlight(h, { lowBytes: 10 });
    client.stall();
    const texts = Array.from({ length: 20 }, (_, at) => `${at}:`.padEnd(60, '.'));
    for (const text of texts) h.rounds.last.chunk(text);
    await h.settle();
    expect(client.binaries.length).toBe(2);
    expect(h.rounds.last.taken).toBe(3);
    client.drain('stall');
    await h.settle();
    expect(client.binaries.length).toBe(4);
    client.drain();
    await h.settle();
    h.rounds.last.pulled(REGISTERED, 0);
    await h.settle();
    expect(Buffer.from(client.roundBytes).toString()).toBe(`${texts.join('')}END`);
  });

  test('R-061, R-063: wake-ups wait behind a paused response instead of piling up', async () => {
    const h = new LiveHarness({ limits });
    const client = await inFlight(h, { lowBytes: 10 });
    client.stall();
    for (let n = 0; n < 3; n++) h.rounds.last.chunk('.'.repeat(80));
    await h.settle();
    for (let n = 0; n < 10; n++) h.commit([note('p1')]);
    expect(client.wakes).toEqual([]);
    client.drain();
    await h.settle();
    expect(client.wakes).toEqual([{ cursor: 10, reason: 'catchup-required' }]);
  });

  test('3.11.8: an END that the transport did not take does not count either', async () => {
    const h = new LiveHarness();
    const client = await inFlight(h);
    client.sever();
    h.rounds.last.pulled(REGISTERED, 0);
    await h.settle();
    expect(h.rounds.last.handedOver).toBe(0);
  });

  test('R-072, 3.11.8: a socket that dies mid-round ends it, and the cursor does not count', async () => {
    for (const how of ['stalled', 'flowing'] as const) {
      const h = new LiveHarness({ limits });
      const client = await inFlight(h, { lowBytes: 10 });
      if (how === 'stalled') client.stall();
      h.rounds.last.chunk('.'.repeat(200)).chunk('more');
      await h.settle();
      client.vanish();
      h.rounds.last.pulled(REGISTERED, 0);
      await h.settle();
      expect(h.rounds.last.isOver).toBe(true);
      expect(h.rounds.last.handedOver).toBe(0);
      expect(h.live.sessionCount).toBe(0);
    }
  });
});
