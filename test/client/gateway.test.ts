/** The client and the gateway together: the scenarios of part 3, 3.15 that need both, and what a user relies on. */
import { describe, expect, onTestFinished, test } from 'vitest';
import type { SubscriptionHandle } from '../../src/client/subscription-handle.ts';
import { createStaticTokens } from '../../src/gateway/auth.ts';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import type { ScopeMap } from '../../src/protocol/frames.ts';
import { openSqliteStorage } from '../../src/storage/sqlite/sqlite-storage.ts';
import { type GatewayRig, PARTITION, startRig, type TestClient } from './gateway-rig.ts';
import { TASKS, task, titles } from './harness.ts';

const L1 = { id: 's1', table: 'tasks', scopes: { list: 'l1' } } as const;

interface Subscribed extends TestClient {
  readonly sub: SubscriptionHandle;
}

async function subscribed(
  rig: GatewayRig,
  options?: Parameters<GatewayRig['client']>[0],
): Promise<Subscribed> {
  const made = rig.client(options);
  const sub = made.client.subscribe(L1);
  made.client.connect();
  await sub.ready;
  await made.until(() => made.client.status.state === 'live');
  return Object.assign(made, { sub });
}

const write = ({ client }: TestClient, ...rows: ReturnType<typeof task>[]) =>
  client.mutate(rows.map((row) => ({ table: 'tasks', op: 'upsert', row })));

describe('live', () => {
  test('B.11b: a commit of somebody else arrives as a delta on the same connection, acked, without a round', async () => {
    const rig = await startRig();
    const ada = await subscribed(rig);
    const ben = await subscribed(rig, { token: 'ben' });
    ada.wire.length = 0;
    expect(await write(ben, task('a')).settled).toMatchObject({ status: 'applied', replayed: false });
    await ada.until(() => ada.client.rows('tasks').length === 1);
    expect(ada.wire).toEqual(['< delta', '> ack']);
    expect(ada.client.get('tasks', 'a')).toEqual(task('a'));
    expect(ada.client.version('tasks', 'a')).toBe(1);
  });

  test('B.11d: the own push brings a wake-up and no delta; the next foreign commit is a delta again', async () => {
    const rig = await startRig();
    const ada = await subscribed(rig);
    const ben = await subscribed(rig, { token: 'ben' });
    ada.wire.length = 0;
    await write(ada, task('a')).settled;
    await ada.until(() => !ada.client.isPending('tasks', 'a'));
    expect(ada.wire).toContain('< sync');
    expect(ada.wire).not.toContain('< delta');
    expect(ada.wire.filter((word) => word === '> round')).toHaveLength(1);
    await write(ben, task('b')).settled;
    await ada.until(() => ada.client.get('tasks', 'b') !== undefined);
    expect(ada.wire.slice(-2)).toEqual(['< delta', '> ack']);
  });

  test('B.3: the answer is lost after the commit: the same bytes again, answered cached, applied once', async () => {
    const rig = await startRig();
    const ada = await subscribed(rig);
    const ben = await subscribed(rig, { token: 'ben' });
    let arrivals = 0;
    ben.client.onChange('tasks', () => {
      arrivals++;
    });
    ada.cutAnswers = 1;
    expect(await write(ada, task('a')).settled).toMatchObject({ status: 'applied', replayed: true });
    await ben.until(() => ben.client.rows('tasks').length === 1);
    expect(ben.client.version('tasks', 'a')).toBe(1);
    expect(arrivals).toBe(1);
    expect(ada.taps).toHaveLength(2);
  });

  test('a commit too large for a delta is pulled (oversize)', async () => {
    const rig = await startRig({ limits: { deltaBytesMax: 300 } });
    const ada = await subscribed(rig);
    const ben = await subscribed(rig, { token: 'ben' });
    ada.wire.length = 0;
    await write(ben, task('a', 'x'.repeat(1_000))).settled;
    await ada.until(() => ada.client.rows('tasks').length === 1);
    expect(ada.wire.slice(0, 2)).toEqual(['< sync', '> round']);
    expect(ada.wire).not.toContain('< delta');
    await ada.until(() => ada.client.status.state === 'live');
    await write(ben, task('b')).settled;
    await ada.until(() => ada.client.rows('tasks').length === 2);
    expect(ada.wire).toContain('< delta');
  });

  test('only commits of the subscribed scopes arrive (scope filter)', async () => {
    const rig = await startRig();
    const ada = await subscribed(rig);
    const ben = await subscribed(rig, { token: 'ben' });
    ada.wire.length = 0;
    await write(ben, task('x', 'elsewhere', false, 'l2')).settled;
    await write(ben, task('a')).settled;
    await ada.until(() => ada.client.rows('tasks').length === 1);
    expect(ada.wire).toEqual(['< delta', '> ack']);
  });
});

