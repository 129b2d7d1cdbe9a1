/** What a MessagePack message may cost before a value of it is built (§5.4). */
import { DEFAULT_LIMITS } from '../limits.ts';

export interface MsgpackBounds {
  /** Bytes of one message. */
  readonly bytesMax: number;
  /** Values in one message, keys and the elements of every level included. */
  readonly elementsMax: number;
}

/** Maps and arrays around a value, the message itself included (§5.4). */
export const MSGPACK_DEPTH_MAX = 16;

/** Keys that no map may have (§5.4). */
export const FORBIDDEN_KEYS: readonly string[] = ['__proto__', 'constructor', 'prototype'];

/** For whoever reads what a gateway sent: a client or a tool. */
export const MSGPACK_RESPONSE_BOUNDS: MsgpackBounds = {
  bytesMax: DEFAULT_LIMITS.responseFrameBytesMax,
  elementsMax: 8_388_608,
};
