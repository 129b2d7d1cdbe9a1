/** Golden vectors, points 1 to 4 of part 1.15; `control.test.ts` has point 5, `stream.test.ts` the byte-wise feeding. */
import { describe, expect, it } from 'vitest';
import { decodeMessage, encodeMessage } from '../../src/protocol/message.ts';
import { renderAny, renderMessage } from '../../src/protocol/render.ts';
import { decodeSegment } from '../../src/protocol/segment.ts';
import { codeOf } from './faults.ts';
import { invalidCases, validCases } from './vectors.ts';

describe.each(['request', 'response'] as const)('golden %s vectors (S-019, part 1.15)', (kind) => {
  describe.each(validCases(kind))('$name', ({ bytes, rendering }) => {
    it('decodes with the kind of its folder', () => {
      expect(decodeMessage(bytes).kind).toBe(kind);
    });

    it('renders as its JSON', () => {
      expect(renderMessage(decodeMessage(bytes))).toStrictEqual(rendering);
      expect(renderAny(bytes)).toStrictEqual(rendering);
    });

    it('encodes back byte for byte', () => {
      expect(encodeMessage(decodeMessage(bytes))).toStrictEqual(bytes);
    });

    it('decodes nowhere short of its end', () => {
      for (let length = 0; length < bytes.length; length++) {
        expect(
          codeOf(() => decodeMessage(bytes.subarray(0, length))),
          `prefix of ${length} bytes`,
        ).toBe('sync.invalid_request');
      }
    });

    it('does not decode with a byte behind its end', () => {
      const longer = new Uint8Array(bytes.length + 1);
      longer.set(bytes);
      expect(codeOf(() => decodeMessage(longer))).toBe('sync.invalid_request');
    });
  });

  it.each(invalidCases(kind))('refuses invalid/$name with $error', ({ bytes, error }) => {
    expect(codeOf(() => decodeMessage(bytes))).toBe(error);
  });
});

describe('golden segment vectors through the renderer (part 1.15)', () => {
  it.each(validCases('segment'))('$name', ({ bytes, rendering }) => {
    expect(renderAny(bytes)).toStrictEqual(rendering);
  });

  it.each(invalidCases('segment'))('refuses invalid/$name with $error', ({ bytes, error }) => {
    expect(codeOf(() => decodeSegment(bytes))).toBe(error);
  });
});

describe('the manifests', () => {
  it('are complete', () => {
    expect(validCases('request')).toHaveLength(5);
    expect(invalidCases('request')).toHaveLength(7);
    expect(validCases('response')).toHaveLength(14);
    expect(invalidCases('response')).toHaveLength(1);
  });
});
