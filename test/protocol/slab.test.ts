/** Writers that share blocks of memory never write into each other's results. */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ByteWriter } from '../../src/protocol/bytes.ts';
import { SLAB_PIECE_BYTES_MAX, Slab } from '../../src/protocol/slab.ts';

describe('writers side by side', () => {
  it('keep their bytes, in whatever order they write, grow, finish and go on (property)', () => {
    const step = fc.record({
      writer: fc.nat(5),
      act: fc.constantFrom('write', 'write', 'write', 'finish', 'peek', 'renew'),
      length: fc.oneof(fc.nat(40), fc.nat(600)),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 80 }), fc.nat(300), (steps, capacity) => {
        const writers = Array.from({ length: 6 }, () => ({
          writer: new ByteWriter(capacity),
          expected: [] as number[],
        }));
        const finished: { bytes: Uint8Array; expected: readonly number[] }[] = [];
        let fill = 0;
        for (const { writer: index, act, length } of steps) {
          const slot = writers[index]!;
          if (act === 'write') {
            fill = (fill + 1) % 251;
            slot.writer.raw(new Uint8Array(length).fill(fill));
            for (let i = 0; i < length; i++) slot.expected.push(fill);
          } else if (act === 'renew') {
            writers[index] = { writer: new ByteWriter(capacity), expected: [] };
          } else {
            const bytes = act === 'finish' ? slot.writer.finish() : slot.writer.peek();
            expect(Array.from(bytes)).toStrictEqual(slot.expected);
            if (act === 'finish') finished.push({ bytes, expected: [...slot.expected] });
          }
        }
        for (const { bytes, expected } of finished) expect(Array.from(bytes)).toStrictEqual(expected);
      }),
      { numRuns: 300 },
    );
  });

  it('small results stand back to back, so that unused room is not lost', () => {
    const small = (): Uint8Array => {
      const writer = new ByteWriter(SLAB_PIECE_BYTES_MAX);
      writer.u32(7);
      return writer.finish();
    };
    const results = Array.from({ length: 100 }, small);
    expect(new Set(results.map((bytes) => bytes.buffer)).size).toBeLessThanOrEqual(2);
  });

  it('large ones have memory of their own', () => {
    const writer = new ByteWriter(SLAB_PIECE_BYTES_MAX + 1);
    expect(writer.finish().buffer.byteLength).toBe(SLAB_PIECE_BYTES_MAX + 1);
  });
});

describe('Slab', () => {
  it('takes back only what lies last', () => {
    const slab = new Slab();
    const first = slab.reserve(100);
    const second = slab.reserve(100);
    const { bytes } = slab;
    slab.trim(bytes, { end: first + 100, usedEnd: first });
    expect(slab.reserve(10)).toBe(second + 100);
    slab.trim(bytes, { end: second + 110, usedEnd: second + 105 });
    expect(slab.reserve(10)).toBe(second + 105);
  });

  it('begins a new block when a piece does not fit, and takes nothing back for the old one', () => {
    const slab = new Slab();
    const { bytes } = slab;
    while (slab.bytes === bytes) slab.reserve(SLAB_PIECE_BYTES_MAX);
    slab.trim(bytes, { end: SLAB_PIECE_BYTES_MAX, usedEnd: 0 });
    expect(slab.reserve(1)).toBe(SLAB_PIECE_BYTES_MAX);
  });
});
