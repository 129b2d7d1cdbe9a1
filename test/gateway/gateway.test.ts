/** Ways to run a gateway: alone, inside a host's server, beside another one; and how it ends. */
import { createServer, type RequestListener, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createStaticTokens } from '../../src/gateway/auth.ts';
import { createMemoryBusNetwork } from '../../src/gateway/bus/memory.ts';
import { createGateway } from '../../src/gateway/gateway.ts';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { SchemaError } from '../../src/protocol/schema-problems.ts';
import { openSqliteStorage } from '../../src/storage/sqlite/sqlite-storage.ts';
import { interceptStorage } from '../support/intercepted-storage.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { begin, call, json, rawConnect, rawExchange } from './support/http-client.ts';
import { connectTo, GRANTS, gatewayOptions, startGateway } from './support/live-gateway.ts';
import { ada, frameOf, postSync, SCHEMA, SSP2_HEADERS } from './support/requests.ts';

async function startHost(listener: RequestListener): Promise<{ server: Server; url: string; port: number }> {
  const server = createServer(listener);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(
    () =>
      new Promise<void>((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  );
  const { port } = server.address() as AddressInfo;
  return { server, port, url: `http://127.0.0.1:${port}` };
}

async function openGateway(options: Parameters<typeof gatewayOptions>[0] = {}) {
  const gateway = await createGateway(gatewayOptions(options));
  onTestFinished(() => gateway.close());
  return gateway;
}

async function isListening(port: number): Promise<boolean> {
  try {
    (await rawConnect(port)).destroy();
    return true;
  } catch {
    return false;
  }
}

const UPGRADE = [
  'HTTP/1.1',
  'host: x',
  'connection: Upgrade',
  'upgrade: websocket',
  'sec-websocket-version: 13',
  'sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==',
].join('\r\n');

describe('embedding', () => {
  test('in a plain http server: nodeHandler for requests, attach for sockets', async () => {
    const gateway = await openGateway({ mount: '/api/sync-v2' });
    const { server, url } = await startHost(gateway.nodeHandler);
    gateway.attach(server);
    const mounted = `${url}/api/sync-v2`;
    expect(frameOf((await postSync(mounted, ada.push({ rowId: 'r1' }))).body, 'PUSH_RESULT').commitSeq).toBe(
      1,
    );
    const socket = await connectTo(mounted, {});
    expect(frameOf(await socket.round(ada.pull()), 'SUB_END').nextCursor).toBe(1);
    expect((await call(`${url}/sync`, { method: 'POST' })).status).toBe(404);
  });

  test('behind a handler of the host: foreign paths are passed on, the host keeps its own sockets', async () => {
    const gateway = await openGateway({ mount: '/sync-api' });
    const { server, url, port } = await startHost((req, res) => {
      gateway.nodeHandler(req, res, () => res.end(`host page ${req.url}`));
    });
    server.on('upgrade', (req, socket) => {
      if (req.url?.startsWith('/sync-api/')) return;
      socket.end('HTTP/1.1 418 I am the host\r\nconnection: close\r\n\r\n');
    });
    gateway.attach(server);
    expect((await call(`${url}/about`)).body.toString()).toBe('host page /about');
    expect((await postSync(`${url}/sync-api`, ada.pull())).status).toBe(200);
    expect(await rawExchange(port, `GET /own-socket ${UPGRADE}\r\n\r\n`)).toMatch(/^HTTP\/1\.1 418 /);
    const socket = await connectTo(`${url}/sync-api`, {});
    await socket.round(ada.pull());
  });

  test('alone on its server, an upgrade at another path gets an answer; after detach nothing is taken', async () => {
    const gateway = await openGateway();
    const { server, port } = await startHost(gateway.nodeHandler);
    const detach = gateway.attach(server);
    expect(await rawExchange(port, `GET /elsewhere ${UPGRADE}\r\n\r\n`)).toMatch(/^HTTP\/1\.1 404 /);
    detach();
    expect(server.listenerCount('upgrade')).toBe(0);
  });

  test('fetch: a round, an error and a stream that is left', async () => {
    const gateway = await openGateway();
    const post = (body: Uint8Array, headers: Record<string, string> = {}) =>
      gateway.fetch(
        new Request('http://host.example/sync', {
          method: 'POST',
          headers: { authorization: 'Bearer token-ada', ...SSP2_HEADERS, ...headers },
          body,
        }),
      );
    const pushed = await post(ada.push({ rowId: 'r1' }));
    expect(pushed.status).toBe(200);
    expect(frameOf(new Uint8Array(await pushed.arrayBuffer()), 'PUSH_RESULT').commitSeq).toBe(1);
    const refused = await post(ada.pull(), { 'content-type': 'text/plain' });
    expect(refused.status).toBe(415);
    expect(await refused.json()).toMatchObject({ code: 'sync.invalid_request' });
    const left = await post(ada.pull());
    await left.body?.cancel();
    expect(gateway.stats().httpRounds).toBe(0);
    const health = await gateway.fetch(new Request('http://host.example/healthz'));
    expect(await health.json()).toEqual({ status: 'alive' });
    expect((await gateway.fetch(new Request('http://host.example/nothing'))).status).toBe(404);
  });

  test('authenticate sees the address a fetch host gives', async () => {
    const seen: string[] = [];
    const gateway = await openGateway({
      authenticate: ({ remoteAddress }) => {
        seen.push(remoteAddress);
        return null;
      },
    });
    const request = () => new Request('http://host.example/sync', { method: 'POST' });
    await gateway.fetch(request(), { remoteAddress: '192.0.2.7' });
    await gateway.fetch(request());
    expect(seen).toEqual(['192.0.2.7', '']);
  });

  test('a storage of the host stays open', async () => {
    const opened = await openSqliteStorage({ path: ':memory:', clock: createRealClock() });
    const gateway = await createGateway(gatewayOptions({ storage: opened }));
    await gateway.close();
    await opened.storage.ping();
    await opened.storage.close();
  });
});

describe('two gateways in one process', () => {
  test('on one database and one bus: a commit at one is a delta at the other', async () => {
    const opened = await openSqliteStorage({ path: ':memory:', clock: createRealClock() });
    onTestFinished(() => opened.storage.close());
    const network = createMemoryBusNetwork(() => undefined);
    const [one, two] = [
      await startGateway({ storage: opened, bus: network.join() }),
      await startGateway({ storage: opened, bus: network.join() }),
    ];
    const reader = await two.connect({ clientId: 'reader' });
    const pulled = await reader.round(ada.pull({ clientId: 'reader' }));
    reader.ack(frameOf(pulled, 'SUB_END').nextCursor);
    await postSync(one.url, ada.push({ rowId: 'r1' }));
    await reader.until(() => reader.deltas.length === 1);
    expect(frameOf(reader.deltas[0]!, 'COMMIT').commitSeq).toBe(1);
    one.gateway.revokeActor({ partition: 'tenant-1', actorId: 'ada' });
    expect((await reader.untilClosed()).code).toBe(4401);
  });

  test('with databases of their own: nothing is shared', async () => {
    const [one, two] = [await startGateway(), await startGateway()];
    await postSync(one.url, ada.push({ rowId: 'r1' }));
    const pulled = await postSync(two.url, ada.pull());
    expect(frameOf(pulled.body, 'SUB_END').nextCursor).toBe(0);
    await one.gateway.close();
    expect((await postSync(two.url, ada.pull())).status).toBe(200);
  });
});

describe('close', () => {
  test('sessions end with 1012, the port closes, a second close is the same one', async () => {
    const live = await startGateway();
    const socket = await live.connect();
    const closing = live.gateway.close();
    expect(live.gateway.stats().state).toBe('draining');
    expect((await socket.untilClosed()).code).toBe(1012);
    await Promise.all([closing, live.gateway.close()]);
    expect(live.gateway.stats()).toMatchObject({ state: 'closed', sessions: 0 });
    await expect(call(`${live.url}/healthz`)).rejects.toThrow('ECONNREFUSED');
  });

  test('readiness fails first while the port still answers; new work is refused with 503', async () => {
    let release: () => void = () => undefined;
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    const slow = await startGateway({
      resolveScopes: async () => {
        await held;
        return { project: ['*'] };
      },
    });
    const round = begin(`${slow.url}/sync`, {
      method: 'POST',
      headers: { ...SSP2_HEADERS, authorization: 'Bearer token-ada' },
      body: ada.push({ rowId: 'r1' }),
    });
    while (slow.gateway.stats().httpRounds === 0) await call(`${slow.url}/healthz`);
    const closing = slow.gateway.close();
    expect(json(await call(`${slow.url}/readyz`))).toEqual({ status: 'draining' });
    expect((await call(`${slow.url}/healthz`)).status).toBe(200);
    const refused = await postSync(slow.url, ada.pull());
    expect(refused.status).toBe(503);
    expect(refused.headers['retry-after']).toBe('1');
    await expect(slow.connect()).rejects.toThrow();
    release();
    expect((await round).statusCode).toBe(200);
    await closing;
  });

  test('a request that is half received when the drain begins is answered, and its connection not kept', async () => {
    let seen: () => void = () => undefined;
    const arrived = new Promise<void>((resolve) => {
      seen = resolve;
    });
    const { authenticate } = createStaticTokens(GRANTS);
    const live = await startGateway({
      authenticate: (request) => {
        seen();
        return authenticate(request);
      },
    });
    const body = ada.push({ rowId: 'r1' });
    const head = [
      'POST /sync HTTP/1.1',
      'host: gateway',
      'authorization: Bearer token-ada',
      `content-type: ${SSP2_HEADERS['content-type']}`,
      `content-length: ${body.byteLength}`,
    ].join('\r\n');
    const socket = await rawConnect(live.port);
    socket.write(`${head}\r\n\r\n`);
    await arrived;
    const closing = live.gateway.close();
    // The port closes meanwhile.
    while (await isListening(live.port));
    socket.write(body);
    const chunks: Buffer[] = [];
    for await (const chunk of socket) chunks.push(chunk as Buffer);
    const answer = Buffer.concat(chunks).toString('latin1');
    expect(answer).toMatch(/^HTTP\/1\.1 200 OK\r\n/);
    expect(answer).toMatch(/\r\nconnection: close\r\n/i);
    await closing;
  });

  test('what was acknowledged is there after a restart on the same file', async () => {
    const path = join(tmpdir(), `tidegate-${process.pid}-${process.hrtime.bigint()}.db`);
    const first = await startGateway({ storage: { path } });
    await postSync(first.url, ada.push({ rowId: 'r1' }));
    await postSync(first.url, ada.pull());
    await first.gateway.close();
    const second = await startGateway({ storage: { url: `sqlite:${path}` } });
    const socket = await second.connect();
    expect(await socket.control('hello')).toMatchObject({ cursor: 1, latestCursor: 1, requiresSync: false });
  });

  test('listen after close is refused', async () => {
    const gateway = await createGateway(gatewayOptions());
    await gateway.close();
    await expect(gateway.listen({ port: 0 })).rejects.toThrow('closed');
  });
});

describe('options', () => {
  test.each<[string, Parameters<typeof gatewayOptions>[0], string | RegExp]>([
    ['a mount that is no path', { mount: 'api' }, 'mount must be'],
    ['limits that contradict each other', { limits: { heartbeatMs: 100_000 } }, 'heartbeatMs'],
    ['a validator for no table', { rowValidators: { nope: () => undefined } }, 'nope'],
    ['a storage nobody knows', { storage: { url: 'mysql:x' } }, 'sqlite:PATH'],
  ])('%s is refused', async (_name, options, message) => {
    await expect(createGateway(gatewayOptions(options))).rejects.toThrow(message);
  });

  test('a schema that cannot be served names its problems', async () => {
    const schema = { version: 0, tables: [{ ...SCHEMA.tables[0]!, scopes: [] }] };
    const failure = await createGateway(gatewayOptions({ schema })).catch((thrown: unknown) => thrown);
    expect(failure).toMatchObject({
      code: 'sync.schema_not_ready',
      phase: 'schema_compile',
      schemaVersion: 0,
    });
    expect(failure instanceof Error ? failure.cause : null).toBeInstanceOf(SchemaError);
  });

  test('a port that is taken rejects and leaves the gateway usable', async () => {
    const live = await startGateway();
    await expect(live.gateway.listen({ port: live.port })).rejects.toThrow('EADDRINUSE');
    expect((await call(`${live.url}/readyz`)).status).toBe(200);
  });

  test('validators, merger and commit validator reach the core', async () => {
    const { ValidationRejection } = await import('../../src/session/sync/validation.ts');
    const live = await startGateway({
      rowValidators: {
        notes: ({ row }) => {
          if (row?.title === 'bad') throw new ValidationRejection('app.bad_title', 'no');
        },
      },
    });
    const answer = await postSync(live.url, ada.push({ rowId: 'r1', title: 'bad' }));
    expect(frameOf(answer.body, 'PUSH_RESULT')).toMatchObject({
      status: 'rejected',
      results: [{ code: 'app.bad_title' }],
    });
  });
});

test('S-028: any authenticated request refreshes the last-seen time of its partition, one write per interval', async () => {
  const clock = new ManualClock();
  const { storage, segments } = await openSqliteStorage({ path: ':memory:', clock });
  onTestFinished(() => storage.close());
  const touched: (readonly string[])[] = [];
  const watched = interceptStorage(storage, ({ method, args }) => {
    if (method === 'touchPartitions') touched.push([...(args[0] as ReadonlyMap<string, number>).keys()]);
  });
  const limits = { lastSeenFlushMs: 1_000 };
  const gateway = await createGateway(
    gatewayOptions({ storage: { storage: watched, segments }, clock, limits }),
  );
  const headers = { ...SSP2_HEADERS, authorization: 'Bearer token-ada' };
  const request = async (path: string, init: RequestInit): Promise<number> => {
    const answer = await gateway.fetch(new Request(`http://gateway${path}`, { ...init, headers }));
    // Read to its end: a round that nobody reads would keep the gateway open.
    let isRead = false;
    answer.arrayBuffer().then(() => {
      isRead = true;
    });
    await clock.until(() => isRead, `the answer of ${path}`);
    return answer.status;
  };
  expect(await request('/sync', { method: 'POST', body: Buffer.from(ada.pull()) })).toBe(200);
  expect(await request('/segments/unknown', {})).toBe(404);
  expect(touched).toEqual([]);
  await clock.advanceSettled(1_000, 1_000);
  expect(touched).toEqual([['tenant-1']]);
  expect(await request('/segments/unknown', {})).toBe(404);
  await clock.advanceSettled(1_000, 1_000);
  expect(touched).toEqual([['tenant-1'], ['tenant-1']]);
  await gateway.close();
});
