/** One verdict for both databases on what can be stored. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ColumnValue } from '../../src/protocol/schema.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import { findUnstorable, isStorableText } from '../../src/storage/storable-values.ts';
import { compareUtf8 } from '../../src/storage/utf8-order.ts';

const TABLE = compileSchema({
  version: 1,
  tables: [
    {
      name: 'things',
      primaryKey: 'id',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'room', type: 'string' },
        { name: 'text', type: 'string', nullable: true },
        { name: 'count', type: 'integer', nullable: true },
        { name: 'ratio', type: 'float', nullable: true },
        { name: 'flag', type: 'boolean', nullable: true },
        { name: 'data', type: 'json', nullable: true },
        { name: 'bytes', type: 'bytes', nullable: true },
        { name: 'left', type: 'string', nullable: true },
        { name: 'right', type: 'bytes', nullable: true },
      ],
      scopes: ['room:{room}'],
      indexes: [{ name: 'things_by_sides', columns: ['left', 'right'] }],
    },
  ],
}).tables[0]!;

function verdict(changes: Readonly<Record<string, ColumnValue>>) {
  const row: Record<string, ColumnValue> = { id: 'i', room: 'r', ...changes };
  return findUnstorable(
    TABLE,
    TABLE.columns.map(({ name }) => row[name] ?? null),
  );
}

describe('values', () => {
  test.each<[string, Record<string, ColumnValue>]>([
    ['text with odd but legal characters', { text: 'tab\t "quote" \\u0000 🦆 \uffff \u0001' }],
    ['the safe integers', { count: Number.MAX_SAFE_INTEGER }],
    ['the least safe integer', { count: Number.MIN_SAFE_INTEGER }],
    ['infinities', { ratio: Number.POSITIVE_INFINITY }],
    ['negative zero', { ratio: -0 }],
    ['a huge float', { ratio: Number.MAX_VALUE }],
    ['bytes of any kind', { bytes: new Uint8Array([0, 255]) }],
    ['NULLs and booleans', { flag: false, text: null }],
    ['JSON with escapes', { data: '"\\\\u0000 \\\\\\\\ud800 \\ud83e\\udd86 \\n \\u0041"' }],
    ['JSON with ordinary exponents', { data: '[1e308, 1E-400, 12.5e+10, "1e999999"]' }],
    ['JSON 1,000 levels deep', { data: `${'['.repeat(1_000)}${']'.repeat(1_000)}` }],
    ['brackets inside a JSON string', { data: JSON.stringify('['.repeat(5_000)) }],
    ['a key of 1,000 bytes', { id: 'é'.repeat(500) }],
    ['an index entry of 2,000 bytes', { left: 'x'.repeat(1_000), right: new Uint8Array(1_000) }],
    ['long values outside of keys', { text: 'x'.repeat(1_000_000), bytes: new Uint8Array(10_000) }],
  ])('%s can be stored', (_, changes) => {
    expect(verdict(changes)).toBeNull();
  });

  test.each<[string, Record<string, ColumnValue>, string, RegExp]>([
    ['NUL in text', { text: 'a\0b' }, 'text', /NUL/],
    ['NUL in the key', { id: '\0' }, 'id', /NUL/],
    ['a lone high surrogate', { text: 'a\ud800' }, 'text', /surrogate/],
    ['a lone low surrogate', { text: '\udc00' }, 'text', /surrogate/],
    ['NaN', { ratio: Number.NaN }, 'ratio', /not a number/],
    ['an unsafe integer', { count: 2 ** 53 }, 'count', /safe integer/],
    ['a fraction in an integer column', { count: 1.5 }, 'count', /safe integer/],
    ['an escaped NUL in JSON', { data: '{"a":"\\u0000"}' }, 'data', /NUL/],
    ['an escaped NUL behind an escaped backslash', { data: '"\\\\\\u0000"' }, 'data', /NUL/],
    ['an escaped lone high surrogate', { data: '"\\ud83e"' }, 'data', /surrogate/],
    ['an escaped high surrogate before text', { data: '"\\ud83ex\\udd86"' }, 'data', /surrogate/],
    ['an escaped high surrogate before another escape', { data: '"\\ud83e\\n"' }, 'data', /surrogate/],
    ['an escaped low surrogate alone', { data: '"\\udd86"' }, 'data', /surrogate/],
    ['two escaped high surrogates', { data: '"\\ud83e\\ud83e\\udd86"' }, 'data', /surrogate/],
    ['a JSON number with too many digits before the point', { data: '[1e131072]' }, 'data', /out of range/],
    ['a JSON number with too many digits behind it', { data: '{"a": -1.5e-16383}' }, 'data', /out of range/],
    ['the same, written out', { data: `1${'0'.repeat(131_072)}` }, 'data', /out of range/],
    ['JSON 1,001 levels deep', { data: `${'{"a":'.repeat(1_001)}1${'}'.repeat(1_001)}` }, 'data', /deep/],
    ['a key of 1,001 bytes', { id: `x${'é'.repeat(500)}` }, 'id', /1000 bytes/],
    ['a scope value that is too long', { room: 'x'.repeat(1_001) }, 'room', /1000 bytes/],
    [
      'an index entry of 2,001 bytes',
      { left: 'x'.repeat(1_001), right: new Uint8Array(1_000) },
      'right',
      /index/,
    ],
  ])('%s cannot', (_, changes, column, reason) => {
    expect(verdict(changes)).toMatchObject({ column, reason: expect.stringMatching(reason) });
  });

  test('texts outside of columns', () => {
    expect(['', 'id', 'ünï 🦆', '\u0001'].map(isStorableText)).toEqual([true, true, true, true]);
    expect(['\0', 'a\0', '\ud800', 'x\udfff'].map(isStorableText)).toEqual([false, false, false, false]);
  });

  test('escapes are judged as JSON.parse reads them', () => {
    const unit = fc.constantFrom(
      '\\u0000',
      '\\ud83e',
      '\\udd86',
      '\\u0041',
      '\\\\',
      '\\n',
      'u0000',
      'x',
      '\\"',
    );
    fc.assert(
      fc.property(fc.array(unit, { maxLength: 8 }), (units) => {
        const data = `"${units.join('')}"`;
        expect(verdict({ data }) === null).toBe(isStorableText(JSON.parse(data)));
      }),
      { numRuns: 2_000 },
    );
  });
});

describe('the order of row ids', () => {
  test('equals the order of their UTF-8 bytes', () => {
    const text = fc.string({
      unit: fc.oneof(
        fc.string({ unit: 'binary', minLength: 1, maxLength: 1 }),
        fc.constantFrom('a', '\uffff', '\ue000', '😀', '\u{10ffff}'),
      ),
    });
    fc.assert(
      fc.property(text, text, (a, b) => {
        expect(Math.sign(compareUtf8(a, b))).toBe(Buffer.compare(Buffer.from(a), Buffer.from(b)));
      }),
      { numRuns: 2_000 },
    );
  });
});
