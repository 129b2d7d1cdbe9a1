/** Content codings of HTTP: negotiation, responses out, request bodies in (part 2.2; RFC 9110 §12.5.3). */
import type { Transform } from 'node:stream';
import * as zlib from 'node:zlib';
import type { Clock } from '../protocol/clock.ts';
import { SyncError } from '../protocol/errors.ts';

export type ContentCoding = 'zstd' | 'gzip';

/** Measured at 234 MB/s against about 60 for the default level, for a few percent of size. */
const GZIP_LEVEL = 1;

interface Flushable extends Transform {
  flush(kind: number, done: () => void): void;
}
type ZstdFactory = () => Flushable;

function isZstdFactory(candidate: unknown): candidate is ZstdFactory {
  return typeof candidate === 'function';
}

/** Present from Node 22.15 on. */
const zstdFactory: unknown = Reflect.get(zlib, 'createZstdCompress');
const ZSTD_FLUSH = 1;

/** In the order of the server's preference (2.11). */
export const OFFERED_CODINGS: readonly ContentCoding[] = isZstdFactory(zstdFactory)
  ? ['zstd', 'gzip']
  : ['gzip'];

interface Preference {
  readonly coding: string;
  readonly weight: number;
}

/**
 * The coding of the response: the highest weight wins, the order of `offered` breaks ties. `null` when the client excludes
 * even the plain form.
 */
export function negotiateCoding(
  acceptEncoding: string | null,
  offered: readonly ContentCoding[] = OFFERED_CODINGS,
): ContentCoding | 'identity' | null {
  if (acceptEncoding === null) return 'identity';
  const preferences = acceptEncoding.split(',').flatMap(parsePreference);
  const weightOf = (...names: readonly string[]): number | undefined =>
    preferences.find((preference) => names.includes(preference.coding))?.weight;
  const anyWeight = weightOf('*');

  let best: { coding: ContentCoding | 'identity'; weight: number } | null = null;
  for (const coding of offered) {
    const weight = weightOf(coding, `x-${coding}`) ?? anyWeight ?? 0;
    if (weight > 0 && (best === null || weight > best.weight)) best = { coding, weight };
  }
  const identityWeight = weightOf('identity');
  if (best === null) return (identityWeight ?? anyWeight ?? 1) > 0 ? 'identity' : null;
  return identityWeight !== undefined && identityWeight > best.weight ? 'identity' : best.coding;
}

function parsePreference(item: string): Preference[] {
  const [name = '', ...parameters] = item.split(';').map((part) => part.trim().toLowerCase());
  if (name === '') return [];
  const weightText = parameters.find((parameter) => parameter.startsWith('q='))?.slice(2);
  if (weightText === undefined) return [{ coding: name, weight: 1 }];
  // A weight that is none is no permission.
  return [
    { coding: name, weight: /^(0(\.\d{0,3})?|1(\.0{0,3})?)$/.test(weightText) ? Number(weightText) : 0 },
  ];
}

/**
 * Encodes piece by piece. When the source makes a pause, what it gave so far is flushed, so that the first sections of a
 * long response are usable while later ones are read (S-008).
 */
export async function* encodeStream(
  source: AsyncIterable<Uint8Array>,
  coding: ContentCoding,
  clock: Clock,
): AsyncGenerator<Uint8Array, void, undefined> {
  const encoder = createEncoder(coding);
  feedEncoder(source, encoder, { clock, flushKind: flushKindOf(coding) }).catch((failure: unknown) => {
    encoder.destroy(failure instanceof Error ? failure : new Error('the response stream failed'));
  });
  try {
    for await (const chunk of encoder) yield chunk as Uint8Array;
  } finally {
    // The feeder sees it and lets go of the source; it is not awaited, the source may be in the middle of a read.
    encoder.destroy();
  }
}

function createEncoder(coding: ContentCoding): Flushable {
  if (coding === 'zstd' && isZstdFactory(zstdFactory)) return zstdFactory();
  return zlib.createGzip({ level: GZIP_LEVEL });
}

function flushKindOf(coding: ContentCoding): number {
  return coding === 'zstd' ? ZSTD_FLUSH : zlib.constants.Z_SYNC_FLUSH;
}

async function feedEncoder(
  source: AsyncIterable<Uint8Array>,
  encoder: Flushable,
  { clock, flushKind }: { readonly clock: Clock; readonly flushKind: number },
): Promise<void> {
  const chunks = source[Symbol.asyncIterator]();
  try {
    let step = await chunks.next();
    while (!step.done && !encoder.destroyed) {
      if (!encoder.write(step.value)) await untilWritable(encoder);
      const following = chunks.next();
      if ((await settledWithinTurn(following, clock)) === 'pending' && !encoder.destroyed) {
        await new Promise<void>((resolve) => {
          encoder.once('close', resolve);
          encoder.flush(flushKind, () => {
            encoder.off('close', resolve);
            resolve();
          });
        });
      }
      step = await following;
    }
    if (!encoder.destroyed) encoder.end();
  } finally {
    await chunks.return?.();
  }
}

function untilWritable(stream: Transform): Promise<void> {
  if (stream.destroyed) return Promise.resolve();
  return new Promise((resolve) => {
    const settle = (): void => {
      stream.off('drain', settle);
      stream.off('close', settle);
      resolve();
    };
    stream.on('drain', settle);
    stream.on('close', settle);
  });
}

function settledWithinTurn(work: Promise<unknown>, clock: Clock): Promise<'settled' | 'pending'> {
  return new Promise((resolve) => {
    const settled = (): void => resolve('settled');
    work.then(settled, settled);
    clock.nextTurn(() => resolve('pending'));
  });
}

/** Undoes the content coding of a request body. The bound on the result is the reader's, chunk by chunk. */
export function decodeRequestBody(
  source: AsyncIterable<Uint8Array>,
  contentEncoding: string | null,
): AsyncIterable<Uint8Array> {
  const coding = (contentEncoding ?? 'identity').trim().toLowerCase();
  if (coding === 'identity' || coding === '') return source;
  if (coding === 'gzip' || coding === 'x-gzip') return gunzipStream(source);
  throw new SyncError('sync.invalid_request', 'the content coding of the request is not supported', {
    httpStatus: 415,
  });
}

async function* gunzipStream(source: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  const decoder = zlib.createGunzip();
  feedDecoder(source, decoder).catch((failure: unknown) => {
    decoder.destroy(failure instanceof Error ? failure : new Error('the request body failed'));
  });
  try {
    for await (const chunk of decoder) yield chunk as Uint8Array;
  } catch (failure) {
    if (!isZlibFailure(failure)) throw failure;
    throw new SyncError('sync.invalid_request', 'the request body is not valid gzip', { cause: failure });
  } finally {
    decoder.destroy();
  }
}

async function feedDecoder(source: AsyncIterable<Uint8Array>, decoder: Transform): Promise<void> {
  for await (const chunk of source) {
    if (decoder.destroyed) return;
    if (!decoder.write(chunk)) await untilWritable(decoder);
  }
  decoder.end();
}

function isZlibFailure(failure: unknown): boolean {
  return (
    failure instanceof Error &&
    'code' in failure &&
    typeof failure.code === 'string' &&
    failure.code.startsWith('Z_')
  );
}
