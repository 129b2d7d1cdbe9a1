/** Several processes on one file, a lock that is not had in time, and processes that die in the middle. */
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { openSqliteStorage } from '../../src/storage/sqlite/sqlite-storage.ts';
import { StorageError } from '../../src/storage/storage-error.ts';
import {
  admitTo,
  failureOf,
  gate,
  SCHEMA,
  TASKS,
  task,
  WHOLE_LOG,
  WHOLE_PAGE,
  write,
} from '../contract/storage/fixture.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { makeSqlite, type SqliteHarness } from './sqlite-harness.ts';

const WRITER = fileURLToPath(new URL('./sqlite-writer-process.ts', import.meta.url));
let harness: SqliteHarness;

beforeEach(async () => {
  harness = await makeSqlite({ busyTimeoutMs: 20_000 });
});

afterEach(async () => {
  await harness.dispose();
});

interface Writer {
  readonly process: ChildProcessWithoutNullStreams;
  /** Commit numbers that the process was told are durable. */
  readonly acknowledged: number[];
  readonly exited: Promise<unknown>;
  /** Resolves at the next acknowledgement. */
  next(): Promise<unknown>;
}

function startWriter(name: string, commits: number): Writer {
  const args = ['--import', 'tsx', WRITER, harness.path, 'p', name, String(commits)];
  const child = spawn(process.execPath, args);
  const failures: string[] = [];
  child.stderr.on('data', (text) => failures.push(String(text)));
  const acknowledged: number[] = [];
  const lines = createInterface({ input: child.stdout });
  lines.on('line', (line) => acknowledged.push(Number(line)));
  const exited = Promise.all([once(child, 'exit'), once(lines, 'close')]).then(([[code, signal]]) => {
    if (code !== 0 && signal !== 'SIGKILL')
      throw new Error(`writer ${name}: exit ${code}\n${failures.join('')}`);
  });
  const next = (): Promise<unknown> => Promise.race([once(lines, 'line'), exited]);
  return { process: child, acknowledged, exited, next };
}

async function readAll() {
  const { storage } = await harness.open();
  await storage.ensureSchema(SCHEMA);
  await admitTo(storage, 'p');
  const read = await storage.readSnapshot('p', async (reader) => ({
    head: (await reader.state()).head,
    log: await reader.readCommits(WHOLE_LOG),
    rows: (await reader.readRowPage({ table: TASKS, scopes: { project: ['p1'] }, ...WHOLE_PAGE })).rows,
  }));
  const keys = read.log.map(({ clientId, clientCommitId }) => ({ clientId, clientCommitId }));
  const results = await storage.transaction('p', (tx) => tx.readResults(keys));
  await storage.close();
  return { ...read, results };
}

/** Guarantees 1 to 3: dense, nothing half, everything that was acknowledged. */
function expectWhole(read: Awaited<ReturnType<typeof readAll>>, acknowledged: readonly number[]): void {
  const seqs = read.log.map(({ commitSeq }) => commitSeq);
  expect(seqs).toEqual(Array.from({ length: read.head }, (_, n) => n + 1));
  expect(new Set(acknowledged).size).toBe(acknowledged.length);
  expect(Math.max(0, ...acknowledged)).toBeLessThanOrEqual(read.head);
  const logged = read.log.flatMap(({ changes }) => changes.map(({ rowId }) => rowId));
  expect(logged).toHaveLength(read.head * 3);
  expect(read.rows.map(({ rowId }) => rowId)).toEqual(logged.sort());
  expect(read.results.filter((record) => record === null)).toEqual([]);
}

test('two processes write one partition of one file: dense, none lost (guarantees 1 and 4)', async () => {
  const writers = [startWriter('left', 40), startWriter('right', 40)];
  await Promise.all(writers.map(({ exited }) => exited));
  const read = await readAll();
  expect(read.head).toBe(80);
  expectWhole(
    read,
    writers.flatMap(({ acknowledged }) => acknowledged),
  );
}, 60_000);

test('SIGKILL in the middle: what was acknowledged is there, nothing is half there (S-036, S-133)', async () => {
  const acknowledged: number[] = [];
  for (let round = 0; round < 3; round++) {
    const writer = startWriter(`round-${round}`, 100_000);
    while (writer.acknowledged.length < 5 + round * 7) await writer.next();
    writer.process.kill('SIGKILL');
    await writer.exited;
    acknowledged.push(...writer.acknowledged);
    expectWhole(await readAll(), acknowledged);
  }
}, 60_000);

test('a lock not had in time is sync.storage.busy, retryable, and nothing landed', async () => {
  const clock = new ManualClock();
  const { storage: holder } = await harness.open();
  const { storage: waiter } = await openSqliteStorage({ path: harness.path, clock, busyTimeoutMs: 500 });
  await holder.ensureSchema(SCHEMA);
  await admitTo(holder, 'p');
  const hold = gate();
  const entered = gate();
  const holding = holder.transaction('p', async () => {
    entered.open();
    await hold.opened;
  });
  await entered.opened;
  const waiting = failureOf(write(waiter, 'p', [task('t1', 'p1')]));
  // The event loop turns all the while: the other instance answers reads, and this test goes on.
  expect((await admitTo(waiter, 'p')).state.head).toBe(0);
  await clock.until(() => clock.timersWaiting > 0);
  await clock.advanceSettled(600, 10);
  const failure = await waiting;
  expect(failure).toBeInstanceOf(StorageError);
  expect(failure).toMatchObject({ code: 'sync.storage.busy', retryable: true, outcome: 'nothing' });

  const second = write(waiter, 'p', [task('t1', 'p1')]);
  await clock.until(() => clock.timersWaiting > 0);
  hold.open();
  await holding;
  await clock.advanceSettled(100, 10);
  expect(await second).toHaveLength(1);
  await Promise.all([holder.close(), waiter.close()]);
});
