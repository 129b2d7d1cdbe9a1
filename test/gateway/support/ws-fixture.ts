/** A `ws` transport on a real port with an endpoint that records, and a `ws` client as the peer. */
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import WebSocket from 'ws';
import { createIdentify } from '../../../src/gateway/auth.ts';
import { SILENT_LOGGER } from '../../../src/gateway/logger.ts';
import { createOriginPolicy } from '../../../src/gateway/origins.ts';
import { createRandom } from '../../../src/gateway/random.ts';
import { admitUpgrade, type UpgradeDeps } from '../../../src/gateway/upgrade.ts';
import { createWsTransport, type WsTransportDeps } from '../../../src/gateway/ws-transport.ts';
import { DEFAULT_LIMITS, type Limits } from '../../../src/protocol/limits.ts';
import type { Connection, SessionEndpoint } from '../../../src/session/live/connection.ts';
import type {
  ConnectedPair,
  ConnectionFixture,
  EndpointEvent,
  Peer,
} from '../../contract/connection.contract.ts';
import { SocketClock } from './socket-clock.ts';
import { authenticateStub, TOKEN } from './stub-gateway.ts';

/** Tells everyone who waits for a condition that something happened. */
class Signal {
  #waiting: (() => void)[] = [];

  readonly notify = (): void => {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  };

  async until(condition: () => boolean): Promise<void> {
    while (!condition()) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }
}

export interface WsStubOptions {
  readonly limits?: Partial<Limits>;
  readonly upgrade?: Partial<UpgradeDeps>;
  readonly logger?: WsTransportDeps['logger'];
  readonly open?: WsTransportDeps['open'];
}

export interface WsStub {
  readonly url: string;
  readonly port: number;
  readonly clock: SocketClock;
  close(): Promise<void>;
}

export async function startWsStub(options: WsStubOptions = {}): Promise<WsStub> {
  const clock = new SocketClock();
  const upgrade: UpgradeDeps = {
    mount: '',
    identify: createIdentify(authenticateStub, clock),
    origins: createOriginPolicy([]),
    refusal: () => null,
    isDraining: () => false,
    ...options.upgrade,
  };
  const transport = createWsTransport({
    admit: (request) => admitUpgrade(request, upgrade),
    open: options.open ?? (() => recordingEndpoint([], () => undefined)),
    limits: { ...DEFAULT_LIMITS, ...options.limits },
    clock,
    random: createRandom(),
    logger: options.logger ?? SILENT_LOGGER,
  });
  const server = createServer();
  server.on('upgrade', transport.upgrade);
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  return {
    url: `ws://127.0.0.1:${port}`,
    port,
    clock,
    close: async () => {
      transport.terminateAll();
      server.closeAllConnections();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
    },
  };
}

function recordingEndpoint(events: EndpointEvent[], notify: () => void): SessionEndpoint {
  const note = (event: EndpointEvent): void => {
    events.push(event);
    notify();
  };
  return {
    onText: (text) => note({ kind: 'text', text }),
    onBinary: (bytes) => note({ kind: 'binary', bytes }),
    onPong: () => note({ kind: 'pong' }),
    onClosed: () => note({ kind: 'closed' }),
  };
}

/** For `connectionContract`. */
export async function startWsFixture(limits: Partial<Limits>): Promise<ConnectionFixture> {
  const signal = new Signal();
  const opened = new Map<string, { connection: Connection; events: EndpointEvent[] }>();
  const stub = await startWsStub({
    limits,
    open: ({ connection, clientId }) => {
      const events: EndpointEvent[] = [];
      opened.set(clientId, { connection, events });
      signal.notify();
      return recordingEndpoint(events, signal.notify);
    },
  });
  const clients: WebSocket[] = [];
  const connect = async (): Promise<ConnectedPair> => {
    const clientId = `client-${clients.length}`;
    const client = new WebSocket(`${stub.url}/realtime?clientId=${clientId}&ticket=${TOKEN}`);
    clients.push(client);
    const peer = createPeer(client, signal);
    await signal.until(() => opened.has(clientId) && client.readyState === WebSocket.OPEN);
    return { ...opened.get(clientId)!, peer };
  };
  return {
    connect,
    close: async () => {
      for (const client of clients) client.terminate();
      await stub.close();
    },
  };
}

function createPeer(client: WebSocket, signal: Signal): Peer {
  const received: (string | Uint8Array)[] = [];
  let pings = 0;
  let closed: Peer['closed'] = null;
  client.on('open', signal.notify);
  client.on('message', (data: Buffer, isBinary) => {
    received.push(isBinary ? Uint8Array.from(data) : data.toString());
    signal.notify();
  });
  client.on('ping', () => {
    pings += 1;
  });
  client.on('error', signal.notify);
  client.on('close', (code, reason) => {
    closed = { code, reason: reason.toString() };
    signal.notify();
  });
  return {
    sendText: (text) => client.send(text),
    sendBinary: (bytes) => client.send(bytes),
    sendFragments: (pieces) => {
      for (const [index, piece] of pieces.entries()) {
        client.send(piece, { binary: true, fin: index === pieces.length - 1 });
      }
    },
    sendRawText: (bytes) => client.send(bytes, { binary: false }),
    stopReading: () => client.pause(),
    readAgain: () => client.resume(),
    vanish: () => client.terminate(),
    leave: () => client.close(1000),
    received,
    get pings() {
      return pings;
    },
    get closed() {
      return closed;
    },
    until: (condition) => signal.until(condition),
  };
}
