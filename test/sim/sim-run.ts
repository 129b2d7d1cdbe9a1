/** `npm run sim -- [--steps 1000000] [--seed 1]`: walks until so many steps were taken; a violated promise ends it with its seed. */
import { Command } from 'commander';
import { runWalks } from './world.ts';

const options = new Command('sim')
  .option('--steps <n>', 'steps in all', Number, 1_000_000)
  .option('--seed <n>', 'of the first block of walks', Number, 1)
  .parse()
  .opts<{ steps: number; seed: number }>();

const WALKS_PER_BLOCK = 500;

let steps = 0;
let deltas = 0;
let gaps = 0;
for (let seed = options.seed; steps < options.steps; seed++) {
  const report = await runWalks({ seed, runs: WALKS_PER_BLOCK });
  steps += report.steps;
  deltas += report.deltas;
  gaps += report.gaps;
  process.stdout.write(
    `seed ${seed}: ${steps} steps, ${deltas} deltas, ${gaps} unreadable holes, no promise broken\n`,
  );
}