describe('offline', () => {
  test('writes of both sides meet on return; a named version conflicts, and nothing of that commit is applied', async () => {
    const rig = await startRig();
    const ada = await subscribed(rig);
    const ben = await subscribed(rig, { token: 'ben' });
    await write(ada, task('shared', 'v1'), task('calm', 'v1')).settled;
    await ben.until(() => ben.client.rows('tasks').length === 2);

    ben.client.disconnect();
    const lost = ben.client.mutate([
      { table: 'tasks', op: 'upsert', row: task('new', 'with the conflict') },
      {
        table: 'tasks',
        op: 'upsert',
        row: task('shared', 'from ben'),
        baseVersion: ben.client.version('tasks', 'shared'),
      },
    ]);
    const kept = ben.client.mutate([
      {
        table: 'tasks',
        op: 'upsert',
        row: task('calm', 'from ben'),
        baseVersion: ben.client.version('tasks', 'calm'),
      },
    ]);
    expect(titles(ben.client)).toEqual(['from ben', 'from ben', 'with the conflict']);
    await write(ada, task('shared', 'from ada')).settled;
    ben.client.connect();

    expect(await lost.settled).toMatchObject({
      status: 'rejected',
      code: 'sync.version_conflict',
      opIndex: 1,
      conflict: { rowId: 'shared', serverVersion: 2, serverRow: task('shared', 'from ada') },
    });
    expect(await kept.settled).toMatchObject({ status: 'applied' });
    await ben.until(() => titles(ben.client).join() === 'from ada,from ben');
    await ada.until(() => titles(ada.client).join() === 'from ada,from ben');
  });

  test('a fresh client with the same id and an empty replica gets everything again', async () => {
    const rig = await startRig();
    const first = await subscribed(rig, { clientId: 'device' });
    await write(first, task('a'), task('b')).settled;
    await first.client.close();
    const second = await subscribed(rig, { clientId: 'device' });
    expect(titles(second.client)).toEqual(['task a', 'task b']);
  });

  test('the newer of two connections with one id lives, the older stops (4409)', async () => {
    const rig = await startRig();
    const first = await subscribed(rig, { clientId: 'device' });
    await subscribed(rig, { clientId: 'device' });
    const { stopReason } = await first.client.until(({ state }) => state === 'stopped');
    expect(stopReason).toMatchObject({ kind: 'disconnected', closeCode: 4409 });
  });
});

