import { describe, expect, test } from 'vitest';
import {
  type AuthIdentity,
  type AuthRequest,
  bearerToken,
  createIdentify,
  createStaticTokens,
  isScopeMap,
} from '../../src/gateway/auth.ts';
import type { HttpRequest } from '../../src/gateway/http-message.ts';
import { startGateway } from './support/live-gateway.ts';
import { ada, postSync } from './support/requests.ts';
import { SocketClock } from './support/socket-clock.ts';

function authRequest(kind: AuthRequest['kind'], url: string, authorization?: string): AuthRequest {
  const headers = new Headers(authorization === undefined ? {} : { authorization });
  return { kind, method: 'GET', url, headers, remoteAddress: '10.0.0.1' };
}

describe('where a token may stand', () => {
  test.each([
    ['http', '/sync', 'Bearer abc', 'abc'],
    ['http', '/sync', 'bearer abc', 'abc'],
    ['http', '/sync', 'Basic abc', null],
    ['http', '/sync', 'Bearer a b', null],
    ['http', '/sync', undefined, null],
    ['http', '/sync?access_token=abc', undefined, null],
    ['upgrade', '/realtime?access_token=abc', undefined, 'abc'],
    ['upgrade', '/realtime?clientId=c&token=abc', undefined, 'abc'],
    ['upgrade', '/realtime?ticket=abc', undefined, 'abc'],
    ['upgrade', '/realtime?ticket=', undefined, null],
    ['upgrade', '/realtime?ticket=abc', 'Bearer header', 'header'],
  ] as const)('%s %s with %j gives %j', (kind, url, authorization, expected) => {
    expect(bearerToken(authRequest(kind, url, authorization))).toBe(expected);
  });
});

describe('static tokens', () => {
  const tokens = createStaticTokens(
    new Map([
      ['t-one', { actorId: 'a1', partition: 'p1', scopes: { project: ['x'] }, expiresAtMs: null }],
      ['t-two', { actorId: 'a2', partition: 'p2', scopes: { project: ['*'] }, expiresAtMs: 7 }],
    ]),
  );

  test('a known token is its grant, scopes included', async () => {
    const said = await tokens.authenticate(authRequest('http', '/sync', 'Bearer t-two'));
    expect(said).toMatchObject({ actorId: 'a2', partition: 'p2', expiresAtMs: 7 });
    const who = { actorId: 'a2', partition: 'p2', expiresAtMs: 7, claims: said?.claims ?? {} };
    expect(tokens.resolveScopes(who)).toEqual({ project: ['*'] });
  });

  test.each(['t-on', 't-onee', 'T-ONE', ''])('%j is refused', async (token) => {
    expect(await tokens.authenticate(authRequest('http', '/sync', `Bearer ${token}`))).toBeNull();
  });

  test('claims that are no scope map grant nothing', () => {
    expect(tokens.resolveScopes({ actorId: 'a', partition: 'p', expiresAtMs: null, claims: {} })).toEqual({});
    expect([null, [], 'x', { a: 'b' }, { a: [1] }].map(isScopeMap)).toEqual(Array(5).fill(false));
  });
});

describe('what the host says (S-002)', () => {
  const clock = new SocketClock(1_000);
  const request: HttpRequest = {
    id: 'r1',
    method: 'POST',
    target: '/sync?x=1',
    headers: new Headers({ 'x-host': 'fact' }),
    remoteAddress: '10.0.0.1',
    body: new ReadableStream<Uint8Array>(),
    signal: new AbortController().signal,
  };
  const identify = (said: AuthIdentity | null) => createIdentify(async () => said, clock)(request, 'http');

  test('sees the facts of the request unchanged', async () => {
    let seen: AuthRequest | null = null;
    const spy = createIdentify((facts) => {
      seen = facts;
      return { actorId: 'a', partition: 'p' };
    }, clock);
    expect(await spy(request, 'upgrade')).toEqual({
      actorId: 'a',
      partition: 'p',
      expiresAtMs: null,
      claims: {},
    });
    expect(seen).toMatchObject({
      kind: 'upgrade',
      method: 'POST',
      url: '/sync?x=1',
      headers: request.headers,
      remoteAddress: '10.0.0.1',
    });
  });

  test('null is sync.auth_required', async () => {
    await expect(identify(null)).rejects.toMatchObject({ code: 'sync.auth_required', httpStatus: 401 });
  });

  test('undefined, which TypeScript hosts cannot answer, is the same', async () => {
    const nothing: () => AuthIdentity | null = () => JSON.parse('{}').identity;
    const refused = createIdentify(nothing, clock)(request, 'http');
    await expect(refused).rejects.toMatchObject({ code: 'sync.auth_required', httpStatus: 401 });
  });

  test('an expired grant is sync.auth_required, one that ends later is none', async () => {
    const ends = (expiresAtMs: number) => identify({ actorId: 'a', partition: 'p', expiresAtMs });
    await expect(ends(1_000)).rejects.toMatchObject({ code: 'sync.auth_required' });
    await expect(ends(1_001)).resolves.toMatchObject({ expiresAtMs: 1_001 });
  });

  test.each([
    { actorId: '', partition: 'p' },
    { actorId: 'a', partition: '' },
    { actorId: 'a', partition: 'p', expiresAtMs: Number.NaN },
    // Two different lone surrogates are stored as the same text: two tenants would see each other's rows.
    { actorId: 'a', partition: '\ud800' },
    { actorId: '\ud801', partition: 'p' },
    { actorId: 'a', partition: 'p\0' },
    { actorId: 'a\0', partition: 'p' },
  ])('%j is a defect of the host, not a refusal', async (said) => {
    await expect(identify(said)).rejects.toBeInstanceOf(TypeError);
  });
});

test('an authenticate that never answers is given up in time, and the request with it', async () => {
  const live = await startGateway({
    authenticate: () => new Promise(() => undefined),
    limits: { requestTimeoutMs: 40 },
  });
  const answer = await postSync(live.url, ada.pull());
  expect(answer.status).toBe(503);
  expect(JSON.parse(answer.body.toString())).toMatchObject({
    code: 'sync.rate_limited',
    message: 'authentication took too long',
  });
});
