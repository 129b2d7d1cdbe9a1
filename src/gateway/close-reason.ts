/** The reason of a close frame, fit to be sent (architecture §6). */

/** A close frame's payload is at most 125 bytes, two of which are the code (RFC 6455 §5.5). */
const REASON_BYTES_MAX = 123;

const encoder = new TextEncoder();

/** Cut at a character boundary; a lone surrogate becomes U+FFFD, a reason must be valid UTF-8. */
export function fitCloseReason(reason: string): string {
  const room = new Uint8Array(REASON_BYTES_MAX);
  const { written } = encoder.encodeInto(reason, room);
  return new TextDecoder().decode(room.subarray(0, written));
}
