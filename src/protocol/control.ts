/**
 * JSON control messages of the socket and the channel tags (§8.1 to §8.6, part 1.10). Parsers never throw: a message that
 * is not JSON or has a name of the future is `unknown`, a known one in a wrong shape is `malformed` and names itself.
 */
import type { JsonObject, JsonValue } from './errors.ts';

/** First byte of a binary message: a delta, server to client only. */
export const TAG_DELTA = 0x00;
/** First byte of a binary message: a chunk of the running round, both ways. */
export const TAG_ROUND = 0x01;

/** Stays 1 whatever the wire version. */
export const CONTROL_PROTOCOL_VERSION = 1;

/** Closed for ever: new abilities come as new event names. */
export type WakeReason = 'delta-too-large' | 'catchup-required' | 'reset-required';
/** Closed for ever. */
export type PresenceKind = 'join' | 'update' | 'leave';
/** Closed for ever; no codes of the catalogue and never in an `ERROR` frame. */
export type PresenceRefusalCode = 'presence.too_large' | 'presence.forbidden';

export interface HelloData {
  readonly sessionId: string;
  readonly actorId: string;
  readonly clientId: string;
  readonly cursor: number;
  readonly latestCursor: number;
  readonly requiresSync: boolean;
  readonly timestamp: number;
}

export interface WakeUpData {
  readonly cursor: number;
  readonly reason: WakeReason;
  readonly timestamp: number;
}

export interface PresenceData {
  readonly scopeKey: string;
  readonly kind: PresenceKind;
  readonly actorId: string;
  readonly clientId: string;
  /** `null` exactly for a leave. */
  readonly doc: JsonObject | null;
  readonly timestamp: number;
}

export interface PresenceRefusalData {
  readonly scopeKey: string;
  readonly error: PresenceRefusalCode;
  readonly timestamp: number;
}

export type UnreadableControl =
  | { readonly kind: 'unknown' }
  /** `event` is the name of the message: an event name, or `ack`. */
  | { readonly kind: 'malformed'; readonly event: string };

export type ServerControl =
  | ({ readonly kind: 'hello' } & HelloData)
  | ({ readonly kind: 'wake-up' } & WakeUpData)
  | { readonly kind: 'heartbeat'; readonly timestamp: number }
  | { readonly kind: 'presence'; readonly presence: PresenceData }
  | ({ readonly kind: 'presence-refusal' } & PresenceRefusalData)
  | UnreadableControl;

export type ClientControl =
  | { readonly kind: 'ack'; readonly cursor: number }
  | {
      readonly kind: 'presence-publish';
      readonly scopeKey: string;
      readonly doc: JsonObject;
      /** The document as compact JSON: what is measured against the cap, kept and fanned out. */
      readonly docText: string;
    }
  | { readonly kind: 'presence-leave'; readonly scopeKey: string }
  | UnreadableControl;

const UNKNOWN: UnreadableControl = { kind: 'unknown' };
const WAKE_REASONS: ReadonlySet<unknown> = new Set(['delta-too-large', 'catchup-required', 'reset-required']);
const PRESENCE_KINDS: ReadonlySet<unknown> = new Set(['join', 'update', 'leave']);
const PRESENCE_REFUSALS: ReadonlySet<unknown> = new Set(['presence.too_large', 'presence.forbidden']);

type Members = Readonly<Record<string, unknown>>;

/** What a server receives. */
export function parseClientControl(text: string): ClientControl {
  const message = parseObject(text);
  if (message === null) return UNKNOWN;
  if (message.type === 'ack') {
    const { cursor } = message;
    return isInt(cursor) ? { kind: 'ack', cursor } : malformed('ack');
  }
  return message.event === 'presence' ? presencePublish(message.data) : UNKNOWN;
}

/** What a client receives. */
export function parseServerControl(text: string): ServerControl {
  const message = parseObject(text);
  const parse = message === null ? undefined : SERVER_EVENTS.get(message.event);
  if (message === null || parse === undefined) return UNKNOWN;
  const { data } = message;
  return (isObject(data) ? parse(data) : null) ?? malformed(String(message.event));
}

/** `null` stands for a wrong shape. */
const SERVER_EVENTS: ReadonlyMap<unknown, (data: Members) => ServerControl | null> = new Map([
  ['hello', hello],
  ['sync', wakeUp],
  ['heartbeat', heartbeat],
  ['presence', presence],
]);

