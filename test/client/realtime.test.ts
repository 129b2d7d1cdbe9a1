/** Deltas, acks and wake-ups as a client meets them (part 3, 3.5, 3.7, 3.11). */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { encodeHeartbeat, encodePresence } from '../../src/protocol/control.ts';
import {
  applied,
  bootstrap,
  commit,
  header,
  type Rig,
  refusal,
  remove,
  rig,
  segmentBytes,
  segmentIdOf,
  segmentRef,
  subEnd,
  subStart,
  task,
  titles,
  upsert,
} from './harness.ts';
import { answerEpoch, goLive } from './live.ts';

let it: Rig;

beforeEach(async () => {
  it = await rig();
});

afterEach(async () => {
  await it.close();
});

const delta = (seq: number, ...rows: ReturnType<typeof task>[]) => [
  header(),
  subStart('s1'),
  commit(seq, ...rows.map((row) => upsert(row, seq))),
  subEnd(seq),
];

describe('deltas', () => {
  test('B.11b: are applied as they come, each acked with its highest cursor, without any round', async () => {
    const { client } = it;
    const { connection } = await goLive(it, [task('a'), task('b')]);
    const rounds = connection.requestsSeen;
    connection.delta([
      header(),
      subStart('s1'),
      commit(6, upsert(task('a', 'six'), 2)),
      commit(9, remove('b'), upsert(task('c', 'nine'))),
      subEnd(9),
    ]);
    expect(await connection.ack()).toBe(9);
    expect(titles(client)).toEqual(['nine', 'six']);
    connection.delta(delta(12, task('d', 'twelve')));
    expect(await connection.ack()).toBe(12);
    expect(connection.requestsSeen).toBe(rounds);
    expect(client.status.state).toBe('live');
  });

  test('a duplicate is skipped and asks for nothing (3.5.2-2)', async () => {
    const { client } = it;
    const { connection } = await goLive(it, [task('a', 'held')], 7);
    const rounds = connection.requestsSeen;
    connection.delta(delta(6, task('a', 'stale')));
    expect(await connection.ack()).toBe(6);
    expect(titles(client)).toEqual(['held']);
    expect(connection.requestsSeen).toBe(rounds);
    // Nor does it move the cursor back.
    connection.wake(8);
    expect((await connection.request()).subscriptions[0]?.cursor).toBe(7);
  });

  test('one change notice per delta, naming its rows', async () => {
    const { client } = it;
    const { connection } = await goLive(it);
    const notices: string[][] = [];
    client.onChange('tasks', ({ table, rowIds }) => notices.push([table, ...rowIds]));
    connection.delta(delta(6, task('a'), task('b')));
    await connection.ack();
    expect(notices).toEqual([['tasks', 'a', 'b']]);
  });

  test('of another log epoch are not applied, not acked, and lead to a pull', async () => {
    const { client } = it;
    const { connection } = await goLive(it, [task('a')]);
    connection.delta([header({ logEpoch: 'other' }), ...delta(6, task('x')).slice(1)]);
    const request = await connection.request();
    expect(request.subscriptions[0]?.cursor).toBe(5);
    expect(titles(client)).toEqual(['task a']);
    expect(connection.acked).toEqual([5]);
  });

  test('while a round waits for its answer: ignored, not acked; the answer covers it', async () => {
    const { client } = it;
    const { connection } = await goLive(it);
    const { clientCommitId } = client.mutate([{ table: 'tasks', op: 'upsert', row: task('mine') }]);
    await connection.request();
    connection.delta(delta(6, task('theirs')));
    connection.respond([
      header(),
      applied(clientCommitId, 7),
      subStart('s1'),
      commit(6, upsert(task('theirs'))),
      commit(7, upsert(task('mine'))),
      subEnd(7),
    ]);
    expect(await connection.ack()).toBe(7);
    expect(titles(client)).toEqual(['task mine', 'task theirs']);
    expect(connection.acked).toEqual([5, 7]);
    connection.delta(delta(8, task('next')));
    expect(await connection.ack()).toBe(8);
  });

  test('after an ignored one and a failed round none is applied until a pull closed the hole (3.5.2-1)', async () => {
    const { client, clock } = it;
    const { connection } = await goLive(it);
    client.mutate([{ table: 'tasks', op: 'upsert', row: task('mine') }]);
    await connection.request();
    connection.delta(delta(6, task('six')));
    connection.respond(refusal('sync.rate_limited', true));
    await client.until(({ lastError }) => lastError?.code === 'sync.rate_limited');
    connection.delta(delta(7, task('seven')));
    await clock.settle();
    expect(titles(client)).toEqual(['task mine']);
    expect(connection.acked).toEqual([5]);

    clock.advance(2_000);
    const request = await connection.request();
    expect(request.subscriptions[0]?.cursor).toBe(5);
    connection.respond([
      header(),
      applied(request.pushes[0]!.clientCommitId, 8),
      subStart('s1'),
      commit(6, upsert(task('six'))),
      commit(7, upsert(task('seven'))),
      commit(8, upsert(task('mine'))),
      subEnd(8),
    ]);
    expect(await connection.ack()).toBe(8);
    connection.delta(delta(9, task('nine')));
    expect(await connection.ack()).toBe(9);
    expect(titles(client)).toEqual(['task mine', 'task nine', 'task seven', 'task six']);
  });

  test('right behind END, while segments are still being fetched: applied after the round, in order', async () => {
    const { client, server } = it;
    const { connection } = await goLive(it, [task('a')]);
    const bytes = segmentBytes([task('z')]);
    server.answers.set(`/sync-api/segments/${segmentIdOf(bytes)}`, { status: 200, body: bytes });
    const other = client.subscribe({ id: 's2', table: 'tasks', scopes: { list: 'l2' } });
    await connection.request();
    connection.respond([
      header(),
      subStart('s1'),
      commit(6, upsert(task('a', 'six'), 2)),
      subEnd(6),
      subStart('s2', { bootstrap: true }),
      segmentRef(bytes),
      subEnd(6),
    ]);
    connection.delta(delta(7, task('a', 'seven')));
    connection.delta(delta(8, task('a', 'eight')));
    await other.ready;
    expect(await connection.ack()).toBe(6);
    expect(await connection.ack()).toBe(7);
    expect(await connection.ack()).toBe(8);
    expect(titles(client)).toEqual(['eight', 'task z']);
  });

  test('more than can be held back are replaced by a pull', async () => {
    const { client, server, clock } = it;
    const { connection } = await goLive(it, [task('a')]);
    const bytes = segmentBytes([task('z')]);
    let arrived = false;
    const path = `/sync-api/segments/${segmentIdOf(bytes)}`;
    server.answers.set(path, () => {
      arrived = true;
      return { status: 200, body: bytes };
    });
    client.subscribe({ id: 's2', table: 'tasks', scopes: { list: 'l2' } });
    await connection.request();
    connection.respond([
      header(),
      subStart('s1'),
      subEnd(6),
      subStart('s2', { bootstrap: true }),
      segmentRef(bytes),
      subEnd(6),
    ]);
    for (let seq = 7; seq < 90; seq++) connection.delta(delta(seq, task('a', `v${seq}`)));
    await clock.until(() => arrived);
    expect(await connection.ack()).toBe(6);
    const request = await connection.request();
    expect(request.subscriptions[0]?.cursor).toBe(6);
    expect(titles(client)).toEqual(['task a', 'task z']);
  });

  test('broken row bytes: nothing of the delta is seen, no ack, a pull follows', async () => {
    const { client } = it;
    const { connection } = await goLive(it, [task('a')]);
    const broken = { ...upsert(task('b')), row: new Uint8Array([0, 1, 2]) };
    connection.delta([
      header(),
      subStart('s1'),
      commit(6, upsert(task('x'))),
      commit(7, upsert(task('y')), broken),
      subEnd(7),
    ]);
    await connection.request();
    expect(titles(client)).toEqual(['task a']);
    expect(connection.acked).toEqual([5]);
    expect(client.status.lastError?.code).toBe('client.protocol_violation');
  });

  test('a page that could not be fetched holds back every delta until the next pull', async () => {
    const { client } = it;
    const { connection } = await goLive(it, [task('a')]);
    const other = client.subscribe({ id: 's2', table: 'tasks', scopes: { list: 'l2' } });
    await connection.request();
    connection.respond([
      header(),
      subStart('s1'),
      subEnd(6),
      subStart('s2', { bootstrap: true }),
      segmentRef(segmentBytes([task('z')])),
      subEnd(6),
    ]);
    expect(await connection.ack()).toBe(6);
    await client.until(({ lastError }) => lastError?.code === 'client.segment_unavailable');
    expect(other.state).toBe('waiting');
    connection.delta([header(), subStart('s2'), commit(7, upsert(task('y'))), subEnd(7)]);
    connection.delta([header(), subStart('gone'), commit(8, upsert(task('y'))), subEnd(8)]);
    await it.clock.settle();
    expect(titles(client)).toEqual(['task a']);
    expect(connection.acked).toEqual([5, 6]);
  });
});

