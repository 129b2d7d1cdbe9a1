/**
 * A worker in a process of its own: bumps the schema with the declaration, runs the backfill, ends. Before every call of the
 * storage, and inside every batch, it tells its parent which step comes; it goes on when it is told to. Arguments: storage url.
 */
import { once } from 'node:events';
import { createRealClock, keepAliveDuring } from '../../src/gateway/real-clock.ts';
import { openStorage } from '../../src/gateway/storage-option.ts';
import { runBackfill } from '../../src/session/sync/backfill.ts';
import {
  CHECKPOINT,
  DECLARED,
  depsOf,
  PARTITION,
  Recorder,
  SCHEMA_2,
  totalsBatch,
} from '../session/support/backfill-fixture.ts';
import { interceptStorage } from '../support/intercepted-storage.ts';

const [, , url = ''] = process.argv;

async function step(name: string): Promise<void> {
  const answered = once(process, 'message');
  process.send?.(name);
  await answered;
}

async function work(): Promise<void> {
  const { storage, release } = await openStorage({ url }, createRealClock());
  const stepped = interceptStorage(storage, ({ method }) => step(method));
  await stepped.ensureSchema(SCHEMA_2, [DECLARED]);
  await runBackfill(
    {
      partition: PARTITION,
      name: CHECKPOINT,
      sources: ['tasks'],
      batch: async (input) => {
        await step('batch');
        return totalsBatch(input);
      },
    },
    depsOf(stepped, new Recorder()),
  );
  await step('release');
  await release();
  process.disconnect?.();
}

await keepAliveDuring(work());
