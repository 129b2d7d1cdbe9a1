/**
 * Cross-origin access for the origins the host allowed (`allowedOrigins`). Without such a list nothing is sent: pages of the
 * gateway's own origin need none, and anything finer is the embedding host's affair.
 */
import { jsonResponse } from './http-errors.ts';
import type { HttpHeaders, HttpRequest, HttpResponse } from './http-message.ts';
import { createOriginList } from './origins.ts';
import type { RouteMatch } from './routes.ts';

const PREFLIGHT_SECONDS = 600;
const REQUEST_HEADERS =
  'Authorization, Content-Type, Content-Encoding, If-None-Match, X-Syncular-Scopes, X-Request-Id';
const EXPOSED_HEADERS = 'ETag, Retry-After, X-Request-Id';

export interface Cors {
  /** The answer to a preflight of an allowed origin, else `null`. */
  preflight(request: HttpRequest, match: RouteMatch): HttpResponse | null;
  /** What to add to a response. */
  headers(request: HttpRequest, response: HttpResponse): HttpHeaders;
}

export const CORS_OFF: Cors = { preflight: () => null, headers: () => ({}) };

export function createCors(allowedOrigins: readonly string[]): Cors {
  if (allowedOrigins.length === 0) return CORS_OFF;
  const isListed = createOriginList(allowedOrigins);
  // Credentials are bearer tokens, never cookies: naming any page gives it nothing that it does not hold already.
  const isAllowed = (origin: string | null): origin is string => origin !== null && isListed(origin);
  return {
    preflight: (request, match) => {
      if (request.method !== 'OPTIONS' || match.kind !== 'wrong-method') return null;
      if (!isAllowed(request.headers.get('origin'))) return null;
      return {
        ...jsonResponse(204, {}),
        headers: {
          'access-control-allow-methods': match.allow.join(', '),
          'access-control-allow-headers': REQUEST_HEADERS,
          'access-control-max-age': String(PREFLIGHT_SECONDS),
        },
        body: null,
      };
    },
    headers: (request, response): HttpHeaders => {
      const vary = response.headers.vary === undefined ? 'Origin' : `${response.headers.vary}, Origin`;
      const origin = request.headers.get('origin');
      if (!isAllowed(origin)) return { vary };
      return {
        vary,
        'access-control-allow-origin': origin,
        'access-control-expose-headers': EXPOSED_HEADERS,
      };
    },
  };
}
