/** How a failure becomes an HTTP answer (part 2.1 rule 5; part 1.11 rule 5). */
import { SyncError } from '../protocol/errors.ts';
import type { HttpHeaders, HttpResponse } from './http-message.ts';

export interface JsonResponse extends HttpResponse {
  readonly body: Uint8Array;
}

const RETRY_AFTER_SECONDS_DEFAULT = 1;
const ignoreEnd = (): void => undefined;

export function jsonResponse(status: number, body: object, headers: HttpHeaders = {}): JsonResponse {
  const bytes = new TextEncoder().encode(JSON.stringify(body));
  return {
    status,
    headers: {
      'content-type': 'application/json',
      'content-length': String(bytes.byteLength),
      'cache-control': 'no-store',
      ...headers,
    },
    body: bytes,
    ended: ignoreEnd,
  };
}

/** A failure without a catalogue code says nothing about itself: the log has the rest. */
export function errorResponse(failure: unknown, headers: HttpHeaders = {}): JsonResponse {
  const error = SyncError.from(failure);
  if (error === null) return jsonResponse(500, { message: 'internal server error' }, headers);
  return jsonResponse(error.httpStatus, error.toBody(), { ...statusHeaders(error), ...headers });
}

function statusHeaders(error: SyncError): HttpHeaders {
  if (error.httpStatus === 401) return { 'www-authenticate': 'Bearer' };
  if (error.httpStatus === 429 || error.httpStatus === 503) {
    return { 'retry-after': String(retryAfterSeconds(error)) };
  }
  return {};
}

function retryAfterSeconds(error: SyncError): number {
  const hintMs = error.details?.retryAfterMs;
  return typeof hintMs === 'number' && hintMs > 0 ? Math.ceil(hintMs / 1_000) : RETRY_AFTER_SECONDS_DEFAULT;
}
