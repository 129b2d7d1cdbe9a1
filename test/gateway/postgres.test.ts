/** The whole gateway on PostgreSQL: the same rounds, deltas and restart as on SQLite. */
import { afterAll, beforeAll, expect, onTestFinished, test } from 'vitest';
import { createStaticTokens } from '../../src/gateway/auth.ts';
import { createGateway } from '../../src/gateway/gateway.ts';
import { rowCodecOf } from '../../src/protocol/row-codec.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import { createTestDatabase, runSql, type TestDatabase } from '../support/postgres-server.ts';
import { connectTo, gatewayOptions, startGateway } from './support/live-gateway.ts';
import { ada, frameOf, frames, postSync, SCHEMA } from './support/requests.ts';
import type { RoundSocket } from './support/round-socket.ts';

const WRITER = { actorId: 'ada', scopes: { project: ['*'] }, expiresAtMs: null };

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

test('16 writers at two gateways, on one shared partition and on two others: dense, once, in order, rows right', async () => {
  const fresh = await createTestDatabase();
  onTestFinished(() => fresh.drop());
  const tenants = ['tenant-1', 'tenant-2', 'tenant-3'];
  const tokens = new Map(tenants.map((partition) => [`token-${partition}`, { ...WRITER, partition }]));
  const options = { storage: { url: fresh.url }, ...createStaticTokens(tokens), limits: { headPollMs: 50 } };
  const nodes = [await startGateway(options), await startGateway(options)];
  const watchers = await Promise.all(
    nodes.flatMap((node, i) =>
      tenants.map(async (partition) => {
        const clientId = `watcher-${i}-${partition}`;
        const socket = await node.connect({ clientId, token: `token-${partition}` });
        const pulled = await socket.round(ada.pull({ clientId }));
        socket.ack(frameOf(pulled, 'SUB_END').nextCursor);
        return { partition, socket, acked: 0 };
      }),
    ),
  );
  const pushed = new Map<string, string[]>(tenants.map((partition) => [partition, []]));
  const writers = Array.from({ length: 16 }, async (_, writer) => {
    // Half of them share the first partition, the others have one of two.
    const partition = writer < 8 ? tenants[0]! : tenants[1 + (writer % 2)]!;
    for (let i = 0; i < 12; i++) {
      const rowId = `w${writer}-${i}`;
      // Some rows are written by all of the partition.
      const push = ada.push({
        clientId: `writer-${writer}`,
        rowId: i % 4 === 0 ? `shared-${i}` : rowId,
        clientCommitId: rowId,
        title: rowId,
      });
      const answer = await postSync(nodes[(writer + i) % 2]!.url, push, { token: `token-${partition}` });
      expect(frameOf(answer.body, 'PUSH_RESULT').status).toBe('applied');
      pushed.get(partition)!.push(rowId);
    }
  });
  await Promise.all(writers);
  for (const watcher of watchers) {
    const { partition, socket } = watcher;
    const commits = () =>
      socket.deltas.flatMap((delta) => frames(delta)).filter((frame) => frame.type === 'COMMIT');
    const expected = pushed.get(partition)!;
    const titles = await untilSeen(watcher, commits, expected.length);
    expect(commits().map(({ commitSeq }) => commitSeq)).toEqual(expected.map((_, i) => i + 1));
    expect(new Set(titles)).toEqual(new Set(expected));
    expect(titles).toHaveLength(expected.length);
  }
  const log = await runSql<{ partition: string; count: string; head: string; ids: string }>(
    fresh.url,
    `SELECT partition, count(*) AS count, max(commit_seq) AS head, count(DISTINCT (client_id, client_commit_id)) AS ids
     FROM tidegate.sync_commits GROUP BY partition ORDER BY partition`,
  );
  expect(log.map(({ partition, count }) => [partition, Number(count)])).toEqual(
    tenants.map((partition) => [partition, pushed.get(partition)!.length]),
  );
  for (const { count, head, ids } of log) expect([head, ids]).toEqual([count, count]);
  // Each row is what the last change of it in the log says.
  const wrong = await runSql(
    fresh.url,
    `SELECT 1 FROM tidegate.notes AS n FULL JOIN (
       SELECT DISTINCT ON (partition, row_id) partition, row_id, payload, row_version
       FROM tidegate.sync_changes ORDER BY partition, row_id, commit_seq DESC, idx DESC) AS last
       ON last.partition = n._sync_partition AND last.row_id = n._sync_row_id
     WHERE n._sync_payload IS DISTINCT FROM last.payload OR n._sync_server_version IS DISTINCT FROM last.row_version`,
  );
  expect(wrong).toEqual([]);
});

