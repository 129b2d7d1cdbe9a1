/** Scenarios of part 3, 3.15 and rows of its checklist over the real sync core and a real SQLite file. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { FakeConnection } from '../../support/fake-connection.ts';
import { PARTITION, subscription } from '../../support/sync-harness.ts';
import { LossyBus } from './support/lossy-bus.ts';
import { SqliteLive } from './support/sqlite-live.ts';

const P1 = { project: ['p1'] };
const P2 = { project: ['p2'] };
const NOTES = subscription('s', 'notes', P1);
const opened: SqliteLive[] = [];
let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tidegate-live-'));
});

afterEach(async () => {
  for (const each of opened.splice(0)) await each.close();
  rmSync(folder, { recursive: true, force: true });
});

async function openLive(options: Parameters<typeof SqliteLive.open>[0] = {}): Promise<SqliteLive> {
  const live = await SqliteLive.open({ path: join(folder, 'log.db'), ...options });
  opened.push(live);
  return live;
}

/** Pulled and acked over its socket: live on `p1`. */
async function connectLive(g: SqliteLive, clientId = 'client-1'): Promise<FakeConnection> {
  const client = await g.connect({ clientId });
  const { frames } = await g.socket(client, { clientId, subscriptions: [NOTES] });
  const end = frames.find((frame) => frame.type === 'SUB_END')!;
  client.ack(end.nextCursor);
  client.clear();
  return client;
}

describe('record and registrations', () => {
  test('R-008, R-012: list, cursor and wire version survive a restart', async () => {
    const before = await openLive();
    await before.commit('p1');
    await before.http({ wireVersion: 1, subscriptions: [NOTES] });
    await before.close();
    opened.pop();
    const g = await openLive();
    const client = await g.connect();
    expect(client.controlsOf('hello')[0]).toMatchObject({ cursor: 1, latestCursor: 1, requiresSync: false });
    await g.commit('p1');
    expect(client.story.slice(1)).toEqual(['delta 2']);
    expect(client.deltaMessages[0]!.wireVersion).toBe(1);
  });

  test('R-011: a pull by HTTP during the connection registers at the next connect', async () => {
    const g = await openLive();
    const client = await connectLive(g);
    await g.http({ subscriptions: [NOTES, subscription('t', 'notes', P2)] });
    await g.commit('p2');
    expect(client.deltas).toEqual([]);
    await g.http({ subscriptions: [NOTES, subscription('t', 'notes', P2)] });
    const again = await g.connect();
    await g.commit('p2');
    expect(again.deltaSeqs).toEqual([2]);
  });

  test('B.11b, R-066: connect first, subscribe by a round, then a delta on the same connection', async () => {
    const g = await openLive();
    const client = await connectLive(g);
    await g.commit('p1');
    expect(client.story).toEqual(['delta 1']);
  });

  test('R-010, R-082: revoked by the resolver: silence after the next connect', async () => {
    const g = await openLive();
    await connectLive(g);
    g.grant('actor-1', P2);
    const again = await g.connect();
    await g.commit('p1');
    expect(again.story).toEqual(['hello']);
  });

  test('R-013: the same scopes in two partitions', async () => {
    const g = await openLive();
    const client = await connectLive(g);
    const there = await g.connect({ partition: 'elsewhere', clientId: 'c' });
    await g.socket(there, { partition: 'elsewhere', clientId: 'c', subscriptions: [NOTES] });
    there.clear();
    await g.commit('p1');
    expect([client.deltaSeqs, there.sent]).toEqual([[1], []]);
  });

  test('B.18, R-074: windows slide by inclusion, nothing is revoked', async () => {
    const g = await openLive();
    const client = await connectLive(g);
    const at = (id: string, project: string, cursor: number) =>
      subscription(id, 'notes', { project: [project] }, { cursor });
    await g.socket(client, { subscriptions: [at('s', 'p1', 0), at('t', 'p2', -1)] });
    client.ack(0);
    await g.commit('p2');
    expect(client.deltaSeqs).toEqual([1]);
    const { frames } = await g.socket(client, { subscriptions: [at('t', 'p2', 1)] });
    expect(frames.filter((frame) => frame.type === 'SUB_START').map(({ status }) => status)).toEqual([
      'active',
    ]);
    client.ack(1);
    await g.commit('p1');
    await g.commit('p2');
    expect(client.deltaSeqs).toEqual([1, 3]);
  });
});

