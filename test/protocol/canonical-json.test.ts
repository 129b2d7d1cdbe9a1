/** Canonical JSON of scope maps and their digest (part 1.14). */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { canonicalScopes, scopeDigest, scopeDigestInput } from '../../src/protocol/canonical-json.ts';
import { decodeMessage } from '../../src/protocol/message.ts';
import { text } from './arbitraries.ts';
import { vector } from './vectors.ts';

const sha256Hex = (bytes: Uint8Array): string => createHash('sha256').update(bytes).digest('hex');

describe('canonical scopes', () => {
  it('has the check value of part 1.14, which is the digest in the vector', () => {
    const digest = '5a993aa4d503af6f5dc77acc12ad399ff2e9d933c393f4de6af5f6aef4fa2977';
    expect(canonicalScopes({ project: ['p1'] })).toBe('{"project":["p1"]}');
    expect(scopeDigest({ project: ['p1'] }, sha256Hex)).toBe(digest);
    const refs = decodeMessage(vector('response', 'bootstrap-segments')).frames.flatMap((frame) =>
      frame.type === 'SEGMENT_REF' ? [frame.scopeDigest] : [],
    );
    expect(refs).toStrictEqual([digest, digest]);
  });

  it('sorts keys and values by UTF-16 unit and drops repeated values', () => {
    expect(canonicalScopes({ b: ['2', '10', '2'], a: [] })).toBe('{"a":[],"b":["10","2"]}');
    expect(canonicalScopes({ '\uFF5E': ['\uFF5E', '\u{1F600}'], '\u{1F600}': [] })).toBe(
      '{"\u{1F600}":[],"\uFF5E":["\u{1F600}","\uFF5E"]}',
    );
    expect(canonicalScopes({ 10: ['x'], 9: ['y'] })).toBe('{"10":["x"],"9":["y"]}');
    expect(canonicalScopes({})).toBe('{}');
  });

  it('escapes as JSON.stringify does (W-i)', () => {
    expect(canonicalScopes({ 'a"\n': ['\u0001\\', '\u2028', 'é'] })).toBe(
      '{"a\\"\\n":["\\u0001\\\\","é","\u2028"]}',
    );
    expect(scopeDigestInput({ é: [] })).toStrictEqual(new Uint8Array(Buffer.from('{"é":[]}')));
  });

  it('does not see the order of a map or of its values, and does see every value (property)', () => {
    const entries = fc.uniqueArray(fc.tuple(text, fc.array(text, { maxLength: 3 })), {
      selector: ([key]) => key,
      maxLength: 4,
    });
    fc.assert(
      fc.property(entries, (pairs) => {
        const there = canonicalScopes(Object.fromEntries(pairs));
        const back = pairs.map(([key, values]) => [key, [...values, ...values].reverse()] as const).reverse();
        expect(canonicalScopes(Object.fromEntries(back))).toBe(there);
        const parsed = Object.entries(JSON.parse(there) as Record<string, string[]>);
        const sets = (list: readonly (readonly [string, readonly string[]])[]) =>
          new Map(list.map(([key, values]) => [key, new Set(values)]));
        expect(sets(parsed)).toStrictEqual(sets(pairs));
      }),
    );
  });

  it('holds __proto__ as a key like any other', () => {
    const scopes = Object.assign(Object.create(null), { ['__proto__']: ['x'] });
    expect(canonicalScopes(scopes)).toBe('{"__proto__":["x"]}');
  });
});
