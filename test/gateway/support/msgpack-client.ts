/** A client's end of the MessagePack dialect: sorts what comes in, waits for conditions and never for time. */
import WebSocket from 'ws';
import type { ServerControl } from '../../../src/protocol/control.ts';
import { MSGPACK_RESPONSE_BOUNDS } from '../../../src/protocol/msgpack/bounds.ts';
import { MsgpackFrameReader } from '../../../src/protocol/msgpack/frame-reader.ts';
import type { MsgpackFrame } from '../../../src/protocol/msgpack/frames.ts';
import {
  decodeServerMessage,
  encodeAckMessage,
  encodeRound,
} from '../../../src/protocol/msgpack/messages.ts';
import type { RequestParts } from '../../../src/protocol/msgpack/request.ts';
import { MsgpackScanner } from '../../../src/protocol/msgpack/scan.ts';
import type { CompiledSchema } from '../../../src/protocol/schema.ts';

/** The table of an operation of these pushes. */
const tableOf =
  ({ pushes }: Pick<RequestParts, 'pushes'>) =>
  (clientCommitId: string, opIndex: number) =>
    pushes.find((commit) => commit.clientCommitId === clientCommitId)?.operations[opIndex]?.table;

/** The frames of messages that stand one behind the other, as an HTTP body holds them; `END` is left out. */
export function framesOfBody(body: Uint8Array, parts: RequestParts, schema: CompiledSchema): MsgpackFrame[] {
  const reader = new MsgpackFrameReader({ schema, tableOf: tableOf(parts) });
  const frames: MsgpackFrame[] = [];
  for (let at = 0; at < body.length; ) {
    const rest = body.subarray(at);
    const end = new MsgpackScanner(MSGPACK_RESPONSE_BOUNDS).scan(rest);
    if (end === null) throw new Error('the body is cut');
    const message = decodeServerMessage(rest.subarray(0, end), MSGPACK_RESPONSE_BOUNDS);
    if (message.kind !== 'frame') throw new Error(`a ${message.kind} in a body`);
    frames.push(reader.read(message.frame)!);
    at += end;
  }
  if (!reader.ended) throw new Error('the body has no END');
  return frames.slice(0, -1);
}

export class MsgpackSocket {
  readonly ws: WebSocket;
  readonly controls: ServerControl[] = [];
  readonly deltas: MsgpackFrame[][] = [];
  readonly deltaBytes: Uint8Array[] = [];
  readonly answers = new Map<
    number,
    { readonly reader: MsgpackFrameReader; readonly frames: MsgpackFrame[] }
  >();
  texts = 0;
  closed: { readonly code: number; readonly reason: string } | null = null;
  failure: unknown = null;
  readonly #schema: CompiledSchema;
  #nextId = 7;
  #waiting: (() => void)[] = [];

  constructor(url: string, schema: CompiledSchema, protocols: readonly string[] = ['tidegate.msgpack.v1']) {
    this.#schema = schema;
    this.ws = new WebSocket(url, [...protocols]);
    this.ws.on('message', (data: Buffer, isBinary) => {
      try {
        if (isBinary) this.#receive(Uint8Array.from(data));
        else this.texts++;
      } catch (failure) {
        this.failure = failure;
      }
      this.#notify();
    });
    this.ws.on('error', () => this.#notify());
    this.ws.on('close', (code, reason) => {
      this.closed = { code, reason: reason.toString() };
      this.#notify();
    });
  }

  /** The frames of the answer, `END` left out. */
  async round(parts: RequestParts): Promise<MsgpackFrame[]> {
    return this.roundOf((id) => encodeRound(id, parts, this.#schema), parts);
  }

  async roundOf(
    encode: (id: number) => Uint8Array,
    parts: Pick<RequestParts, 'pushes'> = { pushes: [] },
  ): Promise<MsgpackFrame[]> {
    const id = this.#nextId++;
    const reader = new MsgpackFrameReader({ schema: this.#schema, tableOf: tableOf(parts) });
    const answer = { reader, frames: [] as MsgpackFrame[] };
    this.answers.set(id, answer);
    this.ws.send(encode(id));
    await this.until(() => reader.ended);
    return answer.frames.slice(0, -1);
  }

  ack(cursor: number): void {
    this.ws.send(encodeAckMessage(cursor));
  }

  async control<K extends ServerControl['kind']>(
    kind: K,
  ): Promise<Extract<ServerControl, { readonly kind: K }>> {
    const is = (control: ServerControl): control is Extract<ServerControl, { readonly kind: K }> =>
      control.kind === kind;
    await this.until(() => this.controls.some(is));
    return this.controls.find(is)!;
  }

  async until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      if (this.failure !== null) throw this.failure;
      if (this.closed !== null) throw new Error(`closed with ${this.closed.code} ${this.closed.reason}`);
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  async untilClosed(): Promise<{ readonly code: number; readonly reason: string }> {
    while (this.closed === null) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    return this.closed;
  }

  #receive(bytes: Uint8Array): void {
    const message = decodeServerMessage(bytes, MSGPACK_RESPONSE_BOUNDS);
    if (message.kind === 'frame') {
      const { reader, frames } = this.answers.get(message.id)!;
      frames.push(reader.read(message.frame)!);
    } else if (message.kind === 'delta') {
      const reader = new MsgpackFrameReader({ schema: this.#schema, tableOf: () => undefined });
      this.deltas.push(message.frames.map((frame) => reader.read(frame)!));
      this.deltaBytes.push(bytes);
    } else {
      this.controls.push(message);
    }
  }

  #notify(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  }
}