interface Watcher {
  readonly socket: RoundSocket;
  acked: number;
}

/** Acks what comes, as clients do, until `count` commits are here; their titles. */
async function untilSeen(
  watcher: Watcher,
  commits: () => readonly Extract<ReturnType<typeof frames>[number], { readonly type: 'COMMIT' }>[],
  count: number,
): Promise<readonly string[]> {
  const { socket } = watcher;
  await socket.until(() => {
    const last = commits().at(-1)?.commitSeq ?? 0;
    if (last > watcher.acked) {
      watcher.acked = last;
      socket.ack(last);
    }
    return commits().length >= count;
  });
  const codec = rowCodecOf(compileSchema(SCHEMA).tables[0]!);
  return commits().flatMap(({ changes }) => changes.map(({ row }) => String(codec.decode(row!)[2])));
}

test('a foreign key of the application refuses the culprit alone, and replays the same when the row it missed is there', async () => {
  const fresh = await createTestDatabase();
  onTestFinished(() => fresh.drop());
  const { url } = await startGateway({ storage: { url: fresh.url } });
  await runSql(
    fresh.url,
    `CREATE TABLE app_projects (id text PRIMARY KEY); INSERT INTO app_projects VALUES ('shared');
     ALTER TABLE tidegate.notes ADD CONSTRAINT notes_project FOREIGN KEY (project) REFERENCES app_projects (id);
     CREATE UNIQUE INDEX notes_title ON tidegate.notes (title)`,
  );
  const writers = [
    { clientId: 'c1', rowId: 'r1', title: 'one' },
    { clientId: 'c2', rowId: 'r2', title: 'two', project: 'missing' },
    { clientId: 'c3', rowId: 'r3', title: 'three' },
    { clientId: 'c4', rowId: 'r4', title: 'one' },
    { clientId: 'c5', rowId: 'r5', title: 'five' },
  ];
  // At once, so that they share a transaction.
  const send = () =>
    Promise.all(
      writers.map(async (push) => frameOf((await postSync(url, ada.push(push))).body, 'PUSH_RESULT')),
    );
  const first = await send();
  // Of the two with one title the database takes whichever came first.
  const [refused, taken] = first[0]!.status === 'applied' ? [first[3]!, first[0]!] : [first[0]!, first[3]!];
  for (const culprit of [first[1]!, refused]) {
    expect(culprit.status).toBe('rejected');
    expect(culprit.results).toEqual([expect.objectContaining({ code: 'sync.constraint_violation' })]);
  }
  for (const { status } of [first[2]!, first[4]!, taken]) expect(status).toBe('applied');

  await runSql(fresh.url, `INSERT INTO app_projects VALUES ('missing'); DROP INDEX tidegate.notes_title`);
  const again = await send();
  expect(again.map(({ results }) => results)).toEqual(first.map(({ results }) => results));
  expect(again.map(({ commitSeq }) => commitSeq)).toEqual(first.map(({ commitSeq }) => commitSeq));
  const [log] = await runSql<{ count: string; head: string }>(
    fresh.url,
    'SELECT count(*) AS count, max(commit_seq) AS head FROM tidegate.sync_commits',
  );
  expect(log).toEqual({ count: '3', head: '3' });
});