describe('sections that nobody here can take', () => {
  test('are skipped without an ack: of an unknown subscription, of one that still bootstraps', async () => {
    const { client, clock } = it;
    const { connection } = await goLive(it, [task('a')]);
    connection.delta([header(), subStart('gone'), commit(6, upsert(task('x'))), subEnd(6)]);
    const other = client.subscribe({ id: 's2', table: 'tasks', scopes: { list: 'l2' } });
    await connection.request();
    connection.respond([
      header(),
      subStart('s1'),
      subEnd(6),
      subStart('s2', { bootstrap: true }),
      subEnd(6, '{"page":2}'),
    ]);
    expect(await connection.ack()).toBe(6);
    await connection.request();
    connection.respond(refusal('sync.rate_limited', true));
    await client.until(({ lastError }) => lastError !== null);
    expect(other.state).toBe('bootstrapping');
    connection.delta([
      header(),
      subStart('s1'),
      commit(7, upsert(task('b'))),
      subEnd(7),
      subStart('s2'),
      commit(7, upsert(task('y'))),
      subEnd(7),
    ]);
    expect(await connection.ack()).toBe(7);
    await clock.settle();
    expect(titles(client)).toEqual(['task a', 'task b']);
    expect(connection.acked).toEqual([5, 6, 7]);
  });
});

