/** A response of the session core, chunk by chunk, as messages of the dialect: the core knows one encoding only (§5.5). */
import { EncodeError } from '../bytes.ts';
import type { PushResultFrame, ResponseFrame, SegmentInlineFrame, SubStartFrame } from '../frames.ts';
import { ResponseReader } from '../response-reader.ts';
import type { CompiledSchema } from '../schema.ts';
import { readSegmentBlocks, type SegmentBlock } from '../segment.ts';
import { type KnownResponseFrame, MsgpackFrameWriter, type TableOfResult, writeRowsFrame } from './frames.ts';
import type { MsgpackRequest } from './request.ts';
import { MsgpackWriter } from './writer.ts';

export interface ResponseContext {
  readonly schema: CompiledSchema;
  /** Of the round, echoed in every message. */
  readonly id: number;
  /** `null` when the request could not be read: its answer is an error stream. */
  readonly round: MsgpackRequest | null;
}

const NO_BLOCK: SegmentBlock = [];

/** Takes the bytes of one SSP2 response in any chunks. */
export class MsgpackResponse {
  readonly #context: ResponseContext;
  readonly #frames: MsgpackFrameWriter;
  readonly #reader = new ResponseReader();
  /** Results stand in the order of their commits (part 1.3 rule 5). */
  #results = 0;
  /** The next rows of the section clear the client's rows of the scope. */
  #clears = false;

  constructor(context: ResponseContext) {
    this.#context = context;
    this.#frames = new MsgpackFrameWriter(context.schema);
  }

  /** The messages that this chunk completes. Throws `EncodeError` for bytes that are no response. */
  push(chunk: Uint8Array): Uint8Array[] {
    const { frames, state, failure } = this.#reader.push(chunk);
    if (failure !== null) throw new EncodeError(`a response cannot be read back: ${failure.message}`);
    const messages = frames.flatMap((frame) => this.#messagesOf(frame));
    if (state === 'ended') messages.push(this.#message(writeEnd));
    return messages;
  }

  #messagesOf(frame: ResponseFrame): Uint8Array[] {
    // The server writes no unknown frames.
    if (frame.type === 'UNKNOWN') return [];
    if (frame.type === 'SUB_START') this.#clears = this.#isFresh(frame);
    if (frame.type === 'SEGMENT_INLINE' && this.#context.round?.segments === 'as-rows') {
      return this.#rowsOf(frame);
    }
    const commit = frame.type === 'PUSH_RESULT' ? this.#results++ : 0;
    return [this.#message((writer) => this.#frames.frame(writer, frame, this.#tableOf(commit)))];
  }

  /** The client's clearing rule (§5.6): only a section that was asked for from the beginning, and only its first page. */
  #isFresh({ id, bootstrap }: SubStartFrame): boolean {
    const asked = this.#context.round?.request.subscriptions.find((subscription) => subscription.id === id);
    return bootstrap && asked !== undefined && asked.cursor < 0 && asked.bootstrapState === undefined;
  }

  #tableOf(commit: number): TableOfResult {
    const operations = this.#context.round?.request.pushes[commit]?.operations;
    return (_result: PushResultFrame, opIndex: number) => operations?.[opIndex]?.table;
  }

  /** One frame per block; a page without rows still says that it is the first. */
  #rowsOf({ payload }: SegmentInlineFrame): Uint8Array[] {
    const { header, blocks } = readSegmentBlocks(payload);
    const { table, columns } = header;
    const messages: Uint8Array[] = [];
    for (const block of blocks) messages.push(this.#rows({ table, columns, block }));
    return messages.length === 0 ? [this.#rows({ table, columns, block: NO_BLOCK })] : messages;
  }

  #rows(rows: Omit<Parameters<typeof writeRowsFrame>[1], 'first'>): Uint8Array {
    const first = this.#clears;
    this.#clears = false;
    return this.#message((writer) => writeRowsFrame(writer, { ...rows, first }));
  }

  #message(writeFrame: (writer: MsgpackWriter) => void): Uint8Array {
    const writer = new MsgpackWriter();
    writer.map(3);
    writer.str('t');
    writer.str('frame');
    writer.str('id');
    writer.int(this.#context.id);
    writer.str('f');
    writeFrame(writer);
    return writer.finish();
  }
}

function writeEnd(writer: MsgpackWriter): void {
  writer.map(1);
  writer.str('type');
  writer.str('END');
}

/** A delta of the session core (tag byte excluded) as one message: all of its frames but `END`. */
export function encodeDeltaMessage(response: Uint8Array, schema: CompiledSchema): Uint8Array {
  const { frames, state } = new ResponseReader().push(response);
  if (state !== 'ended') throw new EncodeError('a delta cannot be read back');
  const known = frames.filter((frame): frame is KnownResponseFrame => frame.type !== 'UNKNOWN');
  const frameWriter = new MsgpackFrameWriter(schema);
  const writer = new MsgpackWriter(response.length * 2);
  writer.map(2);
  writer.str('t');
  writer.str('delta');
  writer.str('frames');
  writer.array(known.length);
  for (const frame of known) frameWriter.frame(writer, frame, () => undefined);
  return writer.finish();
}
