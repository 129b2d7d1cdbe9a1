/** Node's `http` requests and responses to and from the neutral ones. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock, Random } from '../protocol/clock.ts';
import { SyncError } from '../protocol/errors.ts';
import type { Limits } from '../protocol/limits.ts';
import type { HttpHandler } from './http.ts';
import { errorResponse } from './http-errors.ts';
import type { HttpRequest, HttpResponse } from './http-message.ts';
import type { InFlight } from './in-flight.ts';
import type { GatewayLogger } from './logger.ts';

/** Works as a `http.createServer` listener, and as a middleware: with `next`, foreign paths are passed on. */
export type NodeHandler = (
  req: IncomingMessage,
  res: ServerResponse,
  next?: (failure?: unknown) => void,
) => void;

export interface NodeHttpDeps {
  readonly handler: HttpHandler;
  /** From the request's first line to the response's last byte. */
  readonly exchanges: InFlight;
  /** A connection that is kept would be cut soon, perhaps with the next request on it. */
  readonly isDraining: () => boolean;
  readonly limits: Limits;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: GatewayLogger;
}

export function createNodeHandler(deps: NodeHttpDeps): NodeHandler {
  return (req, res, next) => {
    if (next !== undefined && !deps.handler.owns(req.url ?? '')) {
      next();
      return;
    }
    const finish = deps.exchanges.begin();
    exchange(req, res, deps)
      .catch((failure: unknown) => {
        deps.logger.error({ err: failure }, 'an HTTP exchange broke');
        res.destroy();
      })
      .finally(finish);
  };
}

async function exchange(req: IncomingMessage, res: ServerResponse, deps: NodeHttpDeps): Promise<void> {
  const gone = new AbortController();
  res.on('close', () => {
    if (!res.writableFinished) gone.abort();
  });
  // An error of the response always comes with its close.
  res.on('error', (failure) => deps.logger.debug({ err: failure }, 'a response could not be written'));
  const request = toHttpRequest(req, gone.signal, deps.random);
  const response = request === null ? errorResponse(malformedHeaders()) : await deps.handler.handle(request);
  let how: 'delivered' | 'cut' = 'cut';
  try {
    how = await writeResponse(res, response, { req, ...deps });
  } finally {
    response.ended(how);
  }
}

/** `null` when a header cannot be represented. */
export function toHttpRequest(req: IncomingMessage, signal: AbortSignal, random: Random): HttpRequest | null {
  const headers = toHeaders(req.rawHeaders);
  if (headers === null) return null;
  return {
    id: requestId(headers, random),
    method: req.method ?? '',
    target: req.url ?? '',
    headers,
    remoteAddress: req.socket.remoteAddress ?? '',
    // An early end of reading must not destroy the socket: the answer still has to leave on it.
    body: req.iterator({ destroyOnReturn: false }),
    signal,
  };
}

function toHeaders(rawHeaders: readonly string[]): Headers | null {
  const headers = new Headers();
  try {
    for (let i = 0; i + 1 < rawHeaders.length; i += 2) headers.append(rawHeaders[i]!, rawHeaders[i + 1]!);
  } catch (failure) {
    if (failure instanceof TypeError) return null;
    throw failure;
  }
  return headers;
}

/** A proxy's id when it is harmless in a log, else a fresh one. */
export function requestId(headers: Headers, random: Random): string {
  const given = headers.get('x-request-id');
  return given !== null && /^[\w.-]{1,64}$/.test(given) ? given : random.id();
}

interface WriteContext extends NodeHttpDeps {
  readonly req: IncomingMessage;
}

async function writeResponse(
  res: ServerResponse,
  response: HttpResponse,
  context: WriteContext,
): Promise<'delivered' | 'cut'> {
  if (res.destroyed) return 'cut';
  if (context.isDraining()) res.shouldKeepAlive = false;
  res.writeHead(response.status, response.headers);
  const { body } = response;
  if (body === null || context.req.method === 'HEAD') res.end();
  else if ((await writeBody(res, body, context)) === 'cut') return 'cut';
  const how = await untilFinished(res, context);
  if (how === 'delivered' && !context.req.complete) discardRest(context.req, context.limits.requestBytesMax);
  return how;
}

