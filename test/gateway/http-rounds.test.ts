/** HTTP rounds and segments through the whole gateway, on a real port and a real database. */
import { createHash } from 'node:crypto';
import { gunzipSync, gzipSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { decodeSegment } from '../../src/protocol/segment.ts';
import { call, json } from './support/http-client.ts';
import { startGateway } from './support/live-gateway.ts';
import { ada, frameOf, frames, postSync } from './support/requests.ts';

/** Rows beyond `segmentInlineBytesMax` come as a reference. */
const REFERENCES = { segmentInlineBytesMax: 0 };
const SCOPES = { 'x-syncular-scopes': '{"project":["shared"]}' };
const BEARER = { authorization: 'Bearer token-ada' };

describe('POST /sync', () => {
  test('a push is applied and a pull sees it; partitions are apart', async () => {
    const { url } = await startGateway();
    const pushed = await postSync(url, ada.push({ rowId: 'r1', title: 'first' }));
    expect(pushed.status).toBe(200);
    expect(frameOf(pushed.body, 'PUSH_RESULT')).toMatchObject({ status: 'applied', commitSeq: 1 });
    const pulled = await postSync(url, ada.pull());
    const { payload } = frameOf(pulled.body, 'SEGMENT_INLINE');
    expect(
      decodeSegment(payload)
        .blocks.flat()
        .map(({ values }) => values),
    ).toEqual([['r1', 'shared', 'first']]);
    const elsewhere = await postSync(url, ada.pull({ clientId: 'eve-1' }), { token: 'token-eve' });
    expect(decodeSegment(frameOf(elsewhere.body, 'SEGMENT_INLINE').payload).blocks.flat()).toEqual([]);
  });

  test('S-006: a gzipped request is the same request', async () => {
    const { url } = await startGateway();
    const headers = { 'content-encoding': 'gzip' };
    const pushed = await postSync(url, gzipSync(ada.push({ rowId: 'r1' })), { headers });
    expect(frameOf(pushed.body, 'PUSH_RESULT').status).toBe('applied');
  });

  test('S-005: a gzipped response decodes to the plain one', async () => {
    const { url } = await startGateway();
    await postSync(url, ada.push({ rowId: 'r1' }));
    const plain = await postSync(url, ada.pull());
    const zipped = await postSync(url, ada.pull(), { headers: { 'accept-encoding': 'gzip' } });
    expect(zipped.headers['content-encoding']).toBe('gzip');
    expect(gunzipSync(zipped.body).equals(plain.body)).toBe(true);
  });

  test('S-004: the same requests get the same answers on HTTP and on the socket', async () => {
    const http = await startGateway();
    const socket = await startGateway();
    const client = await socket.connect();
    const requests = [
      ada.push({ rowId: 'r1' }),
      ada.push({ rowId: 'r1' }),
      ada.push({ rowId: 'r2', table: 'unknown' }),
      ada.push({ rowId: '' }),
      ada.pull(),
      ada.pull({ cursor: 1 }),
      ada.pull({ cursor: 99 }),
      ada.pull({ schemaVersion: 99 }),
    ];
    const timeless = (response: Uint8Array) =>
      frames(response).map((frame) => (frame.type === 'COMMIT' ? { ...frame, createdAtMs: 0 } : frame));
    for (const request of requests) {
      const overHttp = await postSync(http.url, request);
      expect(overHttp.status).toBe(200);
      expect(timeless(await client.round(request))).toEqual(timeless(overHttp.body));
    }
  });

  test('S-004: a refused request has the same code on both', async () => {
    const live = await startGateway();
    const client = await live.connect();
    const refused = [
      ada.pull({ subscriptionIds: ['same', 'same'] }),
      ada.pull({ table: 'unknown' }),
      ada.pull({ projects: ['*'] }),
      ada.pull({ accept: 0 }),
    ];
    for (const request of refused) {
      const overHttp = await postSync(live.url, request);
      expect(overHttp.status).toBe(400);
      expect(frameOf(await client.round(request), 'ERROR').code).toBe(
        (json(overHttp) as { code: string }).code,
      );
    }
  });

  test('S-008: a large response comes in chunks', async () => {
    const { url } = await startGateway({ limits: { responseChunkBytes: 1_024 } });
    for (let batch = 0; batch < 20; batch += 1) {
      await postSync(url, ada.push({ rowId: `r${batch}`, title: 'x'.repeat(1_000) }));
    }
    const answer = await postSync(url, ada.pull({ cursor: 0 }));
    expect(answer.headers['transfer-encoding']).toBe('chunked');
    expect(frames(answer.body).filter(({ type }) => type === 'COMMIT').length).toBe(20);
  });

  test('S-063: a pull over HTTP is remembered once its response was delivered (R-007)', async () => {
    const live = await startGateway();
    await postSync(live.url, ada.push({ rowId: 'r1' }));
    await postSync(live.url, ada.pull());
    const client = await live.connect();
    expect(await client.control('hello')).toMatchObject({ cursor: 1, latestCursor: 1, requiresSync: false });
  });
});

describe('GET /segments/{segmentId}', () => {
  async function startWithSegment() {
    const live = await startGateway({ limits: REFERENCES });
    await postSync(live.url, ada.push({ rowId: 'r1' }));
    const pulled = await postSync(live.url, ada.pull({ accept: 2 }));
    const { segmentId, byteLength } = frameOf(pulled.body, 'SEGMENT_REF');
    return { ...live, segmentId, byteLength, segmentUrl: `${live.url}/segments/${segmentId}` };
  }

  test('S-095, S-096: the bytes hash to the id, with and without coding', async () => {
    const { segmentUrl, segmentId, byteLength } = await startWithSegment();
    const plain = await call(segmentUrl, { headers: { ...BEARER, ...SCOPES } });
    expect(plain.status).toBe(200);
    expect(plain.headers).toMatchObject({
      'content-type': 'application/octet-stream',
      etag: `"${segmentId}"`,
      'cache-control': 'private, max-age=0',
      vary: 'Authorization, X-Syncular-Scopes, Accept-Encoding',
    });
    expect(plain.body.byteLength).toBe(byteLength);
    expect(`sha256:${createHash('sha256').update(plain.body).digest('hex')}`).toBe(segmentId);
    const zipped = await call(segmentUrl, { headers: { ...BEARER, ...SCOPES, 'accept-encoding': 'gzip' } });
    expect(zipped.headers['content-encoding']).toBe('gzip');
    expect(gunzipSync(zipped.body).equals(plain.body)).toBe(true);
  });

  test('S-095: If-None-Match of the ETag is a 304', async () => {
    const { segmentUrl, segmentId } = await startWithSegment();
    const headers = { ...BEARER, ...SCOPES, 'if-none-match': `"${segmentId}"` };
    expect((await call(segmentUrl, { headers })).status).toBe(304);
  });

  test.each<[string, Record<string, string>, number, string]>([
    ['no credential', { ...SCOPES }, 401, 'sync.auth_required'],
    ['no scopes header', { ...BEARER }, 403, 'sync.forbidden'],
    [
      'a scopes header that is not JSON',
      { ...BEARER, 'x-syncular-scopes': '{' },
      400,
      'sync.invalid_request',
    ],
    [
      'a requested *',
      { ...BEARER, 'x-syncular-scopes': '{"project":["*"]}' },
      400,
      'sync.invalid_subscription',
    ],
    [
      'an undeclared key',
      { ...BEARER, 'x-syncular-scopes': '{"x":["y"]}' },
      400,
      'sync.invalid_subscription',
    ],
    ['other scopes', { ...BEARER, 'x-syncular-scopes': '{"project":["other"]}' }, 403, 'sync.forbidden'],
    ['the other partition', { authorization: 'Bearer token-eve', ...SCOPES }, 404, 'sync.not_found'],
  ])('S-093, S-094: %s', async (_name, headers, status, code) => {
    const { segmentUrl } = await startWithSegment();
    const answer = await call(segmentUrl, { headers });
    expect(answer.status).toBe(status);
    expect(json(answer)).toMatchObject({ code });
  });

  test('a scopes header of many values is taken', async () => {
    const { segmentUrl } = await startWithSegment();
    const project = Array.from({ length: 1_000 }, (_, index) => `project-${index}-with-a-rather-long-name`);
    const scopes = { 'x-syncular-scopes': JSON.stringify({ project }) };
    expect((await call(segmentUrl, { headers: { ...BEARER, ...scopes } })).status).toBe(403);
  });

  test('S-094: an unknown id is a 404', async () => {
    const { url } = await startGateway();
    const answer = await call(`${url}/segments/sha256:${'0'.repeat(64)}`, {
      headers: { ...BEARER, ...SCOPES },
    });
    expect(answer.status).toBe(404);
    expect(json(answer)).toMatchObject({ code: 'sync.not_found' });
  });
});
