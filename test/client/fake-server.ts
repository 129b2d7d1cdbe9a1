/** A server that does what a test tells it: real sockets and real SSP2 bytes, no logic of its own. */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { type WebSocket, WebSocketServer } from 'ws';
import type { CloseCode } from '../../src/protocol/close-codes.ts';
import {
  encodeHello,
  encodeWakeUp,
  type HelloData,
  parseClientControl,
  TAG_DELTA,
  TAG_ROUND,
  type WakeReason,
} from '../../src/protocol/control.ts';
import type { ResponseFrame } from '../../src/protocol/frames.ts';
import { DEFAULT_LIMITS } from '../../src/protocol/limits.ts';
import { type DecodedRequest, decodeRequest, encodeMessage } from '../../src/protocol/message.ts';
import { MessageScanner } from '../../src/protocol/stream.ts';
import { Queue } from './queue.ts';

export interface ReceivedRequest extends DecodedRequest {
  readonly bytes: Uint8Array;
}

export interface SegmentAnswer {
  readonly status: number;
  readonly body: Uint8Array;
}

export interface HttpSeen {
  readonly url: string;
  readonly headers: IncomingMessage['headers'];
}

export class FakeServer {
  readonly #http: Server;
  readonly #sockets: WebSocketServer;
  readonly #connections = new Queue<FakeConnection>();
  /** Path → answer, for everything that is no upgrade. A function is asked each time. */
  readonly answers = new Map<string, SegmentAnswer | (() => SegmentAnswer)>();
  readonly httpSeen: HttpSeen[] = [];
  /** Status for the upgrades to come; `null` accepts. */
  refuseUpgrades: number | null = null;
  upgrades = 0;

  constructor() {
    this.#http = createServer((request, response) => this.#answer(request, response));
    this.#sockets = new WebSocketServer({ noServer: true });
    this.#http.on('upgrade', (request, socket, head) => {
      this.upgrades++;
      if (this.refuseUpgrades !== null) {
        socket.end(`HTTP/1.1 ${this.refuseUpgrades} Refused\r\nContent-Length: 0\r\n\r\n`);
        return;
      }
      this.#sockets.handleUpgrade(request, socket, head, (accepted) => {
        this.#connections.push(new FakeConnection(accepted, request));
      });
    });
  }

  static async start(): Promise<FakeServer> {
    const server = new FakeServer();
    await new Promise<void>((resolve) => server.#http.listen(0, '127.0.0.1', resolve));
    return server;
  }

  get origin(): string {
    return `http://127.0.0.1:${(this.#http.address() as AddressInfo).port}`;
  }

  /** What a client is given as `url`. */
  get mount(): string {
    return `${this.origin}/sync-api`;
  }

  connection(): Promise<FakeConnection> {
    return this.#connections.next();
  }

  /** Accepts a connection and greets it. */
  async greeted(hello: Partial<HelloData> = {}): Promise<FakeConnection> {
    const connection = await this.connection();
    connection.hello(hello);
    return connection;
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets.clients) socket.terminate();
    this.#http.closeAllConnections();
    await new Promise<void>((resolve) => this.#http.close(() => resolve()));
  }

  #answer(request: IncomingMessage, response: ServerResponse): void {
    const url = request.url ?? '';
    this.httpSeen.push({ url, headers: request.headers });
    const found = this.answers.get(decodeURIComponent(url));
    const answer = typeof found === 'function' ? found() : found;
    response.writeHead(answer?.status ?? 404).end(answer?.body);
  }
}

export class FakeConnection {
  readonly url: URL;
  readonly #socket: WebSocket;
  readonly #scanner = new MessageScanner('request', DEFAULT_LIMITS);
  readonly #requests = new Queue<ReceivedRequest>();
  readonly #acks = new Queue<number>();
  readonly closed: Promise<number>;
  /** Acks received so far. */
  readonly acked: number[] = [];
  requestsSeen = 0;

  constructor(socket: WebSocket, request: IncomingMessage) {
    this.#socket = socket;
    this.url = new URL(request.url ?? '', 'http://fake');
    this.closed = new Promise((resolve) => socket.on('close', (code) => resolve(code)));
    socket.on('message', (data: Buffer, isBinary) => this.#receive(data, isBinary));
  }

  hello(overrides: Partial<HelloData> = {}): void {
    const clientId = this.url.searchParams.get('clientId') ?? '';
    this.#socket.send(
      encodeHello({
        sessionId: 's',
        actorId: 'ada',
        clientId,
        cursor: -1,
        latestCursor: 0,
        requiresSync: true,
        timestamp: 1,
        ...overrides,
      }),
    );
  }

  /** The next complete request. */
  request(): Promise<ReceivedRequest> {
    return this.#requests.next();
  }

  ack(): Promise<number> {
    return this.#acks.next();
  }

  text(text: string): void {
    this.#socket.send(text);
  }

  wake(cursor: number, reason: WakeReason = 'catchup-required'): void {
    this.#socket.send(encodeWakeUp({ cursor, reason, timestamp: 1 }));
  }

  respond(frames: readonly ResponseFrame[], chunkBytes = Number.POSITIVE_INFINITY): void {
    this.respondBytes(encodeResponse(frames), chunkBytes);
  }

  respondBytes(bytes: Uint8Array, chunkBytes = Number.POSITIVE_INFINITY): void {
    for (let at = 0; at < bytes.length; at += chunkBytes) {
      this.#socket.send(Buffer.concat([Buffer.of(TAG_ROUND), bytes.subarray(at, at + chunkBytes)]));
    }
  }

  delta(frames: readonly ResponseFrame[]): void {
    this.deltaBytes(encodeResponse(frames));
  }

  deltaBytes(bytes: Uint8Array): void {
    this.#socket.send(Buffer.concat([Buffer.of(TAG_DELTA), bytes]));
  }

  close(code: CloseCode, reason = ''): void {
    this.#socket.close(code, reason);
  }

  /** Cuts the connection without a close frame. */
  cut(): void {
    this.#socket.terminate();
  }

  #receive(data: Buffer, isBinary: boolean): void {
    if (!isBinary) {
      const control = parseClientControl(data.toString());
      if (control.kind !== 'ack') throw new Error(`not an ack: ${data}`);
      this.acked.push(control.cursor);
      this.#acks.push(control.cursor);
      return;
    }
    if (data[0] !== TAG_ROUND) throw new Error('a client sends nothing but round chunks');
    const result = this.#scanner.push(Uint8Array.from(data.subarray(1)));
    if (result.kind === 'more') return;
    if (result.kind !== 'message' || result.rest.length > 0) throw new Error(`bad request: ${result.kind}`);
    this.requestsSeen++;
    this.#requests.push({ ...decodeRequest(result.message, DEFAULT_LIMITS), bytes: result.message });
  }
}

export function encodeResponse(frames: readonly ResponseFrame[]): Uint8Array {
  return encodeMessage({ kind: 'response', wireVersion: 2, frames });
}
