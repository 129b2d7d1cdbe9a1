/** A small size of `npm run sim`: the same walks at every run, so that a change shows and not chance. */
import { expect, test } from 'vitest';
import { runWalks } from './world.ts';

/** The second once found a client that forgot a lost round. */
const SEEDS = [20_261_201, -1_652_716_619];

test.each(SEEDS)(
  'R-014, R-020, R-022, R-028, R-030, R-066, R-077, R-079: no gap, nothing lost, everybody live again (seed %i)',
  async (seed) => {
    const { deltas, gaps } = await runWalks({ seed, runs: 150 });
    // The walk went where it should: deltas flowed, and holes could not always be read.
    expect(deltas).toBeGreaterThan(1_000);
    expect(gaps).toBeGreaterThan(5);
  },
  120_000,
);
