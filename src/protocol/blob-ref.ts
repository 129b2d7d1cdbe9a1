/**
 * BlobRef documents, the text of a `blob_ref` column (§5.9.1, part 1.6). The text travels verbatim; only its form is
 * checked. White space between tokens is tolerated and kept; duplicate keys, escaped keys and any spelling of the
 * number but plain decimal are refused (part 1.17 W-g).
 */
import { decodeError } from './bytes.ts';

export interface BlobRef {
  /** `sha256:` and 64 lower-case hex digits. */
  readonly blobId: string;
  readonly byteLength: number;
  /** Advice of the uploader, never trusted. */
  readonly mediaType?: string;
  /** Advice of the uploader, never trusted. */
  readonly name?: string;
}

const BLOB_ID = /^sha256:[0-9a-f]{64}$/;

export function isBlobId(text: string): boolean {
  return BLOB_ID.test(text);
}

/** Throws `sync.invalid_request` for every text that is no BlobRef. */
export function parseBlobRef(text: string): BlobRef {
  return new BlobRefScanner(text).document();
}

/** The canonical text: no white space, keys in their fixed order, absent keys left out. */
export function blobRefText(ref: BlobRef): string {
  const { blobId, byteLength, mediaType, name } = ref;
  return JSON.stringify({ blobId, byteLength, mediaType, name });
}

/** A scanner by hand: a parsed object no longer shows duplicate keys or how a number was spelled. */
class BlobRefScanner {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  document(): BlobRef {
    this.#token('{');
    this.#key('blobId');
    const blobId = this.#string();
    if (!isBlobId(blobId)) throw decodeError('a BlobRef has a malformed blobId');
    this.#token(',');
    this.#key('byteLength');
    const byteLength = this.#wholeNumber();
    const mediaType = this.#optionalString('mediaType');
    const name = this.#optionalString('name');
    this.#token('}');
    this.#space();
    if (this.#at !== this.#text.length) throw decodeError('a BlobRef is followed by other text');
    return {
      blobId,
      byteLength,
      ...(mediaType === undefined ? {} : { mediaType }),
      ...(name === undefined ? {} : { name }),
    };
  }

  #space(): void {
    const text = this.#text;
    let at = this.#at;
    while (at < text.length) {
      const unit = text.charCodeAt(at);
      if (unit !== 0x20 && unit !== 0x0a && unit !== 0x0d && unit !== 0x09) break;
      at++;
    }
    this.#at = at;
  }

  #token(token: string): void {
    this.#space();
    if (!this.#text.startsWith(token, this.#at)) {
      throw decodeError('a BlobRef is not {"blobId","byteLength","mediaType"?,"name"?} in this order');
    }
    this.#at += token.length;
  }

  #key(name: string): void {
    this.#token(`"${name}"`);
    this.#token(':');
  }

  #optionalString(name: string): string | undefined {
    const start = this.#at;
    this.#space();
    if (this.#text[this.#at] === ',') {
      this.#at++;
      this.#space();
      if (this.#text.startsWith(`"${name}"`, this.#at)) {
        this.#key(name);
        return this.#string();
      }
    }
    this.#at = start;
    return undefined;
  }

  #string(): string {
    this.#space();
    const text = this.#text;
    const start = this.#at;
    if (text[start] !== '"') throw decodeError('a BlobRef member is not a string');
    let end = start + 1;
    while (end < text.length && text[end] !== '"') end += text[end] === '\\' ? 2 : 1;
    this.#at = end + 1;
    try {
      return JSON.parse(text.slice(start, end + 1)) as string;
    } catch {
      throw decodeError('a BlobRef holds a malformed string');
    }
  }

  #wholeNumber(): number {
    this.#space();
    const text = this.#text;
    const start = this.#at;
    let end = start;
    while (end < text.length && text.charCodeAt(end) >= 0x30 && text.charCodeAt(end) <= 0x39) end++;
    this.#at = end;
    const value = Number(text.slice(start, end));
    const plain = end > start && (text[start] !== '0' || end === start + 1);
    if (!plain || !Number.isSafeInteger(value)) {
      throw decodeError('the byteLength of a BlobRef is not a plain whole number');
    }
    return value;
  }
}
