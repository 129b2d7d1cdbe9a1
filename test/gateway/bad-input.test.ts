/**
 * Whatever a peer sends: the exact code, HTTP status or close code, and nobody else notices. Each case runs beside a witness
 * who follows a project and still gets every commit afterwards.
 */
import { gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { encodeMessage } from '../../src/protocol/message.ts';
import { call, json, once, rawConnect, rawExchange } from './support/http-client.ts';
import { type LiveGateway, startGateway, startWitness } from './support/live-gateway.ts';
import { ada, encodeRequest, frameOf, postSync } from './support/requests.ts';
import type { RoundSocket } from './support/round-socket.ts';

const flip = (bytes: Uint8Array, at: number, value: number): Uint8Array => {
  const copy = bytes.slice();
  copy[at] = value;
  return copy;
};
const garbage = new TextEncoder().encode('this is no message at all');
const cutShort = ada.push({ rowId: 'r' }).slice(0, -1);
const endFirst = flip(ada.pull(), 8, 0x00);

const HTTP_CASES: readonly (readonly [
  name: string,
  request: () => { body: Uint8Array; token?: string; headers?: Record<string, string> },
  status: number,
  code: string,
])[] = [
  ['garbage', () => ({ body: garbage }), 400, 'sync.invalid_request'],
  ['an empty body', () => ({ body: new Uint8Array(0) }), 400, 'sync.invalid_request'],
  [
    'S-001: another content type',
    () => ({ body: ada.pull(), headers: { 'content-type': 'text/plain' } }),
    415,
    'sync.invalid_request',
  ],
  ['bad magic', () => ({ body: flip(ada.pull(), 0, 0x58) }), 400, 'sync.invalid_request'],
  ['wire version 9', () => ({ body: flip(ada.pull(), 4, 9) }), 400, 'sync.invalid_request'],
  ['flags that must be 0', () => ({ body: flip(ada.pull(), 7, 1) }), 400, 'sync.invalid_request'],
  [
    'a response as a request',
    () => ({ body: encodeMessage({ kind: 'response', wireVersion: 1, frames: [{ type: 'RESP_HEADER' }] }) }),
    400,
    'sync.invalid_request',
  ],
  ['a message cut short', () => ({ body: cutShort }), 400, 'sync.invalid_request'],
  ['bytes behind END', () => ({ body: Buffer.concat([ada.pull(), garbage]) }), 400, 'sync.invalid_request'],
  ['frames out of order', () => ({ body: endFirst }), 400, 'sync.invalid_request'],
  [
    'an unknown table in a subscription',
    () => ({ body: ada.pull({ table: 'nope' }) }),
    400,
    'sync.unknown_table',
  ],
  ['a requested *', () => ({ body: ada.pull({ projects: ['*'] }) }), 400, 'sync.invalid_subscription'],
  [
    'the same subscription id twice',
    () => ({ body: ada.pull({ subscriptionIds: ['a', 'a'] }) }),
    400,
    'sync.invalid_subscription',
  ],
  ['accept without a rows lane', () => ({ body: ada.pull({ accept: 0 }) }), 400, 'sync.invalid_request'],
  [
    'a client id of another actor',
    () => ({ body: ada.pull(), token: 'token-ben' }),
    400,
    'sync.invalid_client_id',
  ],
  [
    'S-009: the reserved client id',
    () => ({ body: ada.pull({ clientId: '["remote-command",1]' }) }),
    400,
    'sync.invalid_client_id',
  ],
  [
    'S-002: a missing token',
    () => ({ body: ada.pull(), headers: { authorization: '' } }),
    401,
    'sync.auth_required',
  ],
  ['S-002: an expired token', () => ({ body: ada.pull(), token: 'token-old' }), 401, 'sync.auth_required'],
  ['S-002: an unknown token', () => ({ body: ada.pull(), token: 'nobody' }), 401, 'sync.auth_required'],
  ['a body over the bound', () => ({ body: new Uint8Array(70_000) }), 413, 'sync.invalid_request'],
  [
    'a small body that unpacks over the bound',
    () => ({ body: gzipSync(new Uint8Array(70_000)), headers: { 'content-encoding': 'gzip' } }),
    413,
    'sync.invalid_request',
  ],
  [
    'gzip that is none',
    () => ({ body: garbage, headers: { 'content-encoding': 'gzip' } }),
    400,
    'sync.invalid_request',
  ],
];

const BOUNDS = {
  requestBytesMax: 65_536,
  frameBytesMax: 65_536,
  messageBytesMax: 65_536,
  controlBytesMax: 4_096,
  messageFragmentsMax: 16,
  operationsMax: 2,
};

async function start(): Promise<LiveGateway> {
  const live = await startGateway({ limits: BOUNDS });
  // The id belongs to ada from here on.
  await postSync(live.url, ada.pull());
  return live;
}

describe('bad input over HTTP', () => {
  test.each(HTTP_CASES)('%s', async (_name, request, status, code) => {
    const live = await start();
    const witness = await startWitness(live);
    const { body, token = 'token-ada', headers = {} } = request();
    const answer = await postSync(live.url, body, { token, headers });
    expect(answer.status).toBe(status);
    expect(answer.headers['content-type']).toBe('application/json');
    expect(json(answer)).toMatchObject({ code, message: expect.any(String) });
    await witness.noticesNothing();
    expect((await postSync(live.url, ada.pull())).status).toBe(200);
  });

  test('bytes that are no HTTP', async () => {
    const live = await start();
    const witness = await startWitness(live);
    expect(await rawExchange(live.port, '\x16\x03\x01\x02\x00 hello\r\n\r\n')).toMatch(/^HTTP\/1\.1 400 /);
    const longHeader = `GET /healthz HTTP/1.1\r\nhost: x\r\nx: ${'y'.repeat(70_000)}\r\n\r\n`;
    expect(await rawExchange(live.port, longHeader)).toMatch(/^HTTP\/1\.1 431 /);
    await witness.noticesNothing();
  });

  test('a client that leaves in the middle of its request or of its response', async () => {
    const live = await start();
    const witness = await startWitness(live);
    const head = 'POST /sync HTTP/1.1\r\nhost: x\r\nauthorization: Bearer token-ada\r\n';
    const body = ada.pull();
    for (const part of [
      '',
      'content-type: application/vnd.syncular.sync.v2\r\ncontent-length: 9\r\n\r\nabc',
    ]) {
      const socket = await rawConnect(live.port);
      socket.write(head + part, () => socket.resetAndDestroy());
      await once(socket, 'close');
    }
    const whole = await rawConnect(live.port);
    whole.write(
      `${head}content-type: application/vnd.syncular.sync.v2\r\ncontent-length: ${body.byteLength}\r\n\r\n`,
    );
    whole.write(body, () => whole.resetAndDestroy());
    await once(whole, 'close');
    await witness.noticesNothing();
  });
});

const SOCKET_CASES: readonly (readonly [name: string, send: (socket: RoundSocket) => void, code: number])[] =
  [
    ['R-055: garbage instead of a request', (socket) => socket.sendRoundBytes(garbage), 1008],
    ['R-055: bad magic', (socket) => socket.sendRoundBytes(flip(ada.pull(), 0, 0x58)), 1008],
    ['R-055: wire version 9', (socket) => socket.sendRoundBytes(flip(ada.pull(), 4, 9)), 1008],
    ['R-055: flags 1', (socket) => socket.sendRoundBytes(flip(ada.pull(), 7, 1)), 1008],
    ['R-055: response kind', (socket) => socket.sendRoundBytes(flip(ada.pull(), 6, 2)), 1008],
    ['a delta tag from a client', (socket) => socket.sendBinary(Uint8Array.of(0x00, 1)), 1008],
    ['a tag nobody knows', (socket) => socket.sendBinary(Uint8Array.of(0x02, 1)), 1008],
    [
      'R-059: a second round during the first',
      (socket) => {
        socket.sendRoundBytes(ada.pull());
        socket.sendRoundBytes(ada.pull());
      },
      1008,
    ],
    ['R-060: bytes past END', (socket) => socket.sendRoundBytes(Buffer.concat([ada.pull(), garbage])), 1008],
    [
      'a presence message of a wrong shape',
      (socket) => socket.sendText('{"event":"presence","data":3}'),
      1008,
    ],
    ['a text over controlBytesMax', (socket) => socket.sendText('x'.repeat(4_097)), 1009],
    ['a message over messageBytesMax', (socket) => socket.sendBinary(new Uint8Array(70_000).fill(1)), 1009],
    [
      'a request over requestBytesMax',
      (socket) => {
        const request = flip(ada.pull(), 12, 0x7f);
        socket.sendRoundBytes(request);
      },
      1009,
    ],
    ['text that is not UTF-8', (socket) => socket.ws.send(Uint8Array.of(0xff), { binary: false }), 1007],
    [
      'more fragments than messageFragmentsMax',
      (socket) => {
        for (let i = 0; i < 17; i += 1) socket.ws.send(Uint8Array.of(1), { fin: false, binary: true });
      },
      1008,
    ],
  ];

describe('bad input over the socket', () => {
  test.each(SOCKET_CASES)('%s', async (_name, send, code) => {
    const live = await start();
    const witness = await startWitness(live);
    const socket = await live.connect();
    send(socket);
    expect((await socket.untilClosed()).code).toBe(code);
    await witness.noticesNothing();
    const again = await live.connect();
    await again.round(ada.pull());
  });

  test.each<[string, () => Uint8Array, string]>([
    [
      'R-056: the same subscription id twice',
      () => ada.pull({ subscriptionIds: ['a', 'a'] }),
      'sync.invalid_subscription',
    ],
    ['an unknown table', () => ada.pull({ table: 'nope' }), 'sync.unknown_table'],
    [
      'R-058: another client id than the socket has',
      () => ada.push({ rowId: 'x', clientId: 'other' }),
      'sync.invalid_client_id',
    ],
    ['a frame that cannot be decoded', () => flip(ada.pull(), 13, 0xff), 'sync.invalid_request'],
  ])('%s is an error stream and the socket stays', async (_name, request, code) => {
    const live = await start();
    const witness = await startWitness(live);
    const socket = await live.connect();
    expect(frameOf(await socket.round(request()), 'ERROR').code).toBe(code);
    await witness.noticesNothing();
    frameOf(await socket.round(ada.pull()), 'SUB_END');
    expect(socket.closed).toBeNull();
  });

  test.each([
    ['R-015: an unknown name', '{"type":"x"}'],
    ['R-015: an unknown event', '{"event":"y"}'],
    ['text that is not JSON', 'hello'],
    ['JSON that is no object', '[1]'],
    ['an ack that is no integer', '{"type":"ack","cursor":1.5}'],
    ['an ack beyond every commit (R-080)', `{"type":"ack","cursor":${2 ** 53 - 1}}`],
  ])('%s is ignored', async (_name, text) => {
    const live = await start();
    const socket = await live.connect();
    socket.sendText(text);
    socket.sendBinary(new Uint8Array(0));
    frameOf(await socket.round(ada.pull()), 'SUB_END');
    expect(socket.closed).toBeNull();
  });

  test.each([
    ['a missing token', '', 401, 'sync.auth_required'],
    ['an expired token', '&token=token-old', 401, 'sync.auth_required'],
    ['R-002: a client id of another actor', '&token=token-ben', 400, 'sync.invalid_client_id'],
  ])('an upgrade with %s', async (_name, query, status, code) => {
    const live = await start();
    const lines =
      'host: x\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n';
    const answer = await rawExchange(
      live.port,
      `GET /realtime?clientId=client-1${query} HTTP/1.1\r\n${lines}\r\n`,
    );
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `));
    expect(JSON.parse(answer.slice(answer.indexOf('\r\n\r\n') + 4))).toMatchObject({ code });
    expect(live.gateway.stats().sessions).toBe(0);
  });

  test('R-003: the reserved client id', async () => {
    const live = await start();
    const clientId = encodeURIComponent('["remote-command",1]');
    const answer = await call(`${live.url}/realtime?clientId=${clientId}&token=token-ada`);
    expect(answer.status).toBe(426);
    await expect(live.connect({ clientId: '["remote-command",1]' })).rejects.toThrow();
  });

  test('too many operations apply nothing', async () => {
    const live = await start();
    const frames = [1, 2, 3].map((n) => ({
      type: 'PUSH_COMMIT' as const,
      clientCommitId: `c${n}`,
      operations: [{ table: 'notes', rowId: `r${n}`, op: 'delete' as const }],
    }));
    const answer = await postSync(live.url, encodeRequest({}, frames));
    expect(answer.status).toBe(400);
    expect(json(answer)).toMatchObject({ code: 'sync.too_many_operations' });
  });
});
