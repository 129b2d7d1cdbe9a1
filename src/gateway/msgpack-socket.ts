/** The MessagePack dialect at the edge of a socket (§5.2): one map per binary message, in both directions. */
import { TAG_DELTA } from '../protocol/control.ts';
import { SyncError } from '../protocol/errors.ts';
import type { Limits } from '../protocol/limits.ts';
import type { MsgpackBounds } from '../protocol/msgpack/bounds.ts';
import { type ClientMessage, decodeClientMessage, encodeEvent } from '../protocol/msgpack/messages.ts';
import { readRequest } from '../protocol/msgpack/request.ts';
import { encodeDeltaMessage, MsgpackResponse } from '../protocol/msgpack/response.ts';
import type { CompiledSchema } from '../protocol/schema.ts';
import type { Connection } from '../session/live/connection.ts';
import type { Dialect, Inbound } from '../session/live/dialect.ts';

export interface MsgpackSocketDeps {
  readonly schema: CompiledSchema;
  readonly limits: Limits;
  /** What the core wrote has no form in the dialect: a defect. The connection is closed with 1011. */
  readonly onFailure: (failure: unknown, connectionId: string) => void;
}

export interface MsgpackSocket {
  /** What the session sends through. */
  readonly connection: Connection;
  /** How the session reads. */
  readonly dialect: Dialect;
}

/** Of what a client sends, on either binding: a round is one message. */
export function msgpackBounds({ requestBytesMax, msgpackElementsMax }: Limits): MsgpackBounds {
  return { bytesMax: requestBytesMax, elementsMax: msgpackElementsMax };
}

/** All sockets of a gateway that speak the dialect: what goes to many of them is encoded once. */
export class MsgpackSockets {
  readonly #deps: MsgpackSocketDeps;
  /** By the delta of the core, which is one object for all members of a cohort. */
  readonly #deltas = new WeakMap<Uint8Array, Uint8Array>();
  /** Heartbeats and wake-ups: the same text for one session after the other. */
  #lastText = '';
  #lastEvent: Uint8Array | null = null;

  constructor(deps: MsgpackSocketDeps) {
    this.#deps = deps;
  }

  wrap(connection: Connection): MsgpackSocket {
    const socket = new DialectSocket(connection, this.#deps, this);
    return { connection: socket, dialect: socket };
  }

  /** `null` for an event that the dialect cannot say. */
  event(text: string): Uint8Array | null {
    if (text !== this.#lastText) {
      this.#lastEvent = encodeEvent(text);
      this.#lastText = text;
    }
    return this.#lastEvent;
  }

  /** `message` begins with the channel tag. */
  delta(message: Uint8Array): Uint8Array {
    let encoded = this.#deltas.get(message);
    if (encoded === undefined) {
      encoded = encodeDeltaMessage(message.subarray(1), this.#deps.schema);
      this.#deltas.set(message, encoded);
    }
    return encoded;
  }
}

const REFUSED: Inbound = { kind: 'refused' };
const TOO_BIG: Inbound = { kind: 'too-big' };
const EMPTY: Inbound = { kind: 'empty' };
const CONTENT_TOO_LARGE = 413;

class DialectSocket implements Connection, Dialect {
  readonly #connection: Connection;
  readonly #deps: MsgpackSocketDeps;
  readonly #shared: MsgpackSockets;
  /** Of the round in flight, or of the last one. */
  #response: MsgpackResponse | null = null;

  constructor(connection: Connection, deps: MsgpackSocketDeps, shared: MsgpackSockets) {
    this.#connection = connection;
    this.#deps = deps;
    this.#shared = shared;
  }

  // What comes in.

  read(message: string | Uint8Array): Inbound {
    if (typeof message === 'string') return REFUSED;
    if (message.length === 0) return EMPTY;
    let read: ClientMessage;
    try {
      read = decodeClientMessage(message, msgpackBounds(this.#deps.limits));
    } catch (failure) {
      const error = SyncError.from(failure);
      if (error === null) throw failure;
      return error.httpStatus === CONTENT_TOO_LARGE ? TOO_BIG : REFUSED;
    }
    if (read.kind === 'unknown') return REFUSED;
    if (read.kind === 'round') return this.#roundRequest(message, read);
    return message.length > this.#deps.limits.controlBytesMax ? TOO_BIG : read;
  }

  /** The answer begins with the round, in whatever way it ends: its faults are answered under its id. */
  #roundRequest(bytes: Uint8Array, { id, req }: Extract<ClientMessage, { readonly kind: 'round' }>): Inbound {
    const { schema, limits } = this.#deps;
    const decode = () => {
      this.#response = new MsgpackResponse({ schema, id, round: null });
      const round = readRequest(req, { schema, limits });
      this.#response = new MsgpackResponse({ schema, id, round });
      return round.request;
    };
    return { kind: 'round-request', request: { bytes, wireVersion: 2, decode } };
  }

  // What goes out.

  get id(): string {
    return this.#connection.id;
  }

  get bufferedBytes(): number {
    return this.#connection.bufferedBytes;
  }

  send(message: string | Uint8Array): 'sent' | 'buffered' | 'closed' {
    try {
      if (typeof message === 'string') return this.#sendEvent(message);
      if (message[0] === TAG_DELTA) return this.#connection.send(this.#shared.delta(message));
      return this.#sendRound(message.subarray(1));
    } catch (failure) {
      this.#deps.onFailure(failure, this.id);
      this.#connection.close(1011, 'server failure');
      return 'closed';
    }
  }

  /** What a peer published in words of the other dialect alone stays away, and costs nobody a connection. */
  #sendEvent(text: string): 'sent' | 'buffered' | 'closed' {
    const event = this.#shared.event(text);
    return event === null ? 'sent' : this.#connection.send(event);
  }

  #sendRound(chunk: Uint8Array): 'sent' | 'buffered' | 'closed' {
    let sent: 'sent' | 'buffered' | 'closed' = 'sent';
    for (const message of this.#response?.push(chunk) ?? []) sent = this.#connection.send(message);
    return sent;
  }

  drained(): Promise<'open' | 'closed'> {
    return this.#connection.drained();
  }

  ping(): void {
    this.#connection.ping();
  }

  pauseReading(): void {
    this.#connection.pauseReading();
  }

  resumeReading(): void {
    this.#connection.resumeReading();
  }

  close(...how: Parameters<Connection['close']>): void {
    this.#connection.close(...how);
  }
}
