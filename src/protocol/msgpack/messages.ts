/** The messages of the dialect (§5.2): one map with a key `t` each. Control messages say what the JSON ones of SSP2 say. */
import { decodeError, EncodeError } from '../bytes.ts';
import {
  type ClientControl,
  parseClientControl,
  parseServerControl,
  type ServerControl,
} from '../control.ts';
import type { JsonObject, JsonValue } from '../errors.ts';
import type { CompiledSchema } from '../schema.ts';
import { FORBIDDEN_KEYS, MSGPACK_DEPTH_MAX, type MsgpackBounds } from './bounds.ts';
import { type RequestParts, writeRequest } from './request.ts';
import { decodeMap, IntegralFloat, isMap, type MsgpackMap, type MsgpackValue } from './value.ts';
import { MsgpackWriter } from './writer.ts';

/** WebSocket subprotocol of the dialect (§5.1). */
export const MSGPACK_SUBPROTOCOL = 'tidegate.msgpack.v1';
/** Content type of a round over HTTP, both ways (§5.1). */
export const MSGPACK_CONTENT_TYPE = 'application/vnd.tidegate.sync+msgpack';

export type ClientMessage =
  | ClientControl
  /** `req` is not looked at yet: its faults are answered, not those of the message. */
  | { readonly kind: 'round'; readonly id: number; readonly req: MsgpackValue | undefined };

export type ServerMessage =
  | ServerControl
  | { readonly kind: 'frame'; readonly id: number; readonly frame: MsgpackValue }
  | { readonly kind: 'delta'; readonly frames: readonly MsgpackValue[] };

/**
 * What a server receives. Throws `sync.invalid_request` for bytes that are no message, and for a round without an id; an
 * unknown `t` is `unknown`.
 */
export function decodeClientMessage(bytes: Uint8Array, bounds: MsgpackBounds): ClientMessage {
  const message = decodeMap(bytes, bounds);
  switch (message.t) {
    case 'round':
      return { kind: 'round', id: roundId(message), req: message.req };
    case 'ack':
      return parseClientControl(jsonText({ type: 'ack', cursor: toJson(message.cursor) ?? null }));
    case 'presence': {
      // A document that JSON cannot say is no document.
      const doc = message.doc === undefined ? undefined : toJson(message.doc);
      const scopeKey = toJson(message.scopeKey) ?? null;
      const data: JsonObject = doc === undefined ? { scopeKey } : { scopeKey, doc };
      return parseClientControl(jsonText({ event: 'presence', data }));
    }
    default:
      return { kind: 'unknown' };
  }
}

/** What a client receives. Throws `sync.invalid_request` for bytes that are no message and for malformed frames' envelopes. */
export function decodeServerMessage(bytes: Uint8Array, bounds: MsgpackBounds): ServerMessage {
  const message = decodeMap(bytes, bounds);
  const { t } = message;
  if (t === 'frame') return { kind: 'frame', id: roundId(message), frame: message.f ?? null };
  if (t === 'delta') {
    if (!Array.isArray(message.frames)) throw decodeError('a delta has no frames');
    return { kind: 'delta', frames: message.frames };
  }
  if (typeof t !== 'string') return { kind: 'unknown' };
  const members = Object.keys(message).filter((key) => key !== 't');
  const data: Record<string, JsonValue> = {};
  for (const key of members) {
    const value = toJson(message[key]);
    if (value !== undefined) data[key] = value;
  }
  return parseServerControl(jsonText({ event: t, data }));
}

function roundId({ id }: MsgpackMap): number {
  if (typeof id === 'number' && Number.isSafeInteger(id) && id >= 0) return id;
  throw decodeError('a round has no id');
}

function jsonText(value: JsonObject): string {
  return JSON.stringify(value);
}

/** `undefined` for what JSON cannot say without loss: bytes, integers beyond 2^53, NaN and infinities. */
function toJson(value: MsgpackValue | undefined): JsonValue | undefined {
  if (value === undefined || typeof value === 'bigint' || value instanceof Uint8Array) return undefined;
  if (value instanceof IntegralFloat) return value.value;
  if (typeof value === 'number') return Number.isFinite(value) ? value : undefined;
  if (Array.isArray(value)) {
    const items = value.map((item: MsgpackValue) => toJson(item));
    return items.every((item) => item !== undefined) ? items : undefined;
  }
  if (!isMap(value)) return value as JsonValue;
  const object: Record<string, JsonValue> = {};
  for (const key in value) {
    const member = toJson(value[key]);
    if (member === undefined) return undefined;
    object[key] = member;
  }
  return object;
}

/**
 * The message that says what a JSON event of the server says, or `null` when the dialect has no words for it: a `presence`
 * document of a peer may be nested deeper, hold keys that are refused here, or text that is not well-formed.
 */
export function encodeEvent(text: string): Uint8Array | null {
  const { event, data } = JSON.parse(text) as { readonly event: string; readonly data: JsonObject };
  const writer = new MsgpackWriter(text.length + 16);
  try {
    writeJson(writer, { t: event, ...data }, 0);
  } catch (failure) {
    if (failure instanceof EncodeError) return null;
    throw failure;
  }
  return writer.finish();
}

export function encodeAckMessage(cursor: number): Uint8Array {
  return jsonMessage({ t: 'ack', cursor });
}

/** `doc` `null` leaves. */
export function encodePresenceMessage(scopeKey: string, doc: JsonObject | null): Uint8Array {
  return jsonMessage({ t: 'presence', scopeKey, doc });
}

/** `id` comes back in every frame of the answer. */
export function encodeRound(id: number, parts: RequestParts, schema: CompiledSchema): Uint8Array {
  const writer = new MsgpackWriter();
  writer.map(3);
  writer.str('t');
  writer.str('round');
  writer.str('id');
  writer.int(id);
  writer.str('req');
  writeRequest(writer, parts, schema);
  return writer.finish();
}

function jsonMessage(value: JsonObject): Uint8Array {
  const writer = new MsgpackWriter(64);
  writeJson(writer, value, 0);
  return writer.finish();
}

/** `depth`: maps and arrays around the value. Throws `EncodeError` for what the scan of the other end refuses. */
function writeJson(writer: MsgpackWriter, value: JsonValue, depth: number): void {
  if (value === null) writer.nil();
  else if (typeof value === 'string') writer.str(value);
  else if (typeof value === 'boolean') writer.bool(value);
  else if (typeof value === 'number') writeNumber(writer, value);
  else writeContainer(writer, value, depth);
}

function writeContainer(
  writer: MsgpackWriter,
  value: JsonObject | readonly JsonValue[],
  depth: number,
): void {
  if (depth === MSGPACK_DEPTH_MAX) throw new EncodeError('a message is nested too deeply');
  if (Array.isArray(value)) {
    writer.array(value.length);
    for (const item of value as readonly JsonValue[]) writeJson(writer, item, depth + 1);
    return;
  }
  const members = Object.entries(value as JsonObject);
  writer.map(members.length);
  for (const [key, member] of members) {
    if (FORBIDDEN_KEYS.includes(key)) throw new EncodeError('a key is not allowed');
    writer.str(key);
    writeJson(writer, member, depth + 1);
  }
}

function writeNumber(writer: MsgpackWriter, value: number): void {
  if (Number.isSafeInteger(value) && !Object.is(value, -0)) writer.int(value);
  else writer.float(value);
}
