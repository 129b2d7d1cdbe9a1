/** A socket in memory: records what the session does to it and plays the peer that reads, stalls or vanishes. */
import type { CloseCode } from '../../src/protocol/close-codes.ts';
import { parseServerControl, type ServerControl, TAG_DELTA, TAG_ROUND } from '../../src/protocol/control.ts';
import type { CommitFrame, SyncMessage } from '../../src/protocol/frames.ts';
import { decodeMessage } from '../../src/protocol/message.ts';
import type { Connection, SessionEndpoint } from '../../src/session/live/connection.ts';

export interface CloseRecord {
  readonly code: CloseCode;
  readonly reason: string;
}

export interface FakeConnectionOptions {
  readonly id?: string;
  /** At or below this many buffered bytes `drained` resolves. */
  readonly lowBytes?: number;
}

/** One delta section, as the checker of a test wants it. */
export interface DeltaSection {
  readonly id: string;
  readonly seqs: readonly number[];
  readonly nextCursor: number;
}

let connections = 0;

export class FakeConnection implements Connection {
  readonly id: string;
  /** Everything that was sent, in order. */
  readonly sent: (string | Uint8Array)[] = [];
  closed: CloseRecord | null = null;
  pings = 0;
  readingPaused = false;
  bufferedBytes = 0;
  /** What `send` throws, for a transport that breaks its contract. */
  sendFailure: Error | null = null;
  readonly #lowBytes: number;
  #stalled = false;
  #gone = false;
  #endpoint: SessionEndpoint | null = null;
  #waiting: ((state: 'open' | 'closed') => void)[] = [];

  constructor(options: FakeConnectionOptions = {}) {
    this.id = options.id ?? `connection-${++connections}`;
    this.#lowBytes = options.lowBytes ?? 0;
  }

  // The contract.

  send(message: string | Uint8Array): 'sent' | 'buffered' | 'closed' {
    if (this.#gone || this.closed !== null) return 'closed';
    if (this.sendFailure !== null) throw this.sendFailure;
    this.sent.push(message);
    if (!this.#stalled) return 'sent';
    this.bufferedBytes += typeof message === 'string' ? Buffer.byteLength(message) : message.length;
    return this.bufferedBytes > this.#lowBytes ? 'buffered' : 'sent';
  }

  drained(): Promise<'open' | 'closed'> {
    if (this.#gone || this.closed !== null) return Promise.resolve('closed');
    if (this.bufferedBytes <= this.#lowBytes) return Promise.resolve('open');
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  ping(): void {
    this.pings++;
  }

  pauseReading(): void {
    this.readingPaused = true;
  }

  resumeReading(): void {
    this.readingPaused = false;
  }

  close(code: CloseCode, reason: string): void {
    if (this.closed === null && !this.#gone) {
      this.closed = { code, reason };
      this.#wake('closed');
    }
  }

  // The peer.

  attach(endpoint: SessionEndpoint): this {
    this.#endpoint = endpoint;
    return this;
  }

  get endpoint(): SessionEndpoint {
    if (this.#endpoint === null) throw new Error('no endpoint is attached');
    return this.#endpoint;
  }

  text(message: string | object): void {
    this.endpoint.onText(typeof message === 'string' ? message : JSON.stringify(message));
  }

  ack(cursor: number): void {
    this.text({ type: 'ack', cursor });
  }

  binary(bytes: Uint8Array): void {
    this.endpoint.onBinary(bytes);
  }

  /** A chunk of a round, without its tag. */
  round(chunk: Uint8Array): void {
    this.binary(tagged(TAG_ROUND, chunk));
  }

  pong(): void {
    this.endpoint.onPong();
  }

  /** From now on nothing leaves. */
  stall(): void {
    this.#stalled = true;
  }

  /** Everything leaves; from now on it flows, or stalls again. */
  drain(then: 'flow' | 'stall' = 'flow'): void {
    this.#stalled = then === 'stall';
    this.bufferedBytes = 0;
    this.#wake('open');
  }

  /** The TCP stream has ended, but nobody was told yet: `send` answers `closed`. */
  sever(): void {
    this.#gone = true;
    this.#wake('closed');
  }

  /** The TCP stream ends. */
  vanish(): void {
    if (this.#gone) return;
    this.#gone = true;
    this.#wake('closed');
    this.endpoint.onClosed();
  }

  #wake(state: 'open' | 'closed'): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve(state);
  }

  // What came.

  get texts(): string[] {
    return this.sent.filter((message) => typeof message === 'string');
  }

  get binaries(): Uint8Array[] {
    return this.sent.filter((message) => typeof message !== 'string');
  }

  get controls(): ServerControl[] {
    return this.texts.map(parseServerControl);
  }

  controlsOf<K extends ServerControl['kind']>(kind: K): Extract<ServerControl, { kind: K }>[] {
    return this.controls.filter(
      (control): control is Extract<ServerControl, { kind: K }> => control.kind === kind,
    );
  }

  get wakes(): { readonly cursor: number; readonly reason: string }[] {
    return this.controlsOf('wake-up').map(({ cursor, reason }) => ({ cursor, reason }));
  }

  /** Delta payloads without their tag. */
  get deltas(): Uint8Array[] {
    return this.binaries.filter((bytes) => bytes[0] === TAG_DELTA).map((bytes) => bytes.subarray(1));
  }

  get deltaMessages(): SyncMessage[] {
    return this.deltas.map((bytes) => decodeMessage(bytes));
  }

  /** `commitSeq`s of all delta sections, in order of arrival. */
  get deltaSeqs(): number[] {
    return this.deltaMessages.flatMap((message) => sectionsOf(message).flatMap(({ seqs }) => seqs));
  }

  /** Round payloads, joined. */
  get roundBytes(): Uint8Array {
    const chunks = this.binaries.filter((bytes) => bytes[0] === TAG_ROUND);
    return Buffer.concat(chunks.map((bytes) => bytes.subarray(1)));
  }

  /** A short picture of the traffic: `hello`, `wake catchup-required 7`, `delta 4,5`, `round 120`, `heartbeat`. */
  get story(): string[] {
    return this.sent.map(describeMessage);
  }

  /** Forgets what was sent so far. */
  clear(): void {
    this.sent.length = 0;
  }
}

export function tagged(tag: number, payload: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(payload.length + 1);
  bytes[0] = tag;
  bytes.set(payload, 1);
  return bytes;
}

export function sectionsOf(message: SyncMessage): DeltaSection[] {
  const sections: { id: string; seqs: number[]; nextCursor: number }[] = [];
  for (const frame of message.frames) {
    const open = sections.at(-1);
    if (frame.type === 'SUB_START') sections.push({ id: frame.id, seqs: [], nextCursor: -1 });
    else if (frame.type === 'COMMIT') open?.seqs.push(frame.commitSeq);
    else if (frame.type === 'SUB_END' && open !== undefined) open.nextCursor = frame.nextCursor;
  }
  return sections;
}

export function commitsOf(message: SyncMessage): CommitFrame[] {
  return message.frames.filter((frame): frame is CommitFrame => frame.type === 'COMMIT');
}

function describeMessage(message: string | Uint8Array): string {
  if (typeof message !== 'string') {
    if (message[0] === TAG_ROUND) return `round ${message.length - 1}`;
    const sections = sectionsOf(decodeMessage(message.subarray(1)));
    return `delta ${sections.map(({ seqs }) => seqs.join(',')).join(' | ')}`;
  }
  const control = parseServerControl(message);
  return control.kind === 'wake-up' ? `wake ${control.reason} ${control.cursor}` : control.kind;
}