describe('rounds', () => {
  test('R-051, R-064, R-053: the same request by socket and by HTTP, byte for byte', async () => {
    const g = await openLive({ limits: { outboxBytesHigh: 300, outboxBytesLow: 0, deltaBytesMax: 300 } });
    for (let n = 0; n < 40; n++) await g.commit('p1', `n${n}`);
    const spec = { subscriptions: [NOTES, subscription('t', 'notes', P2)], pull: { limitCommits: 7 } };
    const client = await g.connect();
    client.stall();
    client.round(await g.sync.request(spec));
    for (let turn = 0; turn < 40; turn++) {
      await g.settle();
      client.drain('stall');
    }
    const { bytes } = await g.http(spec);
    expect(Buffer.compare(client.roundBytes, bytes)).toBe(0);
  });

  test('R-058: another clientId in the request is refused, nothing is executed', async () => {
    const g = await openLive();
    const client = await connectLive(g);
    const pushes = [g.sync.push([g.sync.note('n1', 'p1')])];
    const { frames } = await g.socket(client, { clientId: 'somebody', pushes });
    expect(frames).toMatchObject([
      { type: 'RESP_HEADER' },
      { type: 'ERROR', code: 'sync.invalid_client_id' },
    ]);
    expect((await g.sync.readState(PARTITION)).head).toBe(0);
    expect(client.closed).toBeNull();
  });

  test('R-056, R-057, R-068: a refused list changes nothing, the next round is served', async () => {
    const g = await openLive();
    const client = await connectLive(g);
    const twice = [subscription('x', 'notes', P2), subscription('x', 'notes', P2)];
    const { frames } = await g.socket(client, { subscriptions: twice });
    const logEpoch = await g.sync.admit();
    expect(frames).toMatchObject([
      { type: 'RESP_HEADER', logEpoch, resetRequired: false },
      { type: 'ERROR', code: 'sync.invalid_subscription' },
    ]);
    await g.commit('p1');
    expect(client.deltaSeqs).toEqual([1]);
  });

  test('R-069: an epoch-reset answer leaves list, cursor and registrations alone', async () => {
    const g = await openLive();
    const client = await connectLive(g);
    const { frames } = await g.socket(client, {
      logEpoch: 'stale',
      subscriptions: [subscription('x', 'notes', P2)],
    });
    expect(frames).toMatchObject([{ type: 'RESP_HEADER', resetRequired: true }]);
    await g.commit('p1');
    expect(client.deltaSeqs).toEqual([1]);
  });

  test('B.11d, R-062: a push on the socket wakes its own connection, no delta in the stream', async () => {
    const g = await openLive();
    const client = await connectLive(g);
    const other = await connectLive(g, 'client-2');
    const pushes = [g.sync.push([g.sync.note('mine', 'p1')])];
    await g.socket(client, { pushes, subscriptions: [subscription('s', 'notes', P1, { cursor: 0 })] });
    expect(client.wakes).toEqual([{ cursor: 1, reason: 'catchup-required' }]);
    expect(client.deltas).toEqual([]);
    expect(other.deltaSeqs).toEqual([1]);
    client.ack(1);
    await g.commit('p1');
    expect(client.deltaSeqs).toEqual([2]);
  });

  test('3.6: a push by HTTP is a delta for the own connection as for anyone', async () => {
    const g = await openLive();
    const client = await connectLive(g);
    await g.http({ pushes: [g.sync.push([g.sync.note('mine', 'p1')])] });
    await g.settle();
    expect(client.deltaSeqs).toEqual([1]);
  });

  test('B.3, R-071: the socket is cut before END, the retry answers cached, observers saw it once', async () => {
    const g = await openLive();
    const observer = await connectLive(g, 'observer');
    const client = await connectLive(g);
    const pushes = [g.sync.push([g.sync.note('mine', 'p1')], 'commit-1')];
    client.round(await g.sync.request({ pushes }));
    client.vanish();
    await g.settle();
    const again = await g.connect();
    const { frames } = await g.socket(again, { pushes });
    const head = (await g.sync.readState(PARTITION)).head;
    expect(head).toBe(1);
    expect(frames).toMatchObject([{ type: 'RESP_HEADER' }, { type: 'PUSH_RESULT', commitSeq: 1 }]);
    const third = await g.socket(again, { pushes });
    expect(third.frames[1]).toMatchObject({ type: 'PUSH_RESULT', status: 'cached', commitSeq: 1 });
    expect(observer.deltaSeqs).toEqual([1]);
  });

  test('R-072: what a socket pushed before it died is whole or absent, and a retry completes it', async () => {
    for (const turns of [0, 1, 2, 4, 8]) {
      const path = join(folder, `cut-after-${turns}.db`);
      const g = await openLive({ path, limits: { commitBatchCommitsMax: 4 } });
      const client = await g.connect();
      const pushes = Array.from({ length: 20 }, (_, i) =>
        g.sync.push([g.sync.note(`a${i}`, 'p1'), g.sync.note(`b${i}`, 'p1')], `commit-${i}`),
      );
      client.round(await g.sync.request({ pushes }));
      for (let turn = 0; turn < turns; turn++) {
        await Promise.resolve();
        g.sync.clock.turn();
      }
      client.vanish();
      await g.settle();
      const ask = { clientId: 'reader', subscriptions: [subscription('r', 'notes', P1, { cursor: 0 })] };
      const landed = (await g.http(ask)).frames.filter((frame) => frame.type === 'COMMIT');
      for (const { changes } of landed) expect(changes).toHaveLength(2);
      const retried = (await g.http({ pushes })).frames.filter((frame) => frame.type === 'PUSH_RESULT');
      expect(retried.map(({ status }) => status)).toEqual(
        pushes.map((_, i) => (i < landed.length ? 'cached' : 'applied')),
      );
      expect((await g.sync.readState(PARTITION)).head).toBe(20);
    }
  });

  test('R-077: a window cut by limitCommits leaves the session behind until it caught up', async () => {
    const g = await openLive();
    const client = await connectLive(g);
    client.stall();
    client.bufferedBytes = Number.MAX_SAFE_INTEGER;
    for (let n = 0; n < 5; n++) await g.commit('p1', `n${n}`);
    client.drain();
    await g.settle();
    client.clear();
    let cursor = 0;
    let pulls = 0;
    while (cursor < 5) {
      const spec = { pull: { limitCommits: 2 }, subscriptions: [{ ...NOTES, cursor }] };
      const { frames } = await g.socket(client, spec);
      cursor = frames.find((frame) => frame.type === 'SUB_END')!.nextCursor;
      client.ack(cursor);
      pulls++;
    }
    expect(pulls).toBe(3);
    expect(client.wakes.length).toBe(2);
    await g.commit('p1');
    expect(client.deltaSeqs).toEqual([6]);
  });

  test('R-080: an ack during a round never writes an older list back', async () => {
    const g = await openLive();
    const client = await connectLive(g);
    client.round(await g.sync.request({ subscriptions: [subscription('new', 'notes', P2)] }));
    client.ack(0);
    await g.settle();
    client.ack(0);
    client.vanish();
    await g.settle();
    const record = await g.sync.clientRecord();
    expect(record?.subscriptions.map(({ id }) => id)).toEqual(['new']);
    const again = await g.connect();
    await g.commit('p2');
    expect(again.deltaSeqs).toEqual([1]);
  });
});

