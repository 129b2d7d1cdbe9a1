/** Connecting, staying connected, and stopping: attempts, credentials, close codes, timeouts (architecture §6; part 3, 3.8). */
import { describe, expect, onTestFinished, test } from 'vitest';
import type { ClientOptions } from '../../src/client/client.ts';
import type { ClientState } from '../../src/client/status.ts';
import { deferred } from '../../src/client/waiting.ts';
import { CLOSE_CODES, type CloseCode } from '../../src/protocol/close-codes.ts';
import { encodeHeartbeat } from '../../src/protocol/control.ts';
import { encodeMessage } from '../../src/protocol/message.ts';
import { encodeResponse } from './fake-server.ts';
import {
  applied,
  bootstrap,
  header,
  rig as newRig,
  type Rig,
  refusal,
  segmentBytes,
  segmentIdOf,
  segmentRef,
  subEnd,
  subStart,
  task,
  titles,
} from './harness.ts';
import { answerEpoch, goLive } from './live.ts';

async function rig(options: Partial<ClientOptions> = {}): Promise<Rig> {
  const made = await newRig(options);
  onTestFinished(() => made.close());
  return made;
}

function statesOf({ client }: Rig): ClientState[] {
  const states: ClientState[] = [client.status.state];
  client.onStatus(({ state }) => {
    if (states.at(-1) !== state) states.push(state);
  });
  return states;
}

/** The delay until the next attempt, once one is scheduled. */
async function retryDelayMs({ client, clock }: Rig): Promise<number> {
  const { retryAtMs } = await client.until((status) => status.retryAtMs !== null);
  return retryAtMs! - clock.nowMs();
}

describe('states', () => {
  test('offline, connecting, catching-up, live; disconnect keeps the rows, connect returns', async () => {
    const it = await rig();
    const states = statesOf(it);
    const { connection } = await goLive(it, [task('a')]);
    expect(states).toEqual(['offline', 'connecting', 'catching-up', 'live']);

    it.client.disconnect();
    expect(it.client.status.state).toBe('offline');
    expect(it.client.status.retryAtMs).toBeNull();
    await connection.closed;
    it.client.mutate([{ table: 'tasks', op: 'upsert', row: task('b') }]);
    expect(titles(it.client)).toEqual(['task a', 'task b']);

    it.client.connect();
    const again = await it.server.greeted({ latestCursor: 5, cursor: 5, requiresSync: false });
    const request = await again.request();
    expect(request.pushes).toHaveLength(1);
    expect(request.subscriptions[0]?.cursor).toBe(5);
  });

  test('a reconnect that missed nothing needs no round (3.2.2)', async () => {
    const it = await rig();
    await goLive(it);
    it.client.disconnect();
    it.client.connect();
    const again = await it.server.greeted({ latestCursor: 5, cursor: 5, requiresSync: false });
    await it.client.until(({ state }) => state === 'live');
    again.delta([header(), subStart('s1'), subEnd(6)]);
    expect(await again.ack()).toBe(6);
    expect(again.requestsSeen).toBe(0);
  });

  test('hello.requiresSync, or a head above the own cursor, leads to a pull', async () => {
    const it = await rig();
    await goLive(it);
    it.client.disconnect();
    it.client.connect();
    const behind = await it.server.greeted({ latestCursor: 6, cursor: 6, requiresSync: false });
    await behind.request();
    it.client.disconnect();
    it.client.connect();
    const asked = await it.server.greeted({ latestCursor: 5, cursor: 5, requiresSync: true });
    await asked.request();
  });

  test('a list that changed while offline is told, whatever hello says (§8.7)', async () => {
    const it = await rig();
    const { sub } = await goLive(it);
    it.client.disconnect();
    sub.unsubscribe();
    it.client.connect();
    const again = await it.server.greeted({ latestCursor: 5, cursor: 5, requiresSync: false });
    expect((await again.request()).subscriptions).toEqual([]);
  });

  test('disconnect() from a listener in the middle of a round holds', async () => {
    const it = await rig();
    it.client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
    it.client.onChange('tasks', () => it.client.disconnect());
    it.client.connect();
    const connection = await it.server.greeted();
    await answerEpoch(connection);
    await connection.request();
    connection.respond([header(), ...bootstrap('s1', [task('a')], 5)]);
    await connection.closed;
    await it.clock.settle();
    expect(it.client.status.state).toBe('offline');
    expect(titles(it.client)).toEqual(['task a']);
    expect(it.clock.timersWaiting).toBe(0);
  });

  test('a return waits until the former connection has wound up', async () => {
    const bytes = segmentBytes([task('a')]);
    const hashing = deferred<string>();
    const begun = deferred<void>();
    const it = await rig({
      sha256: () => {
        begun.resolve();
        return hashing.promise;
      },
    });
    it.server.answers.set(`/sync-api/segments/${segmentIdOf(bytes)}`, { status: 200, body: bytes });
    it.client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
    it.client.connect();
    const connection = await it.server.greeted();
    await answerEpoch(connection);
    await connection.request();
    connection.respond([header(), subStart('s1', { bootstrap: true }), segmentRef(bytes), subEnd(5)]);
    await begun.promise;
    it.client.disconnect();
    it.client.connect();
    await it.clock.settle();
    expect(it.server.upgrades).toBe(1);
    hashing.resolve('0'.repeat(64));
    await it.server.connection();
  });

  test('until() rejects when syncing stops first', async () => {
    const it = await rig();
    const never = it.client.until(({ state }) => state === 'live');
    await it.client.close();
    await expect(never).rejects.toMatchObject({ code: 'client.closed' });
    expect(it.client.status).toMatchObject({ state: 'stopped', stopReason: { kind: 'closed' } });
    expect(() => it.client.connect()).toThrow(expect.objectContaining({ code: 'client.closed' }));
  });
});

