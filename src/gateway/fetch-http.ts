/** `fetch`-style requests and responses to and from the neutral ones, for hosts that speak Web standards. */
import type { Random } from '../protocol/clock.ts';
import type { HttpHandler } from './http.ts';
import type { HttpRequest, HttpResponse } from './http-message.ts';
import { requestId } from './node-http.ts';

export interface FetchInfo {
  /** Address of the peer, handed to `authenticate`. */
  readonly remoteAddress?: string;
}

export type FetchHandler = (request: Request, info?: FetchInfo) => Promise<Response>;

export function createFetchHandler({
  handler,
  random,
}: {
  readonly handler: HttpHandler;
  readonly random: Random;
}): FetchHandler {
  return async (request, info = {}) => {
    const response = await handler.handle(toHttpRequest(request, info, random));
    return toFetchResponse(response);
  };
}

function toHttpRequest(request: Request, info: FetchInfo, random: Random): HttpRequest {
  const url = new URL(request.url);
  return {
    id: requestId(request.headers, random),
    method: request.method,
    target: url.pathname + url.search,
    headers: request.headers,
    remoteAddress: info.remoteAddress ?? '',
    body: request.body ?? nothing(),
    signal: request.signal,
  };
}

async function* nothing(): AsyncGenerator<Uint8Array, void, undefined> {
  // A request without a body.
}

function toFetchResponse(response: HttpResponse): Response {
  const { status, headers, body, ended } = response;
  if (body === null || body instanceof Uint8Array) {
    ended('delivered');
    return new Response(body, { status, headers });
  }
  const chunks = body[Symbol.asyncIterator]();
  const stream = new ReadableStream<Uint8Array>({
    pull: async (controller) => {
      try {
        const step = await chunks.next();
        if (!step.done) return controller.enqueue(step.value);
        controller.close();
        ended('delivered');
      } catch (failure) {
        ended('cut');
        throw failure;
      }
    },
    cancel: async () => {
      ended('cut');
      await chunks.return?.();
    },
  });
  return new Response(stream, { status, headers });
}
