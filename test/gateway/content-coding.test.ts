import { gunzipSync, gzipSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { decodeRequestBody, encodeStream, negotiateCoding } from '../../src/gateway/content-coding.ts';
import { SocketClock } from './support/socket-clock.ts';
import { utf8 } from './support/stub-gateway.ts';

async function collect(source: AsyncIterable<Uint8Array>): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of source) chunks.push(chunk);
  return Buffer.concat(chunks);
}

async function* chunksOf(...chunks: Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}

describe('negotiation by Accept-Encoding (S-005, RFC 9110 §12.5.3)', () => {
  test.each([
    [null, 'identity'],
    ['', 'identity'],
    ['gzip', 'gzip'],
    ['GZIP', 'gzip'],
    ['x-gzip', 'gzip'],
    ['zstd, gzip', 'zstd'],
    ['gzip, zstd', 'zstd'],
    ['zstd;q=0.4, gzip;q=0.5', 'gzip'],
    ['gzip;q=0', 'identity'],
    ['gzip;q=0, *', 'zstd'],
    ['*', 'zstd'],
    ['*;q=0', null],
    ['identity;q=0', null],
    ['identity;q=0, gzip', 'gzip'],
    ['br, deflate', 'identity'],
    ['gzip;q=0.5, identity', 'identity'],
    ['gzip;q=0.5, identity;q=0.5', 'gzip'],
    ['gzip;q=nonsense', 'identity'],
    ['gzip;q=2', 'identity'],
    ['gzip ; q=1.0 , br', 'gzip'],
  ])('%j takes %j', (header, expected) => {
    expect(negotiateCoding(header, ['zstd', 'gzip'])).toBe(expected);
  });

  test('a server without zstd answers gzip', () => {
    expect(negotiateCoding('zstd, gzip', ['gzip'])).toBe('gzip');
    expect(negotiateCoding('zstd', ['gzip'])).toBe('identity');
  });
});

describe('encoded responses', () => {
  test('S-007: any chunking decodes to the same bytes', async () => {
    const pieces = fc.array(fc.uint8Array({ maxLength: 5_000 }), { maxLength: 12 });
    await fc.assert(
      fc.asyncProperty(pieces, async (chunks) => {
        const encoded = await collect(encodeStream(chunksOf(...chunks), 'gzip', new SocketClock()));
        expect(gunzipSync(encoded).equals(Buffer.concat(chunks))).toBe(true);
      }),
      { numRuns: 40 },
    );
  });

  test('S-008: what came before a pause of the source can be decoded during the pause', async () => {
    let proceed: () => void = () => undefined;
    const pause = new Promise<void>((resolve) => {
      proceed = resolve;
    });
    async function* source(): AsyncGenerator<Uint8Array> {
      yield utf8('first section');
      await pause;
      yield utf8(', second section');
    }
    const encoded = encodeStream(source(), 'gzip', new SocketClock());
    const early: Uint8Array[] = [];
    const flushed = (): string =>
      gunzipSync(Buffer.concat(early), { finishFlush: 2 /* Z_SYNC_FLUSH: take what is there */ }).toString();
    while (early.length === 0 || flushed() !== 'first section') {
      const step = await encoded.next();
      early.push(step.value as Uint8Array);
    }
    proceed();
    const rest = await collect(encoded);
    expect(gunzipSync(Buffer.concat([...early, rest])).toString()).toBe('first section, second section');
  });

  test('a reader that leaves early releases the source', async () => {
    let released = false;
    async function* source(): AsyncGenerator<Uint8Array> {
      try {
        for (;;) yield new Uint8Array(100_000).map((_, index) => (index * 2_654_435_761) >>> 13);
      } finally {
        released = true;
      }
    }
    const clock = new SocketClock();
    for await (const _chunk of encodeStream(source(), 'gzip', clock)) break;
    while (!released) await new Promise<void>((resolve) => clock.nextTurn(resolve));
    expect(released).toBe(true);
  });

  test('a failing source fails the reader', async () => {
    async function* source(): AsyncGenerator<Uint8Array> {
      yield utf8('some');
      throw new Error('the database went away');
    }
    await expect(collect(encodeStream(source(), 'gzip', new SocketClock()))).rejects.toThrow('went away');
  });
});

describe('request bodies (S-006)', () => {
  test.each([
    ['gzip', gzipSync('the request')],
    ['x-gzip', gzipSync('the request')],
    ['identity', Buffer.from('the request')],
    [null, Buffer.from('the request')],
  ])('coding %j is taken', async (coding, body) => {
    expect((await collect(decodeRequestBody(chunksOf(body), coding))).toString()).toBe('the request');
  });

  test.each(['br', 'zstd', 'gzip, gzip', 'deflate'])('coding %j is refused with 415', (coding) => {
    expect(() => decodeRequestBody(chunksOf(), coding)).toThrow(
      expect.objectContaining({ code: 'sync.invalid_request', httpStatus: 415 }),
    );
  });

  test.each([
    ['not gzip at all', Buffer.from('not gzip at all')],
    ['truncated', gzipSync('x'.repeat(10_000)).subarray(0, 30)],
    ['empty', Buffer.alloc(0)],
  ])('%s is a 400', async (_name, body) => {
    await expect(collect(decodeRequestBody(chunksOf(body), 'gzip'))).rejects.toMatchObject({
      code: 'sync.invalid_request',
      httpStatus: 400,
    });
  });
});