describe('close codes', () => {
  const classes = Object.entries(CLOSE_CODES).map(
    ([code, { reconnect }]) => [Number(code) as CloseCode, reconnect] as const,
  );

  test.each(classes.filter(([, kind]) => kind === 'never' || kind === 'stop'))(
    '%i (%s) stops for good',
    async (code) => {
      const it = await rig({ token: async () => 'tok' });
      const { connection } = await goLive(it);
      connection.close(code, 'because');
      const { stopReason } = await it.client.until(({ state }) => state === 'stopped');
      expect(stopReason).toEqual({ kind: 'disconnected', closeCode: code, reason: 'because' });
      it.clock.advance(120_000);
      await it.clock.settle();
      expect(it.server.upgrades).toBe(1);
    },
  );

  test.each(classes.filter(([, kind]) => kind === 'retry-backoff'))(
    '%i (%s) waits half to one and a half of 1 s',
    async (code) => {
      const it = await rig();
      const { connection } = await goLive(it);
      connection.close(code);
      expect(await retryDelayMs(it)).toBe(500);
      it.clock.advance(499);
      await it.clock.settle();
      expect(it.server.upgrades).toBe(1);
      it.clock.advance(1);
      await it.server.connection();
    },
  );

  test.each(classes.filter(([, kind]) => kind === 'retry-now'))(
    '%i (%s) returns at once, spread; again at once only after a served round',
    async (code) => {
      const it = await rig();
      const { connection } = await goLive(it);
      it.random.nextUnit = 0.25;
      connection.close(code);
      expect(await retryDelayMs(it)).toBe(250);
      it.clock.advance(250);
      const again = await it.server.greeted();
      again.close(code);
      expect(await retryDelayMs(it)).toBe(1_500);
    },
  );

  test('4401 asks for another token, once at once, then under backoff', async () => {
    let asked = 0;
    const it = await rig({ token: () => `tok-${++asked}` });
    const { connection } = await goLive(it);
    connection.close(4401);
    expect(await retryDelayMs(it)).toBe(0);
    it.clock.advance(0);
    const second = await it.server.connection();
    expect(second.url.searchParams.get('token')).toBe('tok-2');
    second.close(4401);
    expect(await retryDelayMs(it)).toBe(1_000);
    expect(it.client.status.lastError?.code).toBe('sync.auth_required');
  });

  test('4401 without a token function stops: the same credentials would be refused again', async () => {
    const it = await rig({ token: 'fixed' });
    const { connection } = await goLive(it);
    connection.close(4401);
    const { stopReason } = await it.client.until(({ state }) => state === 'stopped');
    expect(stopReason?.kind).toBe('auth');
  });

  test('connect() starts again after a stop, and the state is kept', async () => {
    const it = await rig();
    const { connection } = await goLive(it, [task('a')]);
    connection.close(4409);
    await it.client.until(({ state }) => state === 'stopped');
    it.client.connect();
    await it.server.greeted({ latestCursor: 5, cursor: 5, requiresSync: false });
    const { stopReason } = await it.client.until(({ state }) => state === 'live');
    expect(stopReason).toBeNull();
    expect(titles(it.client)).toEqual(['task a']);
  });
});