describe('discontinuities', () => {
  test('a rotated log epoch: rows are fetched anew, the outbox is replayed, nothing is doubled (§2.1)', async () => {
    const rig = await startRig();
    const ada = await subscribed(rig);
    await write(ada, task('a')).settled;
    ada.client.disconnect();
    const { settled } = write(ada, task('b'));
    await rig.gateway.rotateEpoch(PARTITION);
    ada.client.connect();
    expect(await settled).toMatchObject({ status: 'applied' });
    await ada.until(() => !ada.client.isPending('tasks', 'b'));
    expect(titles(ada.client)).toEqual(['task a', 'task b']);
  });

  test('a connected client survives a rotation by itself', async () => {
    const rig = await startRig();
    const ada = await subscribed(rig);
    await write(ada, task('a')).settled;
    await ada.until(() => !ada.client.isPending('tasks', 'a'));
    const seen: number[] = [];
    ada.client.onChange('tasks', () => seen.push(ada.client.rows('tasks').length));
    await rig.gateway.rotateEpoch(PARTITION);
    await ada.until(() => seen.includes(0) && ada.client.rows('tasks').length === 1);
    await ada.until(() => ada.client.status.state === 'live');
  });

  test('B.8: a cursor behind the pruned horizon resets, and what was deleted meanwhile is gone here too', async () => {
    const opened = await openSqliteStorage({ path: ':memory:', clock: createRealClock() });
    onTestFinished(() => opened.storage.close());
    const rig = await startRig({ storage: opened });
    const ada = await subscribed(rig);
    const ben = await subscribed(rig, { token: 'ben' });
    await write(ada, task('a'), task('b')).settled;
    await ben.until(() => ben.client.rows('tasks').length === 2);
    ben.client.disconnect();
    await ada.client.mutate([{ table: 'tasks', op: 'delete', rowId: 'a' }]).settled;
    await write(ada, task('c')).settled;
    await opened.storage.pruneLog({ partition: PARTITION, horizon: 3, commitsMax: 100 });

    const states: string[] = [];
    ben.sub.onState((state) => states.push(state));
    ben.client.connect();
    await ben.until(() => titles(ben.client).join() === 'task b,task c');
    expect(states).toEqual(['waiting', 'live']);
  });

  test('a client of another schema version stops at the floor and keeps its outbox (part 2.3)', async () => {
    const rig = await startRig();
    const old = rig.client({ schema: { ...TASKS, version: TASKS.version - 1 } });
    write(old, task('a'));
    old.client.connect();
    const { stopReason, pendingCommits } = await old.client.until(({ state }) => state === 'stopped');
    expect(stopReason).toMatchObject({ kind: 'schema-floor', requiredSchemaVersion: TASKS.version });
    expect(pendingCommits).toBe(1);
  });

  test('a host that resyncs makes every client pull, and they stay live', async () => {
    const rig = await startRig();
    const ada = await subscribed(rig);
    ada.wire.length = 0;
    rig.gateway.resync(PARTITION);
    const ben = await subscribed(rig, { token: 'ben' });
    await write(ben, task('a')).settled;
    await ada.until(() => ada.client.rows('tasks').length === 1);
    expect(ada.wire.slice(0, 2)).toEqual(['< sync', '> round']);
  });

  test('a restart of the gateway: clients return by themselves, with what they wrote meanwhile', async () => {
    const rig = await startRig();
    const ada = await subscribed(rig);
    const ben = await subscribed(rig, { token: 'ben' });
    const restarted = rig.restart();
    await ada.client.until(({ state }) => state === 'offline');
    const { settled } = write(ada, task('a'));
    await restarted;
    expect(await settled).toMatchObject({ status: 'applied' });
    await ben.until(() => titles(ben.client).join() === 'task a');
    await write(ben, task('b')).settled;
    await ada.until(() => titles(ada.client).join() === 'task a,task b');
  });
});

describe('scopes', () => {
  test('a lost scope purges on the next pull, the other subscription stays (§3.3)', async () => {
    const { authenticate } = createStaticTokens(
      new Map([['ada', { actorId: 'ada', partition: PARTITION, scopes: {}, expiresAtMs: null }]]),
    );
    let allowed: ScopeMap = { list: ['l1', 'l2'] };
    const rig = await startRig({ authenticate, resolveScopes: () => allowed });
    const ada = await subscribed(rig);
    const other = ada.client.subscribe({ id: 's2', table: 'tasks', scopes: { list: 'l2' } });
    await write(ada, task('a'), task('b', 'task b', false, 'l2')).settled;
    await other.ready;
    await ada.until(() => ada.client.rows('tasks').length === 2 && !ada.client.isPending('tasks', 'b'));

    allowed = { list: ['l2'] };
    rig.gateway.scopesChanged({ partition: PARTITION, actorId: 'ada' });
    const refused = write(ada, task('a', 'no more'));
    expect(await refused.settled).toMatchObject({ status: 'rejected', code: 'sync.forbidden' });
    await ada.until(() => titles(ada.client).join() === 'task b');

    allowed = { list: ['l1', 'l2'] };
    rig.gateway.resync(PARTITION);
    await ada.until(() => titles(ada.client).join() === 'task a,task b');
  });

  test('an actor cut off is closed with 4401; the token function decides what follows', async () => {
    const rig = await startRig();
    let asked = 0;
    const ada = await subscribed(rig, {
      token: () => {
        asked++;
        return 'ada';
      },
    });
    rig.gateway.revokeActor({ partition: PARTITION, actorId: 'ada' });
    await ada.client.until(({ lastError }) => lastError?.code === 'sync.auth_required');
    await ada.client.until(({ state }) => state === 'live');
    expect(asked).toBe(2);
  });
});

