/** The WebSocket transport on `ws`: upgrades in, sessions out. Everything it decides by itself is in RFC 6455. */
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { type ServerOptions, type WebSocket, WebSocketServer } from 'ws';
import type { Clock, Random } from '../protocol/clock.ts';
import { SyncError } from '../protocol/errors.ts';
import type { Limits } from '../protocol/limits.ts';
import type { Connection, SessionEndpoint } from '../session/live/connection.ts';
import { chooseSubprotocol } from './dialect-name.ts';
import { errorResponse } from './http-errors.ts';
import { type HttpHeaders, type HttpRequest, loggablePath } from './http-message.ts';
import type { GatewayLogger } from './logger.ts';
import { toHttpRequest } from './node-http.ts';
import { endWithResponse } from './raw-response.ts';
import type { Admitted } from './upgrade.ts';
import { withinTime } from './within-time.ts';
import { TurnCorks, WsConnection } from './ws-connection.ts';

/** A message in more pieces of this size than fit its bound came from somebody who wants to cost memory. */
const CHUNK_BYTES_MIN = 256;

export interface WsTransportDeps {
  /** Rejects with what to refuse the upgrade with. */
  readonly admit: (request: HttpRequest) => Promise<Admitted>;
  readonly open: (session: Admitted & { readonly connection: Connection }) => SessionEndpoint;
  readonly limits: Limits;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: GatewayLogger;
}

export interface WsTransport {
  /** Answers the upgrade, with a session or with an HTTP error. Never throws. */
  upgrade(req: IncomingMessage, socket: Duplex, head: Buffer): void;
  /** Ends what is still open, without a handshake. */
  terminateAll(): void;
}

export function createWsTransport(deps: WsTransportDeps): WsTransport {
  const server = new WebSocketServer(serverOptions(deps.limits));
  const connections = new Set<WsConnection>();
  const corks = new TurnCorks();
  server.on('wsClientError', (failure, socket) => {
    const error = new SyncError('sync.invalid_request', 'the WebSocket handshake is malformed', {
      cause: failure,
    });
    refuse(socket, error, { 'sec-websocket-version': '13' });
  });

  const start = (ws: WebSocket, socket: Duplex, admitted: Admitted): void => {
    const { limits, logger, random } = deps;
    const connection = new WsConnection({ id: random.id(), ws, socket, corks, limits, logger });
    connections.add(connection);
    connection.attach(openSession(connection, admitted, deps), () => connections.delete(connection));
  };

  return {
    upgrade: (req, socket, head) => {
      admitOrRefuse(req, socket, deps).then((admitted) => {
        if (admitted === null) return;
        server.handleUpgrade(req, socket, head, (ws) => start(ws, socket, admitted));
      });
    },
    terminateAll: () => {
      for (const connection of [...connections]) connection.terminate();
      server.close();
    },
  };
}

function serverOptions(limits: Limits): ServerOptions & { readonly closeTimeout: number } {
  return {
    noServer: true,
    clientTracking: false,
    perMessageDeflate: false,
    maxPayload: limits.messageBytesMax,
    maxFragments: limits.messageFragmentsMax,
    maxBufferedChunks: Math.ceil(limits.messageBytesMax / CHUNK_BYTES_MIN),
    closeTimeout: limits.closeTimeoutMs,
    // `admit` let through either no offer or one that holds ours.
    handleProtocols: (offers) => chooseSubprotocol(offers) ?? false,
  };
}

/** `null` when the upgrade was answered. Never rejects. */
async function admitOrRefuse(
  req: IncomingMessage,
  socket: Duplex,
  deps: WsTransportDeps,
): Promise<Admitted | null> {
  const gone = new AbortController();
  const onGone = (): void => gone.abort();
  // A reset while the host authenticates must not reach the process as an unhandled error.
  const onError = (failure: Error): void => {
    deps.logger.debug({ err: failure }, 'a socket failed during its upgrade');
  };
  socket.on('error', onError);
  socket.once('close', onGone);
  const request = toHttpRequest(req, gone.signal, deps.random);
  try {
    if (request === null) throw new SyncError('sync.invalid_request', 'the request headers are malformed');
    const { clock, limits } = deps;
    const bound = { clock, timeoutMs: limits.requestTimeoutMs, what: 'the upgrade' };
    const admitted = await withinTime(deps.admit(request), bound);
    // The library brings its own handlers from here on.
    socket.off('error', onError);
    return admitted;
  } catch (failure) {
    logRefusal(request, failure, deps.logger);
    refuse(socket, failure, request === null ? {} : { 'x-request-id': request.id });
    return null;
  } finally {
    socket.off('close', onGone);
  }
}

function openSession(connection: WsConnection, admitted: Admitted, deps: WsTransportDeps): SessionEndpoint {
  try {
    return deps.open({ ...admitted, connection });
  } catch (failure) {
    deps.logger.error({ connectionId: connection.id, err: failure }, 'a session could not be opened');
    connection.close(1011, 'server failure');
    return DEAF_ENDPOINT;
  }
}

const ignore = (): void => undefined;
const DEAF_ENDPOINT: SessionEndpoint = {
  onText: ignore,
  onBinary: ignore,
  onPong: ignore,
  onClosed: ignore,
};

/** A refused upgrade is an ordinary HTTP response with the JSON error body (part 3, 3.2-3). */
function refuse(socket: Duplex, failure: unknown, extra: HttpHeaders): void {
  endWithResponse(socket, errorResponse(failure, extra));
}

function logRefusal(request: HttpRequest | null, failure: unknown, logger: GatewayLogger): void {
  const path = request === null ? '' : loggablePath(request.target);
  const error = SyncError.from(failure);
  const fields = { requestId: request?.id, path, status: error?.httpStatus ?? 500, code: error?.code };
  if (error === null) logger.error({ ...fields, err: failure }, 'an upgrade failed');
  else logger.info(fields, 'an upgrade was refused');
}
