/** The realtime channel through the whole gateway, on a real socket and a real database (part 3). */
import { describe, expect, onTestFinished, test } from 'vitest';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { openSqliteStorage } from '../../src/storage/sqlite/sqlite-storage.ts';
import { interceptStorage, Latch } from '../support/intercepted-storage.ts';
import { call, once } from './support/http-client.ts';
import { type LiveGateway, startGateway } from './support/live-gateway.ts';
import { ada, frameOf, frames, postSync } from './support/requests.ts';
import { RoundSocket } from './support/round-socket.ts';

const isInteger = (value: unknown): boolean => Number.isSafeInteger(value);

/** Connected, pulled and acked: deltas flow. */
async function connectLive(live: LiveGateway, clientId = 'client-1'): Promise<RoundSocket> {
  const socket = await live.connect({ clientId });
  const pulled = await socket.round(ada.pull({ clientId }));
  socket.ack(frameOf(pulled, 'SUB_END').nextCursor);
  return socket;
}

describe('hello', () => {
  test('R-004, R-006: comes first, with its eight fields; a new client requires a sync', async () => {
    const live = await startGateway();
    const socket = await live.connect();
    expect(socket.controls[0]).toEqual({
      event: 'hello',
      data: {
        protocolVersion: 1,
        sessionId: expect.any(String),
        actorId: 'ada',
        clientId: 'client-1',
        cursor: -1,
        latestCursor: 0,
        requiresSync: true,
        timestamp: expect.any(Number),
      },
    });
  });

  test('R-005: a fresh session id per connection, protocol version 1', async () => {
    const live = await startGateway();
    const one = await (await live.connect({ clientId: 'a' })).control('hello');
    const two = await (await live.connect({ clientId: 'b' })).control('hello');
    expect(one.sessionId).not.toBe(two.sessionId);
    expect([one.protocolVersion, two.protocolVersion]).toEqual([1, 1]);
  });

  test('R-075: a round sent before hello was read is answered', async () => {
    const live = await startGateway();
    const early = new RoundSocket(
      `${live.url.replace('http', 'ws')}/realtime?clientId=early&token=token-ada`,
    );
    early.ws.once('open', () => early.sendRoundBytes(ada.pull({ clientId: 'early' })));
    await early.until(() => early.responses.length === 1);
    expect(early.controls[0]?.event).toBe('hello');
    early.end();
  });

  test('R-075, R-052: a round of one byte per message, all sent while the record still loads, is answered', async () => {
    const { storage, segments } = await openSqliteStorage({ path: ':memory:', clock: createRealClock() });
    onTestFinished(() => storage.close());
    const loaded = new Latch();
    let admissions = 0;
    const slow = interceptStorage(storage, async ({ method }) => {
      // The upgrade asks first, then the session loads.
      if (method === 'admit' && ++admissions === 2) await loaded.opened;
    });
    const live = await startGateway({ storage: { storage: slow, segments } });
    const early = new RoundSocket(
      `${live.url.replace('http', 'ws')}/realtime?clientId=early&token=token-ada`,
    );
    onTestFinished(() => early.end());
    await once(early.ws, 'open');
    const request = ada.push({ clientId: 'early', rowId: 'r1', title: 'x'.repeat(5_000) });
    for (const byte of request) early.sendRoundBytes(Uint8Array.of(byte));
    // A full turn of the server, with everything on the way to it.
    await call(`${live.url}/healthz`);
    loaded.open();
    await early.until(() => early.responses.length === 1);
    expect(frameOf(early.responses[0]!, 'PUSH_RESULT').status).toBe('applied');
  });
});

