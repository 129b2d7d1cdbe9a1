/** The benches run and count right; time is never judged here. */
import { createHash } from 'node:crypto';
import { expect, test } from 'vitest';
import { runBench } from '../../bench/main.ts';
import { formatRuns } from '../../bench/record.ts';
import { testServerUrl } from '../support/postgres-server.ts';

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

test('push, small: every commit is in the log once; the same database without a gateway is measured beside it', async () => {
  const { figures } = await runBench('push', { size: 'small', storage: 'sqlite' });
  expect(figures.commits).toBe(8 * 10 * 3 + 2 * 10);
  expect(figures['ratio to raw']).toBeGreaterThan(0);
});

test('push, small, on PostgreSQL: the report says how durable the database was', async () => {
  const pgUrl = await testServerUrl();
  const { figures } = await runBench('push', { size: 'small', storage: 'postgres', pgUrl });
  expect(figures.commits).toBe(8 * 10 * 3 + 2 * 10);
  expect(figures.database).toContain('fsync on, synchronous_commit on');
});

test.each(['sqlite', 'postgres'] as const)(
  'pull-cost, small, on %s: each pull brings what is behind',
  async (storage) => {
    const pgUrl = storage === 'postgres' ? await testServerUrl() : null;
    const { figures } = await runBench('pull-cost', { size: 'small', storage, pgUrl });
    expect(figures['commits per pull']).toBe(100);
    expect(figures['ratio of medians']).toBeGreaterThan(0);
  },
);

test('the page of results is made from the recorded runs alone', () => {
  const report = { scenario: 'push, 1 writer', figures: { 'commits/s': 1234.5, database: 'SQLite' } };
  const run = {
    command: 'npm run bench -- push',
    date: '2026-01-02T03:04',
    machine: '2 cores',
    node: 'v20',
    load: 0.5,
    report,
  };
  const page = formatRuns([run]);
  for (const text of [
    'npm run bench -- push',
    '| commits/s | 1,234.5 |',
    '2026-01-02T03:04 UTC, 2 cores, Node v20, load 0.5',
  ]) {
    expect(page).toContain(text);
  }
});