function hello(data: Members): ServerControl | null {
  const { protocolVersion, sessionId, actorId, clientId, cursor, latestCursor, requiresSync, timestamp } =
    data;
  if (protocolVersion !== CONTROL_PROTOCOL_VERSION || typeof requiresSync !== 'boolean') return null;
  if (typeof sessionId !== 'string' || typeof actorId !== 'string' || typeof clientId !== 'string')
    return null;
  if (!isInt(cursor) || !isInt(latestCursor) || !isInt(timestamp)) return null;
  return { kind: 'hello', sessionId, actorId, clientId, cursor, latestCursor, requiresSync, timestamp };
}

function wakeUp({ cursor, requiresPull, reason, timestamp }: Members): ServerControl | null {
  if (requiresPull !== true || !WAKE_REASONS.has(reason) || !isInt(cursor) || !isInt(timestamp)) return null;
  return { kind: 'wake-up', cursor, reason: reason as WakeReason, timestamp };
}

function heartbeat({ timestamp }: Members): ServerControl | null {
  return isInt(timestamp) ? { kind: 'heartbeat', timestamp } : null;
}

function presence(data: Members): ServerControl | null {
  const { scopeKey, kind, error, actorId, clientId, doc, timestamp } = data;
  if (typeof scopeKey !== 'string' || !isInt(timestamp)) return null;
  if (error !== undefined) {
    if (!PRESENCE_REFUSALS.has(error)) return null;
    return { kind: 'presence-refusal', scopeKey, error: error as PresenceRefusalCode, timestamp };
  }
  if (typeof actorId !== 'string' || typeof clientId !== 'string' || !PRESENCE_KINDS.has(kind)) return null;
  const whole = { scopeKey, kind: kind as PresenceKind, actorId, clientId, timestamp };
  if (kind === 'leave') return doc === null ? { kind: 'presence', presence: { ...whole, doc } } : null;
  return isObject(doc) ? { kind: 'presence', presence: { ...whole, doc: doc as JsonObject } } : null;
}

function presencePublish(data: unknown): ClientControl {
  if (!isObject(data)) return malformed('presence');
  const { scopeKey, doc } = data;
  if (typeof scopeKey !== 'string' || scopeKey === '') return malformed('presence');
  if (doc === null) return { kind: 'presence-leave', scopeKey };
  if (!isObject(doc)) return malformed('presence');
  const docText = compactJson(doc);
  return docText === null
    ? malformed('presence')
    : { kind: 'presence-publish', scopeKey, doc: doc as JsonObject, docText };
}

/** `null` for a document so deep that it cannot be written: the parser takes any depth, the serializer does not. */
function compactJson(doc: object): string | null {
  try {
    return JSON.stringify(doc);
  } catch (failure) {
    if (failure instanceof RangeError) return null;
    throw failure;
  }
}

function parseObject(text: string): Members | null {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  return isObject(value) ? value : null;
}

function isObject(value: unknown): value is Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function isInt(value: unknown): value is number {
  return Number.isSafeInteger(value);
}

function malformed(event: string): UnreadableControl {
  return { kind: 'malformed', event };
}

function eventText(event: string, data: Readonly<Record<string, JsonValue>>): string {
  return JSON.stringify({ event, data });
}

export function encodeHello(data: HelloData): string {
  const { sessionId, actorId, clientId, cursor, latestCursor, requiresSync, timestamp } = data;
  return eventText('hello', {
    protocolVersion: CONTROL_PROTOCOL_VERSION,
    sessionId,
    actorId,
    clientId,
    cursor,
    latestCursor,
    requiresSync,
    timestamp,
  });
}

export function encodeWakeUp({ cursor, reason, timestamp }: WakeUpData): string {
  return eventText('sync', { cursor, requiresPull: true, reason, timestamp });
}

export function encodeHeartbeat(timestampMs: number): string {
  return eventText('heartbeat', { timestamp: timestampMs });
}

/** `docText` is the compact JSON of a publish, or `null` for a leave; it goes in as it is. */
export function encodePresence(
  presence: Omit<PresenceData, 'doc'> & { readonly docText: string | null },
): string {
  const { scopeKey, kind, actorId, clientId, docText, timestamp } = presence;
  const head = JSON.stringify({ scopeKey, kind, actorId, clientId }).slice(0, -1);
  return `{"event":"presence","data":${head},"doc":${docText ?? 'null'},"timestamp":${timestamp}}}`;
}

export function encodePresenceRefusal({ scopeKey, error, timestamp }: PresenceRefusalData): string {
  return eventText('presence', { scopeKey, error, timestamp });
}

export function encodeAck(cursor: number): string {
  return JSON.stringify({ type: 'ack', cursor });
}

/** `doc` `null` leaves. */
export function encodePresencePublish(scopeKey: string, doc: JsonObject | null): string {
  return eventText('presence', { scopeKey, doc });
}
