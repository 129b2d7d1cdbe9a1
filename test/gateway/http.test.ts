import { gunzipSync, gzipSync } from 'node:zlib';
import { afterEach, describe, expect, test } from 'vitest';
import type { Readiness } from '../../src/gateway/readiness.ts';
import type { Round } from '../../src/gateway/round-body.ts';
import { SyncError } from '../../src/protocol/errors.ts';
import { begin, call, json, once, rawConnect, rawExchange } from './support/http-client.ts';
import {
  BEARER,
  roundOf,
  SSP2,
  type StubGateway,
  type StubOptions,
  served,
  startStub,
  utf8,
} from './support/stub-gateway.ts';

let gateway: StubGateway | null = null;
afterEach(async () => {
  await gateway?.close();
  gateway = null;
});

async function start(options: StubOptions = {}): Promise<StubGateway> {
  gateway = await startStub(options);
  return gateway;
}

const post = (body: Uint8Array | string = 'request', headers: Record<string, string> = {}) => ({
  method: 'POST',
  headers: { ...BEARER, ...SSP2, ...headers },
  body,
});

const never = new Promise<never>(() => undefined);

async function* failing(failure: unknown): Round {
  if (failure !== null) throw failure;
  yield utf8('');
  return served('');
}

describe('POST <mount>/sync', () => {
  test('S-008: a round answers 200 with the SSP2 content type, its bytes and its final chunk', async () => {
    const { url } = await start({ mount: '/api', runRound: () => roundOf('one ', 'two ', 'end') });
    const answer = await call(`${url}/api/sync`, post());
    expect(answer.status).toBe(200);
    expect(answer.headers['content-type']).toBe('application/vnd.syncular.sync.v2');
    expect(answer.headers['content-encoding']).toBeUndefined();
    expect(answer.body.toString()).toBe('one two end');
  });

  test('the round sees the bytes of the request and who sent them', async () => {
    const { url } = await start({
      runRound: (request, { who }) => roundOf(`${who.actorId}/${who.partition}: ${Buffer.from(request)}`),
    });
    expect((await call(`${url}/sync`, post('hello'))).body.toString()).toBe('actor-1/p1: hello');
  });

  test.each([
    [
      'S-001: a foreign content type',
      { headers: { 'content-type': 'application/json' } },
      415,
      'sync.invalid_request',
    ],
    ['S-001: no content type', { headers: { 'content-type': '' } }, 415, 'sync.invalid_request'],
    ['S-002: no credential', { headers: { authorization: '' } }, 401, 'sync.auth_required'],
    ['S-002: a wrong credential', { headers: { authorization: 'Bearer x' } }, 401, 'sync.auth_required'],
    ['an unknown request coding', { headers: { 'content-encoding': 'br' } }, 415, 'sync.invalid_request'],
    ['a broken gzip body', { headers: { 'content-encoding': 'gzip' } }, 400, 'sync.invalid_request'],
    ['no acceptable coding', { headers: { 'accept-encoding': 'identity;q=0' } }, 406, 'sync.invalid_request'],
  ])('S-003: %s is JSON with status and code', async (_name, { headers }, status, code) => {
    const { url } = await start();
    const answer = await call(`${url}/sync`, post('request', headers));
    expect(answer.status).toBe(status);
    expect(answer.headers['content-type']).toBe('application/json');
    expect(json(answer)).toMatchObject({
      code,
      category: expect.any(String),
      retryable: expect.any(Boolean),
      recommendedAction: expect.any(String),
      message: expect.any(String),
    });
    if (status === 401) expect(answer.headers['www-authenticate']).toBe('Bearer');
  });

  test('a content type may carry parameters and capitals', async () => {
    const { url } = await start();
    const headers = { 'content-type': 'Application/VND.syncular.sync.v2; charset=binary' };
    expect((await call(`${url}/sync`, post('x', headers))).status).toBe(200);
  });

  test.each([
    ['declared', 'x'.repeat(101), {}],
    ['gzipped small, plain large', gzipSync('x'.repeat(101)), { 'content-encoding': 'gzip' }],
    ['chunked', 'x'.repeat(101), { 'transfer-encoding': 'chunked' }],
  ])('a body over the bound is a 413 (%s)', async (_name, body, headers) => {
    const { url } = await start({ limits: { requestBytesMax: 100 } });
    const answer = await call(`${url}/sync`, post(body, headers));
    expect(answer.status).toBe(413);
    expect(json(answer)).toMatchObject({ code: 'sync.invalid_request', details: { bytesMax: 100 } });
  });

  test('a body of exactly the bound is taken', async () => {
    const { url } = await start({ limits: { requestBytesMax: 100 } });
    expect((await call(`${url}/sync`, post('x'.repeat(100)))).status).toBe(200);
    const zipped = post(gzipSync('x'.repeat(100)), { 'content-encoding': 'gzip' });
    expect((await call(`${url}/sync`, zipped)).status).toBe(200);
  });

  test('S-006: a gzipped request is unpacked', async () => {
    const { url } = await start({ runRound: (request) => roundOf(Buffer.from(request).toString()) });
    const answer = await call(`${url}/sync`, post(gzipSync('plain'), { 'content-encoding': 'gzip' }));
    expect(answer.body.toString()).toBe('plain');
  });

  test('S-005: the response is gzipped for who accepts it', async () => {
    const { url } = await start({ runRound: () => roundOf('a', 'b', 'c') });
    const answer = await call(`${url}/sync`, post('x', { 'accept-encoding': 'zstd;q=0, gzip' }));
    expect(answer.headers['content-encoding']).toBe('gzip');
    expect(gunzipSync(answer.body).toString()).toBe('abc');
  });

  test('S-008: the first chunk arrives before a later section is ready', async () => {
    let proceed: () => void = () => undefined;
    const gate = new Promise<void>((resolve) => {
      proceed = resolve;
    });
    async function* round(): Round {
      yield utf8('first');
      await gate;
      return served('last');
    }
    const { url } = await start({ runRound: round });
    const incoming = await begin(`${url}/sync`, post());
    const first = await once<Buffer>(incoming, 'data');
    expect(first.toString()).toBe('first');
    proceed();
    expect((await once<Buffer>(incoming, 'data')).toString()).toBe('last');
  });

  test.each([
    ['sync.invalid_subscription', 400, null],
    ['sync.invalid_client_id', 400, null],
    ['sync.unknown_table', 400, null],
    ['sync.too_many_operations', 400, null],
    ['sync.auth_lease_revoked', 401, null],
    ['sync.rate_limited', 429, '1'],
    ['sync.schema_not_ready', 503, '1'],
    ['sync.missing_scopes', 500, null],
  ] as const)('S-003: %s before the first chunk is HTTP %i', async (code, status, retryAfter) => {
    const { url } = await start({ runRound: () => failing(new SyncError(code, 'refused')) });
    const answer = await call(`${url}/sync`, post());
    expect(answer.status).toBe(status);
    expect(json(answer)).toMatchObject({ code, message: 'refused' });
    expect(answer.headers['retry-after'] ?? null).toBe(retryAfter);
  });

  test('a retry hint in milliseconds becomes whole seconds', async () => {
    const busy = new SyncError('sync.rate_limited', 'busy', { details: { retryAfterMs: 2_100 } });
    const { url } = await start({ runRound: () => failing(busy) });
    expect((await call(`${url}/sync`, post())).headers['retry-after']).toBe('3');
  });

  test('a failure nobody foresaw is a generic 500 that tells nothing', async () => {
    const logged: object[] = [];
    const log = (fields: object): void => {
      logged.push(fields);
    };
    const { url } = await start({
      runRound: () => failing(new Error('SELECT secret FROM /var/lib/db')),
      logger: { debug: log, info: log, warn: log, error: log },
    });
    const answer = await call(`${url}/sync`, post('x', { 'x-request-id': 'req-7' }));
    expect(answer.status).toBe(500);
    expect(json(answer)).toEqual({ message: 'internal server error' });
    expect(answer.headers['x-request-id']).toBe('req-7');
    expect(logged).toContainEqual(expect.objectContaining({ requestId: 'req-7', status: 500 }));
  });

  test('a failure after the first chunk cuts the response: the client sees that it is incomplete', async () => {
    let fail: (failure: Error) => void = () => undefined;
    const failure = new Promise<never>((_, reject) => {
      fail = reject;
    });
    async function* round(): Round {
      yield utf8('first');
      return await failure;
    }
    const { url } = await start({ runRound: round });
    const incoming = await begin(`${url}/sync`, post());
    // The cut is reported as an error of the message as well.
    incoming.on('error', () => undefined);
    await once(incoming, 'data');
    fail(new Error('the database went away'));
    await once(incoming, 'close');
    expect(incoming.complete).toBe(false);
  });

  test('S-063: the cursor counts only once the last byte was handed over', async () => {
    let handedOver = 0;
    const { url, rounds } = await start({
      runRound: async function* () {
        yield utf8('x');
        return served('end', () => {
          handedOver += 1;
        });
      },
    });
    await call(`${url}/sync`, post());
    await rounds.idle();
    expect(handedOver).toBe(1);
  });

  test.each(['identity', 'gzip'])('a client that leaves ends its round (%s)', async (coding) => {
    let ended: () => void = () => undefined;
    const end = new Promise<void>((resolve) => {
      ended = resolve;
    });
    let handedOver = false;
    async function* round(signal: AbortSignal): Round {
      try {
        yield utf8('first');
        const aborted = new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve()));
        await aborted;
        return served('last', () => {
          handedOver = true;
        });
      } finally {
        ended();
      }
    }
    const { url, rounds } = await start({ runRound: (_, { signal }) => round(signal) });
    const incoming = await begin(`${url}/sync`, post('x', { 'accept-encoding': coding }));
    await once(incoming, 'data');
    incoming.destroy();
    await end;
    await rounds.idle();
    expect(handedOver).toBe(false);
  });

  test('a reader that takes nothing for drainTimeoutMs loses its response', async () => {
    let released = false;
    async function* endless(): Round {
      try {
        for (;;) yield new Uint8Array(1_000_000);
      } finally {
        released = true;
      }
    }
    const { url, clock, rounds } = await start({ runRound: endless, limits: { drainTimeoutMs: 5_000 } });
    const incoming = await begin(`${url}/sync`, post());
    incoming.pause();
    // The writer waits for the reader: its timer is the only one.
    await clock.until(() => clock.timersWaiting > 0);
    clock.advance(5_000);
    await rounds.idle();
    expect(released).toBe(true);
  });

  test('a reader that is slow but reads keeps its response, however large the chunk', async () => {
    const bytes = 48 * 2 ** 20;
    async function* round(): Round {
      yield new Uint8Array(bytes);
      return served('');
    }
    const { url, clock, rounds } = await start({ runRound: round, limits: { drainTimeoutMs: 5_000 } });
    const incoming = await begin(`${url}/sync`, post());
    let received = 0;
    let pauseAt = 8 * 2 ** 20;
    for await (const chunk of incoming) {
      received += (chunk as Buffer).byteLength;
      if (received < pauseAt) continue;
      pauseAt += 8 * 2 ** 20;
      // Never longer than the limit without a byte taken, but much longer altogether.
      clock.advance(4_000);
    }
    expect(received).toBe(bytes);
    await rounds.idle();
  });

  test.each(['before', 'after'] as const)(
    'architecture §6: a grant that ends %s the first chunk: 401, or a response that is cut',
    async (when) => {
      const START_MS = 1_700_000_000_000;
      let begun: () => void = () => undefined;
      const running = new Promise<void>((resolve) => {
        begun = resolve;
      });
      async function* round(_request: Uint8Array, { signal }: { readonly signal: AbortSignal }): Round {
        if (when === 'after') yield utf8('first');
        await new Promise((_resolve, reject) => {
          signal.addEventListener('abort', () => reject(signal.reason));
          begun();
        });
        return served('last');
      }
      const authenticate = () => ({ actorId: 'a', partition: 'p', expiresAtMs: START_MS + 1_000 });
      const { url, clock, rounds } = await start({ runRound: round, authenticate });
      const answer = begin(`${url}/sync`, post());
      await running;
      if (when === 'after') await answer;
      clock.advance(999);
      expect(rounds.count).toBe(1);
      clock.advance(1);
      const incoming = await answer;
      const text = await incoming.toArray().then(
        (chunks: Buffer[]) => Buffer.concat(chunks).toString(),
        () => 'cut',
      );
      expect([incoming.statusCode, text === 'cut']).toEqual(when === 'after' ? [200, true] : [401, false]);
      if (when === 'before') expect(JSON.parse(text)).toMatchObject({ code: 'sync.auth_required' });
      await rounds.idle();
      expect(clock.timersWaiting).toBe(0);
    },
  );

  test('a body that does not arrive in time is a 408', async () => {
    const { port, clock } = await start({ limits: { requestTimeoutMs: 1_000 } });
    const head = `POST /sync HTTP/1.1\r\nhost: x\r\nauthorization: ${BEARER.authorization}\r\ncontent-type: ${SSP2['content-type']}\r\ncontent-length: 10\r\n\r\nabc`;
    const socket = await rawConnect(port);
    socket.write(head);
    await clock.until(() => clock.timersWaiting > 0);
    clock.advance(1_000);
    const answer = await once<Buffer>(socket, 'data');
    expect(answer.toString()).toContain('HTTP/1.1 408 ');
    socket.destroy();
  });

  test("a client that leaves in the middle of its body is nobody's failure", async () => {
    const logged: unknown[] = [];
    const { port, server, url } = await start({
      logger: { debug: () => 0, info: () => 0, warn: (f) => logged.push(f), error: (f) => logged.push(f) },
    });
    const socket = await rawConnect(port);
    const closed = new Promise<void>((resolve) => {
      server.once('request', (req) => req.once('close', resolve));
    });
    const head = `POST /sync HTTP/1.1\r\nhost: x\r\nauthorization: ${BEARER.authorization}\r\ncontent-type: ${SSP2['content-type']}\r\ncontent-length: 10\r\n\r\nabc`;
    socket.write(head, () => socket.destroy());
    await closed;
    expect((await call(`${url}/healthz`)).status).toBe(200);
    expect(logged).toEqual([]);
  });

  test('an unread body does not spoil the connection for the next request', async () => {
    const { port } = await start({ limits: { requestBytesMax: 1_000 } });
    const body = 'x'.repeat(900);
    const refused = `POST /sync HTTP/1.1\r\nhost: x\r\ncontent-length: ${body.length}\r\n\r\n${body}`;
    const next = 'GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n';
    const answers = await rawExchange(port, refused + next);
    expect(answers.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 401', 'HTTP/1.1 200']);
  });

  test('an endless refused body is cut off', async () => {
    const { port } = await start({ limits: { requestBytesMax: 1_000 } });
    const socket = await rawConnect(port);
    // The peer closes with bytes unread, so a reset is the ordinary end.
    socket.on('error', () => undefined);
    socket.write('POST /sync HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n');
    const answer = await once<Buffer>(socket, 'data');
    expect(answer.toString()).toContain('HTTP/1.1 401 ');
    const closed = once(socket, 'close');
    const pump = (): void => {
      if (socket.writable) socket.write(`3e8\r\n${'x'.repeat(1_000)}\r\n`, pump);
    };
    pump();
    await closed;
  });
});

