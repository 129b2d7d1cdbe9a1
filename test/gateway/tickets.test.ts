/** `POST ticket` and `?ticket=`: one upgrade each, sealed, short-lived, void with its actor (part 3, 3.2-2). */
import { expect, test } from 'vitest';
import { createMemoryBusNetwork } from '../../src/gateway/bus/memory.ts';
import { Tickets } from '../../src/gateway/tickets.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { call, json } from './support/http-client.ts';
import { type LiveGateway, startGateway } from './support/live-gateway.ts';
import { ada } from './support/requests.ts';
import { RoundSocket } from './support/round-socket.ts';

const SECRET = 'shared by all the nodes of a gateway';

async function issue(live: LiveGateway, token = 'token-ada'): Promise<string> {
  const headers = { authorization: `Bearer ${token}` };
  const answer = await call(`${live.url}/ticket`, { method: 'POST', headers });
  expect(answer.status).toBe(200);
  expect(answer.headers['cache-control']).toBe('no-store');
  const { ticket, expiresInMs } = json(answer) as { ticket: string; expiresInMs: number };
  expect(expiresInMs).toBe(30_000);
  return ticket;
}

const open = (live: LiveGateway, ticket: string, clientId = 'client-1') =>
  new RoundSocket(`${live.url.replace('http', 'ws')}/realtime?clientId=${clientId}&ticket=${ticket}`);

test('opens one socket, with the grant of its actor, and no second one', async () => {
  const live = await startGateway();
  const ticket = await issue(live);
  expect(ticket).not.toContain('ada');
  const socket = open(live, ticket);
  expect(await socket.control('hello')).toMatchObject({ actorId: 'ada' });
  const pulled = await socket.round(ada.pull({ projects: ['any'] }));
  expect(pulled.byteLength).toBeGreaterThan(0);
  await expect(open(live, ticket, 'client-2').control('hello')).rejects.toThrow();
  const again = open(live, await issue(live), 'client-2');
  expect(await again.control('hello')).toMatchObject({ actorId: 'ada' });
});

test('nobody without credentials gets one, and it is no credential for a plain request', async () => {
  const live = await startGateway();
  expect((await call(`${live.url}/ticket`, { method: 'POST' })).status).toBe(401);
  expect((await call(`${live.url}/ticket`)).status).toBe(405);
  const ticket = await issue(live);
  const headers = { authorization: `Bearer ${ticket}` };
  expect((await call(`${live.url}/ticket`, { method: 'POST', headers })).status).toBe(401);
  expect((await call(`${live.url}/ticket?ticket=${ticket}`, { method: 'POST' })).status).toBe(401);
});

test('revoked: a ticket that the actor holds already opens nothing', async () => {
  const live = await startGateway();
  const ticket = await issue(live);
  live.gateway.revokeActor({ partition: 'tenant-1', actorId: 'ada' });
  await expect(open(live, ticket).control('hello')).rejects.toThrow();
  const ben = open(live, await issue(live, 'token-ben'));
  expect(await ben.control('hello')).toMatchObject({ actorId: 'ben' });
});

test('nodes with one secret take each other’s, nodes without do not', async () => {
  const [one, two, alone] = await Promise.all([
    startGateway({ ticketSecret: SECRET }),
    startGateway({ ticketSecret: SECRET }),
    startGateway(),
  ]);
  expect(await open(two, await issue(one)).control('hello')).toMatchObject({ actorId: 'ada' });
  await expect(open(alone, await issue(one)).control('hello')).rejects.toThrow();
  await expect(startGateway({ ticketSecret: 'short' })).rejects.toThrow('32 bytes');
});

test('revoked at one node: void at the others too', async () => {
  const network = createMemoryBusNetwork(() => undefined);
  const [one, two] = await Promise.all(
    [network.join(), network.join()].map((bus) => startGateway({ ticketSecret: SECRET, bus })),
  );
  const ticket = await issue(one!);
  one!.gateway.revokeActor({ partition: 'tenant-1', actorId: 'ada' });
  await expect(open(two!, ticket).control('hello')).rejects.toThrow();
  expect(await open(two!, await issue(one!, 'token-ben')).control('hello')).toMatchObject({ actorId: 'ben' });
});

