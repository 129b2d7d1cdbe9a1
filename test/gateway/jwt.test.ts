/** JSON Web Tokens as credentials: what is taken, what is refused, keys that rotate, cookies, and what a log says of all that. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  type CryptoKey,
  exportJWK,
  exportSPKI,
  generateKeyPair,
  type JWK,
  type JWTPayload,
  SignJWT,
  UnsecuredJWT,
} from 'jose';
import { beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import type { AuthRequest, StaticTokens } from '../../src/gateway/auth.ts';
import { resolveConfig } from '../../src/gateway/config.ts';
import { ConfigError } from '../../src/gateway/config-error.ts';
import { createJwtAuth, type JwtOptions } from '../../src/gateway/jwt.ts';
import { gatewayOptions } from '../../src/gateway/serve.ts';
import { failureOf } from '../contract/storage/fixture.ts';
import { call } from './support/http-client.ts';
import { startGateway } from './support/live-gateway.ts';
import { ada, postSync, SCHEMA } from './support/requests.ts';

const SECRET = 'a secret of more than thirty-two bytes';
const OTHER = 'another secret of more than thirty-two bytes';
const NOW_S = Math.floor(Date.now() / 1_000);
const CLAIMS = {
  iss: 'https://login.example',
  aud: 'sync',
  sub: 'ada',
  partition: 'tenant-1',
  scopes: { project: ['p1', 'p2'] },
  exp: NOW_S + 600,
};
const BASE = { issuer: CLAIMS.iss, audience: CLAIMS.aud };

type Pair = { readonly publicKey: CryptoKey; readonly privateKey: CryptoKey };
let rsa: Pair;
let ec: Pair;

beforeAll(async () => {
  rsa = await generateKeyPair('RS256', { extractable: true });
  ec = await generateKeyPair('ES256', { extractable: true });
});

function sign(
  claims: JWTPayload,
  alg = 'HS256',
  key: CryptoKey | Uint8Array = Buffer.from(SECRET),
  kid?: string,
) {
  return new SignJWT(claims).setProtectedHeader(kid === undefined ? { alg } : { alg, kid }).sign(key);
}

function request(token: string | null, rest: Readonly<Record<string, string>> = {}): AuthRequest {
  const headers = new Headers({ ...(token === null ? {} : { authorization: `Bearer ${token}` }), ...rest });
  return { kind: 'http', method: 'POST', url: '/sync', headers, remoteAddress: '' };
}

const ask = ({ authenticate }: StaticTokens, token: string | null, rest = {}) =>
  authenticate(request(token, rest));
const ADA = {
  actorId: 'ada',
  partition: 'tenant-1',
  // With the tolerance.
  expiresAtMs: (CLAIMS.exp + 5) * 1_000,
  claims: { scopes: CLAIMS.scopes },
};

describe('HS256', () => {
  test('claims become actor, partition, scopes and expiry', async () => {
    const auth = await createJwtAuth({ ...BASE, keys: { secrets: [SECRET] } });
    expect(await ask(auth, await sign(CLAIMS))).toEqual(ADA);
    expect(auth.resolveScopes({ ...ADA, expiresAtMs: null })).toEqual(CLAIMS.scopes);
    expect(auth.resolveScopes({ ...ADA, claims: {} })).toEqual({});
    expect(await ask(auth, null)).toBeNull();
  });

  test('other claim names, and one partition for all', async () => {
    const keys = { secrets: [SECRET] };
    const named = { actorClaim: 'uid', partition: { claim: 'org' }, scopesClaim: 'may' };
    const auth = await createJwtAuth({ ...BASE, keys, ...named });
    const token = await sign({ ...CLAIMS, sub: 'x', uid: 'ben', org: 'tenant-2', may: { project: ['p9'] } });
    expect(await ask(auth, token)).toMatchObject({
      actorId: 'ben',
      partition: 'tenant-2',
      claims: { scopes: { project: ['p9'] } },
    });
    const fixed = await createJwtAuth({ ...BASE, keys, partition: { fixed: 'all' } });
    expect(await ask(fixed, token)).toMatchObject({ partition: 'all' });
  });

  test('a secret that is replaced: both are taken while both are there', async () => {
    const both = await createJwtAuth({ ...BASE, keys: { secrets: [OTHER, SECRET] } });
    expect(await ask(both, await sign(CLAIMS))).toEqual(ADA);
    expect(await ask(both, await sign(CLAIMS, 'HS256', Buffer.from(OTHER)))).toEqual(ADA);
  });

  test('what is refused, without a word why', async () => {
    const auth = await createJwtAuth({ ...BASE, keys: { secrets: [SECRET] } });
    const { sub: _sub, ...anonymous } = CLAIMS;
    const { exp: _exp, ...eternal } = CLAIMS;
    const good = await sign(CLAIMS);
    const refused = {
      'another secret': await sign(CLAIMS, 'HS256', Buffer.from(OTHER)),
      expired: await sign({ ...CLAIMS, exp: NOW_S - 60 }),
      'not yet': await sign({ ...CLAIMS, nbf: NOW_S + 60 }),
      'no expiry': await sign(eternal),
      'another issuer': await sign({ ...CLAIMS, iss: 'https://other.example' }),
      'another audience': await sign({ ...CLAIMS, aud: 'mail' }),
      'no actor': await sign(anonymous),
      'an actor that is no text': await sign({ ...CLAIMS, sub: '' }),
      'a partition that is no text': await sign({ ...CLAIMS, partition: 7 }),
      'an actor that no database can hold': await sign({ ...CLAIMS, sub: 'a\0b' }),
      'an expiry beyond all time': await sign({ ...CLAIMS, exp: 1e306 }),
      HS512: await sign(CLAIMS, 'HS512', Buffer.from(`${SECRET}${OTHER}`)),
      none: new UnsecuredJWT(CLAIMS).encode(),
      tampered: `${good.slice(0, -6)}AAAAAA`,
      'no token at all': 'certainly not',
      'three empty parts': '..',
    };
    for (const [what, token] of Object.entries(refused)) expect(await ask(auth, token), what).toBeNull();
    expect(await ask(auth, await sign({ ...CLAIMS, exp: NOW_S - 2 }))).not.toBeNull();
  });
});

describe('RS256 and ES256', () => {
  test('PEM and JWK; a public key is never taken for a secret', async () => {
    const pem = await exportSPKI(rsa.publicKey);
    const auth = await createJwtAuth({ ...BASE, keys: { publicKeys: [pem, await exportJWK(ec.publicKey)] } });
    expect(await ask(auth, await sign(CLAIMS, 'RS256', rsa.privateKey))).toEqual(ADA);
    expect(await ask(auth, await sign(CLAIMS, 'ES256', ec.privateKey))).toEqual(ADA);
    // The attack that takes the public key for the secret of HS256.
    expect(await ask(auth, await sign(CLAIMS, 'HS256', Buffer.from(pem)))).toBeNull();
    const stranger = await generateKeyPair('RS256', { extractable: true });
    expect(await ask(auth, await sign(CLAIMS, 'RS256', stranger.privateKey))).toBeNull();
    const narrow = await createJwtAuth({ ...BASE, keys: { publicKeys: [pem] }, algorithms: ['ES256'] });
    expect(await ask(narrow, await sign(CLAIMS, 'RS256', rsa.privateKey))).toBeNull();
  });
});

/** A key set whose keys and state a test decides. */
class KeyServer {
  keys: JWK[] = [];
  requests = 0;
  isDown = false;
  readonly server: Server = createServer((_req, res) => {
    this.requests++;
    res.writeHead(this.isDown ? 503 : 200, { 'content-type': 'application/json' });
    res.end(JSON.stringify({ keys: this.keys }));
  });

