/** The HTTP side of the gateway: one request in, one response out, on any transport (part 2.1, 2.2, 2.11). */
import type { Clock } from '../protocol/clock.ts';
import { SyncError } from '../protocol/errors.ts';
import type { Limits } from '../protocol/limits.ts';
import { MSGPACK_CONTENT_TYPE } from '../protocol/msgpack/messages.ts';
import type { Identity } from '../session/sync/sync-deps.ts';
import { authRequired, type Identify } from './auth.ts';
import { encodeStream, negotiateCoding } from './content-coding.ts';
import type { Cors } from './cors.ts';
import type { DialectName } from './dialect-name.ts';
import { boundToGrant } from './grant-time.ts';
import { errorResponse, jsonResponse } from './http-errors.ts';
import {
  type HttpHeaders,
  type HttpRequest,
  type HttpResponse,
  loggablePath,
  parseTarget,
  SSP2_CONTENT_TYPE,
} from './http-message.ts';
import type { InFlight } from './in-flight.ts';
import type { GatewayLogger } from './logger.ts';
import { describeReadiness, type IsOperator, type Readiness } from './readiness.ts';
import { readRequestBody } from './request-body.ts';
import { createRoundBody, type Round } from './round-body.ts';
import { matchRoute, type RouteName } from './routes.ts';
import type { Tickets } from './tickets.ts';

export interface OpenSegment {
  /** Uncompressed bytes; throws `sync.segment_expired` when they went away since. */
  read(): Promise<Uint8Array>;
}

export interface HttpDeps {
  readonly mount: string;
  readonly identify: Identify;
  readonly runRound: (
    request: Uint8Array,
    context: { readonly who: Identity; readonly signal: AbortSignal; readonly dialect: DialectName },
  ) => Round;
  /** Authorizes at every call (2.11); throws the `SyncError` to answer. */
  readonly openSegment: (request: {
    readonly who: Identity;
    readonly segmentId: string;
    readonly scopesHeader: string | null;
  }) => Promise<OpenSegment>;
  readonly issueTicket: Tickets['issue'];
  readonly readiness: () => Promise<Readiness>;
  readonly isOperator: IsOperator;
  readonly metrics: MetricsRoute;
  /** A server that drains finishes what it has and takes nothing new. */
  readonly isDraining: () => boolean;
  readonly rounds: InFlight;
  readonly cors: Cors;
  readonly limits: Limits;
  readonly clock: Clock;
  readonly logger: GatewayLogger;
}

export interface MetricsRoute {
  readonly audience: 'nobody' | 'operator' | 'everybody';
  read(): Promise<{ readonly contentType: string; readonly text: string }>;
  /** An answer has its head. */
  observe(exchange: { readonly route: string; readonly status: number; readonly durationMs: number }): void;
}

export interface HttpHandler {
  /** Never rejects. */
  handle(request: HttpRequest): Promise<HttpResponse>;
  /** Whether the route table knows the target, whatever the method. */
  owns(target: string): boolean;
}

type RouteHandler = (request: HttpRequest, parameter: string) => Promise<HttpResponse>;

export function createHttpHandler(deps: HttpDeps): HttpHandler {
  const handlers: Readonly<Record<RouteName, RouteHandler>> = {
    sync: (request) => serveSync(request, deps),
    ticket: (request) => serveTicket(request, deps),
    segment: (request, segmentId) => serveSegment(request, segmentId, deps),
    realtime: async () => upgradeRequired(),
    metrics: (request) => serveMetrics(request, deps),
    live: async () => jsonResponse(200, { status: 'alive' }),
    ready: async (request) =>
      describeReadiness(await deps.readiness(), deps.isOperator(request) ? 'operator' : 'anybody'),
  };

  const route = async (request: HttpRequest): Promise<HttpResponse> => {
    const path = parseTarget(request.target)?.pathname ?? '';
    const match = matchRoute(deps.mount, request.method, path);
    if (match.kind === 'unknown') {
      return notFound();
    }
    const preflight = deps.cors.preflight(request, match);
    if (preflight !== null) return preflight;
    if (match.kind === 'wrong-method') return wrongMethod(match.allow);
    // Nobody learns whether a route is there that is switched off.
    if (match.name === 'metrics' && deps.metrics.audience === 'nobody') return notFound();
    return handlers[match.name](request, match.parameter);
  };

  return {
    owns: (target) => matchRoute(deps.mount, 'GET', parseTarget(target)?.pathname ?? '').kind !== 'unknown',
    handle: async (request) => {
      const startedMs = deps.clock.monotonicMs();
      let response: HttpResponse;
      let failure: unknown = null;
      try {
        response = await route(request);
      } catch (thrown) {
        failure = thrown;
        response = errorResponse(thrown);
      }
      logExchange(deps, { request, response, failure, startedMs });
      const headers = {
        ...response.headers,
        ...deps.cors.headers(request, response),
        'x-request-id': request.id,
      };
      return { ...response, headers };
    },
  };
}

