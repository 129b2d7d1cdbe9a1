/** One `ws` socket as the session's `Connection`. */
import type { Duplex } from 'node:stream';
import type { RawData, WebSocket } from 'ws';
import type { CloseCode } from '../protocol/close-codes.ts';
import type { Limits } from '../protocol/limits.ts';
import { cutReason } from '../session/live/close-socket.ts';
import type { Connection, SessionEndpoint } from '../session/live/connection.ts';
import type { GatewayLogger } from './logger.ts';

const UTF8 = new TextDecoder();

export interface WsConnectionParts {
  readonly id: string;
  readonly ws: WebSocket;
  readonly socket: Duplex;
  readonly corks: TurnCorks;
  readonly limits: Limits;
  readonly logger: GatewayLogger;
}

/** Frames sent within one turn of the event loop leave in one write per socket (architecture §4.4). */
export class TurnCorks {
  #held: WsConnection[] = [];

  hold(connection: WsConnection): void {
    if (this.#held.length === 0) process.nextTick(this.#release);
    this.#held.push(connection);
  }

  readonly #release = (): void => {
    const held = this.#held;
    this.#held = [];
    for (const connection of held) connection.uncork();
  };
}

export class WsConnection implements Connection {
  readonly id: string;
  readonly #ws: WebSocket;
  readonly #socket: Duplex;
  readonly #corks: TurnCorks;
  readonly #limits: Limits;
  readonly #logger: GatewayLogger;
  #closing = false;
  #corked = false;
  #waiting: ((how: 'open' | 'closed') => void)[] = [];

  constructor(parts: WsConnectionParts) {
    this.id = parts.id;
    this.#ws = parts.ws;
    this.#socket = parts.socket;
    this.#corks = parts.corks;
    this.#limits = parts.limits;
    this.#logger = parts.logger;
  }

  get bufferedBytes(): number {
    return this.#ws.bufferedAmount;
  }

  send(message: string | Uint8Array): 'sent' | 'buffered' | 'closed' {
    if (!this.#isOpen()) return 'closed';
    if (!this.#corked) {
      this.#corked = true;
      this.#socket.cork();
      this.#corks.hold(this);
    }
    this.#ws.send(message, this.#onWritten);
    return this.#isDrained() ? 'sent' : 'buffered';
  }

  uncork(): void {
    this.#corked = false;
    this.#socket.uncork();
  }

  drained(): Promise<'open' | 'closed'> {
    if (!this.#isOpen()) return Promise.resolve('closed');
    if (this.#isDrained()) return Promise.resolve('open');
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  ping(): void {
    if (this.#isOpen()) this.#ws.ping();
  }

  pauseReading(): void {
    if (this.#isOpen()) this.#ws.pause();
  }

  resumeReading(): void {
    this.#ws.resume();
  }

  close(code: CloseCode, reason: string): void {
    if (this.#closing) return;
    this.#closing = true;
    this.#settleWaiting('closed');
    // Else the peer's half of the handshake would wait behind a paused reader.
    this.#ws.resume();
    this.#ws.close(code, cutReason(reason));
  }

  /** Ends without a handshake. */
  terminate(): void {
    this.#ws.terminate();
  }

  /** Wires the socket's events to the session. Called once, in the turn of the upgrade. */
  attach(endpoint: SessionEndpoint, onGone: () => void): void {
    this.#ws.on('message', (data, isBinary) => {
      // After `close` nothing more is processed; whole messages may still lie in the receiver.
      if (!this.#closing) this.#deliver(endpoint, data, isBinary ? 'binary' : 'text');
    });
    this.#ws.on('pong', () => {
      if (!this.#closing) endpoint.onPong();
    });
    // Framing, UTF-8 and size faults: the library closes with 1002, 1007 or 1009 by itself; `close` follows.
    this.#ws.on('error', (failure) => {
      this.#logger.debug({ connectionId: this.id, err: failure }, 'a socket failed');
    });
    this.#ws.on('close', () => {
      this.#closing = true;
      this.#settleWaiting('closed');
      endpoint.onClosed();
      onGone();
    });
  }

  #deliver(endpoint: SessionEndpoint, data: RawData, kind: 'binary' | 'text'): void {
    const bytes = toOwnBytes(data);
    try {
      if (kind === 'binary') endpoint.onBinary(bytes);
      else if (bytes.byteLength > this.#limits.controlBytesMax) this.close(1009, 'the message is too big');
      else endpoint.onText(UTF8.decode(bytes));
    } catch (failure) {
      // Endpoints promise not to throw. One that does loses its own socket, not the process.
      this.#logger.error({ connectionId: this.id, err: failure }, 'a session failed on a message');
      this.close(1011, 'server failure');
    }
  }

  #isOpen(): boolean {
    return !this.#closing && !this.#socket.destroyed && this.#ws.readyState === this.#ws.OPEN;
  }

  #isDrained(): boolean {
    return this.#ws.bufferedAmount <= this.#limits.outboxBytesLow;
  }

  readonly #onWritten = (): void => {
    // A socket that broke empties its buffer too, and without an error; its `close` event follows and says so.
    if (this.#waiting.length > 0 && !this.#socket.destroyed && this.#isDrained()) this.#settleWaiting('open');
  };

  #settleWaiting(how: 'open' | 'closed'): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve(how);
  }
}

/** Bytes that nobody else looks at and that keep no larger buffer alive. */
function toOwnBytes(data: RawData): Uint8Array {
  const view = Array.isArray(data) ? Buffer.concat(data) : data;
  if (view instanceof ArrayBuffer) return new Uint8Array(view);
  return view.byteLength === view.buffer.byteLength ? new Uint8Array(view.buffer) : new Uint8Array(view);
}
