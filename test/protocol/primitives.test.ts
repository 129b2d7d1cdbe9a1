/** Primitives (part 1.1): bounds, UTF-8, maps, counts, and what the writer refuses. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ByteReader, ByteWriter, compareUtf16, isWellFormed } from '../../src/protocol/bytes.ts';
import { i32, i64, text } from './arbitraries.ts';
import { concat, hex } from './bytes-of.ts';
import { codeOf, INVALID } from './faults.ts';

function written(write: (writer: ByteWriter) => void): Uint8Array {
  const writer = new ByteWriter(1);
  write(writer);
  return writer.finish();
}

function str(...bytes: readonly number[]): Uint8Array {
  return concat(hex(bytes.length.toString(16).padStart(2, '0')), hex('00 00 00'), Uint8Array.from(bytes));
}

const readStr = (bytes: Uint8Array): string => new ByteReader(bytes).str();

describe('integers are little-endian and of fixed width', () => {
  it('writes and reads the bytes of each type', () => {
    const bytes = written((writer) => {
      writer.u8(0xfe);
      writer.u16(0x0102);
      writer.u32(0xff_00_00_01);
      writer.i32(-2);
      writer.i64(-2);
      writer.f64(1.5);
    });
    expect(bytes).toStrictEqual(
      hex('fe | 02 01 | 01 00 00 ff | fe ff ff ff | fe ff ff ff ff ff ff ff | 00 00 00 00 00 00 f8 3f'),
    );
    const reader = new ByteReader(bytes);
    expect([reader.u8(), reader.u16(), reader.u32(), reader.i32(), reader.i64(), reader.f64()]).toStrictEqual(
      [0xfe, 0x0102, 0xff_00_00_01, -2, -2, 1.5],
    );
    expect(reader.remaining).toBe(0);
  });

  it('i64 agrees with BigInt (property)', () => {
    fc.assert(
      fc.property(i64, (value) => {
        const view = new DataView(new ArrayBuffer(8));
        view.setBigInt64(0, BigInt(value), true);
        const bytes = new Uint8Array(view.buffer);
        expect(written((writer) => writer.i64(value))).toStrictEqual(bytes);
        expect(new ByteReader(bytes).i64()).toBe(value === 0 ? 0 : value);
      }),
    );
  });

  it.each([
    ['2^53 - 1', 2n ** 53n - 1n, 'none'],
    ['2^53', 2n ** 53n, INVALID],
    ['-(2^53 - 1)', -(2n ** 53n) + 1n, 'none'],
    ['-2^53', -(2n ** 53n), INVALID],
    ['2^63 - 1', 2n ** 63n - 1n, INVALID],
    ['-2^63', -(2n ** 63n), INVALID],
  ])('i64 %s', (_name, value, code) => {
    const view = new DataView(new ArrayBuffer(8));
    view.setBigInt64(0, value, true);
    expect(codeOf(() => new ByteReader(new Uint8Array(view.buffer)).i64())).toBe(code);
  });

  it.each([
    ['u8', 256],
    ['u8', -1],
    ['u8', 1.5],
    ['u16', 65_536],
    ['u16', Number.NaN],
    ['u32', 2 ** 32],
    ['u32', -1],
    ['i32', 2 ** 31],
    ['i32', -(2 ** 31) - 1],
    ['i32', 0.5],
    ['i64', 2 ** 53],
    ['i64', -(2 ** 53)],
    ['i64', 0.5],
    ['i64', Number.POSITIVE_INFINITY],
  ] as const)('the writer has no %s for %d', (type, value) => {
    expect(codeOf(() => new ByteWriter()[type](value))).toBe('EncodeError');
  });

  it('bool takes 0 and 1 of all 256 bytes, opt likewise', () => {
    for (let byte = 0; byte < 256; byte++) {
      const bytes = Uint8Array.of(byte, 7);
      expect(codeOf(() => new ByteReader(bytes).bool())).toBe(byte < 2 ? 'none' : INVALID);
      const present = codeOf(() => new ByteReader(bytes).opt((reader) => reader.u8()));
      expect(present).toBe(byte < 2 ? 'none' : INVALID);
    }
  });
});

describe('str is strict UTF-8', () => {
  it.each([
    ['a bare continuation byte', [0x80]],
    ['an overlong slash', [0xc0, 0xaf]],
    ['an overlong NUL', [0xe0, 0x80, 0x80]],
    ['a high surrogate', [0xed, 0xa0, 0x80]],
    ['a surrogate pair as six bytes', [0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80]],
    ['a cut sequence', [0xe2, 0x82]],
    ['a code point beyond U+10FFFF', [0xf4, 0x90, 0x80, 0x80]],
    ['a byte that is never legal', [0xff]],
  ])('refuses %s, short and behind a long text', (_name, bytes) => {
    expect(codeOf(() => readStr(str(...bytes)))).toBe(INVALID);
    const long = Array<number>(60).fill(0x61);
    expect(codeOf(() => readStr(str(...long, ...bytes)))).toBe(INVALID);
    expect(codeOf(() => readStr(str(0x61, 0x62, ...bytes)))).toBe(INVALID);
  });

  it('keeps U+FEFF and U+0000 wherever they stand', () => {
    for (const value of [
      '\uFEFFa',
      'a\uFEFF',
      '\u0000',
      `${'x'.repeat(50)}\u0000\uFEFF`,
      `\uFEFF${'x'.repeat(50)}`,
    ]) {
      expect(readStr(written((writer) => writer.str(value)))).toBe(value);
    }
  });

  it('comes back as it was (property)', () => {
    const any = fc.oneof(text, fc.string({ unit: 'binary', maxLength: 80 }), fc.string({ maxLength: 40 }));
    fc.assert(
      fc.property(any, fc.nat(40), (value, pad) => {
        const whole = value + 'x'.repeat(pad);
        const bytes = written((writer) => writer.str(whole));
        expect(bytes.subarray(4)).toStrictEqual(new Uint8Array(Buffer.from(whole, 'utf8')));
        expect(readStr(bytes)).toBe(whole);
      }),
      { numRuns: 500 },
    );
  });

  it('comes back when it is long, ASCII and not', () => {
    for (const value of ['x'.repeat(40_000), 'é€😀'.repeat(10_000)]) {
      const bytes = written((writer) => {
        writer.u8(9);
        writer.str(value);
      });
      const reader = new ByteReader(bytes);
      expect([reader.u8(), reader.str()]).toStrictEqual([9, value]);
    }
  });

  it.each(['\uD800', 'a\uDC00b', `${'x'.repeat(40)}\uD800`, `\uDFFF${'x'.repeat(20_000)}`])(
    'the writer refuses a lone surrogate (case %#)',
    (value) => {
      expect(isWellFormed(value)).toBe(false);
      expect(codeOf(() => new ByteWriter().str(value))).toBe('EncodeError');
    },
  );
});

describe('map', () => {
  const read = (bytes: Uint8Array): Record<string, number> =>
    new ByteReader(bytes).map(1, (reader) => reader.u8());
  const entry = (key: string, value: number): Uint8Array => {
    return concat(
      written((writer) => writer.str(key)),
      Uint8Array.of(value),
    );
  };
  const map = (...entries: readonly Uint8Array[]): Uint8Array => {
    return concat(
      written((writer) => writer.u32(entries.length)),
      ...entries,
    );
  };

  it('refuses duplicates and descending keys', () => {
    expect(codeOf(() => read(map(entry('a', 1), entry('a', 2))))).toBe(INVALID);
    expect(codeOf(() => read(map(entry('b', 1), entry('a', 2))))).toBe(INVALID);
    expect(codeOf(() => read(map(entry('a', 1), entry('b', 2))))).toBe('none');
  });

  it('orders by UTF-16 code unit, not by UTF-8 byte: U+1F600 stands before U+FF5E', () => {
    const [supplementary, fullwidth] = ['\u{1F600}', '\uFF5E'];
    expect(compareUtf16(supplementary, fullwidth)).toBe(-1);
    expect(codeOf(() => read(map(entry(supplementary, 1), entry(fullwidth, 2))))).toBe('none');
    expect(codeOf(() => read(map(entry(fullwidth, 1), entry(supplementary, 2))))).toBe(INVALID);
    const bytes = written((writer) => {
      writer.map({ [fullwidth]: 2, [supplementary]: 1 }, (target, value) => target.u8(value));
    });
    expect(bytes).toStrictEqual(map(entry(supplementary, 1), entry(fullwidth, 2)));
  });

  it('holds keys of Object.prototype as plain entries', () => {
    const decoded = read(map(entry('__proto__', 1), entry('constructor', 2)));
    expect(Object.keys(decoded)).toStrictEqual(['__proto__', 'constructor']);
    expect(decoded.toString).toBeUndefined();
    expect(read(map()).constructor).toBeUndefined();
  });
});

describe('counts and lengths beyond the bytes fail before memory is reserved (part 1.1 rule 7)', () => {
  const huge = hex('ff ff ff ff');
  it.each([
    ['str', (reader: ByteReader) => reader.str()],
    ['bytes', (reader: ByteReader) => reader.blob()],
    ['json', (reader: ByteReader) => reader.json()],
    ['list', (reader: ByteReader) => reader.count(4)],
    ['map', (reader: ByteReader) => reader.map(1, (inner) => inner.u8())],
  ])('%s', (_name, read) => {
    expect(codeOf(() => read(new ByteReader(concat(huge, new Uint8Array(64)))))).toBe(INVALID);
  });

  it('counts at the limit pass', () => {
    expect(new ByteReader(hex('02 00 00 00 | 00 00 00 00 00 00 00 00')).count(4)).toBe(2);
    expect(codeOf(() => new ByteReader(hex('03 00 00 00 | 00 00 00 00 00 00 00 00')).count(4))).toBe(INVALID);
  });
});

describe('bounded reading', () => {
  it('enter keeps reads inside, leave opens again', () => {
    const reader = new ByteReader(hex('01 02 03 04'));
    const outer = reader.enter(2);
    expect(reader.u16()).toBe(0x0201);
    expect(codeOf(() => reader.u8())).toBe(INVALID);
    reader.leave(outer);
    expect(reader.u16()).toBe(0x0403);
  });

  it('refuses to enter more than there is', () => {
    expect(codeOf(() => new ByteReader(hex('01 02')).enter(3))).toBe(INVALID);
  });

  it('reads a part of a larger buffer and nothing beyond', () => {
    const reader = new ByteReader(hex('00 | 01 00 00 00 61 | 62').subarray(1), 0, 5);
    expect(reader.str()).toBe('a');
    expect(codeOf(() => reader.u8())).toBe(INVALID);
  });

  it('i32 comes back (property)', () => {
    fc.assert(
      fc.property(i32, (value) => new ByteReader(written((writer) => writer.i32(value))).i32() === value),
    );
  });
});
