/**
 * A lean SSP2 client for load: it encodes rounds, and of what arrives it reads only what is counted, so that the generator is
 * not the bottleneck.
 */
import WebSocket from 'ws';
import { ByteReader } from '../src/protocol/bytes.ts';
import { encodeAck, TAG_DELTA, TAG_ROUND } from '../src/protocol/control.ts';
import type { RequestFrame, ResponseFrame } from '../src/protocol/frames.ts';
import { FRAME_TYPES } from '../src/protocol/frames.ts';
import { decodeMessage, encodeMessage } from '../src/protocol/message.ts';

const ENVELOPE_BYTES = 8;
const ACCEPT_ROWS = 0b0011;

export interface WireTarget {
  /** Base URL of the gateway, mount included, `http://…`. */
  readonly url: string;
  readonly token: string;
  readonly schemaVersion: number;
}

export interface SeenCommit {
  readonly commitSeq: number;
  /** Row of the commit's first change. */
  readonly rowId: string;
}

export class WireClient {
  readonly clientId: string;
  readonly #target: WireTarget;
  readonly #socket: WebSocket;
  #logEpoch: string | undefined;
  #chunks: Buffer[] = [];
  #waiting: { resolve: (bytes: Buffer) => void; reject: (error: Error) => void } | null = null;
  #closed: Error | null = null;
  #opened: { resolve: () => void; reject: (error: Error) => void } | null = null;
  deltas = 0;
  commits = 0;
  bytes = 0;
  wakeUps = 0;
  /** Highest `commitSeq` seen in a delta or pull. */
  cursor = 0;
  onCommit: (commit: SeenCommit) => void = () => undefined;
  onWakeUp: () => void = () => undefined;

