/** Faults of the database in an order that a seed decides, each met by clients that push and subscribers that move. */
import { Prng } from '../fuzz/prng.ts';
import type { PostgresLoad } from './postgres-load.ts';

export interface RandomFaults {
  readonly rounds: number;
  readonly seed: number;
  readonly onRound?: (round: number, fault: string) => void;
}

type Fault = (load: PostgresLoad) => Promise<void>;

const BACKENDS = `FROM pg_stat_activity WHERE application_name = 'tidegate'`;

const FAULTS: Readonly<Record<string, Fault>> = {
  'backends terminated': async (load) => {
    await load.sql(`SELECT pg_terminate_backend(pid) ${BACKENDS}`);
  },
  'one backend terminated': async (load) => {
    await load.sql(`SELECT pg_terminate_backend(pid) ${BACKENDS} LIMIT 1`);
  },
  'statements cancelled': async (load) => {
    await load.sql(`SELECT pg_cancel_backend(pid) ${BACKENDS}`);
  },
  'all connections cut': async (load) => load.proxy.cutAll(),
  'COMMIT dropped': async (load) => {
    await load.proxy.next({ on: 'request', text: 'COMMIT', what: 'drop' });
  },
  'COMMIT delivered, its answer lost': async (load) => {
    await load.proxy.next({ on: 'request', text: 'COMMIT', what: 'deliver' });
  },
  'a result cut': async (load) => {
    await load.proxy.next({ on: 'answer', what: 'drop' });
  },
  'the server killed and started': async (load) => {
    await load.cluster.stop('immediate');
    await load.untilReadiness('storage');
    await load.cluster.restart();
    await load.untilReadiness('ready');
  },
  'a lock held': async (load) => {
    await load.sql(
      'BEGIN; LOCK TABLE tidegate.sync_partitions IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(0.4); COMMIT',
    );
  },
};

/** Throws with the seed and the faults so far. */
export async function runRandomFaults(
  load: PostgresLoad,
  { rounds, seed, onRound }: RandomFaults,
): Promise<void> {
  const prng = new Prng(seed, 0);
  const names = Object.keys(FAULTS);
  const story: string[] = [];
  try {
    for (let round = 1; round <= rounds; round++) {
      await load.moreAnswers(1 + prng.below(8));
      const name = prng.pick(names);
      story.push(name);
      await FAULTS[name]!(load);
      if (prng.below(5) < 2) await load.moveOne();
      await load.moreAnswers(3);
      onRound?.(round, name);
    }
  } catch (cause) {
    throw new Error(`seed ${seed}, after ${story.join(', ')}`, { cause });
  }
}
