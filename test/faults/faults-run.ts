/** `npm run faults -- [--rounds 200] [--seed 1]`: the database fails at random under load; afterwards everything must agree. */
import { Command } from 'commander';
import { PostgresLoad } from './postgres-load.ts';
import { runRandomFaults } from './random-faults.ts';

const options = new Command('faults')
  .option('--rounds <n>', 'faults', Number, 200)
  .option('--seed <n>', 'of their order', Number, 1)
  .parse()
  .opts<{ rounds: number; seed: number }>();

const load = await PostgresLoad.start();
try {
  const onRound = (round: number, fault: string): void => {
    process.stdout.write(`round ${round}: ${fault}; ${load.answered.size} commits answered\n`);
  };
  await runRandomFaults(load, { ...options, onRound });
  await load.settle();
  const { commits } = await load.check();
  process.stdout.write(
    `${options.rounds} faults: ${commits} commits, 0 lost, 0 twice, no hole, rows and subscribers agree\n`,
  );
} finally {
  await load.close();
}
