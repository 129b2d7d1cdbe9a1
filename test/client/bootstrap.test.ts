/** First contact, bootstrap, resume, reset, revocation: what a client makes of sections (part 2.4, 2.7, 2.10, 2.11). */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { encodeResponse } from './fake-server.ts';
import {
  applied,
  bootstrap as bootstrapOf,
  commit,
  EPOCH,
  header,
  inline,
  type Rig,
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

describe('first contact', () => {
  test('asks for the log epoch without pushes, then registers with it (part 2.4)', async () => {
    const { client, server } = it;
    const sub = client.subscribe({ id: 's1', table: 'tasks', scopes: { list: ['l1', 'l2'] } });
    client.mutate([{ table: 'tasks', op: 'upsert', row: task('a') }]);
    client.connect();
    const connection = await server.greeted();

    const first = await connection.request();
    expect(first.wireVersion).toBe(2);
    expect(first.header).toEqual({ type: 'REQ_HEADER', clientId: 'c1', schemaVersion: 3 });
    expect(first.pushes).toEqual([]);
    connection.respond([header({ resetRequired: true })]);

    const second = await connection.request();
    expect(second.header.logEpoch).toBe(EPOCH);
    expect(second.pushes).toHaveLength(1);
    expect(second.pull?.accept).toBe(0b1011);
    expect(second.subscriptions).toEqual([
      { type: 'SUBSCRIPTION', id: 's1', table: 'tasks', scopes: { list: ['l1', 'l2'] }, cursor: -1 },
    ]);
    expect(sub.state).toBe('waiting');
  });

  test('the clientId and the token ride in the upgrade URL (part 3, 3.2)', async () => {
    const other = await rig({ token: async () => 'ticket-1' });
    other.client.connect();
    const connection = await other.server.connection();
    expect(connection.url.pathname).toBe('/sync-api/realtime');
    expect(Object.fromEntries(connection.url.searchParams)).toEqual({ clientId: 'c1', token: 'ticket-1' });
    await other.close();
  });
});

describe('bootstrap', () => {
  test('an inline segment becomes rows with their versions, and the ack names the pin (R-024)', async () => {
    const { client, server } = it;
    const sub = client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
    client.connect();
    const connection = await server.greeted();
    await answerEpoch(connection);
    await connection.request();
    connection.respond([
      header(),
      ...bootstrapOf('s1', [{ row: task('a'), version: 7 }, task('b'), task('c')], 12),
    ]);
    await sub.ready;
    expect(titles(client)).toEqual(['task a', 'task b', 'task c']);
    expect(client.version('tasks', 'a')).toBe(7);
    expect(sub.state).toBe('live');
    expect(sub.effectiveScopes).toEqual({ list: ['l1'] });
    expect(await connection.ack()).toBe(12);
  });

  test('a response cut into single bytes is read all the same (§8.7)', async () => {
    const { client, server } = it;
    const sub = client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
    client.connect();
    const connection = await server.greeted();
    await answerEpoch(connection);
    await connection.request();
    connection.respond([header(), ...bootstrapOf('s1', [task('a')], 3)], 1);
    await sub.ready;
    expect(titles(client)).toEqual(['task a']);
  });

  test('an unfinished bootstrap goes on with the token, unacked, and clears nothing (§4.7)', async () => {
    const { client, server } = it;
    const sub = client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
    client.connect();
    const connection = await server.greeted();
    await answerEpoch(connection);
    await connection.request();
    const token = '{"asOfCommitSeq":9,  "tables":["tasks"]}';
    connection.respond([
      header(),
      subStart('s1', { bootstrap: true }),
      inline([task('a')]),
      subEnd(9, token),
    ]);

    const second = await connection.request();
    expect(second.subscriptions[0]).toMatchObject({ cursor: 9, bootstrapState: token });
    expect(sub.state).toBe('bootstrapping');
    expect(client.status.state).toBe('catching-up');
    expect(connection.acked).toEqual([]);
    connection.respond([header(), subStart('s1', { bootstrap: true }), inline([task('b')]), subEnd(9)]);
    await sub.ready;
    expect(titles(client)).toEqual(['task a', 'task b']);
    expect(await connection.ack()).toBe(9);
  });

  test('the stream breaks inside a page: no trace of it, the finished section counts (part 1.9 row 5)', async () => {
    const { client, server, clock } = it;
    client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
    client.subscribe({ id: 's2', table: 'tasks', scopes: { list: 'l2' } });
    client.connect();
    const connection = await server.greeted();
    await answerEpoch(connection);
    await connection.request();
    const whole = encodeResponse([
      header(),
      ...bootstrapOf('s1', [task('a')], 4),
      ...bootstrapOf('s2', [task('b')], 4),
    ]);
    connection.respondBytes(whole.subarray(0, whole.length - 40));
    await clock.until(() => client.rows('tasks').length === 1);
    connection.cut();
    await client.until(({ retryAtMs }) => retryAtMs !== null);
    expect(titles(client)).toEqual(['task a']);

    clock.advance(5_000);
    const again = await server.greeted({ latestCursor: 4 });
    const request = await again.request();
    expect(request.subscriptions.map(({ id, cursor }) => [id, cursor])).toEqual([
      ['s1', 4],
      ['s2', -1],
    ]);
  });

  test('the first page clears what was held, and only for cursor −1 without a token (§5.6)', async () => {
    const { client } = it;
    const { connection } = await goLive(it, [task('a'), task('b')]);
    connection.wake(9, 'reset-required');
    await connection.request();
    connection.respond([
      header(),
      subStart('s1', { status: 'reset', reasonCode: 'sync.cursor_expired', effectiveScopes: {} }),
      subEnd(5),
    ]);

    // A reset is no purge (§4.6): the rows stay until the first page.
    const fresh = await connection.request();
    expect(fresh.subscriptions[0]).toMatchObject({ id: 's1', cursor: -1 });
    expect(titles(client)).toEqual(['task a', 'task b']);
    const seen: number[] = [];
    client.onChange('tasks', () => seen.push(client.rows('tasks').length));
    connection.respond([header(), ...bootstrapOf('s1', [task('b'), task('c')], 9)]);
    expect(await connection.ack()).toBe(9);
    expect(titles(client)).toEqual(['task b', 'task c']);
    expect(seen).toEqual([2]);
  });

  test('segments that answer a cursor at or above 0 are laid over the rows (part 3, 3.8.2-2)', async () => {
    const { client } = it;
    const { connection } = await goLive(it, [task('a')]);
    connection.wake(50);
    await connection.request();
    connection.respond([
      header(),
      subStart('s1', { bootstrap: true }),
      inline([{ row: task('b'), version: 2 }]),
      subEnd(50),
    ]);
    expect(await connection.ack()).toBe(50);
    expect(titles(client)).toEqual(['task a', 'task b']);
  });

  test('an empty bootstrap clears as well', async () => {
    const { client } = it;
    const { connection } = await goLive(it, [task('a')]);
    connection.wake(9, 'reset-required');
    await connection.request();
    connection.respond([
      header(),
      subStart('s1', { status: 'reset', reasonCode: 'sync.cursor_expired', effectiveScopes: {} }),
      subEnd(5),
    ]);
    await connection.request();
    connection.respond([header(), subStart('s1'), subEnd(9)]);
    await connection.ack();
    expect(client.rows('tasks')).toEqual([]);
  });

  test('a segment whose columns differ from the schema stops the client (part 1.7 rule 2)', async () => {
    const { client, server } = it;
    client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
    client.connect();
    const connection = await server.greeted();
    await answerEpoch(connection);
    await connection.request();
    const foreign = segmentBytes([task('a')]);
    // The schema version stands behind magic, version, flags and the table's name.
    foreign[8 + 4 + 5] = 4;
    connection.respond([
      header(),
      subStart('s1', { bootstrap: true }),
      { type: 'SEGMENT_INLINE', payload: foreign },
      subEnd(5),
    ]);
    const { stopReason } = await client.until(({ state }) => state === 'stopped');
    expect(stopReason).toMatchObject({ kind: 'refused', code: 'sync.schema_mismatch' });
  });
});

describe('referenced segments', () => {
  const bytes = segmentBytes([task('a'), task('b'), task('c')]);
  const path = `/sync-api/segments/${segmentIdOf(bytes)}`;

  test('are fetched with the requested scopes and the token, and verified (§5.5)', async () => {
    const other = await rig({ token: 'tok' });
    const { client, server } = other;
    server.answers.set(path, { status: 200, body: bytes });
    const sub = client.subscribe({ id: 's1', table: 'tasks', scopes: { list: ['z', 'l1', 'ü'] } });
    client.connect();
    const connection = await server.greeted();
    await answerEpoch(connection);
    await connection.request();
    connection.respond([header(), subStart('s1', { bootstrap: true }), segmentRef(bytes), subEnd(5)]);
    await sub.ready;
    expect(titles(client)).toEqual(['task a', 'task b', 'task c']);
    const [seen] = server.httpSeen;
    expect(seen?.headers.authorization).toBe('Bearer tok');
    expect(JSON.parse(String(seen?.headers['x-syncular-scopes']))).toEqual({ list: ['l1', 'z', 'ü'] });
    await other.close();
  });

  test('a signed URL is used alone: no credential, no scopes (§5.4)', async () => {
    const other = await rig({ token: 'tok' });
    const { client, server, clock } = other;
    server.answers.set('/cdn/seg?st=x', { status: 200, body: bytes });
    const sub = client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
    client.connect();
    const connection = await server.greeted();
    await answerEpoch(connection);
    await connection.request();
    const url = `${server.origin}/cdn/seg?st=x`;
    connection.respond([
      header(),
      subStart('s1', { bootstrap: true }),
      segmentRef(bytes, { url, urlExpiresAtMs: clock.nowMs() + 1_000 }),
      subEnd(5),
    ]);
    await sub.ready;
    expect(server.httpSeen).toHaveLength(1);
    expect(server.httpSeen[0]?.headers.authorization).toBeUndefined();
    expect(server.httpSeen[0]?.headers['x-syncular-scopes']).toBeUndefined();
    await other.close();
  });

  test.each([
    ['not found', () => ({ status: 404, body: new Uint8Array(0) }), {}],
    ['with other bytes', () => ({ status: 200, body: segmentBytes([task('x')]) }), {}],
    ['behind an expired URL', () => ({ status: 200, body: bytes }), { url: '/x', urlExpiresAtMs: 1 }],
  ])(
    '%s: the descriptor is dropped, the section leaves no trace, another pull follows',
    async (...[, answer, extra]) => {
      const { client, server, clock } = it;
      server.answers.set(path, answer);
      client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
      client.subscribe({ id: 's2', table: 'tasks', scopes: { list: 'l2' } });
      client.connect();
      const connection = await server.greeted();
      await answerEpoch(connection);
      await connection.request();
      connection.respond([
        header(),
        subStart('s1', { bootstrap: true }),
        segmentRef(bytes, extra),
        subEnd(5),
        ...bootstrapOf('s2', [task('y')], 5),
      ]);
      const status = await client.until(({ lastError }) => lastError !== null);
      expect(status.lastError?.code).toBe('client.segment_unavailable');
      expect(titles(client)).toEqual(['task y']);

      clock.advance(1_500);
      const retry = await connection.request();
      expect(retry.subscriptions.map(({ id, cursor }) => [id, cursor])).toEqual([
        ['s1', -1],
        ['s2', 5],
      ]);
    },
  );

  test('a refused token is renewed once (401)', async () => {
    let asked = 0;
    const other = await rig({ token: async () => `tok-${++asked}` });
    const { client, server } = other;
    let attempts = 0;
    server.answers.set(path, () => ({ status: ++attempts === 1 ? 401 : 200, body: bytes }));
    const sub = client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
    client.connect();
    const connection = await server.greeted();
    await answerEpoch(connection);
    await connection.request();
    connection.respond([header(), subStart('s1', { bootstrap: true }), segmentRef(bytes), subEnd(5)]);
    await sub.ready;
    expect(server.httpSeen.map(({ headers }) => headers.authorization)).toEqual([
      'Bearer tok-1',
      'Bearer tok-2',
    ]);
    await other.close();
  });
});

describe('overlapping subscriptions', () => {
  test('a row lives while one of them holds it', async () => {
    const { client } = it;
    const { connection, sub } = await goLive(it, [task('a'), task('b')]);
    const wide = client.subscribe({ id: 's2', table: 'tasks', scopes: { list: ['l1', 'l2'] } });
    await connection.request();
    connection.respond([
      header(),
      subStart('s1'),
      subEnd(5),
      ...bootstrapOf('s2', [task('b'), task('c', 'task c', false, 'l2')], 5),
    ]);
    await wide.ready;
    sub.unsubscribe();
    expect(titles(client)).toEqual(['task b', 'task c']);
    wide.unsubscribe();
    expect(client.rows('tasks')).toEqual([]);
    await expect(sub.ready).resolves.toBeUndefined();
    expect(sub.state).toBe('ended');
  });

  test('a lagging subscription never takes a row back behind what another one delivered', async () => {
    const { client } = it;
    const { connection } = await goLive(it, [task('a', 'old')]);
    client.subscribe({ id: 's2', table: 'tasks', scopes: { list: ['l1', 'l2'] } });
    await connection.request();
    connection.respond([
      header(),
      subStart('s1'),
      commit(8, upsert(task('a', 'new'), 2)),
      subEnd(8),
      ...bootstrapOf('s2', [task('a', 'old')], 6),
    ]);
    await connection.ack();
    expect(titles(client)).toEqual(['new']);
  });

  test('a row that moves between scopes survives the delete of its former one (scope migration, part 2.5)', async () => {
    const { client } = it;
    const { connection } = await goLive(it, [task('a')]);
    client.subscribe({ id: 's2', table: 'tasks', scopes: { list: 'l2' } });
    await connection.request();
    connection.respond([header(), subStart('s1'), subEnd(5), ...bootstrapOf('s2', [], 5)]);
    await connection.ack();
    const moved = task('a', 'moved', false, 'l2');
    connection.delta([
      header(),
      subStart('s2', { effectiveScopes: { list: ['l2'] } }),
      commit(6, upsert(moved, 2)),
      subEnd(6),
      subStart('s1'),
      commit(6, remove('a')),
      subEnd(6),
    ]);
    await connection.ack();
    expect(titles(client)).toEqual(['moved']);
  });
});

describe('revocation', () => {
  test('purges what the subscription held, keeps the others, and starts over when granted again (§3.3)', async () => {
    const { client } = it;
    const { connection, sub } = await goLive(it, [task('a')]);
    const states: string[] = [];
    sub.onState((state) => states.push(state));
    const other = client.subscribe({ id: 's2', table: 'tasks', scopes: { list: 'l2' } });
    await connection.request();
    connection.respond([
      header(),
      subStart('s1', { status: 'revoked', reasonCode: 'sync.scope_revoked', effectiveScopes: {} }),
      subEnd(5),
      ...bootstrapOf('s2', [task('b', 'task b', false, 'l2')], 5),
    ]);
    await other.ready;
    expect(await connection.ack()).toBe(5);
    expect(titles(client)).toEqual(['task b']);
    expect(sub.effectiveScopes).toBeNull();
    expect(client.status.state).toBe('live');

    connection.wake(6);
    const next = await connection.request();
    expect(next.subscriptions[0]).toMatchObject({ id: 's1', cursor: -1 });
    connection.respond([header(), ...bootstrapOf('s1', [task('a', 'again')], 6), subStart('s2'), subEnd(6)]);
    await connection.ack();
    expect(titles(client)).toEqual(['again', 'task b']);
    expect(states).toEqual(['revoked', 'live']);
  });

  test('before the first page: ready rejects with sync.scope_revoked', async () => {
    const { client, server } = it;
    const sub = client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
    client.connect();
    const connection = await server.greeted();
    await answerEpoch(connection);
    await connection.request();
    connection.respond([
      header(),
      subStart('s1', { status: 'revoked', reasonCode: 'sync.scope_revoked', effectiveScopes: {} }),
      subEnd(-1),
    ]);
    await expect(sub.ready).rejects.toMatchObject({ code: 'sync.scope_revoked' });
    // Nothing active, so nothing to ack (part 3, 3.5.3).
    await client.until(({ state }) => state === 'live');
    expect(connection.acked).toEqual([]);
  });

  test('a narrower echo replaces the scopes and purges nothing (§3.3)', async () => {
    const { client } = it;
    const { connection, sub } = await goLive(it, [task('a')]);
    connection.wake(6);
    await connection.request();
    connection.respond([header(), subStart('s1', { effectiveScopes: { list: [] } }), subEnd(6)]);
    expect(await connection.ack()).toBe(6);
    expect(sub.effectiveScopes).toEqual({ list: [] });
    expect(titles(client)).toEqual(['task a']);
  });
});

describe('log epoch', () => {
  test('what was applied in the former timeline and never arrived is forgotten with it (§2.1)', async () => {
    const { client } = it;
    const { connection } = await goLive(it, [task('a')]);
    const { clientCommitId } = client.mutate([{ table: 'tasks', op: 'upsert', row: task('lost') }]);
    await connection.request();
    connection.respond([header(), applied(clientCommitId, 90), subStart('s1'), subEnd(5)]);
    await connection.ack();
    connection.wake(91, 'reset-required');
    await connection.request();
    expect(titles(client)).toEqual(['task a', 'task lost']);
    connection.respond([header({ logEpoch: 'epoch-2', resetRequired: true })]);
    await connection.request();
    expect(client.rows('tasks')).toEqual([]);
  });

  test('another one drops rows and cursors, keeps the outbox, and replays it (§2.1)', async () => {
    const { client } = it;
    const { connection, sub } = await goLive(it, [task('a')]);
    const { clientCommitId, settled } = client.mutate([{ table: 'tasks', op: 'upsert', row: task('mine') }]);
    const pushed = await connection.request();
    expect(pushed.pushes[0]?.clientCommitId).toBe(clientCommitId);
    connection.respond([header({ logEpoch: 'epoch-2', resetRequired: true })]);

    const replay = await connection.request();
    expect(replay.header.logEpoch).toBe('epoch-2');
    expect(replay.pushes).toEqual(pushed.pushes);
    expect(replay.subscriptions[0]).toMatchObject({ id: 's1', cursor: -1 });
    expect(titles(client)).toEqual(['task mine']);
    expect(sub.state).toBe('waiting');
    connection.respond([
      header({ logEpoch: 'epoch-2' }),
      {
        type: 'PUSH_RESULT',
        clientCommitId,
        status: 'cached',
        commitSeq: 2,
        results: [{ opIndex: 0, status: 'applied' }],
      },
      ...bootstrapOf('s1', [task('mine')], 2),
    ]);
    expect(await settled).toEqual({ status: 'applied', commitSeq: 2, replayed: true });
    expect(await connection.ack()).toBe(2);
    expect(titles(client)).toEqual(['task mine']);
  });
});
