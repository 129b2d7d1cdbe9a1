/**
 * Part 4, 4.5-3: SIGKILL at every step of declare, claim, batch and activate, held before the step and in the middle of it. A worker
 * that is started again ends with the same activated projection as one that nobody killed, equal to one computed from scratch.
 */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { openStorage } from '../../src/gateway/storage-option.ts';
import { runBackfill } from '../../src/session/sync/backfill.ts';
import { admitTo, write } from '../contract/storage/fixture.ts';
import {
  CHECKPOINT,
  compare,
  DECLARED,
  depsOf,
  PARTITION,
  replay,
  SCHEMA_1,
  SCHEMA_2,
  task,
  totalsBatch,
} from '../session/support/backfill-fixture.ts';
import { createTestDatabase } from '../support/postgres-server.ts';

const WORKER = fileURLToPath(new URL('backfill-worker.ts', import.meta.url));
/** Two batches, as `depsOf` has 20 rows in one. */
const ROWS = 30;

async function newUrl(kind: 'sqlite' | 'postgres'): Promise<string> {
  if (kind === 'postgres') {
    const database = await createTestDatabase();
    onTestFinished(() => database.drop());
    return database.url;
  }
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-backfill-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return `sqlite:${join(folder, 'app.db')}`;
}

/** The steps that a worker announced; the last is the one it was killed at, if it was. */
interface Outcome {
  readonly steps: readonly string[];
  readonly code: number | null;
}

/** `killAt`: number of the step, from 0; `null` lets it end. `held`: the step has not begun. `running`: it may be anywhere. */
async function runWorker(
  url: string,
  { killAt, how }: { readonly killAt: number | null; readonly how: 'held' | 'running' },
): Promise<Outcome> {
  const execArgv = ['--import', import.meta.resolve('tsx')];
  const child: ChildProcess = fork(WORKER, [url], { execArgv, stdio: 'inherit' });
  const steps: string[] = [];
  child.on('message', (name) => {
    const isLast = steps.length === killAt;
    steps.push(String(name));
    if (!isLast || how === 'running') child.send('go');
    if (isLast) child.kill('SIGKILL');
  });
  const [code] = await once(child, 'exit');
  return { steps, code };
}

async function prepare(url: string): Promise<void> {
  const { storage, release } = await openStorage({ url }, createRealClock());
  await storage.ensureSchema(SCHEMA_1);
  await admitTo(storage, PARTITION);
  const rows = Array.from({ length: ROWS }, (_, n) => task(`t${n}`, `p${n % 6}`, n));
  await write(storage, PARTITION, rows);
  await release();
}

/** What a worker that is started again does, without the steps. */
async function finish(url: string): Promise<void> {
  const { storage, release } = await openStorage({ url }, createRealClock());
  await storage.ensureSchema(SCHEMA_2, [DECLARED]);
  const request = { partition: PARTITION, name: CHECKPOINT, sources: ['tasks'], batch: totalsBatch };
  expect(await runBackfill(request, depsOf(storage))).toMatchObject({ status: 'activated' });
  await release();
}

async function expectActivated(url: string): Promise<void> {
  const { storage, release } = await openStorage({ url }, createRealClock());
  try {
    const { stored, expected } = await compare(storage);
    expect(stored).toEqual(expected);
    expect(await replay(storage)).toEqual(expected);
    const checkpoint = (await storage.readCheckpoints(PARTITION)).get(CHECKPOINT);
    expect(checkpoint).toMatchObject({ state: 'activated', observedRows: ROWS, scan: null });
    expect((await storage.readServeGate(PARTITION, 2)).pending).toEqual([]);
  } finally {
    await release();
  }
}

describe.each(['sqlite', 'postgres'] as const)('part 4 4.5-3: a worker that is killed: %s', (kind) => {
  test('every step, held before it and in the middle of it', async () => {
    const whole = await newUrl(kind);
    await prepare(whole);
    const { steps, code } = await runWorker(whole, { killAt: null, how: 'held' });
    expect(code).toBe(0);
    await expectActivated(whole);
    for (const each of ['ensureSchema', 'claimCheckpoint', 'transaction', 'batch', 'activateCheckpoint']) {
      expect(steps).toContain(each);
    }
    for (const killAt of steps.keys()) {
      // In the middle of what only reads there is nothing to lose.
      const how = killAt % 2 === 0 ? 'running' : 'held';
      const url = await newUrl(kind);
      await prepare(url);
      const killed = await runWorker(url, { killAt, how });
      expect(killed.steps.slice(0, killAt + 1), `${how} at ${killAt}`).toEqual(steps.slice(0, killAt + 1));
      await finish(url);
      await expectActivated(url);
    }
  }, 180_000);
});
