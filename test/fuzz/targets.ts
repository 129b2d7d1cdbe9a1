/** What is fuzzed, and what must hold of it. A target throws for whatever must not happen. */
import { isDeepStrictEqual } from 'node:util';
import { EncodeError } from '../../src/protocol/bytes.ts';
import { parseClientControl, parseServerControl } from '../../src/protocol/control.ts';
import { SyncError } from '../../src/protocol/errors.ts';
import type { PushOperation, SyncMessage } from '../../src/protocol/frames.ts';
import { isJsonText } from '../../src/protocol/json-text.ts';
import { DEFAULT_LIMITS } from '../../src/protocol/limits.ts';
import { decodeMessage, decodeRequest, encodeMessage } from '../../src/protocol/message.ts';
import {
  decodeClientMessage,
  decodeServerMessage,
  encodeRound,
} from '../../src/protocol/msgpack/messages.ts';
import { readRequest } from '../../src/protocol/msgpack/request.ts';
import { MsgpackScanner } from '../../src/protocol/msgpack/scan.ts';
import { decodeMap } from '../../src/protocol/msgpack/value.ts';
import { renderMessage } from '../../src/protocol/render.ts';
import { ResponseReader } from '../../src/protocol/response-reader.ts';
import { parseResultDetails } from '../../src/protocol/result-details.ts';
import { compileRowCodec } from '../../src/protocol/row-codec.ts';
import { checkSegment, decodeSegment } from '../../src/protocol/segment.ts';
import { MessageScanner } from '../../src/protocol/stream.ts';
import { equalBytes } from '../protocol/bytes-of.ts';
import { SCHEMA } from '../protocol/msgpack/samples.ts';
import type { RowSample } from './corpus.ts';
import { assertWeight } from './meter.ts';
import type { Prng } from './prng.ts';

const DECODE_CODES: ReadonlySet<string> = new Set(['sync.invalid_request', 'sync.empty_commit']);

const MSGPACK_BOUNDS = {
  bytesMax: DEFAULT_LIMITS.messageBytesMax,
  elementsMax: DEFAULT_LIMITS.msgpackElementsMax,
};

function assert(holds: boolean, what: string): void {
  if (!holds) throw new Error(what);
}

/** The value, or `null` when it was refused with a decode error. Any other failure is a crash and passes through. */
function decoded<T>(decode: () => T): T | null {
  try {
    return decode();
  } catch (failure) {
    if (failure instanceof SyncError && DECODE_CODES.has(failure.code)) return null;
    throw failure;
  }
}

/** The decoder: what it takes comes back byte for byte, and can be rendered. Answers whether it took the input. */
export function fuzzMessage(bytes: Uint8Array): boolean {
  const message = decoded(() => decodeMessage(bytes));
  const request = decoded(() => decodeRequest(bytes, DEFAULT_LIMITS));
  assert((request !== null) === (message?.kind === 'request'), 'decodeRequest and decodeMessage disagree');
  if (message === null) return false;
  assertWeight(message, bytes.length);
  assert(sameAgain(message, bytes), 'decode and encode are not inverse');
  JSON.stringify(renderMessage(message));
  return true;
}

/** A reader takes an empty epoch or lease id, a writer never writes one (W-b): the only frames that do not come back. */
function sameAgain(message: SyncMessage, bytes: Uint8Array): boolean {
  try {
    return equalBytes(encodeMessage(message), bytes);
  } catch (failure) {
    if (!(failure instanceof EncodeError)) throw failure;
    return message.frames.some(
      (frame) =>
        ('logEpoch' in frame && frame.logEpoch === '') || (frame.type === 'LEASE' && frame.leaseId === ''),
    );
  }
}

function* chunksOf(bytes: Uint8Array, prng: Prng): Generator<Uint8Array> {
  const most = 1 + prng.below(prng.pick([1, 7, 64, 4_096]));
  for (let at = 0; at < bytes.length; ) {
    const length = 1 + prng.below(most);
    yield bytes.subarray(at, at + length);
    at += length;
  }
}

/** The scanner gives the same answer for any cut, and finds the end of whatever decodes. */
export function fuzzScanner(bytes: Uint8Array, prng: Prng): void {
  const kind = bytes[6] === 2 ? 'response' : 'request';
  const whole = new MessageScanner(kind, DEFAULT_LIMITS).push(bytes);
  const scanner = new MessageScanner(kind, DEFAULT_LIMITS);
  let pieces = scanner.push(bytes.subarray(0, 0));
  for (const chunk of chunksOf(bytes, prng)) {
    pieces = scanner.push(chunk);
    if (pieces.kind !== 'more') break;
  }
  assert(
    pieces.kind === whole.kind,
    `the scanner says ${whole.kind} of the whole and ${pieces.kind} of the pieces`,
  );
  if (pieces.kind === 'message' && whole.kind === 'message') {
    assert(equalBytes(pieces.message, whole.message), 'the scanner found two ends');
    assert(whole.message.length + whole.rest.length === bytes.length, 'the scanner lost bytes');
  }
  if (decoded(() => decodeMessage(bytes)) !== null) {
    assert(
      whole.kind === 'message' && whole.rest.length === 0,
      'the scanner missed the end of a good message',
    );
  }
}