describe('backoff', () => {
  test('doubles to the cap, and a served round starts it over (3.8.1)', async () => {
    const it = await rig();
    it.server.refuseUpgrades = 503;
    it.client.connect();
    const delays: number[] = [];
    for (let attempt = 0; attempt < 8; attempt++) {
      delays.push(await retryDelayMs(it));
      const attempted = it.server.upgrades;
      it.clock.advance(delays.at(-1)!);
      await it.clock.until(() => it.server.upgrades > attempted);
      await it.clock.until(() => it.client.status.state === 'offline');
    }
    expect(delays).toEqual([500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000, 15_000]);
    it.server.refuseUpgrades = null;
    it.clock.advance(30_000);
    const connection = await it.server.greeted();
    await answerEpoch(connection);
    await connection.request();
    connection.respond([header()]);
    await it.client.until(({ state }) => state === 'live');
    connection.close(1013);
    expect(await retryDelayMs(it)).toBe(500);
  });

  test('connect() ends the wait', async () => {
    const it = await rig();
    const { connection } = await goLive(it);
    connection.close(1013);
    await retryDelayMs(it);
    it.client.connect();
    await it.server.connection();
  });

  test('a pull after an automatic return waits its share of the spread, a local write does not', async () => {
    const it = await rig();
    const { connection } = await goLive(it);
    it.random.nextUnit = 0.5;
    connection.close(1013);
    it.clock.advance(await retryDelayMs(it));
    const again = await it.server.greeted({ latestCursor: 9 });
    await it.client.until(({ state }) => state === 'catching-up');
    await it.clock.settle();
    it.clock.advance(999);
    await it.clock.settle();
    expect(again.requestsSeen).toBe(0);
    it.client.mutate([{ table: 'tasks', op: 'upsert', row: task('a') }]);
    expect((await again.request()).pushes).toHaveLength(1);
  });
});

