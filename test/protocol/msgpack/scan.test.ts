/** The look before the decoder (§5.4): linear, resumable, and nothing is built for what it refuses. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SyncError } from '../../../src/protocol/errors.ts';
import { MsgpackScanner, scanMessage } from '../../../src/protocol/msgpack/scan.ts';
import { isUtf8 } from '../../../src/protocol/msgpack/utf8-scan.ts';
import { decodeMap, IntegralFloat } from '../../../src/protocol/msgpack/value.ts';
import { MsgpackWriter } from '../../../src/protocol/msgpack/writer.ts';
import { packed } from './model.ts';
import { msgpackVectors } from './samples.ts';

const BOUNDS = { bytesMax: 1_000_000, elementsMax: 1_000 };
const statusOf = (bytes: Uint8Array, bounds = BOUNDS): number | null => {
  try {
    scanMessage(bytes, bounds);
    return null;
  } catch (failure) {
    return SyncError.from(failure)!.httpStatus;
  }
};

describe('the scan', () => {
  it('M-5.4: finds the end of a message whose bytes come one by one, and looks at each once', () => {
    for (const bytes of msgpackVectors().filter((vector) => statusOf(vector) === null)) {
      const scanner = new MsgpackScanner(BOUNDS);
      for (let length = 0; length < bytes.length; length++) {
        expect(scanner.scan(bytes.subarray(0, length))).toBeNull();
      }
      const behind = Uint8Array.from([...bytes, 0x81, 0xc1]);
      expect(scanner.scan(behind)).toBe(bytes.length);
    }
  });

  it('M-5.4: takes sixteen levels and refuses seventeen', () => {
    const nested = (arrays: number) => packed({ t: { $raw: `${'91'.repeat(arrays)}c0` } });
    expect(statusOf(nested(15))).toBeNull();
    expect(statusOf(nested(16))).toBe(400);
    expect(statusOf(packed({ t: { $raw: '91'.repeat(900_000) } }))).toBe(400);
  });

  it('M-5.4: bounds bytes and values, by what is announced already', () => {
    const values = (count: number) => packed({ t: new Array(count).fill(null) });
    expect(statusOf(values(998))).toBeNull();
    expect(statusOf(values(999))).toBe(413);
    expect(statusOf(packed({ t: { $raw: 'dc03e7' } }))).toBe(413);
    expect(statusOf(packed({ t: 'x'.repeat(100) }), { ...BOUNDS, bytesMax: 100 })).toBe(413);
    expect(statusOf(packed({ t: { $raw: 'c600ffffff' } }))).toBe(413);
  });

  it('M-5.4: well-formed UTF-8 is what a fatal decoder takes', () => {
    const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
    const takes = (bytes: Uint8Array): boolean => {
      try {
        decoder.decode(bytes);
        return true;
      } catch {
        return false;
      }
    };
    const edge = fc.constantFrom(
      0,
      0x7f,
      0x80,
      0x9f,
      0xa0,
      0xbf,
      0xc1,
      0xc2,
      0xdf,
      0xe0,
      0xed,
      0xef,
      0xf0,
      0xf4,
      0xf5,
    );
    fc.assert(
      fc.property(fc.array(edge, { maxLength: 6 }), (units) => {
        const bytes = Uint8Array.from(units);
        expect(isUtf8(bytes, 0, bytes.length)).toBe(takes(bytes));
      }),
      { numRuns: 3_000 },
    );
  });
});

describe('values', () => {
  it('M-5.3: integers keep every bit or are bigint, floats stay floats', () => {
    const read = (hex: string) => decodeMap(packed({ v: { $raw: hex } }), BOUNDS).v;
    expect(read('cf001fffffffffffff')).toBe(Number.MAX_SAFE_INTEGER);
    expect(read('cf0020000000000000')).toBe(9_007_199_254_740_992n);
    expect(read('cf0020000000000001')).toBe(9_007_199_254_740_993n);
    expect(read('d3ffe0000000000001')).toBe(Number.MIN_SAFE_INTEGER);
    expect(read('d38000000000000000')).toBe(-9_223_372_036_854_775_808n);
    expect(read('ca40000000')).toEqual(new IntegralFloat(2));
    expect(read('cb8000000000000000')).toEqual(new IntegralFloat(-0));
    expect(read('cb3ff8000000000000')).toBe(1.5);
    expect(read('cb7ff8000000000000')).toBeNaN();
  });

  it('M-5.4: a decoded map inherits nothing', () => {
    const map = decodeMap(packed({ toString: 1 }), BOUNDS);
    expect('hasOwnProperty' in map).toBe(false);
    expect(map.toString).toBe(1);
  });

  it('M-5.3: integers are written in their shortest form, never as floats', () => {
    fc.assert(
      fc.property(fc.oneof(fc.maxSafeInteger(), fc.integer({ min: -70_000, max: 70_000 })), (value) => {
        const writer = new MsgpackWriter(1);
        writer.int(value);
        expect(Buffer.from(writer.finish()).toString('hex')).toBe(Buffer.from(packed(value)).toString('hex'));
      }),
    );
    expect(() => new MsgpackWriter().int(2 ** 53)).toThrow('safe integer');
    expect(() => new MsgpackWriter().int(1.5)).toThrow('safe integer');
    expect(() => new MsgpackWriter().str('\ud800')).toThrow('surrogate');
  });
});