describe('many', () => {
  test('B.17, R-073: 20 clients leave and return; counts, suppression and deltas are right', async () => {
    const g = await openLive();
    const clients: FakeConnection[] = [];
    for (let n = 0; n < 20; n++) clients.push(await connectLive(g, `c${n}`));
    for (let n = 0; n < 5; n++) await g.commit('p1', `first-${n}`);
    for (const client of clients) {
      expect(client.deltaSeqs).toEqual([1, 2, 3, 4, 5]);
      client.ack(5);
      client.vanish();
    }
    expect([g.live.sessionCount, g.hub.memberCount]).toEqual([0, 0]);
    for (let n = 0; n < 5; n++) await g.commit('p1', `second-${n}`);
    for (let n = 0; n < 20; n++) clients[n] = await g.connect({ clientId: `c${n}` });
    expect(g.live.sessionCount).toBe(20);
    for (const [n, client] of clients.entries()) {
      expect(client.controlsOf('hello')[0]).toMatchObject({
        cursor: 5,
        latestCursor: 10,
        requiresSync: true,
      });
      await g.socket(client, { clientId: `c${n}`, subscriptions: [{ ...NOTES, cursor: 5 }] });
      client.ack(10);
    }
    await g.commit('p1', 'last');
    for (const client of clients) expect(client.deltaSeqs).toEqual([11]);
  });

  test('R-079: two nodes on one file and a bus that loses everything: dense and in order on both', async () => {
    const bus = new LossyBus();
    bus.fate = () => 'lose';
    const here = await openLive({ bus, limits: { headPollMs: 1_000 } });
    const there = await openLive({ bus, limits: { headPollMs: 1_000 } });
    const mine = await connectLive(here, 'a');
    const theirs = await connectLive(there, 'b');
    for (let n = 0; n < 6; n++) await (n % 2 === 0 ? here : there).commit('p1', `n${n}`);
    for (const g of [here, there]) {
      g.sync.clock.advance(1_000);
      await g.settle();
    }
    expect(mine.deltaSeqs).toEqual([1, 2, 3, 4, 5, 6]);
    expect(theirs.deltaSeqs).toEqual([1, 2, 3, 4, 5, 6]);
    expect([mine.wakes, theirs.wakes]).toEqual([[], []]);
  });

  test('R-032, R-033: after a rotation connections end, and version 1 rounds are refused on new ones', async () => {
    const g = await openLive();
    const client = await connectLive(g);
    await g.commit('p1');
    await g.sync.storage.rotateEpoch({ partition: PARTITION, logEpoch: 'restored' });
    g.live.epochRotated(PARTITION, 'restored');
    expect(client.closed?.code).toBe(1012);
    const again = await g.connect();
    expect(again.controlsOf('hello')[0]).toMatchObject({ cursor: -1, requiresSync: true });
    const { frames } = await g.socket(again, {
      wireVersion: 1,
      pushes: [g.sync.push([g.sync.note('n', 'p1')])],
    });
    expect(frames[1]).toMatchObject({ type: 'ERROR', code: 'sync.client_wire_unsupported' });
    expect((await g.sync.readState(PARTITION)).head).toBe(1);
  });
});
