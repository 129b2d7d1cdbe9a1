/** Part 4, 4.5-2: a bump among writers that know nothing of it, on PostgreSQL with real connections. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { createTestDatabase, runSql, type TestDatabase } from '../support/postgres-server.ts';
import { Interleavings } from './bump-interleavings.ts';

const SEEDS = 1_000;
/** Namespaces side by side: what one waits for, another uses. */
const LANES = 4;

let database: TestDatabase;
let lanes: Interleavings[] = [];

beforeAll(async () => {
  database = await createTestDatabase();
  // The order of locks is what is tested, not the disk.
  const name = new URL(database.url).pathname.slice(1);
  await runSql(database.url, `ALTER DATABASE ${name} SET synchronous_commit = off`);
  lanes = await Promise.all(
    Array.from({ length: LANES }, (_, nth) =>
      Interleavings.open({
        url: database.url,
        namespace: `lane${nth}`,
        clock: createRealClock(),
        seeds: SEEDS,
      }),
    ),
  );
});

afterAll(async () => {
  await Promise.all(lanes.map((lane) => lane.close()));
  await database.drop();
});

test('4.5-2: who is inside finishes, who comes waits and is fenced, no deadlock in 1,000 interleavings', async () => {
  await Promise.all(
    lanes.map(async (lane, nth) => {
      for (let seed = nth; seed < SEEDS; seed += LANES) await lane.run(seed);
    }),
  );
  for (const lane of lanes) expect(await lane.gaps()).toEqual([]);
  const total = lanes.map(({ outcomes }) => outcomes);
  const finished = total.reduce((sum, outcome) => sum + outcome.finished, 0);
  const fenced = total.reduce((sum, outcome) => sum + outcome.fenced, 0);
  expect(finished + fenced).toBe(SEEDS * 2);
  // Both orders were really met, often.
  expect(Math.min(finished, fenced)).toBeGreaterThan(SEEDS / 10);
}, 120_000);
