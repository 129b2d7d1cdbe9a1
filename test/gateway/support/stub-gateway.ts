/** The HTTP and WebSocket shell of the gateway on a real port, with the sync core replaced by the test's own functions. */

import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Authenticate } from '../../../src/gateway/auth.ts';
import { bearerToken, createIdentify } from '../../../src/gateway/auth.ts';
import { createCors } from '../../../src/gateway/cors.ts';
import { createHttpHandler, type HttpDeps, type HttpHandler } from '../../../src/gateway/http.ts';
import { createInFlight } from '../../../src/gateway/in-flight.ts';
import { SILENT_LOGGER } from '../../../src/gateway/logger.ts';
import { NO_METRICS } from '../../../src/gateway/metrics.ts';
import { createNodeHandler } from '../../../src/gateway/node-http.ts';
import { createRandom } from '../../../src/gateway/random.ts';
import type { Round } from '../../../src/gateway/round-body.ts';
import { DEFAULT_LIMITS, type Limits } from '../../../src/protocol/limits.ts';
import type { RoundOutcome } from '../../../src/session/sync/round-outcome.ts';
import { SocketClock } from './socket-clock.ts';

export const TOKEN = 'good-token';
export const BEARER = { authorization: `Bearer ${TOKEN}` };
export const SSP2 = { 'content-type': 'application/vnd.syncular.sync.v2' };

export const authenticateStub: Authenticate = (request) =>
  bearerToken(request) === TOKEN ? { actorId: 'actor-1', partition: 'p1' } : null;

export const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

export function served(text: string, handedOver: () => void = () => undefined): RoundOutcome {
  return {
    kind: 'served',
    wireVersion: 2,
    schemaVersion: 1,
    registrations: null,
    snapshotHead: 0,
    finalChunk: utf8(text),
    handedOver,
  };
}

/** A round that yields the texts and ends well. */
export async function* roundOf(...texts: string[]): Round {
  for (const text of texts.slice(0, -1)) yield utf8(text);
  return served(texts.at(-1) ?? '');
}

export interface StubOptions {
  readonly runRound?: HttpDeps['runRound'];
  readonly openSegment?: HttpDeps['openSegment'];
  readonly readiness?: HttpDeps['readiness'];
  readonly authenticate?: Authenticate;
  readonly limits?: Partial<Limits>;
  readonly mount?: string;
  readonly allowedOrigins?: readonly string[];
  readonly logger?: HttpDeps['logger'];
}

export interface StubGateway {
  readonly url: string;
  readonly port: number;
  readonly server: Server;
  readonly handler: HttpHandler;
  readonly clock: SocketClock;
  readonly rounds: HttpDeps['rounds'];
  close(): Promise<void>;
}

export function stubHandler(options: StubOptions = {}): {
  readonly handler: HttpHandler;
  readonly clock: SocketClock;
  readonly limits: Limits;
  readonly rounds: HttpDeps['rounds'];
} {
  const clock = new SocketClock();
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const rounds = createInFlight();
  const handler = createHttpHandler({
    mount: options.mount ?? '',
    identify: createIdentify(options.authenticate ?? authenticateStub, clock),
    runRound: options.runRound ?? (() => roundOf('response')),
    openSegment: options.openSegment ?? (async () => ({ read: async () => utf8('segment bytes') })),
    metrics: NO_METRICS,
    issueTicket: async () => ({ ticket: 'none', expiresInMs: 0 }),
    readiness: options.readiness ?? (async () => ({ status: 'ready' })),
    isOperator: () => false,
    isDraining: () => false,
    rounds,
    cors: createCors(options.allowedOrigins ?? []),
    limits,
    clock,
    logger: options.logger ?? SILENT_LOGGER,
  });
  return { handler, clock, limits, rounds };
}

export async function startStub(options: StubOptions = {}): Promise<StubGateway> {
  const { handler, clock, limits, rounds } = stubHandler(options);
  const logger = options.logger ?? SILENT_LOGGER;
  const exchanges = createInFlight();
  const isDraining = (): boolean => false;
  const server = createServer(
    createNodeHandler({ handler, exchanges, isDraining, limits, clock, random: createRandom(), logger }),
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}`,
    port,
    server,
    handler,
    clock,
    rounds,
    close: () => {
      server.closeAllConnections();
      return new Promise((resolve) => {
        server.close(() => resolve());
      });
    },
  };
}
