/** A short fuzz run with every test run; `npm run fuzz -- --count 1000000 --seed N` is the long one. */
import { describe, expect, it } from 'vitest';
import { AllocationMeter, assertWeight } from './meter.ts';
import { mutateBytes } from './mutate.ts';
import { Prng } from './prng.ts';
import { runFuzz } from './run.ts';

describe('fuzz', () => {
  it.each([1, 2, 3, 4])(
    'seed %i: 5,000 damaged messages, streams, rows, segments and texts end in a decode error or come back whole',
    (seed) => {
      const report = runFuzz({ seed, count: 5_000 });
      expect(report.failure).toBeNull();
      expect(report.inputs).toBe(5_000);
      // Enough of the damage goes unnoticed, so the inverse is checked and not only the refusal.
      expect(report.accepted).toBeGreaterThan(250);
    },
    120_000,
  );

  it('makes the same inputs from the same seed', () => {
    const bytes = Uint8Array.from({ length: 64 }, (_, i) => i);
    const inputs = (seed: number) =>
      Array.from({ length: 20 }, (_, i) => mutateBytes(bytes, new Prng(seed, i)));
    expect(inputs(7)).toStrictEqual(inputs(7));
    expect(inputs(7)).not.toStrictEqual(inputs(8));
  });
});

describe('the meter', () => {
  it('sees a reservation that the input does not justify', () => {
    const meter = new AllocationMeter();
    meter.install();
    try {
      meter.begin();
      expect(new Uint8Array(100)).toBeInstanceOf(Uint8Array);
      expect(meter.judge(1)).toBeNull();
      new Uint8Array(1 << 20).fill(1);
      expect(meter.judge(1)).toMatch(/reserved 1048676 bytes/);
    } finally {
      meter.remove();
    }
  });

  it('sees a value that the input does not justify', () => {
    expect(() => assertWeight(new Array(1_000).fill('x'), 10)).toThrow(/decoded/);
    expect(() => assertWeight({ a: new Uint8Array(1 << 20) }, 10)).not.toThrow();
  });
});