/** The streaming reader agrees with the decoder. */
export function fuzzReader(bytes: Uint8Array, prng: Prng): void {
  const reader = new ResponseReader();
  let frames = 0;
  let behind = 0;
  for (const chunk of chunksOf(bytes, prng)) {
    const result = reader.push(chunk);
    frames += result.frames.length;
    if (result.state === 'ended') behind += result.rest.length;
  }
  const message = decoded(() => decodeMessage(bytes));
  const complete = reader.state === 'ended' && behind === 0;
  assert(complete === (message?.kind === 'response'), 'reader and decoder disagree');
  if (complete) assert(frames === message?.frames.length, 'reader and decoder count differently');
}

export function fuzzSegment(bytes: Uint8Array): void {
  const checked = decoded(() => {
    checkSegment(bytes);
    return true;
  });
  const segment = decoded(() => decodeSegment(bytes));
  assert((checked !== null) === (segment !== null), 'checkSegment and decodeSegment disagree');
  if (segment !== null) assertWeight(segment, bytes.length);
}

export function fuzzRow({ columns, bytes }: RowSample): void {
  const codec = compileRowCodec(columns);
  const values = decoded(() => codec.decode(bytes));
  const valid = decoded(() => {
    codec.validate(bytes);
    return true;
  });
  assert((valid !== null) === (values !== null), 'validate and decode disagree');
  if (values === null) return;
  assertWeight(values, bytes.length + columns.length);
  // A NaN may lose its payload on the way through a number; rows that pass through are never encoded anew.
  if (values.some((value) => Number.isNaN(value))) return;
  assert(equalBytes(codec.encode(values), bytes), 'row decode and encode are not inverse');
}

/**
 * The MessagePack dialect: the scan finds the same end for any cut, what it lets through is decoded or refused with a decode
 * error, and a request that is taken comes back when it is written again. Answers whether the message was taken.
 */
export function fuzzMsgpack(bytes: Uint8Array, prng: Prng): boolean {
  const whole = decoded(() => ({ end: new MsgpackScanner(MSGPACK_BOUNDS).scan(bytes) }));
  const pieces = decoded(() => {
    const scanner = new MsgpackScanner(MSGPACK_BOUNDS);
    let end = scanner.scan(bytes.subarray(0, 0));
    let length = 0;
    for (const chunk of chunksOf(bytes, prng)) {
      length += chunk.length;
      end ??= scanner.scan(bytes.subarray(0, length));
    }
    return { end };
  });
  assert(pieces?.end === whole?.end, 'the scan of the pieces and of the whole disagree');
  const map = decoded(() => decodeMap(bytes, MSGPACK_BOUNDS));
  decoded(() => decodeServerMessage(bytes, MSGPACK_BOUNDS));
  const message = decoded(() => decodeClientMessage(bytes, MSGPACK_BOUNDS));
  if (map === null) {
    assert(message === null, 'a message was taken that the decoder refuses');
    return false;
  }
  assertWeight(map, bytes.length);
  if (message?.kind !== 'round') return true;
  const again = (req: typeof message.req) =>
    decoded(() => readRequest(req, { schema: SCHEMA, limits: DEFAULT_LIMITS }));
  const read = again(message.req);
  if (read === null || read.request.pushes.some(({ operations }) => operations.some(isFaulty))) return true;
  const written = decodeClientMessage(encodeRound(message.id, read.request, SCHEMA), MSGPACK_BOUNDS);
  assert(written.kind === 'round', 'a round came back as something else');
  const back = written.kind === 'round' ? again(written.req) : null;
  assert(isDeepStrictEqual(back?.request, read.request), 'a request did not come back');
  return true;
}

/** Rows that were refused, or never looked at, have nothing to come back as. */
function isFaulty({ payload, payloadFault }: PushOperation): boolean {
  return payloadFault !== undefined || payload?.length === 0;
}

/** Neither direction throws for any text. */
export function fuzzControl(text: string): void {
  const kinds = [parseClientControl(text).kind, parseServerControl(text).kind];
  if (!parses(text))
    assert(
      kinds.every((kind) => kind === 'unknown'),
      'a text that is not JSON is not unknown',
    );
}

export function fuzzJson(text: string): void {
  assert(isJsonText(text) === parses(text), 'isJsonText and JSON.parse disagree');
  decoded(() => parseResultDetails(text));
}

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
