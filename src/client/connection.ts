/** One socket, from the attempt to its end: sorts what arrives, watches for silence, ends exactly once. */
import type { Clock, Timer } from '../protocol/clock.ts';
import {
  encodeAck,
  encodePresencePublish,
  type HelloData,
  type PresenceData,
  type PresenceRefusalData,
  parseServerControl,
  TAG_DELTA,
  TAG_ROUND,
  type WakeUpData,
} from '../protocol/control.ts';
import type { JsonObject } from '../protocol/errors.ts';
import { ClientError, protocolViolation } from './client-error.ts';
import type { ClientLimits } from './client-limits.ts';
import type { WebSocketConstructor, WebSocketLike } from './platform.ts';
import { deferred } from './waiting.ts';

const CLOSE_NORMAL = 1000;

/** Takes what comes after `hello`, in order. A throw ends the connection. */
export interface Inbound {
  onWake(wake: WakeUpData): void;
  /** A whole response message. */
  onDelta(bytes: Uint8Array): void;
  onRoundChunk(bytes: Uint8Array): void;
  onPresence(presence: PresenceData): void;
  onPresenceRefused(refusal: PresenceRefusalData): void;
}

export type ConnectionEnd =
  /** The socket reported a close; 1005 and 1006 stand for "no code" and "cut off". */
  | { readonly kind: 'closed'; readonly code: number; readonly reason: string }
  /** This side gave up. */
  | { readonly kind: 'failed'; readonly error: ClientError };

export interface ConnectionParts {
  readonly webSocket: WebSocketConstructor;
  readonly url: string;
  readonly clock: Clock;
  readonly limits: Pick<ClientLimits, 'connectTimeoutMs' | 'silenceTimeoutMs' | 'requestChunkBytes'>;
  /** Called synchronously for `hello`, so that nothing behind it is missed. */
  readonly onHello: (hello: HelloData) => Inbound;
}

export class Connection {
  readonly #clock: Clock;
  readonly #limits: ConnectionParts['limits'];
  readonly #onHello: ConnectionParts['onHello'];
  readonly #socket: WebSocketLike;
  readonly #ended = deferred<ConnectionEnd>();
  #inbound: Inbound | null = null;
  #isOver = false;
  #heardAtMs: number;
  #watch: Timer;

  /** Opens the socket. A constructor that throws (a URL it does not take) throws here. */
  constructor(parts: ConnectionParts) {
    this.#clock = parts.clock;
    this.#limits = parts.limits;
    this.#onHello = parts.onHello;
    this.#heardAtMs = parts.clock.monotonicMs();
    this.#socket = new parts.webSocket(parts.url);
    this.#socket.binaryType = 'arraybuffer';
    this.#listen(this.#socket);
    this.#watch = parts.clock.after(parts.limits.connectTimeoutMs, () => {
      this.fail(new ClientError('client.connection_lost', 'the server did not greet in time'));
    });
  }

  /** Resolves once, whoever ended the connection. */
  get ended(): Promise<ConnectionEnd> {
    return this.#ended.promise;
  }

  /** A request leaves in chunks, each a message with the round's tag in front (part 3, 3.11.1). */
  sendRound(request: Uint8Array): void {
    const size = this.#limits.requestChunkBytes;
    for (let at = 0; at < request.length; at += size) {
      const part = request.subarray(at, at + size);
      const message = new Uint8Array(part.length + 1);
      message[0] = TAG_ROUND;
      message.set(part, 1);
      this.#send(message);
    }
  }

  sendAck(cursor: number): void {
    this.#send(encodeAck(cursor));
  }

  /** `null` leaves. */
  sendPresence(scopeKey: string, doc: JsonObject | null): void {
    this.#send(encodePresencePublish(scopeKey, doc));
  }

  /** Closes normally; harmless after the end. */
  close(): void {
    this.#finish({ kind: 'closed', code: CLOSE_NORMAL, reason: '' });
  }

  fail(error: ClientError): void {
    this.#finish({ kind: 'failed', error });
  }

  #listen(socket: WebSocketLike): void {
    socket.onmessage = (event: { readonly data: unknown }) => this.#receive(event.data);
    socket.onclose = (event: { readonly code: number; readonly reason: string }) =>
      this.#finish({ kind: 'closed', code: event.code, reason: event.reason });
    // A close event always follows and says as much as a browser will tell.
    socket.onerror = () => undefined;
  }

  #send(message: string | Uint8Array): void {
    if (!this.#isOver) this.#socket.send(message);
  }

  #receive(data: unknown): void {
    if (this.#isOver) return;
    this.#heardAtMs = this.#clock.monotonicMs();
    try {
      if (typeof data === 'string') this.#receiveText(data);
      else this.#receiveBinary(bytesOf(data));
    } catch (failure) {
      this.fail(
        failure instanceof ClientError ? failure : protocolViolation('a message could not be read', failure),
      );
    }
  }

  #receiveText(text: string): void {
    const control = parseServerControl(text);
    if (control.kind === 'malformed') throw protocolViolation(`a malformed ${control.event} message`);
    if (control.kind === 'hello' && this.#inbound === null) {
      this.#watch.cancel();
      this.#watchSilence(this.#limits.silenceTimeoutMs);
      this.#inbound = this.#onHello(control);
    } else if (control.kind === 'wake-up') {
      this.#inbound?.onWake(control);
    } else if (control.kind === 'presence') {
      this.#inbound?.onPresence(control.presence);
    } else if (control.kind === 'presence-refusal') {
      this.#inbound?.onPresenceRefused(control);
    }
  }

  #receiveBinary(message: Uint8Array): void {
    const payload = message.subarray(1);
    // Tags of the future are ignored (part 1.10), and so is whatever comes before `hello`.
    if (message[0] === TAG_ROUND) this.#inbound?.onRoundChunk(payload);
    else if (message[0] === TAG_DELTA) this.#inbound?.onDelta(payload);
  }

  /** One timer, set anew only when it fires: messages cost no timer each. */
  #watchSilence(delayMs: number): void {
    this.#watch = this.#clock.after(delayMs, () => {
      const quietMs = this.#clock.monotonicMs() - this.#heardAtMs;
      const leftMs = this.#limits.silenceTimeoutMs - quietMs;
      if (leftMs > 0) this.#watchSilence(leftMs);
      else this.fail(new ClientError('client.connection_lost', 'the server has been silent for too long'));
    });
  }

  #finish(end: ConnectionEnd): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#watch.cancel();
    // What the dying socket still says concerns nobody; its error must not go unheard, though (ws would throw it).
    this.#socket.onmessage = null;
    this.#socket.onclose = null;
    this.#socket.close(CLOSE_NORMAL);
    this.#ended.resolve(end);
  }
}

/** By its tag and not by its class: the socket may come from another realm, as in a page under test. */
function bytesOf(data: unknown): Uint8Array {
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  if (Object.prototype.toString.call(data) !== '[object ArrayBuffer]') {
    throw protocolViolation('a message is neither text nor bytes');
  }
  return new Uint8Array(data as ArrayBuffer);
}