describe('errors of a round', () => {
  test('sync.schema_not_ready: server-upgrading, the outbox waits, the same socket goes on (part 4)', async () => {
    const it = await rig();
    const { connection } = await goLive(it, [task('a')]);
    const { clientCommitId, settled } = it.client.mutate([{ table: 'tasks', op: 'upsert', row: task('b') }]);
    await connection.request();
    connection.respond(refusal('sync.schema_not_ready', true, '{"retryAfterMs":4000}'));
    const status = await it.client.until(({ state }) => state === 'server-upgrading');
    expect(status).toMatchObject({ pendingCommits: 1, lastError: { code: 'sync.schema_not_ready' } });
    it.clock.advance(3_999);
    await it.clock.settle();
    expect(connection.requestsSeen).toBe(3);
    it.clock.advance(1);
    const retry = await connection.request();
    expect(retry.pushes.map((push) => push.clientCommitId)).toEqual([clientCommitId]);
    connection.respond([header(), applied(clientCommitId, 6), subStart('s1'), subEnd(6)]);
    expect(await settled).toMatchObject({ status: 'applied' });
    const after = await it.client.until(({ state }) => state === 'live');
    expect(after).toMatchObject({ pendingCommits: 0, lastError: null });
  });

  test('a deploy that takes long: the pauses grow, the state stays', async () => {
    const it = await rig();
    const { connection } = await goLive(it);
    connection.wake(6, 'reset-required');
    for (const pauseMs of [500, 1_000, 2_000]) {
      await connection.request();
      connection.respond(refusal('sync.schema_not_ready', true));
      await it.clock.settle();
      expect(it.client.status.state).toBe('server-upgrading');
      it.clock.advance(pauseMs - 1);
      await it.clock.settle();
      it.clock.advance(1);
    }
    await connection.request();
  });

  test('retryable ones wait and try again; a write does not cut the pause short', async () => {
    const it = await rig();
    const { connection } = await goLive(it);
    connection.wake(6);
    await connection.request();
    connection.respond(refusal('sync.rate_limited', true));
    await it.client.until(({ lastError }) => lastError?.code === 'sync.rate_limited');
    it.client.mutate([{ table: 'tasks', op: 'upsert', row: task('a') }]);
    await it.clock.settle();
    expect(connection.requestsSeen).toBe(3);
    it.clock.advance(500);
    await connection.request();
  });

  test('an unknown code is judged by its flag', async () => {
    const it = await rig();
    const { connection } = await goLive(it);
    connection.wake(6);
    await connection.request();
    connection.respond(refusal('sync.of_the_future', true));
    await it.client.until(({ lastError }) => lastError?.code === 'sync.of_the_future');
    it.clock.advance(500);
    await connection.request();
    connection.respond(refusal('sync.of_the_future', false));
    const { stopReason } = await it.client.until(({ state }) => state === 'stopped');
    expect(stopReason).toMatchObject({ kind: 'refused', code: 'sync.of_the_future' });
  });

  test.each(['sync.invalid_client_id', 'sync.client_wire_unsupported', 'sync.invalid_subscription'])(
    '%s stops: the same request would meet it again',
    async (code) => {
      const it = await rig();
      const { connection } = await goLive(it);
      connection.wake(6);
      await connection.request();
      connection.respond(refusal(code, false));
      const { stopReason } = await it.client.until(({ state }) => state === 'stopped');
      expect(stopReason).toMatchObject({ kind: 'refused', code });
      await connection.closed;
    },
  );

  test('sync.auth_lease_required renews the token with the connection', async () => {
    let asked = 0;
    const it = await rig({ token: () => `tok-${++asked}` });
    const { connection } = await goLive(it);
    connection.wake(6);
    await connection.request();
    connection.respond(refusal('sync.auth_lease_required', true));
    await retryDelayMs(it);
    it.clock.advance(500);
    expect((await it.server.connection()).url.searchParams.get('token')).toBe('tok-2');
  });

  test('the schema floor stops with both versions and keeps outbox and rows (part 2.3)', async () => {
    const it = await rig();
    const { connection } = await goLive(it, [task('a')]);
    it.client.mutate([{ table: 'tasks', op: 'upsert', row: task('b') }]);
    await connection.request();
    connection.respond([header({ requiredSchemaVersion: 4, latestSchemaVersion: 5 })]);
    const status = await it.client.until(({ state }) => state === 'stopped');
    expect(status.stopReason).toEqual({
      kind: 'schema-floor',
      requiredSchemaVersion: 4,
      latestSchemaVersion: 5,
    });
    expect(status.pendingCommits).toBe(1);
    expect(titles(it.client)).toEqual(['task a', 'task b']);
  });

  test('the schema floor comes before the epoch (part 2.3)', async () => {
    const it = await rig();
    it.client.connect();
    const connection = await it.server.greeted();
    await connection.request();
    connection.respond([header({ requiredSchemaVersion: 4, latestSchemaVersion: 4, resetRequired: true })]);
    const { stopReason } = await it.client.until(({ state }) => state === 'stopped');
    expect(stopReason?.kind).toBe('schema-floor');
  });

  test('a server that resets to epoch after epoch is met with backoff', async () => {
    const it = await rig();
    it.client.connect();
    const connection = await it.server.greeted();
    for (let epoch = 0; epoch < 4; epoch++) {
      await connection.request();
      connection.respond([header({ logEpoch: `e${epoch}`, resetRequired: true })]);
    }
    await it.clock.settle();
    expect(connection.requestsSeen).toBe(4);
    it.clock.advance(500);
    await connection.request();
  });
});

describe('broken answers end the connection and never the client', () => {
  const broken: readonly [string, (c: Awaited<ReturnType<typeof goLive>>['connection']) => void][] = [
    ['bytes that are no response', (c) => c.respondBytes(new Uint8Array([1, 2, 3, 4, 5, 6, 7, 8]))],
    ['another epoch without a reset', (c) => c.respond([header({ logEpoch: 'other' })])],
    [
      'an answer of wire version 1, without a log epoch',
      (c) =>
        c.respondBytes(
          encodeMessage({ kind: 'response', wireVersion: 1, frames: [{ type: 'RESP_HEADER' }] }),
        ),
    ],
    ['a reset to the same epoch', (c) => c.respond([header({ resetRequired: true })])],
    ['a commit left unanswered', (c) => c.respond([header(), subStart('s1'), subEnd(5)])],
  ];

  test.each(broken)('%s', async (_what, answer) => {
    const it = await rig();
    const { connection } = await goLive(it, [task('a')]);
    it.client.mutate([{ table: 'tasks', op: 'upsert', row: task('b') }]);
    await connection.request();
    answer(connection);
    const delayMs = await retryDelayMs(it);
    expect(it.client.status.lastError?.code).toBe('client.protocol_violation');
    expect(titles(it.client)).toEqual(['task a', 'task b']);
    it.clock.advance(delayMs);
    await it.server.connection();
  });
});

