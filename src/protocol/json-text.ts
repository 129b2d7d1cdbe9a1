/**
 * Checks JSON texts without building their values. A decoder only has to know that a `json` field parses (part 1.1
 * rule 2); `JSON.parse` is slower at that, and of hostile text it reserves some thirty times its length.
 */

const QUOTE = 0x22;
const COMMA = 0x2c;
const MINUS = 0x2d;
const DOT = 0x2e;
const SLASH = 0x2f;
const ZERO = 0x30;
const COLON = 0x3a;
const BACKSLASH = 0x5c;
const ARRAY_OPEN = 0x5b;
const ARRAY_CLOSE = 0x5d;
const LOWER_U = 0x75;
const OBJECT_OPEN = 0x7b;
const OBJECT_CLOSE = 0x7d;
/** No position: what was due does not stand there. */
const NONE = -1;

/**
 * True for exactly the texts that `JSON.parse` takes. One loop, no recursion: depth costs a byte per level and never the
 * call stack.
 */
export function isJsonText(text: string): boolean {
  const open = new Nesting();
  let at = skipSpace(text, 0);
  for (;;) {
    at = beginValue(text, at, open);
    if (at === NONE) return false;
    if (open.entered) continue;
    at = endValues(text, at, open);
    if (at === NONE) return false;
    if (open.depth === 0) return at === text.length;
  }
}

/** Steps into a non-empty container, up to its first value, or over a whole scalar or empty container. */
function beginValue(text: string, at: number, open: Nesting): number {
  open.entered = false;
  const unit = text.charCodeAt(at);
  if (unit !== OBJECT_OPEN && unit !== ARRAY_OPEN) return skipScalar(text, at);
  const close = unit === OBJECT_OPEN ? OBJECT_CLOSE : ARRAY_CLOSE;
  const inside = skipSpace(text, at + 1);
  if (text.charCodeAt(inside) === close) return inside + 1;
  open.enter(close);
  return close === OBJECT_CLOSE ? skipKey(text, inside) : inside;
}

/** Behind a value: closes what closes here, then stands on the next value, or at depth 0 behind all white space. */
function endValues(text: string, start: number, open: Nesting): number {
  let at = skipSpace(text, start);
  while (open.depth > 0) {
    const unit = text.charCodeAt(at);
    const close = open.close;
    at = skipSpace(text, at + 1);
    if (unit === COMMA) return close === OBJECT_CLOSE ? skipKey(text, at) : at;
    if (unit !== close) return NONE;
    open.leave();
  }
  return at;
}

/** The closing units of the containers that are open. */
class Nesting {
  #closes = new Uint8Array(32);
  depth = 0;
  /** The last step went into a container. */
  entered = false;

  get close(): number {
    return this.#closes[this.depth - 1]!;
  }

  enter(close: number): void {
    if (this.depth === this.#closes.length) {
      const grown = new Uint8Array(this.depth * 2);
      grown.set(this.#closes);
      this.#closes = grown;
    }
    this.#closes[this.depth++] = close;
    this.entered = true;
  }

  leave(): void {
    this.depth--;
  }
}

function skipSpace(text: string, start: number): number {
  let at = start;
  for (; ; at++) {
    const unit = text.charCodeAt(at);
    if (unit !== 0x20 && unit !== 0x0a && unit !== 0x0d && unit !== 0x09) return at;
  }
}

function skipKey(text: string, at: number): number {
  if (text.charCodeAt(at) !== QUOTE) return NONE;
  const behind = skipString(text, at);
  if (behind === NONE) return NONE;
  const colon = skipSpace(text, behind);
  return text.charCodeAt(colon) === COLON ? skipSpace(text, colon + 1) : NONE;
}

function skipScalar(text: string, at: number): number {
  const unit = text.charCodeAt(at);
  if (unit === QUOTE) return skipString(text, at);
  if (unit === MINUS || isDigit(unit)) return skipNumber(text, at);
  for (const word of ['true', 'false', 'null']) {
    if (text.startsWith(word, at)) return at + word.length;
  }
  return NONE;
}

function skipString(text: string, start: number): number {
  for (let at = start + 1; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    if (unit === QUOTE) return at + 1;
    if (unit < 0x20) return NONE;
    if (unit === BACKSLASH) {
      at = skipEscape(text, at + 1);
      if (at === NONE) return NONE;
    }
  }
  return NONE;
}

/** `at` is behind the backslash; the answer is the escape's last unit. */
function skipEscape(text: string, at: number): number {
  const unit = text.charCodeAt(at);
  if (unit === LOWER_U) {
    for (let i = 1; i <= 4; i++) {
      if (!isHexDigit(text.charCodeAt(at + i))) return NONE;
    }
    return at + 4;
  }
  const single =
    unit === QUOTE || unit === BACKSLASH || unit === SLASH || 'bfnrt'.includes(text.charAt(at) || ' ');
  return single ? at : NONE;
}

function skipNumber(text: string, start: number): number {
  let at = text.charCodeAt(start) === MINUS ? start + 1 : start;
  at = text.charCodeAt(at) === ZERO ? at + 1 : skipDigits(text, at);
  if (at !== NONE && text.charCodeAt(at) === DOT) at = skipDigits(text, at + 1);
  if (at === NONE) return NONE;
  const exponent = text.charAt(at);
  if (exponent !== 'e' && exponent !== 'E') return at;
  const sign = text.charAt(at + 1);
  return skipDigits(text, sign === '+' || sign === '-' ? at + 2 : at + 1);
}

/** At least one. */
function skipDigits(text: string, start: number): number {
  let at = start;
  while (isDigit(text.charCodeAt(at))) at++;
  return at === start ? NONE : at;
}

function isDigit(unit: number): boolean {
  return unit >= ZERO && unit <= 0x39;
}

function isHexDigit(unit: number): boolean {
  const lower = unit | 0x20;
  return isDigit(unit) || (lower >= 0x61 && lower <= 0x66);
}
