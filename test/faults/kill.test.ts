import { expect, test } from 'vitest';
import { runKillLoad } from './kill-load.ts';

test('S-036, S-133, S-134: SIGKILL during pushes from 8 clients loses no answered commit, doubles none, leaves no hole', async () => {
  const report = await runKillLoad({ rounds: 4, clients: 8, seed: 1 });
  expect(report.acknowledged).toBeGreaterThan(0);
  // What is in the log and was not answered was in flight at the last kill: at most one push of 3 commits per client.
  expect(report.inLog - report.acknowledged).toBeGreaterThanOrEqual(0);
  expect(report.inLog - report.acknowledged).toBeLessThanOrEqual(24);
}, 120_000);
