/** `npm run kill -- [--rounds 200] [--clients 8] [--seed 1]` */
import { Command } from 'commander';
import { runKillLoad } from './kill-load.ts';

const options = new Command('kill')
  .option('--rounds <n>', 'kills', Number, 200)
  .option('--clients <n>', 'clients that push', Number, 8)
  .option('--seed <n>', 'of the load', Number, 1)
  .parse()
  .opts<{ rounds: number; clients: number; seed: number }>();

const report = await runKillLoad({
  ...options,
  onRound: ({ round, acknowledged, inLog, landedUnanswered }) => {
    process.stdout.write(
      `round ${round}: ${acknowledged} answered, ${inLog} in the log, ${landedUnanswered} landed unanswered\n`,
    );
  },
});
process.stdout.write(
  `${options.rounds} kills: ${report.acknowledged} answered, 0 lost, 0 twice, no hole; ${report.landedUnanswered} landed unanswered\n`,
);
