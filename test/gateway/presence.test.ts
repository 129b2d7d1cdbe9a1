/** Presence on real sockets (part 3, 3.10): a killed connection leaves, and nothing of a document is ever stored. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type LiveGateway, startGateway } from './support/live-gateway.ts';
import { ada, frameOf } from './support/requests.ts';
import type { RoundSocket } from './support/round-socket.ts';

const KEY = 'project:shared';
const SECRET = 'a text that stands nowhere else';

/** Registered on the key: presence goes by registrations, not by what the actor may do. */
async function enter(live: LiveGateway, clientId: string): Promise<RoundSocket> {
  const socket = await live.connect({ clientId });
  const pulled = await socket.round(ada.pull({ clientId, projects: ['shared'] }));
  socket.ack(frameOf(pulled, 'SUB_END').nextCursor);
  return socket;
}

const publish = (socket: RoundSocket, doc: object | null): void =>
  socket.sendText(JSON.stringify({ event: 'presence', data: { scopeKey: KEY, doc } }));

const heard = (socket: RoundSocket) =>
  socket.controls
    .filter(({ event }) => event === 'presence')
    .map(({ data }) => [data.kind, data.clientId, data.doc]);

test('R-036, R-040, R-046: a snapshot, a killed connection, no trace in the database, nothing after a restart', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-presence-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const storage = { path: join(folder, 'app.db') };
  const live = await startGateway({ storage });
  const a = await enter(live, 'client-a');
  publish(a, { note: SECRET });
  const b = await enter(live, 'client-b');
  await b.until(() => heard(b).length === 1);
  expect(heard(b)).toEqual([['join', 'client-a', { note: SECRET }]]);
  publish(b, { note: 'b' });
  await a.until(() => heard(a).length === 1);
  expect(heard(a)).toEqual([['join', 'client-b', { note: 'b' }]]);
  for (const file of readdirSync(folder)) {
    expect(readFileSync(join(folder, file)).includes(SECRET), file).toBe(false);
  }
  a.ws.terminate();
  await b.until(() => heard(b).length === 2);
  expect(heard(b)[1]).toEqual(['leave', 'client-a', null]);
  await live.gateway.close();
  const again = await startGateway({ storage });
  const c = await enter(again, 'client-c');
  publish(c, { note: 'c' });
  const d = await enter(again, 'client-d');
  await d.until(() => heard(d).length === 1);
  expect(heard(d)).toEqual([['join', 'client-c', { note: 'c' }]]);
});

test('R-050: a round with push and pull of the one who is present changes nothing for the peers', async () => {
  const live = await startGateway();
  const a = await enter(live, 'client-a');
  const b = await enter(live, 'client-b');
  publish(a, { n: 1 });
  await b.until(() => heard(b).length === 1);
  await a.round(ada.mixed({ clientId: 'client-a', projects: ['shared'], rowId: 'r1' }));
  publish(a, { n: 2 });
  await b.until(() => heard(b).length === 2);
  expect(heard(b).map(([kind]) => kind)).toEqual(['join', 'update']);
});
