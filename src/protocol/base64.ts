/** Standard base64 with padding, for renderings and JSON; without `node:` so that browsers share it. */

/** `String.fromCharCode` takes its units as arguments, so long inputs go in slices. */
const SLICE_BYTES = 0x8000;

export function toBase64(bytes: Uint8Array): string {
  let binary = '';
  for (let at = 0; at < bytes.length; at += SLICE_BYTES) {
    binary += String.fromCharCode(...bytes.subarray(at, at + SLICE_BYTES));
  }
  return btoa(binary);
}