  async listen(): Promise<string> {
    await new Promise<void>((resolve) => this.server.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void this.server.close());
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}/keys`;
  }
}

describe('a key set by URL', () => {
  const jwk = async (pair: Pair, kid: string): Promise<JWK> => ({
    ...(await exportJWK(pair.publicKey)),
    kid,
    alg: 'RS256',
  });

  test('is fetched once, and again for a key that it does not have', async () => {
    const server = new KeyServer();
    const next = await generateKeyPair('RS256', { extractable: true });
    server.keys = [await jwk(rsa, 'k1'), await jwk(next, 'k2')];
    const auth = await createJwtAuth({ ...BASE, keys: { jwksUrl: await server.listen() } });
    expect(await ask(auth, await sign(CLAIMS, 'RS256', rsa.privateKey, 'k1'))).toEqual(ADA);
    expect(await ask(auth, await sign(CLAIMS, 'RS256', next.privateKey, 'k2'))).toEqual(ADA);
    expect(server.requests).toBe(1);
    // Of no key that exists; within the pause nobody asks again, however many such tokens come.
    for (let n = 0; n < 5; n++) {
      expect(await ask(auth, await sign(CLAIMS, 'RS256', next.privateKey, `k${n + 3}`))).toBeNull();
    }
    expect(server.requests).toBeLessThanOrEqual(2);
  });

  test('a token that names no key is tried with each that fits', async () => {
    const server = new KeyServer();
    const [next, stranger] = [
      await generateKeyPair('RS256', { extractable: true }),
      await generateKeyPair('RS256'),
    ];
    server.keys = [await jwk(rsa, 'k1'), await jwk(next, 'k2')];
    const auth = await createJwtAuth({ ...BASE, keys: { jwksUrl: await server.listen() } });
    for (const { privateKey } of [rsa, next]) {
      expect(await ask(auth, await sign(CLAIMS, 'RS256', privateKey))).toEqual(ADA);
    }
    const expired = await sign({ ...CLAIMS, exp: NOW_S - 60 }, 'RS256', next.privateKey);
    expect(await ask(auth, expired)).toBeNull();
    expect(await ask(auth, await sign(CLAIMS, 'RS256', stranger.privateKey))).toBeNull();
    expect(server.requests).toBe(1);
  });

  test('that cannot be had is a failure, not a refusal of the token', async () => {
    const server = new KeyServer();
    server.isDown = true;
    const live = await startGateway(
      await createJwtAuth({ ...BASE, keys: { jwksUrl: await server.listen() } }),
    );
    const token = await sign(CLAIMS, 'RS256', rsa.privateKey, 'k1');
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/vnd.syncular.ssp2' };
    expect((await call(`${live.url}/sync`, { method: 'POST', headers })).status).toBe(500);
  });
});

describe('a cookie', () => {
  const options: JwtOptions = { ...BASE, keys: { secrets: [SECRET] }, cookie: 'session' };

  test('is taken from pages of the same site and from programs, never from other sites', async () => {
    const auth = await createJwtAuth(options);
    const cookie = `theme=dark; session=${await sign(CLAIMS)}; more=x`;
    const taken = [
      {},
      { origin: 'https://app.example', host: 'app.example' },
      { 'sec-fetch-site': 'same-origin' },
      { 'sec-fetch-site': 'same-site', origin: 'https://www.app.example', host: 'app.example' },
    ];
    for (const headers of taken) expect(await ask(auth, null, { cookie, ...headers })).toEqual(ADA);
    const refused = [
      { origin: 'https://evil.example', host: 'app.example' },
      { origin: 'null', host: 'app.example' },
      { 'sec-fetch-site': 'cross-site', origin: 'https://app.example', host: 'app.example' },
    ];
    for (const headers of refused) expect(await ask(auth, null, { cookie, ...headers })).toBeNull();
    expect(await ask(auth, null, { cookie: 'session=' })).toBeNull();
    const without = await createJwtAuth({ ...options, cookie: 'other' });
    expect(await ask(without, null, { cookie })).toBeNull();
  });
});

test('options that cannot be meant', async () => {
  const keys = { secrets: [SECRET] };
  const wrong: readonly JwtOptions[] = [
    { ...BASE, keys: { secrets: ['too short'] } },
    { ...BASE, keys: { secrets: [] } },
    { ...BASE, keys: { publicKeys: ['-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----'] } },
    { ...BASE, keys: { publicKeys: [await exportJWK(rsa.privateKey)] } },
    { ...BASE, keys: { publicKeys: [{ kty: 'OKP', crv: 'Ed25519', x: 'AAAA' }] } },
    { ...BASE, keys: { publicKeys: [{ ...(await exportJWK(rsa.publicKey)), alg: 'PS256' }] } },
    { ...BASE, keys, issuer: '' },
    { ...BASE, keys, audience: [] },
    { ...BASE, keys, algorithms: ['RS256'] },
    { ...BASE, keys, clockToleranceSeconds: 1e9 },
    { ...BASE, keys, clockToleranceSeconds: Number.NaN },
  ];
  for (const options of wrong) expect(await failureOf(createJwtAuth(options))).toBeInstanceOf(RangeError);
});

describe('in a configuration file', () => {
  const resolve = (auth: unknown, more = {}) =>
    resolveConfig({
      flags: {},
      env: {},
      workingFolder: '/',
      file: {
        kind: 'module',
        path: '/app.json',
        folder: '/',
        content: { schema: SCHEMA, storage: 'sqlite::memory:', auth, ...more },
      },
    });

  test('serves with it; a resolveScopes of the module takes the place of the claim', async () => {
    const jwt = { keys: { secrets: [SECRET] }, ...BASE };
    const options = await gatewayOptions(resolve({ jwt }));
    expect(await options.authenticate(request(await sign(CLAIMS)))).toEqual(ADA);
    const own = await gatewayOptions(resolve({ jwt }, { resolveScopes: () => ({ project: ['own'] }) }));
    expect(await own.resolveScopes({ ...ADA, expiresAtMs: null })).toEqual({ project: ['own'] });
  });

  test.each<[string, unknown, RegExp]>([
    ['nothing in it', { jwt: {} }, /keys must be one of[\s\S]*issuer must be[\s\S]*audience must be/],
    ['no object', { jwt: 'x' }, /auth.jwt in \/app.json must be an object/],
    [
      'two kinds of keys',
      { jwt: { ...BASE, keys: { secrets: [SECRET], jwksUrl: 'https://x' } } },
      /keys must be one of/,
    ],
    ['a misspelt key', { jwt: { ...BASE, keys: { secrets: [SECRET] }, issuers: 'x' } }, /has no issuers/],
    ['tokens as well', { jwt: { ...BASE, keys: { secrets: [SECRET] } }, tokens: {} }, /auth in .* must be/],
  ])('%s', (_, auth, message) => {
    expect(() => resolve(auth)).toThrow(message);
  });

  test('a secret that is too short is named by its fault alone', async () => {
    const failure = await failureOf(
      gatewayOptions(resolve({ jwt: { ...BASE, keys: { secrets: ['short'] } } })),
    );
    expect(failure).toBeInstanceOf(ConfigError);
    expect((failure as Error).message).not.toContain("'short'");
  });
});

test('a whole gateway: HTTP and socket by token, and no token in the log', async () => {
  const lines: string[] = [];
  const note = (fields: object, message: string): void => void lines.push(JSON.stringify([fields, message]));
  const live = await startGateway({
    ...(await createJwtAuth({ ...BASE, keys: { secrets: [SECRET] } })),
    logger: { debug: note, info: note, warn: note, error: note },
  });
  const token = await sign({ ...CLAIMS, scopes: { project: ['*'] } });
  const socket = await live.connect({ token });
  await socket.round(ada.pull());
  expect((await postSync(live.url, ada.pull(), { token })).status).toBe(200);
  const bad = await sign({ ...CLAIMS, exp: NOW_S - 600 });
  expect((await postSync(live.url, ada.pull(), { token: bad })).status).toBe(401);
  await expect(live.connect({ token: bad })).rejects.toThrow();
  expect(lines.length).toBeGreaterThan(3);
  for (const line of lines) for (const each of [token, bad, SECRET]) expect(line).not.toContain(each);
});
