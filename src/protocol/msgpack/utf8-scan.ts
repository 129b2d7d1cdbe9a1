/** Well-formedness of UTF-8 without building the text: no surrogates, no overlong forms, nothing above U+10FFFF. */

export function isUtf8(bytes: Uint8Array, start: number, end: number): boolean {
  let at = start;
  while (at < end) {
    const lead = bytes[at]!;
    if (lead <= 0x7f) {
      at++;
      continue;
    }
    const length = sequenceLength(lead);
    if (length === 0 || at + length > end) return false;
    const second = bytes[at + 1]!;
    if (second < secondMin(lead) || second > secondMax(lead)) return false;
    for (let i = 2; i < length; i++) {
      if ((bytes[at + i]! & 0xc0) !== 0x80) return false;
    }
    at += length;
  }
  return true;
}

/** 0 for a byte that begins nothing. */
function sequenceLength(lead: number): number {
  if (lead < 0xc2) return 0;
  if (lead < 0xe0) return 2;
  if (lead < 0xf0) return 3;
  return lead < 0xf5 ? 4 : 0;
}

/** Overlong forms begin lower. */
function secondMin(lead: number): number {
  if (lead === 0xe0) return 0xa0;
  return lead === 0xf0 ? 0x90 : 0x80;
}

/** Surrogates and what lies above U+10FFFF begin higher. */
function secondMax(lead: number): number {
  if (lead === 0xed) return 0x9f;
  return lead === 0xf4 ? 0x8f : 0xbf;
}
