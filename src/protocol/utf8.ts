/** Strict UTF-8: fatal, and a leading U+FEFF stays (part 1.1 rule 6). */
import { SyncError } from './errors.ts';

const TEXT_DECODER = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
/** Up to this many bytes an ASCII text is cheaper to decode and encode by hand (measured, Node 20). */
export const SHORT_TEXT_BYTES = 28;

/** Throws `sync.invalid_request`. Four units per step: each `fromCharCode` makes a string, and those are what costs. */
export function decodeUtf8(bytes: Uint8Array, start: number, end: number): string {
  if (end - start > SHORT_TEXT_BYTES) return decodeLongUtf8(bytes.subarray(start, end));
  let text = '';
  let at = start;
  for (; at + 4 <= end; at += 4) {
    const a = bytes[at]!;
    const b = bytes[at + 1]!;
    const c = bytes[at + 2]!;
    const d = bytes[at + 3]!;
    if ((a | b | c | d) > 0x7f) return decodeLongUtf8(bytes.subarray(start, end));
    text += String.fromCharCode(a, b, c, d);
  }
  for (; at < end; at++) {
    const byte = bytes[at]!;
    if (byte > 0x7f) return decodeLongUtf8(bytes.subarray(start, end));
    text += String.fromCharCode(byte);
  }
  return text;
}

function decodeLongUtf8(bytes: Uint8Array): string {
  try {
    return TEXT_DECODER.decode(bytes);
  } catch (cause) {
    throw new SyncError('sync.invalid_request', 'a string is not well-formed UTF-8', { cause });
  }
}