test('bytes behind END end the connection, although the response itself is good', async () => {
  const it = await rig();
  const { connection } = await goLive(it, [task('a')]);
  connection.wake(6);
  await connection.request();
  connection.respondBytes(new Uint8Array([...encodeResponse([header(), subStart('s1'), subEnd(6)]), 0]));
  await retryDelayMs(it);
  expect(it.client.status.lastError?.message).toContain('behind the end');
});

describe('timeouts', () => {
  test('no hello in time', async () => {
    const it = await rig({ limits: { connectTimeoutMs: 9_000 } });
    it.client.connect();
    await it.server.connection();
    it.clock.advance(9_000);
    await retryDelayMs(it);
    expect(it.client.status.lastError?.code).toBe('client.connection_lost');
  });

  test('silence for longer than two heartbeats; any message counts as sound (3.9)', async () => {
    const it = await rig();
    const { connection } = await goLive(it);
    it.clock.advance(50_000);
    connection.text(encodeHeartbeat(1));
    connection.delta([header(), subStart('s1'), subEnd(6)]);
    await connection.ack();
    it.clock.advance(74_999);
    await it.clock.settle();
    expect(it.client.status.state).toBe('live');
    it.clock.advance(1);
    await retryDelayMs(it);
    expect(it.client.status.lastError?.code).toBe('client.connection_lost');
  });

  test('a round that stalls, although heartbeats keep coming', async () => {
    const it = await rig();
    const { connection } = await goLive(it);
    connection.wake(6);
    await connection.request();
    it.clock.advance(40_000);
    connection.text(encodeHeartbeat(1));
    await it.clock.settle();
    it.clock.advance(20_000);
    await retryDelayMs(it);
    expect(it.client.status.lastError?.message).toContain('round');
  });

  test('a token function that fails or hangs is tried again', async () => {
    const answers: (() => Promise<string>)[] = [
      () => Promise.reject(new Error('no network')),
      () => new Promise(() => undefined),
      () => Promise.resolve('tok'),
    ];
    const it = await rig({ token: () => answers.shift()!() });
    it.client.connect();
    await retryDelayMs(it);
    expect(it.client.status.lastError?.code).toBe('client.token_failed');
    it.clock.advance(1_500);
    await it.clock.until(() => answers.length === 1);
    it.clock.advance(30_000);
    await retryDelayMs(it);
    it.clock.advance(3_000);
    expect((await it.server.connection()).url.searchParams.get('token')).toBe('tok');
  });
});

describe('close() ends whatever waits, and leaves no timer', () => {
  const waits: readonly [string, (it: Rig) => Promise<void>][] = [
    ['before connect()', async () => undefined],
    ['a token', async ({ client }) => client.connect()],
    [
      'hello',
      async ({ client, server }) => {
        client.connect();
        await server.connection();
      },
    ],
    [
      'an answer',
      async ({ client, server }) => {
        client.connect();
        await (await server.greeted()).request();
      },
    ],
    [
      'the next attempt',
      async (it) => {
        it.client.connect();
        (await it.server.connection()).close(1013);
        await retryDelayMs(it);
      },
    ],
    [
      'the end of a pause',
      async (it) => {
        const { connection } = await goLive(it);
        connection.wake(6);
        await connection.request();
        connection.respond(refusal('sync.rate_limited', true));
        await it.client.until(({ lastError }) => lastError !== null);
      },
    ],
    [
      'changes',
      async (it) => {
        await goLive(it);
      },
    ],
  ];

  test.each(waits)('while it waits for %s', async (what, reach) => {
    const token = what === 'a token' ? () => new Promise<string>(() => undefined) : 'tok';
    const it = await rig({ token });
    await reach(it);
    const sub = it.client.subscribe({ id: 'open', table: 'notes', scopes: { list: 'l1' } });
    const ready = expect(sub.ready).rejects.toMatchObject({ code: 'client.closed' });
    await it.client.close();
    await ready;
    expect(it.clock.timersWaiting).toBe(0);
    expect(it.client.status.state).toBe('stopped');
    await it.client.close();
  });
});

test('a listener that throws disturbs neither the others nor the sync', async () => {
  const it = await rig();
  const { connection } = await goLive(it);
  it.client.onChange('tasks', () => {
    throw new Error('of the application');
  });
  let calls = 0;
  it.client.onChange('tasks', () => {
    calls++;
  });
  it.client.mutate([{ table: 'tasks', op: 'upsert', row: task('a') }]);
  await connection.request();
  expect(calls).toBe(1);
  expect(() => it.clock.turn()).toThrow('of the application');
});