describe('GET <mount>/segments/{segmentId}', () => {
  const id = 'sha256:00ff';
  const scopes = { 'x-syncular-scopes': '{"project":["p1"]}' };

  test('S-095: 200 with the fixed headers', async () => {
    const { url } = await start();
    const answer = await call(`${url}/segments/${id}`, { headers: { ...BEARER, ...scopes } });
    expect(answer.status).toBe(200);
    expect(answer.headers).toMatchObject({
      'content-type': 'application/octet-stream',
      etag: `"${id}"`,
      'cache-control': 'private, max-age=0',
      vary: 'Authorization, X-Syncular-Scopes, Accept-Encoding',
      'content-length': '13',
    });
    expect(answer.body.toString()).toBe('segment bytes');
  });

  test('S-005, S-007, S-096: the coding is negotiated and comes off to the same bytes', async () => {
    const { url } = await start();
    const headers = { ...BEARER, ...scopes, 'accept-encoding': 'gzip' };
    const answer = await call(`${url}/segments/${id}`, { headers });
    expect(answer.headers['content-encoding']).toBe('gzip');
    expect(answer.headers['content-length']).toBeUndefined();
    expect(answer.headers.etag).toBe(`"${id}"`);
    expect(gunzipSync(answer.body).toString()).toBe('segment bytes');
  });

  test.each([`"${id}"`, `W/"${id}"`, `"other", "${id}"`, '*'])(
    'S-095: If-None-Match %s is a 304 without a body',
    async (etag) => {
      const { url } = await start();
      const answer = await call(`${url}/segments/${id}`, {
        headers: { ...BEARER, ...scopes, 'if-none-match': etag },
      });
      expect(answer.status).toBe(304);
      expect(answer.headers.etag).toBe(`"${id}"`);
      expect(answer.body.byteLength).toBe(0);
    },
  );

  test('S-095: another ETag gets the bytes', async () => {
    const { url } = await start();
    const headers = { ...BEARER, ...scopes, 'if-none-match': '"sha256:other"' };
    expect((await call(`${url}/segments/${id}`, { headers })).status).toBe(200);
  });

  test.each([
    ['sync.not_found', 404],
    ['sync.segment_expired', 404],
    ['sync.forbidden', 403],
    ['sync.invalid_subscription', 400],
  ] as const)('S-094: %s is %i, a matching ETag notwithstanding', async (code, status) => {
    const { url } = await start({
      openSegment: async () => {
        throw new SyncError(code, 'no');
      },
    });
    const headers = { ...BEARER, ...scopes, 'if-none-match': `"${id}"` };
    const answer = await call(`${url}/segments/${id}`, { headers });
    expect(answer.status).toBe(status);
    expect(json(answer)).toMatchObject({ code });
  });

  test('S-002: authenticated, and the header reaches the check as it came', async () => {
    const seen: unknown[] = [];
    const { url } = await start({
      openSegment: async ({ who, segmentId, scopesHeader }) => {
        seen.push([who.actorId, segmentId, scopesHeader]);
        return { read: async () => utf8('x') };
      },
    });
    expect((await call(`${url}/segments/${id}`)).status).toBe(401);
    await call(`${url}/segments/${encodeURIComponent(id)}`, { headers: { ...BEARER, ...scopes } });
    await call(`${url}/segments/${id}`, { headers: BEARER });
    expect(seen).toEqual([
      ['actor-1', id, scopes['x-syncular-scopes']],
      ['actor-1', id, null],
    ]);
  });
});

