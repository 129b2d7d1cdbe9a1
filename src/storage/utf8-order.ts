/** Order of texts by their UTF-8 bytes, which is the order of row ids in every storage. */

const SURROGATE_FIRST = 0xd800;
const SURROGATE_LAST = 0xdfff;

/** Negative, zero or positive. JavaScript's own order differs: it puts surrogate pairs before U+E000 to U+FFFF. */
export function compareUtf8(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const left = a.charCodeAt(i);
    const right = b.charCodeAt(i);
    if (left !== right) return rank(left) - rank(right);
  }
  return a.length - b.length;
}

/** Surrogates stand for code points above all that one unit can hold. */
function rank(unit: number): number {
  return unit >= SURROGATE_FIRST && unit <= SURROGATE_LAST ? unit + 0x10000 : unit;
}