describe('bootstrap', () => {
  const many = (count: number, first = 0) =>
    Array.from({ length: count }, (_, index) => task(`t${String(first + index).padStart(5, '0')}`));

  async function seed(rig: GatewayRig, count: number): Promise<void> {
    const writer = rig.client();
    writer.client.connect();
    const written = [];
    for (let first = 0; first < count; first += 400) {
      written.push(write(writer, ...many(Math.min(400, count - first), first)).settled);
    }
    for (const outcome of await Promise.all(written)) expect(outcome.status).toBe('applied');
    await writer.client.close();
  }

  test('many pages over references: fetched, verified, over several rounds, then live', async () => {
    const rig = await startRig({ limits: { segmentInlineBytesMax: 1_000 } });
    await seed(rig, 2_000);
    const ada = rig.client({ limits: { snapshotRows: 150, snapshotPages: 3 } });
    const sub = ada.client.subscribe(L1);
    const states: string[] = [];
    sub.onState((state) => states.push(state));
    ada.client.connect();
    await sub.ready;
    expect(ada.client.rows('tasks')).toHaveLength(2_000);
    expect(new Set(ada.client.rows('tasks').map(({ id }) => id)).size).toBe(2_000);
    expect(states).toEqual(['bootstrapping', 'live']);
    expect(ada.fetched.length).toBeGreaterThanOrEqual(13);
    expect(ada.fetched.every((path) => path.startsWith('/segments/sha256'))).toBe(true);
    const ben = await subscribed(rig, { token: 'ben' });
    await write(ben, task('late')).settled;
    await ada.until(() => ada.client.get('tasks', 'late') !== undefined);
  });

  test('a bootstrap that is interrupted goes on where it was', async () => {
    const rig = await startRig();
    await seed(rig, 1_200);
    const ada = rig.client({ limits: { snapshotRows: 100, snapshotPages: 2 } });
    const sub = ada.client.subscribe(L1);
    let isCut = false;
    ada.client.onChange('tasks', () => {
      if (isCut || ada.client.rows('tasks').length < 400) return;
      isCut = true;
      ada.taps[0]!.terminate();
    });
    ada.client.connect();
    const counts: number[] = [];
    ada.client.onChange('tasks', () => counts.push(ada.client.rows('tasks').length));
    await sub.ready;
    expect(ada.taps).toHaveLength(2);
    expect(ada.client.rows('tasks')).toHaveLength(1_200);
    expect(counts).toEqual([200, 400, 600, 800, 1_000, 1_200]);
  });

  test('writes that land during a bootstrap are in it at the end (2.10 rule 3)', async () => {
    const rig = await startRig();
    await seed(rig, 900);
    const ben = await subscribed(rig, { token: 'ben' });
    const ada = rig.client({ limits: { snapshotRows: 100, snapshotPages: 1 } });
    const sub = ada.client.subscribe(L1);
    let pages = 0;
    ada.client.onChange('tasks', () => {
      pages++;
      if (pages <= 5) write(ben, task(`t0000${pages}`, `changed ${pages}`), task(`n${pages}`));
      if (pages === 3) ben.client.mutate([{ table: 'tasks', op: 'delete', rowId: 't00800' }]);
    });
    ada.client.connect();
    await sub.ready;
    await ben.client.until(({ pendingCommits }) => pendingCommits === 0);
    await write(ben, task('last')).settled;
    await ada.until(() => ada.client.get('tasks', 'last') !== undefined);
    const sorted = (of: TestClient) => [...of.client.rows('tasks')].sort((a, b) => (a.id < b.id ? -1 : 1));
    await ben.until(() => !ben.client.isPending('tasks', 'last'));
    expect(sorted(ada)).toEqual(sorted(ben));
    expect(ada.client.get('tasks', 't00800')).toBeUndefined();
    expect(ada.client.get('tasks', 't00003')?.title).toBe('changed 3');
  });
});