describe('everything else', () => {
  test('R-001: GET <mount>/realtime without an upgrade is a 426', async () => {
    const { url } = await start();
    const answer = await call(`${url}/realtime?clientId=c1`, { headers: BEARER });
    expect(answer.status).toBe(426);
    expect(answer.headers.upgrade).toBe('websocket');
    expect(json(answer)).toMatchObject({ code: 'sync.invalid_request' });
  });

  test.each(['/', '/sync/', '/nothing', '/segments/', '//sync'])('%s is a JSON 404', async (path) => {
    const { url } = await start();
    const answer = await call(url + path, { headers: BEARER });
    expect(answer.status).toBe(404);
    expect(json(answer)).toMatchObject({ code: 'sync.not_found' });
  });

  test.each([
    ['GET', '/sync', 'POST'],
    ['PUT', '/segments/x', 'GET'],
    ['POST', '/realtime', 'GET'],
    ['POST', '/readyz', 'GET, HEAD'],
  ])('%s %s is a JSON 405', async (method, path, allow) => {
    const { url } = await start();
    const answer = await call(url + path, { method });
    expect(answer.status).toBe(405);
    expect(answer.headers.allow).toBe(allow);
    expect(json(answer)).toMatchObject({ code: 'sync.invalid_request' });
  });

  test('liveness and readiness', async () => {
    let readiness: Readiness = { status: 'ready' };
    const { url } = await start({ readiness: async () => readiness });
    expect((await call(`${url}/healthz`)).status).toBe(200);
    expect((await call(`${url}/readyz`)).status).toBe(200);
    readiness = { status: 'draining' };
    expect((await call(`${url}/readyz`)).status).toBe(503);
    expect((await call(`${url}/healthz`)).status).toBe(200);
    expect((await call(`${url}/healthz`, { method: 'HEAD' })).body.byteLength).toBe(0);
  });

  test('a header no header may hold is a 400', async () => {
    const { port } = await start();
    const answer = await rawExchange(
      port,
      'GET /healthz HTTP/1.1\r\nhost: x\r\na: \x00\r\nconnection: close\r\n\r\n',
    );
    expect(answer).toContain('HTTP/1.1 400 ');
  });

  test('allowed origins get CORS headers, others none', async () => {
    const { url } = await start({ allowedOrigins: ['https://app.example'] });
    const from = (origin: string) => ({ method: 'OPTIONS', headers: { origin } });
    const preflight = await call(`${url}/sync`, from('https://app.example'));
    expect(preflight.status).toBe(204);
    expect(preflight.headers['access-control-allow-origin']).toBe('https://app.example');
    expect(preflight.headers['access-control-allow-methods']).toBe('POST');
    expect(preflight.headers['access-control-allow-headers']).toContain('X-Syncular-Scopes');
    const foreign = await call(`${url}/sync`, from('https://evil.example'));
    expect(foreign.status).toBe(405);
    expect(foreign.headers['access-control-allow-origin']).toBeUndefined();
    const segment = await call(`${url}/segments/x`, {
      headers: { ...BEARER, origin: 'https://app.example' },
    });
    expect(segment.headers['access-control-allow-origin']).toBe('https://app.example');
    expect(segment.headers.vary).toContain('Origin');
  });

  test('in-flight rounds are counted until their response ended', async () => {
    const { url, rounds } = await start({
      runRound: async function* () {
        yield utf8('first');
        return await never;
      },
    });
    const incoming = await begin(`${url}/sync`, post());
    await once(incoming, 'data');
    expect(rounds.count).toBe(1);
    incoming.destroy();
    await rounds.idle();
  });
});