describe('wake-ups', () => {
  test('several are one pull', async () => {
    const { client, clock } = it;
    const { connection } = await goLive(it);
    for (const cursor of [6, 7, 8]) connection.wake(cursor);
    await connection.request();
    connection.respond([header(), subStart('s1'), commit(8, upsert(task('a'))), subEnd(8)]);
    expect(await connection.ack()).toBe(8);
    await clock.settle();
    expect(connection.requestsSeen).toBe(3);
    expect(titles(client)).toEqual(['task a']);
  });

  test('one that arrives after the pull began triggers another, unless the answer covered it (3.7-3)', async () => {
    const { clock } = it;
    const { connection } = await goLive(it);
    connection.wake(6);
    await connection.request();
    connection.wake(7);
    connection.respond([header(), subStart('s1'), subEnd(7)]);
    await connection.ack();
    await clock.settle();
    expect(connection.requestsSeen).toBe(3);

    connection.wake(8);
    await connection.request();
    connection.wake(9);
    connection.respond([header(), subStart('s1'), subEnd(8)]);
    expect((await connection.request()).subscriptions[0]?.cursor).toBe(8);
  });

  test('reset-required always leads to a pull of its own', async () => {
    const { connection } = await goLive(it);
    connection.wake(6);
    await connection.request();
    connection.wake(5, 'reset-required');
    connection.respond([header(), subStart('s1'), subEnd(6)]);
    await connection.request();
  });

  test('B.11d: the wake-up for the own commit is covered by the own round', async () => {
    const { client, clock } = it;
    const { connection } = await goLive(it);
    const { clientCommitId } = client.mutate([{ table: 'tasks', op: 'upsert', row: task('a') }]);
    await connection.request();
    connection.wake(6);
    connection.respond([
      header(),
      applied(clientCommitId, 6),
      subStart('s1'),
      commit(6, upsert(task('a'))),
      subEnd(6),
    ]);
    expect(await connection.ack()).toBe(6);
    await clock.settle();
    expect(connection.requestsSeen).toBe(3);
  });

  test('where many clients wake at the same time the pull waits its share of the spread (3.8.1)', async () => {
    const { clock, random } = it;
    const { connection } = await goLive(it);
    random.nextUnit = 0.5;
    connection.wake(6, 'delta-too-large');
    await clock.settle();
    clock.advance(999);
    await clock.settle();
    expect(connection.requestsSeen).toBe(2);
    clock.advance(1);
    await connection.request();
  });

  test('right after an own round a wake-up is answered at once, later within a spread of its own', async () => {
    const { clock, random } = it;
    const { connection } = await goLive(it);
    random.nextUnit = 0.5;
    clock.advance(1_000);
    connection.wake(6);
    await connection.request();
    connection.respond([header(), subStart('s1'), subEnd(6)]);
    await connection.ack();
    clock.advance(1_001);
    connection.wake(7);
    await clock.settle();
    expect(connection.requestsSeen).toBe(3);
    clock.advance(125);
    await connection.request();
  });

  test('a head that a pull does not reach is not chased for ever', async () => {
    const { clock } = it;
    const { connection } = await goLive(it);
    connection.wake(1_000);
    await connection.request();
    connection.respond([header(), subStart('s1'), subEnd(5)]);
    await connection.ack();
    await clock.settle();
    clock.advance(60_000);
    await clock.settle();
    expect(connection.requestsSeen).toBe(3);
    // It is forgotten: a later pull that moves does not chase it either.
    connection.wake(6);
    await connection.request();
    connection.respond([header(), subStart('s1'), subEnd(6)]);
    await connection.ack();
    await clock.settle();
    expect(connection.requestsSeen).toBe(4);
  });

  test('a window cut by the limit is pulled again at once', async () => {
    await it.close();
    it = await rig({ limits: { pullChanges: 2 } });
    const { connection } = await goLive(it);
    connection.wake(9);
    expect((await connection.request()).pull?.limitCommits).toBe(2);
    connection.respond([
      header(),
      subStart('s1'),
      commit(6, upsert(task('a')), upsert(task('b'))),
      subEnd(6),
    ]);
    expect((await connection.request()).subscriptions[0]?.cursor).toBe(6);
  });
});

