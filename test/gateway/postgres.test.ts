/** The whole gateway on PostgreSQL: the same rounds, deltas and restart as on SQLite. */
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { createGateway } from '../../src/gateway/gateway.ts';
import { createTestDatabase, type TestDatabase } from '../support/postgres-server.ts';
import { connectTo, gatewayOptions, startGateway } from './support/live-gateway.ts';
import { ada, frameOf, frames, postSync } from './support/requests.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});

afterAll(async () => {
  await database.drop();
});

test('a push by HTTP reaches a live socket as a delta, and survives a restart', async () => {
  const gateway = await createGateway(gatewayOptions({ storage: { url: database.url } }));
  const { url } = await gateway.listen({ port: 0 });
  const reader = await connectTo(url, { clientId: 'reader' });
  const pulled = await reader.round(ada.pull({ clientId: 'reader' }));
  reader.ack(frameOf(pulled, 'SUB_END').nextCursor);
  await postSync(url, ada.push({ clientId: 'writer', rowId: 'r1', title: 'first' }));
  await reader.until(() => reader.deltas.length === 1);
  await gateway.close();

  const again = await startGateway({ storage: { url: database.url } });
  const replay = await postSync(again.url, ada.push({ clientId: 'writer', rowId: 'r1', title: 'first' }));
  expect(frameOf(replay.body, 'PUSH_RESULT').status).toBe('cached');
  const fresh = await postSync(again.url, ada.pull({ clientId: 'newcomer' }));
  expect(frames(fresh.body).filter((frame) => frame.type === 'SEGMENT_INLINE')).toHaveLength(1);
});

test('two gateways on one database: dense, in order, each commit once at the subscribers of both', async () => {
  const storage = { url: database.url };
  const here = await startGateway({ storage, limits: { headPollMs: 50 } });
  const there = await startGateway({ storage, limits: { headPollMs: 50 } });
  const sockets = await Promise.all([here, there].map((node, i) => node.connect({ clientId: `both-${i}` })));
  onTestFinished(() => {
    for (const socket of sockets) socket.end();
  });
  for (const [i, socket] of sockets.entries()) {
    const pulled = await socket.round(ada.pull({ clientId: `both-${i}` }));
    socket.ack(frameOf(pulled, 'SUB_END').nextCursor);
  }
  const ids = Array.from({ length: 16 }, (_, i) => `w${i}`);
  await Promise.all(
    ids.map((rowId, i) =>
      postSync((i % 2 === 0 ? here : there).url, ada.push({ clientId: `writer-${i}`, rowId })),
    ),
  );
  const commitsAt = (socket: (typeof sockets)[number]) =>
    socket.deltas.flatMap((delta) => frames(delta)).filter((frame) => frame.type === 'COMMIT');
  for (const socket of sockets) {
    await socket.until(() => commitsAt(socket).length >= ids.length);
    const seqs = commitsAt(socket).map((commit) => commit.commitSeq);
    expect(seqs).toEqual(Array.from(ids, (_, i) => seqs[0]! + i));
    expect(new Set(commitsAt(socket).map((commit) => commit.changes[0]!.rowId))).toEqual(new Set(ids));
  }
});
