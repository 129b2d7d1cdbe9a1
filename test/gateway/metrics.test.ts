/** `GET /metrics`: who may ask, and that every figure of the documentation exists and moves in a real run. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { GatewayMetrics } from '../../src/gateway/metrics.ts';
import type { LiveEvent } from '../../src/session/live/live-events.ts';
import type { SyncEvent } from '../../src/session/sync/sync-deps.ts';
import { call } from './support/http-client.ts';
import { startGateway } from './support/live-gateway.ts';
import { ada, frameOf, postSync } from './support/requests.ts';

const OPERATOR = { authorization: 'Bearer the-operator' };

/** Sum over all series of each name. */
function figures(text: string): Map<string, number> {
  const sums = new Map<string, number>();
  for (const line of text.split('\n')) {
    const match = /^(tidegate_\w+?)(?:_(?:sum|count))?(?:\{[^}]*\})? ([-+.\deE]+)$/.exec(line);
    if (match === null || line.includes('_bucket')) continue;
    sums.set(match[1]!, (sums.get(match[1]!) ?? 0) + Number(match[2]));
  }
  return sums;
}

test('off, for the operator, for everybody', async () => {
  const off = await startGateway({ operatorToken: 'the-operator' });
  expect((await call(`${off.url}/metrics`, { headers: OPERATOR })).status).toBe(404);
  const some = await startGateway({ metrics: 'operator', operatorToken: 'the-operator' });
  expect((await call(`${some.url}/metrics`)).status).toBe(401);
  expect((await call(`${some.url}/metrics`, { headers: { authorization: 'Bearer token-ada' } })).status).toBe(
    401,
  );
  const answer = await call(`${some.url}/metrics`, { headers: OPERATOR });
  expect([answer.status, answer.headers['content-type']]).toEqual([
    200,
    expect.stringMatching(/^text\/plain/),
  ]);
  const all = await startGateway({ metrics: 'public' });
  expect((await call(`${all.url}/metrics`)).status).toBe(200);
  expect((await call(`${all.url}/metrics`, { method: 'POST' })).status).toBe(405);
  await expect(startGateway({ metrics: 'operator' })).rejects.toThrow('operatorToken');
});

test('a real run: sessions, rounds, commits, deltas, refusals, and no name of anybody', async () => {
  const live = await startGateway({ metrics: 'public' });
  const read = async () => figures((await call(`${live.url}/metrics`)).body.toString());
  const writer = await live.connect({ clientId: 'writer-of-all' });
  const reader = await live.connect({ clientId: 'reader-of-all' });
  for (const socket of [writer, reader]) {
    const clientId = socket === writer ? 'writer-of-all' : 'reader-of-all';
    const pulled = await socket.round(ada.pull({ clientId, projects: ['shared'] }));
    socket.ack(frameOf(pulled, 'SUB_END').nextCursor);
  }
  await writer.round(ada.push({ clientId: 'writer-of-all', rowId: 'r1', project: 'shared' }));
  await reader.until(() => reader.deltas.length === 1);
  await postSync(live.url, ada.pull(), { token: 'nobody' });
  live.gateway.resync('tenant-1');
  await reader.until(() => reader.controls.some(({ event }) => event === 'sync'));
  const now = await read();
  expect(now.get('tidegate_sessions')).toBe(2);
  expect(now.get('tidegate_sessions_opened_total')).toBe(2);
  expect(now.get('tidegate_commits_total')).toBe(1);
  expect(now.get('tidegate_deltas_total')).toBeGreaterThan(0);
  expect(now.get('tidegate_wake_ups_total')).toBeGreaterThan(0);
  expect(now.get('tidegate_sent_bytes_total')).toBeGreaterThan(100);
  expect(now.get('tidegate_http_request_seconds')).toBeGreaterThan(1);
  const { body } = await call(`${live.url}/metrics`);
  for (const name of ['tenant-1', 'ada', 'writer-of-all', 'token'])
    expect(body.toString()).not.toContain(name);
  writer.end();
  await reader.until(() => reader.closed === null);
  while ((await read()).get('tidegate_sessions') !== 1);
  expect((await read()).get('tidegate_sessions_closed_total')).toBe(1);
});

const EVENTS: readonly (SyncEvent | LiveEvent)[] = [
  { type: 'session.opened', partition: 'p', actorId: 'a', connectMs: 3, requiresSync: false },
  { type: 'session.closed', partition: 'p', actorId: 'a', code: 1013, reason: '', openMs: 1 },
  { type: 'session.woken', reason: 'reset-required' },
  { type: 'round.finished', partition: 'p', outcome: 'served', durationMs: 5, responseBytes: 10 },
  { type: 'fanout.turn', sessions: 1, deltas: 2, wakeUps: 0, bytes: 10 },
  { type: 'fanout.backlog_dropped', partition: 'p', throughSeq: 1 },
  { type: 'feed.caught_up', partition: 'p', cause: 'poll', commits: 1 },
  { type: 'feed.gap', partition: 'p', afterSeq: 1, throughSeq: 2, error: null },
  { type: 'commit.batch', partition: 'p', commits: 3, rejected: 1, durationMs: 4 },
  { type: 'commit.slow_path', partition: 'p', commits: 3, cause: 'unique' },
  { type: 'request.refused', partition: 'p', code: 'sync.rate_limited' },
  { type: 'gate.refused', partition: 'p', kind: 'schema', details: {} },
  { type: 'writer.fenced', partition: 'p', writerVersion: 1 },
  { type: 'segment.built', partition: 'p', table: 't', rows: 5, bytes: 5 },
  { type: 'storage.failed', partition: 'p', error: new Error('x') },
  {
    type: 'backfill.advanced',
    partition: 'p',
    name: 'n',
    phase: 'scan',
    observedRows: 5,
    watermark: 1,
    head: 4,
    ratePerSecond: 1,
  },
];

test('docs/OPERATIONS.md lists exactly the figures that there are, and each of them moves', async () => {
  const metrics = new GatewayMetrics();
  let value = 0;
  const read = () => value;
  metrics.watch({ sessions: read, httpRounds: read, commitQueueDepth: read });
  const own = metrics.registry
    .getMetricsAsArray()
    .map(({ name }) => name)
    .filter((name) => name.startsWith('tidegate_'));
  const documented = readFileSync(new URL('../../docs/OPERATIONS.md', import.meta.url), 'utf8').match(
    /(?<=^\| `)tidegate_\w+(?=`)/gm,
  );
  expect([...documented!].sort()).toEqual([...own].sort());
  const before = figures(await metrics.registry.metrics());
  for (const event of EVENTS) metrics.events.emit(event);
  metrics.exchange({ route: 'sync', status: 200, durationMs: 4 });
  value = 7;
  const after = figures(await metrics.registry.metrics());
  for (const name of own) expect(after.get(name), name).not.toBe(before.get(name) ?? 0);
});
