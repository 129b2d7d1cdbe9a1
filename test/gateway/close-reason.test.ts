import fc from 'fast-check';
import { expect, test } from 'vitest';
import { fitCloseReason } from '../../src/gateway/close-reason.ts';

const bytesOf = (text: string): number => new TextEncoder().encode(text).byteLength;

test('a short reason is sent as it is', () => {
  expect(fitCloseReason('restart')).toBe('restart');
  expect(fitCloseReason('x'.repeat(123))).toBe('x'.repeat(123));
});

test('a long reason is cut to 123 bytes at a character boundary', () => {
  expect(fitCloseReason('x'.repeat(124))).toBe('x'.repeat(123));
  expect(fitCloseReason('é'.repeat(62))).toBe('é'.repeat(61));
  expect(fitCloseReason('😀'.repeat(31))).toBe('😀'.repeat(30));
});

test('any reason becomes a prefix that fits and is well-formed', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 300 }), (reason) => {
      const fitted = fitCloseReason(reason);
      expect(bytesOf(fitted)).toBeLessThanOrEqual(123);
      expect(reason.startsWith(fitted)).toBe(true);
      if (fitted !== reason) expect(bytesOf(fitted)).toBeGreaterThan(119);
    }),
  );
  expect(fitCloseReason('a\ud800b')).toBe('a\ufffdb');
});