describe('rounds on the socket', () => {
  test('R-052: any chunking of the request', async () => {
    const live = await startGateway();
    const socket = await live.connect();
    const request = ada.push({ rowId: 'r1' });
    for (const byte of request.slice(0, -1)) socket.sendRoundBytes(Uint8Array.of(byte));
    expect(socket.responses).toEqual([]);
    socket.sendRoundBytes(new Uint8Array(0));
    const response = await socket.round(request.slice(-1));
    expect(frameOf(response, 'PUSH_RESULT').status).toBe('applied');
  });

  test('R-053, R-054: a hundred rounds back to back, each response ends exactly at END', async () => {
    const live = await startGateway();
    const socket = await live.connect();
    for (let round = 0; round < 100; round += 1) {
      const response = await socket.round(ada.push({ rowId: `r${round}` }));
      expect(frameOf(response, 'PUSH_RESULT').commitSeq).toBe(round + 1);
    }
    expect(socket.excessBytes).toBe(0);
    expect(socket.closed).toBeNull();
  });

  test('R-016, R-028: a commit is pushed to who follows its scope, in order', async () => {
    const live = await startGateway();
    const reader = await connectLive(live, 'reader');
    const writer = await live.connect({ clientId: 'writer' });
    for (let commit = 1; commit <= 20; commit += 1) {
      await writer.round(ada.push({ clientId: 'writer', rowId: `r${commit}` }));
    }
    const seqs = (): number[] =>
      reader.deltas.flatMap((delta) =>
        frames(delta).flatMap((frame) => (frame.type === 'COMMIT' ? [frame.commitSeq] : [])),
      );
    await reader.until(() => seqs().length === 20);
    expect(seqs()).toEqual(Array.from({ length: 20 }, (_, index) => index + 1));
  });

  test('R-013: another partition hears nothing', async () => {
    const live = await startGateway();
    const eve = await live.connect({ clientId: 'eve', token: 'token-eve' });
    const pulled = await eve.round(ada.pull({ clientId: 'eve' }));
    eve.ack(frameOf(pulled, 'SUB_END').nextCursor);
    await postSync(live.url, ada.push({ rowId: 'r1' }));
    // A commit of its own is the marker.
    const writer = await live.connect({ clientId: 'eve-2', token: 'token-eve' });
    await writer.round(ada.push({ clientId: 'eve-2', rowId: 'own' }));
    await eve.until(() => eve.deltas.length > 0);
    expect(frameOf(eve.deltas[0]!, 'COMMIT').changes.map(({ rowId }) => rowId)).toEqual(['own']);
    expect(eve.controls.map(({ event }) => event)).toEqual(['hello']);
  });

  test('R-063, R-064: a reader that stops and reads again gets a complete response', async () => {
    const live = await startGateway({ limits: { outboxBytesHigh: 2 ** 20, outboxBytesLow: 2 ** 16 } });
    const text = 'x'.repeat(1_000_000);
    for (let row = 0; row < 12; row += 1) {
      await postSync(live.url, ada.push({ rowId: `r${row}`, title: text }));
    }
    const slow = await live.connect({ clientId: 'slow' });
    slow.ws.pause();
    slow.sendRoundBytes(ada.pull({ clientId: 'slow', cursor: 0 }));
    // Somebody else is served meanwhile.
    await connectLive(live, 'other');
    slow.ws.resume();
    await slow.until(() => slow.responses.length === 1);
    const overHttp = await postSync(live.url, ada.pull({ clientId: 'http', cursor: 0 }));
    expect(Buffer.compare(slow.responses[0]!, overHttp.body)).toBe(0);
    expect(slow.excessBytes).toBe(0);
  });

  test('R-014: every number of a control message is a safe integer, every tag is 0x00 or 0x01', async () => {
    const live = await startGateway({ limits: { heartbeatMs: 5, sessionTickMs: 1 } });
    const reader = await connectLive(live, 'reader');
    const behind = await live.connect({ clientId: 'behind' });
    await behind.round(ada.pull({ clientId: 'behind' }));
    await postSync(live.url, ada.push({ rowId: 'r1' }));
    await reader.until(() => reader.deltas.length === 1);
    await behind.control('sync');
    await reader.control('heartbeat');
    for (const { data } of [...reader.controls, ...behind.controls]) {
      for (const value of Object.values(data))
        if (typeof value === 'number') expect(isInteger(value)).toBe(true);
    }
    expect([...reader.tags].sort()).toEqual([0, 1]);
  });
});

describe('the end of a session', () => {
  test('4409: a newer connection of the client replaces the older one', async () => {
    const live = await startGateway();
    const older = await live.connect({ clientId: 'same' });
    const newer = await live.connect({ clientId: 'same' });
    expect((await older.untilClosed()).code).toBe(4409);
    expect(newer.closed).toBeNull();
  });

  test('duplicateClients keep: both live', async () => {
    const live = await startGateway({ duplicateClients: 'keep' });
    const older = await live.connect({ clientId: 'same' });
    const newer = await live.connect({ clientId: 'same' });
    await newer.round(ada.pull({ clientId: 'same' }));
    await older.round(ada.pull({ clientId: 'same' }));
  });

  test('4401: a revoked actor is cut off, others stay', async () => {
    const live = await startGateway();
    const revoked = await live.connect({ clientId: 'a' });
    const other = await live.connect({ clientId: 'b', token: 'token-ben' });
    live.gateway.revokeActor({ partition: 'tenant-1', actorId: 'ada' });
    expect((await revoked.untilClosed()).code).toBe(4401);
    await other.round(ada.pull({ clientId: 'b' }));
  });

  test('R-032: an epoch rotation closes the sessions of its partition with 1012', async () => {
    const live = await startGateway();
    const rotated = await live.connect({ clientId: 'a' });
    const elsewhere = await live.connect({ clientId: 'e', token: 'token-eve' });
    await live.gateway.rotateEpoch('tenant-1');
    expect((await rotated.untilClosed()).code).toBe(1012);
    await elsewhere.round(ada.pull({ clientId: 'e' }));
  });

  test('R-073: a closed connection is forgotten', async () => {
    const live = await startGateway();
    const reader = await connectLive(live, 'reader');
    const writer = await live.connect({ clientId: 'writer' });
    expect(live.gateway.stats().sessions).toBe(2);
    reader.end();
    await writer.round(ada.push({ clientId: 'writer', rowId: 'r1' }));
    await writer.round(ada.push({ clientId: 'writer', rowId: 'r2' }));
    expect(live.gateway.stats().sessions).toBe(1);
  });

  test('the connection limit refuses the next one', async () => {
    const live = await startGateway({ limits: { connectionsMax: 1 } });
    await live.connect({ clientId: 'a' });
    await expect(live.connect({ clientId: 'b' })).rejects.toThrow();
    expect(live.gateway.stats().sessions).toBe(1);
  });
});
