/** Canonical JSON of scope maps (part 1.14), the input of scope digests and the content of `X-Syncular-Scopes`. */
import { compareUtf16 } from './bytes.ts';
import type { ScopeMap } from './frames.ts';

/** Lower-case hex SHA-256; handed in, since browsers and Node have it in different places. */
export type HashHex = (bytes: Uint8Array) => string;

const UTF8 = new TextEncoder();

/**
 * No white space, keys by UTF-16 code unit, each value list sorted by the same order and without duplicates, strings
 * escaped as `JSON.stringify` does (part 1.17 W-i). Lone surrogates leave as escapes.
 */
export function canonicalScopes(scopes: ScopeMap): string {
  const members = Object.keys(scopes)
    .sort(compareUtf16)
    .map((key) => `${JSON.stringify(key)}:${JSON.stringify(sortedValues(scopes[key]!))}`);
  return `{${members.join(',')}}`;
}

function sortedValues(values: readonly string[]): readonly string[] {
  if (values.length < 2) return values;
  return [...new Set(values)].sort(compareUtf16);
}

/** The bytes that are hashed. */
export function scopeDigestInput(scopes: ScopeMap): Uint8Array {
  return UTF8.encode(canonicalScopes(scopes));
}

/** Digest of the **effective** scopes, as in `SEGMENT_REF.scopeDigest`. */
export function scopeDigest(scopes: ScopeMap, sha256Hex: HashHex): string {
  return sha256Hex(scopeDigestInput(scopes));
}