describe('the subscription list', () => {
  test('a subscription given up is left out of the next pull, at once', async () => {
    const { client } = it;
    const { connection, sub } = await goLive(it, [task('a')]);
    sub.unsubscribe();
    const request = await connection.request();
    expect(request.pull).not.toBeNull();
    expect(request.subscriptions).toEqual([]);
    connection.respond([header()]);
    await it.clock.settle();
    expect(client.rows('tasks')).toEqual([]);
    expect(connection.requestsSeen).toBe(3);
  });

  test('a section that comes for one given up meanwhile leaves no rows', async () => {
    const { client, server } = it;
    const sub = client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
    client.connect();
    const connection = await server.greeted();
    await answerEpoch(connection);
    await connection.request();
    sub.unsubscribe();
    await expect(sub.ready).rejects.toMatchObject({ code: 'client.unsubscribed' });
    connection.respond([header(), ...bootstrap('s1', [task('a')], 5)]);
    expect((await connection.request()).subscriptions).toEqual([]);
    expect(client.rows('tasks')).toEqual([]);
  });

  test('two at different cursors: the ack is the lower one (3.5.3)', async () => {
    const { client } = it;
    const { connection } = await goLive(it);
    client.subscribe({ id: 's2', table: 'tasks', scopes: { list: 'l2' } });
    await connection.request();
    connection.respond([header(), subStart('s1'), subEnd(9), ...bootstrap('s2', [], 7)]);
    expect(await connection.ack()).toBe(7);
  });

  const refused: readonly [string, object][] = [
    ['client.unknown_table', { table: 'nope', scopes: { list: 'l1' } }],
    ['client.invalid_subscription', { table: 'tasks', scopes: {} }],
    ['client.invalid_subscription', { table: 'tasks', scopes: { owner: 'x' } }],
    ['client.invalid_subscription', { table: 'tasks', scopes: { list: '*' } }],
    ['client.invalid_subscription', { table: 'tasks', scopes: { list: [] } }],
    ['client.invalid_subscription', { table: 'tasks', scopes: { list: '\ud800' } }],
    ['client.invalid_subscription', { id: '\udc00', table: 'tasks', scopes: { list: 'l1' } }],
    ['client.invalid_subscription', { id: '', table: 'tasks', scopes: { list: 'l1' } }],
    ['client.invalid_subscription', { table: 'tasks', scopes: { list: 'l1' }, params: '{' }],
  ];
  test.each(refused)('%s for %j', (code, request) => {
    const { client } = it;
    expect(() => client.subscribe(request as Parameters<typeof client.subscribe>[0])).toThrow(
      expect.objectContaining({ code }),
    );
  });

  test('one id is one subscription; there is a bound', async () => {
    await it.close();
    it = await rig({ limits: { subscriptionsMax: 1 } });
    const { client } = it;
    client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
    expect(() => client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l2' } })).toThrow(
      expect.objectContaining({ code: 'client.invalid_subscription' }),
    );
    expect(() => client.subscribe({ id: 's2', table: 'tasks', scopes: { list: 'l2' } })).toThrow(
      expect.objectContaining({ code: 'client.subscriptions_full' }),
    );
  });
});

describe('what is tolerated and what is not', () => {
  test('heartbeats, presence, unknown events and unknown tags are ignored', async () => {
    const { client } = it;
    const { connection } = await goLive(it);
    connection.text(encodeHeartbeat(5));
    connection.text(
      encodePresence({
        scopeKey: 'list:l1',
        kind: 'join',
        actorId: 'b',
        clientId: 'c',
        docText: '{}',
        timestamp: 1,
      }),
    );
    connection.text('{"event":"future","data":{}}');
    connection.text('not json');
    connection.delta(delta(6, task('a')));
    expect(await connection.ack()).toBe(6);
    expect(titles(client)).toEqual(['task a']);
  });

  test.each([
    ['response bytes without a round', (c: Live) => c.respond([header()])],
    ['a malformed wake-up', (c: Live) => c.text('{"event":"sync","data":{"requiresPull":false}}')],
  ])('%s end the connection, and the client comes back', async (...[, misbehave]) => {
    const { client, clock, server } = it;
    const { connection } = await goLive(it);
    misbehave(connection);
    const status = await client.until(({ retryAtMs }) => retryAtMs !== null);
    expect(status).toMatchObject({ state: 'offline', lastError: { code: 'client.protocol_violation' } });
    clock.advance(1_500);
    await server.connection();
  });
});

type Live = Awaited<ReturnType<typeof goLive>>['connection'];
