/** The one function that closes sockets (architecture §6). */
import { CLOSE_CODES, type CloseCode } from '../../protocol/close-codes.ts';
import type { Connection } from './connection.ts';
import type { LiveEvents } from './live-events.ts';

/** Payload of a close frame less the two bytes of its code (RFC 6455, 5.5). */
export const CLOSE_REASON_BYTES_MAX = 123;

export interface CloseRequest {
  /** A code that may not be sent, or that nobody knows, leaves as 1011. */
  readonly code: number;
  readonly reason: string;
}

const ENCODER = new TextEncoder();

/** Never throws: a transport that does is reported and taken for closed. */
export function closeSocket(connection: Connection, request: CloseRequest, events: LiveEvents): void {
  try {
    connection.close(sendableCode(request.code), cutReason(request.reason));
  } catch (error) {
    events.emit({ type: 'socket.failed', error });
  }
}

export function sendableCode(code: number): CloseCode {
  return Object.hasOwn(CLOSE_CODES, code) ? (code as CloseCode) : 1011;
}

/** At most 123 bytes of UTF-8, cut between characters. */
export function cutReason(reason: string): string {
  if (reason.length * 3 <= CLOSE_REASON_BYTES_MAX) return reason;
  const { read } = ENCODER.encodeInto(reason, new Uint8Array(CLOSE_REASON_BYTES_MAX));
  return reason.slice(0, read);
}
