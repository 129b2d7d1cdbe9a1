import { request as httpRequest } from 'node:http';
import { afterEach, describe, expect, test } from 'vitest';
import WebSocket from 'ws';
import { createIdentify } from '../../src/gateway/auth.ts';
import { createOriginPolicy } from '../../src/gateway/origins.ts';
import { type ErrorCode, SyncError } from '../../src/protocol/errors.ts';
import { type Answer, json, once, rawConnect, rawExchange } from './support/http-client.ts';
import { SocketClock } from './support/socket-clock.ts';
import { BEARER, TOKEN } from './support/stub-gateway.ts';
import { startWsStub, type WsStub, type WsStubOptions } from './support/ws-fixture.ts';

let stub: WsStub | null = null;
afterEach(async () => {
  await stub?.close();
  stub = null;
});

async function start(options: WsStubOptions = {}): Promise<WsStub> {
  stub = await startWsStub(options);
  return stub;
}

const HANDSHAKE = {
  connection: 'Upgrade',
  upgrade: 'websocket',
  'sec-websocket-version': '13',
  'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
};

/** The HTTP answer to an upgrade: 101 with an empty body when it was accepted. */
function tryUpgrade(path: string, headers: Record<string, string> = {}, method = 'GET'): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const outgoing = httpRequest({
      port: stub!.port,
      path,
      method,
      headers: { ...BEARER, ...HANDSHAKE, ...headers },
      agent: false,
    });
    outgoing.on('error', reject);
    outgoing.on('upgrade', (incoming, socket) => {
      socket.destroy();
      resolve({ status: incoming.statusCode ?? 0, headers: incoming.headers, body: Buffer.alloc(0) });
    });
    outgoing.on('response', async (incoming) => {
      const chunks: Buffer[] = [];
      for await (const chunk of incoming) chunks.push(chunk as Buffer);
      resolve({ status: incoming.statusCode ?? 0, headers: incoming.headers, body: Buffer.concat(chunks) });
    });
    outgoing.end();
  });
}

const OK_PATH = '/realtime?clientId=c1';

describe('upgrades that are accepted', () => {
  test.each<[string, string, Record<string, string>]>([
    ['a bearer header', OK_PATH, {}],
    ['a ticket in the URL', `${OK_PATH}&ticket=${TOKEN}`, { authorization: '' }],
    ['an access_token in the URL', `${OK_PATH}&access_token=${TOKEN}`, { authorization: '' }],
    ['the ssp2 subprotocol among others', OK_PATH, { 'sec-websocket-protocol': 'other, ssp2' }],
    ['a page of the same host', OK_PATH, { origin: 'http://sync.example', host: 'sync.example' }],
  ])('R-001: %s', async (_name, path, headers) => {
    await start();
    expect((await tryUpgrade(path, headers)).status).toBe(101);
  });

  test('ssp2 is selected when offered, nothing otherwise; no extension is negotiated', async () => {
    await start();
    const offered = await tryUpgrade(OK_PATH, {
      'sec-websocket-protocol': 'ssp2',
      'sec-websocket-extensions': 'permessage-deflate; client_max_window_bits',
    });
    expect(offered.headers['sec-websocket-protocol']).toBe('ssp2');
    expect(offered.headers['sec-websocket-extensions']).toBeUndefined();
    expect((await tryUpgrade(OK_PATH)).headers['sec-websocket-protocol']).toBeUndefined();
  });

  test('the session gets the identity and the client id of the URL', async () => {
    const seen: unknown[] = [];
    const { url } = await start({
      open: ({ who, clientId, connection }) => {
        seen.push([who.actorId, who.partition, clientId]);
        connection.send('hello');
        return { onText: () => 0, onBinary: () => 0, onPong: () => 0, onClosed: () => 0 };
      },
    });
    const client = new WebSocket(`${url}/realtime?clientId=c%2F1&ticket=${TOKEN}`);
    expect(String(await once<Buffer>(client, 'message'))).toBe('hello');
    expect(seen).toEqual([['actor-1', 'p1', 'c/1']]);
    client.terminate();
  });
});

