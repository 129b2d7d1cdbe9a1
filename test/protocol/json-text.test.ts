/** The JSON check against the native parser: it must take exactly the same texts (part 1.1 rule 2). */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ByteReader, ByteWriter } from '../../src/protocol/bytes.ts';
import { isJsonText } from '../../src/protocol/json-text.ts';
import { jsonText } from './arbitraries.ts';
import { codeOf, INVALID } from './faults.ts';

function parses(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const TEXTS = [
  ...['true', 'false', 'null', '7', '-0', '0.5', '1e3', '1E+3', '1.5e-300', '"x"', '""', '{}', '[]', ' [ ] '],
  ...[
    '{"b":1,  "a":"\\u0041"}',
    '{"a":{"b":[1,2,{}]},"a":2}',
    '\t\r\n {"x" : [ ] } ',
    '"\\"\\\\\\/\\b\\f\\n\\r\\t"',
  ],
  ...[
    '',
    ' ',
    '01',
    '1.',
    '.5',
    '-',
    '+1',
    '1e',
    '1e+',
    '0x1',
    'NaN',
    'Infinity',
    'tru',
    'truex',
    'True',
    'nul',
  ],
  ...[
    '"',
    '"a',
    '"\n"',
    '"\\x"',
    '"\\u12"',
    '"\\u12g4"',
    '"\\',
    "'a'",
    '{',
    '}',
    '[',
    ']',
    '[1',
    '[1,',
    '[1,]',
    '[,1]',
  ],
  ...[
    '{"a"}',
    '{"a":}',
    '{"a":1,}',
    '{,}',
    '{a:1}',
    '{"a":1 "b":2}',
    '[1 2]',
    '{"a":1]',
    '[1}',
    '1 2',
    '{}{}',
    '//',
    '/**/1',
  ],
  ...[
    '\uFEFF1',
    '\u00a01',
    '"\u2028"',
    '"\ud800"',
    '1\u0000',
    '"\u0000"',
    '"\u007f"',
    '[[[[]]]]',
    '[[[[]]]',
    '[[]]]',
  ],
];

describe('isJsonText', () => {
  it.each(TEXTS)('%j as JSON.parse', (text) => {
    expect(isJsonText(text)).toBe(parses(text));
  });

  it('judges as JSON.parse, whole and damaged (property)', () => {
    const place = fc.nat();
    const piece = fc.constantFrom(
      '',
      '"',
      '\\',
      '{',
      '}',
      '[',
      ']',
      ',',
      ':',
      '0',
      '-',
      '.',
      'e',
      't',
      ' ',
      '\n',
      'u',
    );
    fc.assert(
      fc.property(jsonText, place, piece, fc.nat(3), (whole, at, inserted, cut) => {
        expect(isJsonText(whole)).toBe(true);
        const from = at % (whole.length + 1);
        const damaged = whole.slice(0, from) + inserted + whole.slice(from + cut);
        expect(isJsonText(damaged), damaged).toBe(parses(damaged));
      }),
      { numRuns: 3_000 },
    );
  });

  it('takes any depth without recursion', () => {
    const depth = 500_000;
    expect(isJsonText('['.repeat(depth) + ']'.repeat(depth))).toBe(true);
    expect(isJsonText('['.repeat(depth) + ']'.repeat(depth - 1))).toBe(false);
    expect(isJsonText(`${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}`)).toBe(true);
    expect(isJsonText(`${'{"a":'.repeat(depth)}1${']'.repeat(depth)}`)).toBe(false);
  });
});

describe('json fields', () => {
  it.each(['{"b":1,  "a":"\\u0041"}', 'true', '7', '"x"', 'null', ' 1.0 '])(
    'keep %j byte for byte',
    (text) => {
      const writer = new ByteWriter();
      writer.json(text);
      expect(new ByteReader(writer.finish()).json()).toBe(text);
    },
  );

  it('are refused both ways when they do not parse', () => {
    const writer = new ByteWriter();
    writer.str('{"a":}');
    expect(codeOf(() => new ByteReader(writer.finish()).json())).toBe(INVALID);
    expect(codeOf(() => new ByteWriter().json('{"a":}'))).toBe('EncodeError');
  });
});