  private constructor(target: WireTarget, clientId: string) {
    this.clientId = clientId;
    this.#target = target;
    const url = new URL(target.url.replace(/^http/, 'ws').replace(/\/?$/, '/realtime'));
    url.searchParams.set('clientId', clientId);
    this.#socket = new WebSocket(url, {
      headers: { authorization: `Bearer ${target.token}` },
      perMessageDeflate: false,
      skipUTF8Validation: true,
    });
    this.#socket.binaryType = 'nodebuffer';
    this.#socket.on('message', (data: Buffer, isBinary: boolean) => this.#onMessage(data, isBinary));
    this.#socket.on('error', (error) => this.#fail(error));
    this.#socket.on('close', (code, reason) => this.#fail(new Error(`closed ${code} ${reason.toString()}`)));
  }

  /** Resolves at `hello`. */
  static async connect(target: WireTarget, clientId: string): Promise<WireClient> {
    const client = new WireClient(target, clientId);
    await new Promise<void>((resolve, reject) => {
      client.#opened = { resolve, reject };
    });
    return client;
  }

  /** Learns the epoch, then subscribes to one project from the start and acks. Returns the rows of inline segments skipped over. */
  async subscribe(table: string, scopes: Readonly<Record<string, readonly string[]>>): Promise<void> {
    await this.learnEpoch();
    let cursor = -1;
    let bootstrapState: string | undefined;
    do {
      const frames = await this.round([
        {
          type: 'PULL_HEADER',
          limitCommits: 0,
          limitSnapshotRows: 0,
          maxSnapshotPages: 0,
          accept: ACCEPT_ROWS,
        },
        { type: 'SUBSCRIPTION', id: 's', table, scopes, cursor, ...(bootstrapState && { bootstrapState }) },
      ]);
      const end = frames.find((frame) => frame.type === 'SUB_END');
      if (end === undefined) throw new Error('a pull was answered without a section');
      cursor = end.nextCursor;
      bootstrapState = end.bootstrapState;
    } while (bootstrapState !== undefined);
    this.cursor = Math.max(this.cursor, cursor);
    this.ack();
  }

  async learnEpoch(): Promise<void> {
    const frames = await this.round([
      {
        type: 'PULL_HEADER',
        limitCommits: 0,
        limitSnapshotRows: 0,
        maxSnapshotPages: 0,
        accept: ACCEPT_ROWS,
      },
    ]);
    const header = frames[0];
    if (header?.type !== 'RESP_HEADER') throw new Error('no response header');
    this.#logEpoch = header.logEpoch;
  }

  async round(frames: readonly RequestFrame[]): Promise<readonly ResponseFrame[]> {
    return this.decode(await this.roundBytes(this.encode(frames)));
  }

  /** Throws for what is no response, or a refused one. */
  decode(response: Buffer): readonly ResponseFrame[] {
    const message = decodeMessage(response);
    if (message.kind !== 'response') throw new Error('a request came back');
    const error = message.frames.find((frame) => frame.type === 'ERROR');
    if (error !== undefined) throw new Error(`${error.code}: ${error.message}`);
    return message.frames;
  }

  /** The tagged bytes of one request. */
  encode(frames: readonly RequestFrame[]): Uint8Array {
    const header = {
      type: 'REQ_HEADER',
      clientId: this.clientId,
      schemaVersion: this.#target.schemaVersion,
      ...(this.#logEpoch !== undefined && { logEpoch: this.#logEpoch }),
    } as const;
    const message = encodeMessage({ kind: 'request', wireVersion: 2, frames: [header, ...frames] });
    const tagged = new Uint8Array(message.length + 1);
    tagged[0] = TAG_ROUND;
    tagged.set(message, 1);
    return tagged;
  }

  /** One round; resolves with the response's bytes. */
  roundBytes(tagged: Uint8Array): Promise<Buffer> {
    if (this.#closed) return Promise.reject(this.#closed);
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
      this.#socket.send(tagged);
    });
  }

  ack(): void {
    this.#socket.send(encodeAck(this.cursor));
  }

  async close(): Promise<void> {
    if (this.#socket.readyState === WebSocket.CLOSED) return;
    await new Promise<void>((resolve) => {
      this.#socket.once('close', () => resolve());
      this.#socket.close(1000);
    });
  }

  #fail(error: Error): void {
    this.#closed ??= error;
    this.#opened?.reject(error);
    this.#waiting?.reject(error);
    this.#waiting = null;
  }

  #onMessage(data: Buffer, isBinary: boolean): void {
    this.bytes += data.length;
    if (!isBinary) {
      this.#onText(data.toString());
    } else if (data[0] === TAG_DELTA) {
      this.deltas += 1;
      this.#readDelta(data);
      this.ack();
    } else {
      this.#onRoundChunk(data.subarray(1));
    }
  }

  #onText(text: string): void {
    const { event } = JSON.parse(text);
    if (event === 'hello') {
      this.#opened?.resolve();
      this.#opened = null;
    } else if (event === 'sync') {
      this.wakeUps += 1;
      this.onWakeUp();
    }
  }

  /** The last message of a response stops on the last byte of END: five zero bytes. */
  #onRoundChunk(chunk: Buffer): void {
    this.#chunks.push(chunk);
    const bytes = this.#chunks.length === 1 ? chunk : Buffer.concat(this.#chunks);
    if (!endsWithEnd(bytes)) return;
    this.#chunks = [];
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting?.resolve(bytes);
  }

  #readDelta(data: Buffer): void {
    const reader = new ByteReader(data, 1 + ENVELOPE_BYTES);
    for (;;) {
      const type = reader.u8();
      const end = reader.u32() + reader.offset;
      if (type === FRAME_TYPES.END) return;
      if (type === FRAME_TYPES.COMMIT) this.#readCommit(reader);
      reader.offset = end;
    }
  }

  #readCommit(reader: ByteReader): void {
    const commitSeq = reader.i64();
    reader.i64();
    reader.blob();
    for (let tables = reader.u32(); tables > 0; tables--) reader.blob();
    reader.u32();
    reader.u16();
    this.commits += 1;
    this.cursor = Math.max(this.cursor, commitSeq);
    this.onCommit({ commitSeq, rowId: reader.str() });
  }
}

/** Walks the frames: a payload may well end in five zero bytes. */
function endsWithEnd(bytes: Buffer): boolean {
  let offset = ENVELOPE_BYTES;
  while (offset + 5 <= bytes.length) {
    const type = bytes[offset]!;
    offset += 5 + bytes.readUInt32LE(offset + 1);
    if (type === FRAME_TYPES.END) return true;
  }
  return false;
}