async function writeBody(
  res: ServerResponse,
  body: Uint8Array | AsyncIterable<Uint8Array>,
  context: WriteContext,
): Promise<'written' | 'cut'> {
  const how =
    body instanceof Uint8Array
      ? await writePieces(res, body, context)
      : await writeStream(res, body[Symbol.asyncIterator](), context);
  if (how === 'written') res.end();
  return how;
}

async function writeStream(
  res: ServerResponse,
  chunks: AsyncIterator<Uint8Array>,
  context: WriteContext,
): Promise<'written' | 'cut'> {
  // A source in the middle of a long read must not keep the exchange of a client that left.
  const closed = new Promise<'closed'>((resolve) => res.once('close', () => resolve('closed')));
  try {
    for (;;) {
      const step = res.destroyed ? 'closed' : await Promise.race([chunks.next(), closed]);
      if (step === 'closed') return releaseSource(chunks, context);
      if (step.done) return 'written';
      if ((await writePieces(res, step.value, context)) === 'cut') return releaseSource(chunks, context);
    }
  } catch (failure) {
    if (!res.destroyed) context.logger.error({ err: failure }, 'a response failed after it had begun');
    res.destroy();
    return 'cut';
  }
}

/** In pieces, so that a slow reader of a large chunk is seen to make progress. */
async function writePieces(
  res: ServerResponse,
  bytes: Uint8Array,
  context: WriteContext,
): Promise<'written' | 'cut'> {
  const { responseChunkBytes } = context.limits;
  for (let at = 0; at < bytes.byteLength; at += responseChunkBytes) {
    const piece = bytes.subarray(at, at + responseChunkBytes);
    if (!res.write(piece) && (await untilDrained(res, context)) === 'cut') return 'cut';
  }
  return 'written';
}

function releaseSource(chunks: AsyncIterator<Uint8Array>, { logger }: WriteContext): 'cut' {
  chunks.return?.().catch((failure: unknown) => {
    logger.error({ err: failure }, 'a response could not be released');
  });
  return 'cut';
}

/** A reader that takes nothing for `drainTimeoutMs` loses its response: a round holds a snapshot open meanwhile. */
function untilDrained(res: ServerResponse, { limits, clock }: WriteContext): Promise<'open' | 'cut'> {
  if (res.destroyed) return Promise.resolve('cut');
  return new Promise((resolve) => {
    const settle = (how: 'open' | 'cut'): void => {
      timer.cancel();
      res.off('drain', onDrain);
      res.off('close', onClose);
      resolve(how);
    };
    const onDrain = (): void => settle('open');
    const onClose = (): void => settle('cut');
    const timer = clock.after(limits.drainTimeoutMs, () => {
      res.destroy();
      settle('cut');
    });
    res.on('drain', onDrain);
    res.on('close', onClose);
  });
}

function untilFinished(res: ServerResponse, { limits, clock }: WriteContext): Promise<'delivered' | 'cut'> {
  if (res.writableFinished) return Promise.resolve('delivered');
  if (res.destroyed) return Promise.resolve('cut');
  return new Promise((resolve) => {
    const settle = (how: 'delivered' | 'cut'): void => {
      timer.cancel();
      resolve(how);
    };
    const timer = clock.after(limits.drainTimeoutMs, () => {
      res.destroy();
      settle('cut');
    });
    res.once('finish', () => settle('delivered'));
    res.once('close', () => settle(res.writableFinished ? 'delivered' : 'cut'));
  });
}

/** A refused body is read on and thrown away, so that the peer sees the answer rather than a reset, but not without end. */
function discardRest(req: IncomingMessage, bytesMax: number): void {
  let bytes = 0;
  req.on('data', (chunk: Buffer) => {
    bytes += chunk.byteLength;
    if (bytes > bytesMax) req.destroy();
  });
  req.resume();
}

function malformedHeaders(): SyncError {
  return new SyncError('sync.invalid_request', 'a request header holds characters that no header may hold');
}
