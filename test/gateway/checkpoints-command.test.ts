/** `tidegate checkpoints` as an operator runs it, on both storages. */
import { describe, expect, onTestFinished, test } from 'vitest';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { openStorage } from '../../src/gateway/storage-option.ts';
import { newFolder, runProcess } from './support/cli-process.ts';
import { DATABASES } from './support/new-database.ts';

describe.each(DATABASES)('%s', (_name, makeUrl) => {
  test('a table, JSON by line, one partition, and none', async () => {
    const folder = newFolder();
    const url = await makeUrl(folder);
    const show = (...args: readonly string[]) =>
      runProcess(['checkpoints', ...args], { folder, env: { TIDEGATE_STORAGE: url } });
    const { storage, release } = await openStorage({ url }, createRealClock());
    onTestFinished(release);
    expect(await show()).toEqual({ code: 0, out: 'no checkpoints\n', err: '' });

    const nowMs = Date.UTC(2026, 0, 2);
    await storage.declareCheckpoint({ partition: 'acme', name: 'totals', schemaVersion: 2, nowMs });
    await storage.declareCheckpoint({ partition: 'zoo "1"', name: 'ranks', schemaVersion: 3, nowMs });
    const { ownerEpoch } = await storage.claimCheckpoint({
      partition: 'acme',
      name: 'totals',
      schemaVersion: 2,
      nowMs,
    });
    const scan = { headSeq: 9, table: 'tasks', afterRowId: 'r7' };
    const progress = {
      partition: 'acme',
      name: 'totals',
      ownerEpoch,
      watermark: 0,
      observedRows: 12,
      scan,
      nowMs,
    };
    expect(await storage.advanceCheckpoint(progress)).toBe(true);

    expect((await show()).out.split('\n')).toEqual([
      'partition    name      version  state        watermark  rows  owner  updated',
      '"acme"       "totals"  2        backfilling  0          12    1      2026-01-02T00:00:00.000Z',
      '"zoo \\"1\\""  "ranks"   3        declared     0          0     0      2026-01-02T00:00:00.000Z',
      '',
    ]);
    const acme = {
      partition: 'acme',
      name: 'totals',
      schemaVersion: 2,
      state: 'backfilling',
      watermark: 0,
      ownerEpoch: 1,
      observedRows: 12,
      scanning: 'tasks',
      updatedAt: '2026-01-02T00:00:00.000Z',
    };
    const lines = (await show('--json')).out.trimEnd().split('\n');
    expect(lines).toHaveLength(2);
    expect(JSON.parse(lines[0]!)).toEqual(acme);
    const one = await show('--json', '--partition', 'acme');
    expect(JSON.parse(one.out)).toEqual(acme);
    expect((await show('--partition', 'nobody')).out).toBe('no checkpoints\n');
  });
});

test('a database that is not there is misuse, and is not made', async () => {
  const folder = newFolder();
  const { code, err } = await runProcess(['checkpoints', '--storage', 'sqlite:none.db'], { folder });
  expect(code).toBe(2);
  expect(err).toContain('there is no database');
});