test('revoked while it is found out who asks: the ticket is void from the start', async () => {
  const { clock, tickets } = ticketsOf();
  const askedMs = clock.nowMs();
  clock.advance(5);
  tickets.revoke(WHO);
  clock.advance(5);
  expect(await tickets.redeem((await tickets.issue(WHO, askedMs)).ticket)).toBeNull();
  expect(await tickets.redeem((await tickets.issue(WHO, clock.nowMs())).ticket)).toEqual(WHO);
});

test('one actor is issued a bounded number', async () => {
  const live = await startGateway({ limits: { ticketsPerActorMax: 2 } });
  for (let n = 0; n < 2; n++) await issue(live);
  const headers = { authorization: 'Bearer token-ada' };
  const answer = await call(`${live.url}/ticket`, { method: 'POST', headers });
  expect([answer.status, Number(answer.headers['retry-after'])]).toEqual([429, expect.any(Number)]);
  expect(json(answer)).toMatchObject({ code: 'sync.rate_limited' });
  await issue(live, 'token-ben');
});

const WHO = { actorId: 'ada', partition: 'p', expiresAtMs: null, claims: { scopes: { project: ['p1'] } } };

function ticketsOf(limits = { ticketLifetimeMs: 30_000, ticketsKeptMax: 3, ticketsPerActorMax: 50 }) {
  const clock = new ManualClock();
  return { clock, tickets: new Tickets({ secret: SECRET, limits, clock }) };
}

test('ends with its time, or with the grant where that ends sooner', async () => {
  const { clock, tickets } = ticketsOf();
  const { ticket } = await tickets.issue(WHO, clock.nowMs());
  const expiring = { ...WHO, expiresAtMs: clock.nowMs() + 10_000 };
  const sooner = await tickets.issue(expiring, clock.nowMs());
  expect(sooner.expiresInMs).toBe(10_000);
  clock.advance(9_999);
  expect(await tickets.redeem((await tickets.issue(expiring, clock.nowMs())).ticket)).toEqual(expiring);
  clock.advance(1);
  expect(await tickets.redeem(sooner.ticket)).toBeNull();
  clock.advance(19_999);
  expect(await tickets.redeem(ticket)).toEqual(WHO);
  const late = await tickets.issue(WHO, clock.nowMs());
  clock.advance(30_000);
  expect(await tickets.redeem(late.ticket)).toBeNull();
});

test('forged, cut, of another secret, or garbage', async () => {
  const { tickets, clock } = ticketsOf();
  const { ticket } = await tickets.issue(WHO, clock.nowMs());
  const limits = { ticketLifetimeMs: 30_000, ticketsKeptMax: 3, ticketsPerActorMax: 50 };
  const other = new Tickets({ secret: `${SECRET}!`, limits, clock });
  const bad = [
    (await other.issue(WHO, clock.nowMs())).ticket,
    ticket.slice(0, -2),
    `${ticket}x`,
    'tgt_',
    'tgt_a.b.c.d.e',
    '',
  ];
  for (const each of bad) expect(await tickets.redeem(each), each).toBeNull();
  expect(await tickets.redeem(ticket)).toEqual(WHO);
});

test('what is remembered of used ones is bounded, and forgotten with their time', async () => {
  const { clock, tickets } = ticketsOf();
  const issued = await Promise.all(Array.from({ length: 4 }, () => tickets.issue(WHO, clock.nowMs())));
  for (const { ticket } of issued.slice(0, 3)) expect(await tickets.redeem(ticket)).not.toBeNull();
  await expect(tickets.redeem(issued[3]!.ticket)).rejects.toMatchObject({
    code: 'sync.rate_limited',
    httpStatus: 503,
  });
  clock.advance(30_000);
  const { ticket } = await tickets.issue(WHO, clock.nowMs());
  expect(await tickets.redeem(ticket)).toEqual(WHO);
  expect(await tickets.redeem(ticket)).toBeNull();
});