describe('upgrades that are refused: an HTTP status, a JSON body, no socket', () => {
  test.each<[string, string, Record<string, string>, number, ErrorCode]>([
    ['R-001: no credential', OK_PATH, { authorization: '' }, 401, 'sync.auth_required'],
    ['R-001: a bad ticket', `${OK_PATH}&ticket=x`, { authorization: '' }, 401, 'sync.auth_required'],
    ['a foreign page', OK_PATH, { origin: 'https://evil.example' }, 403, 'sync.forbidden'],
    ['no clientId', '/realtime', {}, 400, 'sync.invalid_request'],
    ['an empty clientId', '/realtime?clientId=', {}, 400, 'sync.invalid_request'],
    ['another path', '/elsewhere?clientId=c1', {}, 404, 'sync.not_found'],
    ['the sync path', '/sync', {}, 404, 'sync.not_found'],
    [
      'a subprotocol of the future',
      OK_PATH,
      { 'sec-websocket-protocol': 'tidegate.later.v9' },
      400,
      'sync.invalid_request',
    ],
    ['a key that is none', OK_PATH, { 'sec-websocket-key': 'short' }, 400, 'sync.invalid_request'],
    ['a version of the past', OK_PATH, { 'sec-websocket-version': '7' }, 400, 'sync.invalid_request'],
    ['another protocol than WebSocket', OK_PATH, { upgrade: 'h2c' }, 400, 'sync.invalid_request'],
  ])('%s', async (_name, path, headers, status, code) => {
    await start();
    const answer = await tryUpgrade(path, headers);
    expect(answer.status).toBe(status);
    expect(answer.headers['content-type']).toBe('application/json');
    expect(answer.headers.connection).toBe('close');
    expect(json(answer)).toMatchObject({ code, message: expect.any(String), retryable: expect.any(Boolean) });
  });

  test('a POST cannot be upgraded', async () => {
    await start();
    expect((await tryUpgrade(OK_PATH, {}, 'POST')).status).toBe(405);
  });

  test.each([
    ['sync.invalid_client_id', 400],
    ['sync.websocket_connection_limit', 429],
    ['sync.rate_limited', 429],
  ] as const)('R-002, R-003: what the live layer refuses, %s is %i', async (code, status) => {
    await start({ upgrade: { refusal: () => new SyncError(code, 'no') } });
    const answer = await tryUpgrade(OK_PATH);
    expect(answer.status).toBe(status);
    expect(json(answer)).toMatchObject({ code });
    if (status === 429) expect(answer.headers['retry-after']).toBe('1');
  });

  test('a partition the host forbids is its own 403', async () => {
    const forbid = (): never => {
      throw new SyncError('sync.forbidden', 'not your partition');
    };
    await start({ upgrade: { identify: createIdentify(forbid, new SocketClock()) } });
    expect((await tryUpgrade(OK_PATH)).status).toBe(403);
  });

  test('a failing host is a generic 500', async () => {
    const fail = (): never => {
      throw new Error('ldap://internal is down');
    };
    await start({ upgrade: { identify: createIdentify(fail, new SocketClock()) } });
    const answer = await tryUpgrade(OK_PATH);
    expect(answer.status).toBe(500);
    expect(json(answer)).toEqual({ message: 'internal server error' });
  });

  test('while draining: 503 with Retry-After', async () => {
    let draining = false;
    await start({
      upgrade: {
        isDraining: () => draining,
        refusal: () => {
          draining = true;
          return null;
        },
      },
    });
    // The drain begins while this upgrade is under way.
    expect((await tryUpgrade(OK_PATH)).status).toBe(503);
    const answer = await tryUpgrade(OK_PATH);
    expect(answer.status).toBe(503);
    expect(answer.headers['retry-after']).toBe('1');
  });

  test('a host that never answers: 503 at the deadline', async () => {
    const { clock } = await start({
      limits: { requestTimeoutMs: 1_000 },
      upgrade: { identify: () => new Promise(() => undefined) },
    });
    const pending = tryUpgrade(OK_PATH);
    await clock.until(() => clock.timersWaiting > 0);
    clock.advance(1_000);
    expect((await pending).status).toBe(503);
  });

  test('an allowed origin on another host is let in', async () => {
    await start({ upgrade: { origins: createOriginPolicy(['https://app.example']) } });
    expect((await tryUpgrade(OK_PATH, { origin: 'https://app.example' })).status).toBe(101);
  });
});

