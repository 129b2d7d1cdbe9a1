/** The gateway's own HTTP server, for those who do not bring one. */
import { createServer, type Server } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import { SyncError } from '../protocol/errors.ts';
import type { Limits } from '../protocol/limits.ts';
import { errorResponse } from './http-errors.ts';
import type { GatewayLogger } from './logger.ts';
import type { NodeHandler } from './node-http.ts';
import { endWithResponse } from './raw-response.ts';

export interface ListenRequest {
  /** 0 takes a free one. */
  readonly port: number;
  /** Default `127.0.0.1`. */
  readonly host?: string;
}

export interface ListenAddress {
  readonly host: string;
  readonly port: number;
  /** `http://host:port`, without the mount. */
  readonly url: string;
}

export interface ListenerDeps {
  readonly handler: NodeHandler;
  readonly attach: (server: Server) => void;
  readonly limits: Limits;
  readonly logger: GatewayLogger;
}

const HOST_DEFAULT = '127.0.0.1';

export async function startListener(
  { port, host = HOST_DEFAULT }: ListenRequest,
  deps: ListenerDeps,
): Promise<{ readonly server: Server; readonly address: ListenAddress }> {
  const { requestTimeoutMs, headerBytesMax } = deps.limits;
  const server = createServer(
    { requestTimeout: requestTimeoutMs, headersTimeout: requestTimeoutMs, maxHeaderSize: headerBytesMax },
    (req, res) => deps.handler(req, res),
  );
  server.on('clientError', (failure, socket) => answerUnparsable(failure, socket as Socket, deps.logger));
  deps.attach(server);
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, host, () => {
      server.off('error', reject);
      resolve();
    });
  });
  server.on('error', (failure) => deps.logger.error({ err: failure }, 'the HTTP server failed'));
  return { server, address: describeAddress(server, host) };
}

function describeAddress(server: Server, host: string): ListenAddress {
  const { port } = server.address() as AddressInfo;
  // An address that means "every interface" cannot be typed into a browser.
  const named = host === '0.0.0.0' || host === '::' ? 'localhost' : host;
  const url = `http://${named.includes(':') ? `[${named}]` : named}:${port}`;
  return { host, port, url };
}

const UNPARSABLE_STATUS: Readonly<Record<string, number>> = {
  HPE_HEADER_OVERFLOW: 431,
  ERR_HTTP_REQUEST_TIMEOUT: 408,
};

/** Bytes that are no HTTP request still get a JSON answer, when there is somebody to read it. */
function answerUnparsable(failure: Error, socket: Socket, logger: GatewayLogger): void {
  logger.debug({ err: failure }, 'an HTTP connection failed');
  const code = 'code' in failure ? String(failure.code) : '';
  if (code === 'ECONNRESET' || socket.bytesWritten > 0) {
    // A response may be half written: anything more would be taken for its continuation.
    socket.destroy();
    return;
  }
  const httpStatus = UNPARSABLE_STATUS[code] ?? 400;
  endWithResponse(
    socket,
    errorResponse(new SyncError('sync.invalid_request', 'the HTTP request is malformed', { httpStatus })),
  );
}
