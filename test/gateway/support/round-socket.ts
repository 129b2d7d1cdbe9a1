/** A client's end of the realtime channel: sorts what comes in, runs rounds, waits for conditions and never for time. */
import WebSocket from 'ws';
import { DEFAULT_LIMITS } from '../../../src/protocol/limits.ts';
import { MessageScanner } from '../../../src/protocol/stream.ts';

const TAG_DELTA = 0x00;
const TAG_ROUND = 0x01;
const BOUNDS = { ...DEFAULT_LIMITS, requestBytesMax: 2 ** 30, frameBytesMax: 2 ** 30, framesMax: 1_000_000 };

interface Control {
  readonly event: string;
  readonly data: Readonly<Record<string, unknown>>;
}

export class RoundSocket {
  readonly ws: WebSocket;
  readonly controls: Control[] = [];
  readonly deltas: Uint8Array[] = [];
  readonly responses: Uint8Array[] = [];
  /** Tags of all binary messages. */
  readonly tags = new Set<number>();
  /** What came behind the `END` of a response in its last message: must stay 0. */
  excessBytes = 0;
  closed: { readonly code: number; readonly reason: string } | null = null;
  #scanner = new MessageScanner('response', BOUNDS);
  #waiting: (() => void)[] = [];

  constructor(url: string) {
    this.ws = new WebSocket(url);
    this.ws.on('message', (data: Buffer, isBinary) => {
      this.#receive(Uint8Array.from(data), isBinary ? 'binary' : 'text');
      this.#notify();
    });
    this.ws.on('error', () => this.#notify());
    this.ws.on('close', (code, reason) => {
      this.closed = { code, reason: reason.toString() };
      this.#notify();
    });
  }

  /** Sends one request as one message and resolves with its whole response. */
  async round(request: Uint8Array): Promise<Uint8Array> {
    const before = this.responses.length;
    this.sendRoundBytes(request);
    await this.until(() => this.responses.length > before);
    return this.responses[before]!;
  }

  sendRoundBytes(bytes: Uint8Array): void {
    const message = new Uint8Array(bytes.byteLength + 1);
    message[0] = TAG_ROUND;
    message.set(bytes, 1);
    this.sendBinary(message);
  }

  sendBinary(bytes: Uint8Array): void {
    this.ws.send(bytes);
  }

  sendText(text: string): void {
    this.ws.send(text);
  }

  ack(cursor: number): void {
    this.sendText(JSON.stringify({ type: 'ack', cursor }));
  }

  /** The first control message of this name, also one that came already. */
  async control(event: string): Promise<Readonly<Record<string, unknown>>> {
    await this.until(() => this.controls.some((control) => control.event === event));
    return this.controls.find((control) => control.event === event)!.data;
  }

  /** Rejects when the socket closes before the condition holds. */
  async until(condition: () => boolean): Promise<void> {
    while (!condition()) {
      if (this.closed !== null) {
        throw new Error(`the socket closed with ${this.closed.code} ${this.closed.reason}`);
      }
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
  }

  async untilClosed(): Promise<{ readonly code: number; readonly reason: string }> {
    while (this.closed === null) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    return this.closed;
  }

  end(): void {
    this.ws.terminate();
  }

  #receive(bytes: Uint8Array, kind: 'binary' | 'text'): void {
    if (kind === 'text') {
      this.controls.push(JSON.parse(new TextDecoder().decode(bytes)) as Control);
      return;
    }
    const tag = bytes[0]!;
    this.tags.add(tag);
    if (tag === TAG_DELTA) this.deltas.push(bytes.subarray(1));
    if (tag !== TAG_ROUND) return;
    const result = this.#scanner.push(bytes.subarray(1));
    if (result.kind === 'more') return;
    if (result.kind !== 'message') throw new Error(`the response cannot be read: ${result.kind}`);
    this.responses.push(result.message.slice());
    this.excessBytes += result.rest.byteLength;
  }

  #notify(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const wake of waiting) wake();
  }
}