describe('peers that misbehave hurt nobody else', () => {
  test('a reset while the host authenticates', async () => {
    let authenticating: () => void = () => undefined;
    const reached = new Promise<void>((resolve) => {
      authenticating = resolve;
    });
    let proceed: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => {
      proceed = resolve;
    });
    const { port } = await start({
      upgrade: {
        identify: async () => {
          authenticating();
          await gate;
          return { actorId: 'a', partition: 'p', expiresAtMs: null, claims: {} };
        },
      },
    });
    const socket = await rawConnect(port);
    const lines = Object.entries({ host: 'x', ...HANDSHAKE }).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(`GET ${OK_PATH} HTTP/1.1\r\n${lines.join('')}\r\n`);
    await reached;
    socket.resetAndDestroy();
    proceed();
    expect((await tryUpgrade(OK_PATH)).status).toBe(101);
  });

  test('garbage after the handshake closes with 1002, the neighbour stays', async () => {
    const { url, port } = await start();
    const neighbour = new WebSocket(`${url}/realtime?clientId=n&ticket=${TOKEN}`);
    await once(neighbour, 'open');
    const lines = Object.entries({ host: 'x', ...BEARER, ...HANDSHAKE }).map(
      ([name, value]) => `${name}: ${value}\r\n`,
    );
    // An unmasked frame with a reserved opcode.
    const answer = await rawExchange(port, `GET ${OK_PATH} HTTP/1.1\r\n${lines.join('')}\r\n\x83\x00`);
    const frames = answer.slice(answer.indexOf('\r\n\r\n') + 4);
    expect([...Buffer.from(frames, 'latin1')]).toEqual([0x88, 0x02, 0x03, 0xea]);
    expect(neighbour.readyState).toBe(WebSocket.OPEN);
    neighbour.terminate();
  });

  test('a session that throws on a message loses its own socket', async () => {
    const { url } = await start({
      open: () => ({
        onText: () => {
          throw new Error('defect');
        },
        onBinary: () => 0,
        onPong: () => 0,
        onClosed: () => 0,
      }),
    });
    const client = new WebSocket(`${url}/realtime?clientId=c&ticket=${TOKEN}`);
    await once(client, 'open');
    client.send('x');
    expect(await once<number>(client, 'close')).toBe(1011);
  });

  test('a session that cannot be opened closes with 1011', async () => {
    const { url } = await start({
      open: () => {
        throw new Error('defect');
      },
    });
    const client = new WebSocket(`${url}/realtime?clientId=c&ticket=${TOKEN}`);
    expect(await once<number>(client, 'close')).toBe(1011);
  });

  test('tickets are not logged', async () => {
    const lines: string[] = [];
    const log = (fields: object, message: string): void => {
      lines.push(JSON.stringify(fields) + message);
    };
    await start({ logger: { debug: log, info: log, warn: log, error: log } });
    await tryUpgrade(`${OK_PATH}&ticket=very-secret`, { authorization: '' });
    expect(lines.join('\n')).toContain('"path":"/realtime"');
    expect(lines.join('\n')).not.toContain('very-secret');
  });
});
