/** The frame table: registry, agreement with the codecs, and its hash in the wire history (part 1.2, 1.12). */
import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encodeFrame, FRAME_CODECS } from '../../src/protocol/frame-codecs.ts';
import { FRAME_TABLE, frameSpec, isRegistered } from '../../src/protocol/frame-table.ts';
import { FRAME_TYPES } from '../../src/protocol/frames.ts';
import { REQUEST_ORDER, RESPONSE_ORDER } from '../../src/protocol/grammar.ts';
import {
  CURRENT_WIRE_VERSION,
  isWireVersion,
  WIRE_HISTORY,
  WIRE_VERSION_MAX,
  WIRE_VERSION_MIN,
} from '../../src/protocol/version.ts';
import { knownFrames, UNKNOWN_TYPES } from './arbitraries.ts';
import { encodeByTable } from './generic-codec.ts';

/**
 * SHA-256 of layouts and frame order per wire version. A new value here means that one of them changed: that is a new wire version with an
 * entry in WIRE_HISTORY, unless a frame was added that peers may ignore.
 */
const TABLE_HASHES = {
  1: '9c9d6d7db2de557a1c1bcc83926eb23159fea4f6e7916719ca640a08800eefbe',
  2: '11cbfe1c081c396419c5265a719919a549a669aaef74b2f2319489c6065b773d',
} as const;

describe('frame table', () => {
  it('has exactly the frames of the registry and a codec for each but END', () => {
    expect(Object.fromEntries(FRAME_TABLE.map((spec) => [spec.name, spec.type]))).toStrictEqual({
      ...FRAME_TYPES,
    });
    const names = FRAME_TABLE.map((spec) => spec.name).filter((name) => name !== 'END');
    expect(new Set(Object.keys(FRAME_CODECS))).toStrictEqual(new Set(names));
  });

  it('takes every reserved and unnamed type for unknown (part 1.2 rule 5)', () => {
    const registered = new Set<number>(Object.values(FRAME_TYPES));
    for (let type = 0; type < 256; type++) {
      expect(isRegistered(1, type), `type ${type}`).toBe(registered.has(type));
      expect(isRegistered(2, type)).toBe(registered.has(type));
      expect(frameSpec(type)?.type).toBe(registered.has(type) ? type : undefined);
    }
    expect(UNKNOWN_TYPES.some((type) => isRegistered(2, type))).toBe(false);
  });

  it.each([1, 2] as const)(
    'describes the bytes that the codecs write in wire %i (property)',
    (wireVersion) => {
      for (const frames of knownFrames(wireVersion)) {
        fc.assert(
          fc.property(frames, (frame) => {
            expect(encodeFrame(wireVersion, frame)).toStrictEqual(encodeByTable(frame, wireVersion));
          }),
          { numRuns: 60 },
        );
      }
    },
  );
});

describe('wire versions (S-011, part 1.12)', () => {
  it.each([1, 2] as const)(
    'wire %i has the layouts and the order that its history entry stands for',
    (version) => {
      const layouts = FRAME_TABLE.map(({ fields, ...spec }) => ({
        ...spec,
        fields: fields.filter((field) => (field.since ?? 1) <= version),
      }));
      const hash = createHash('sha256')
        .update(JSON.stringify([layouts, REQUEST_ORDER, RESPONSE_ORDER]))
        .digest('hex');
      expect(hash).toBe(TABLE_HASHES[version]);
    },
  );

  it('reads the window and writes its upper end', () => {
    expect(WIRE_HISTORY.map((entry) => entry.version)).toStrictEqual([1, 2]);
    expect([WIRE_VERSION_MIN, WIRE_VERSION_MAX, CURRENT_WIRE_VERSION]).toStrictEqual([1, 2, 2]);
    expect([0, 1, 2, 3, 256, 257].filter(isWireVersion)).toStrictEqual([1, 2]);
  });
});