async function serveSync(request: HttpRequest, deps: HttpDeps): Promise<HttpResponse> {
  if (deps.isDraining()) throw restarting();
  const who = await deps.identify(request, 'http');
  const { dialect, contentType } = syncDialect(request.headers.get('content-type'));
  const coding = acceptedCoding(request);
  const bounds = { bytesMax: deps.limits.requestBytesMax, timeoutMs: deps.limits.requestTimeoutMs };
  const body = await readRequestBody(request, { ...bounds, clock: deps.clock });
  const grant = boundToGrant(who, request.signal, deps.clock);
  const leave = deps.rounds.begin();
  const finish = (): void => {
    grant.release();
    leave();
  };
  try {
    const round = deps.runRound(body, { who, signal: grant.signal, dialect });
    // What fails up to here still has an HTTP status (2.1 rule 5).
    const first = await round.next();
    const roundBody = createRoundBody(round, first, (failure) => {
      deps.logger.error({ requestId: request.id, err: failure }, 'a round failed while it was released');
    });
    return {
      status: 200,
      headers: { 'content-type': contentType, 'cache-control': 'no-store', ...codingHeaders(coding) },
      body: coding === 'identity' ? roundBody.bytes : encodeStream(roundBody.bytes, coding, deps.clock),
      ended: (how) => {
        roundBody.ended(how);
        finish();
      },
    };
  } catch (failure) {
    finish();
    throw grant.hasEnded() ? authRequired('the credentials have expired') : failure;
  }
}

function notFound(): HttpResponse {
  return errorResponse(new SyncError('sync.not_found', 'there is no such resource'));
}

async function serveMetrics(request: HttpRequest, { metrics, isOperator }: HttpDeps): Promise<HttpResponse> {
  if (metrics.audience === 'operator' && !isOperator(request)) {
    throw authRequired('the operator token is required');
  }
  const { contentType, text } = await metrics.read();
  const body = new TextEncoder().encode(text);
  const length = String(body.byteLength);
  const headers = { 'content-type': contentType, 'content-length': length, 'cache-control': 'no-store' };
  return { status: 200, headers, body, ended: () => undefined };
}

/** For the upgrade that follows; the body of the request is not looked at. */
async function serveTicket(request: HttpRequest, deps: HttpDeps): Promise<HttpResponse> {
  if (deps.isDraining()) throw restarting();
  const askedMs = deps.clock.nowMs();
  const who = await deps.identify(request, 'http');
  return jsonResponse(200, await deps.issueTicket(who, askedMs));
}

/** The content type of the request chooses the dialect, and is that of the answer (§5.1). */
function syncDialect(header: string | null): { dialect: DialectName; contentType: string } {
  const contentType = (header ?? '').split(';')[0]!.trim().toLowerCase();
  if (contentType === SSP2_CONTENT_TYPE) return { dialect: 'ssp2', contentType };
  if (contentType === MSGPACK_CONTENT_TYPE) return { dialect: 'msgpack', contentType };
  throw new SyncError('sync.invalid_request', `the content type must be ${SSP2_CONTENT_TYPE}`, {
    httpStatus: 415,
  });
}

