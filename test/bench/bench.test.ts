/** The benches run and count right; time is never judged here. */
import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { runBench } from '../../bench/main.ts';

test('fanout, small: every commit reaches every subscriber once, the same ones', async () => {
  const { figures } = await runBench('fanout', { size: 'small', storage: 'memory' });
  expect(figures.deliveries).toBe(40_000);
  expect(figures['wake-ups']).toBe(0);
  const written = [0, 1, 2, 3].flatMap((writer) => Array.from({ length: 100 }, (_, i) => `w${writer}-${i}`));
  const hash = createHash('sha256').update(written.sort().join()).digest('hex').slice(0, 16);
  expect(figures['delivered hash']).toBe(hash);
});

test('write-cost, small: reports a ratio of the filled table to the empty one', async () => {
  const { figures } = await runBench('write-cost', { size: 'small', storage: 'sqlite' });
  expect(figures['ratio of medians']).toBeGreaterThan(0);
});

test('an unknown scenario is refused with the list of those that exist', async () => {
  await expect(runBench('nope', { size: 'small', storage: 'memory' })).rejects.toThrow(/fanout/);
});