function acceptedCoding(request: HttpRequest): 'zstd' | 'gzip' | 'identity' {
  const coding = negotiateCoding(request.headers.get('accept-encoding'));
  if (coding !== null) return coding;
  throw new SyncError('sync.invalid_request', 'no content coding of this server is acceptable', {
    httpStatus: 406,
  });
}

function codingHeaders(coding: 'zstd' | 'gzip' | 'identity'): HttpHeaders {
  return coding === 'identity' ? {} : { 'content-encoding': coding };
}

/** 2.11: authorized on every request, and before the ETag is looked at, a 304 would confirm that the segment exists. */
async function serveSegment(request: HttpRequest, segmentId: string, deps: HttpDeps): Promise<HttpResponse> {
  const who = await deps.identify(request, 'http');
  const coding = acceptedCoding(request);
  const scopesHeader = request.headers.get('x-syncular-scopes');
  const segment = await deps.openSegment({ who, segmentId, scopesHeader });
  const etag = `"${segmentId}"`;
  const headers: HttpHeaders = {
    etag,
    'cache-control': 'private, max-age=0',
    vary: 'Authorization, X-Syncular-Scopes, Accept-Encoding',
  };
  const ended = (): void => undefined;
  if (matchesEtag(request.headers.get('if-none-match'), etag)) {
    return { status: 304, headers, body: null, ended };
  }
  const bytes = await segment.read();
  const full = { ...headers, 'content-type': 'application/octet-stream', ...codingHeaders(coding) };
  if (coding === 'identity') {
    const length = { 'content-length': String(bytes.byteLength) };
    return { status: 200, headers: { ...full, ...length }, body: bytes, ended };
  }
  return { status: 200, headers: full, body: encodeStream(only(bytes), coding, deps.clock), ended };
}

/** The answer to everything new while the server drains. */
export function restarting(): SyncError {
  return new SyncError('sync.rate_limited', 'the server is restarting', { httpStatus: 503 });
}

async function* only(bytes: Uint8Array): AsyncGenerator<Uint8Array, void, undefined> {
  yield bytes;
}

/** Weak comparison, as RFC 9110 §13.1.2 asks for `If-None-Match`. */
function matchesEtag(header: string | null, etag: string): boolean {
  if (header === null) return false;
  if (header.trim() === '*') return true;
  return header.split(',').some((candidate) => candidate.trim().replace(/^W\//, '') === etag);
}

function upgradeRequired(): HttpResponse {
  const error = new SyncError(
    'sync.invalid_request',
    'this resource is a WebSocket: upgrade the connection',
    {
      httpStatus: 426,
    },
  );
  return errorResponse(error, { upgrade: 'websocket', connection: 'Upgrade' });
}

function wrongMethod(allow: readonly string[]): HttpResponse {
  const error = new SyncError('sync.invalid_request', 'the method is not allowed here', { httpStatus: 405 });
  return errorResponse(error, { allow: allow.join(', ') });
}

interface Exchange {
  readonly request: HttpRequest;
  readonly response: HttpResponse;
  readonly failure: unknown;
  readonly startedMs: number;
}

function logExchange(deps: HttpDeps, { request, response, failure, startedMs }: Exchange): void {
  const durationMs = deps.clock.monotonicMs() - startedMs;
  const fields = {
    requestId: request.id,
    method: request.method,
    path: loggablePath(request.target),
    status: response.status,
    durationMs: Math.round(durationMs),
  };
  const route = matchRoute(deps.mount, request.method, parseTarget(request.target)?.pathname ?? '');
  deps.metrics.observe({
    route: route.kind === 'unknown' ? 'unknown' : route.name,
    status: response.status,
    durationMs,
  });
  const code = SyncError.from(failure)?.code;
  if (failure === null) deps.logger.debug(fields, 'request');
  // The peer went away in the middle of its own request: nobody's fault here, and nobody reads the answer.
  else if (request.signal.aborted) deps.logger.debug(fields, 'request abandoned by the client');
  else if (response.status >= 500) deps.logger.error({ ...fields, code, err: failure }, 'request failed');
  else deps.logger.info({ ...fields, code }, 'request refused');
}
