/**
 * `npm run fuzz -- --count 1000000 --seed 7`. The loop runs in a child process that notes each index in a pipe before its
 * input is run; this process watches that the index moves. A failure or a hang prints the seed, the index and the way to
 * run it again.
 */
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { type FuzzFailure, type FuzzReport, runFuzz } from './run.ts';

/** One input that takes this long hangs. */
const HANG_MS = 10_000;
const DEFAULT_COUNT = 100_000;
/** The pipe from the child, and the bytes of one index in it. */
const PROGRESS_FD = 3;
const INDEX_BYTES = 4;

interface Job {
  readonly seed: number;
  readonly count: number;
  readonly from: number;
}

function readJob(): { readonly job: Job; readonly role: 'watch' | 'work' } {
  const text = { type: 'string' } as const;
  const { values } = parseArgs({
    options: { seed: text, count: text, from: text, child: { type: 'boolean' } },
  });
  const whole = (name: keyof Job, fallback: number): number => {
    const value = Number(values[name] ?? fallback);
    if (!Number.isSafeInteger(value) || value < 0) throw new RangeError(`--${name} is not a whole number`);
    return value;
  };
  const job = { seed: whole('seed', 1), count: whole('count', DEFAULT_COUNT), from: whole('from', 0) };
  return { job, role: values.child === true ? 'work' : 'watch' };
}

function print(line: string): void {
  process.stdout.write(`${line}\n`);
}

function again({ seed, index }: Pick<FuzzFailure, 'seed' | 'index'>): string {
  return `again: npm run fuzz -- --seed ${seed} --from ${index} --count 1`;
}

function printReport({ seed, from }: Job, { inputs, accepted, failure }: FuzzReport): void {
  const mebibytes = process.resourceUsage().maxRSS >> 10;
  const range = `inputs ${from} to ${from + inputs - 1}`;
  print(`seed ${seed}, ${range}, ${accepted} damaged messages decoded, at most ${mebibytes} MiB resident`);
  if (failure === null) return;
  print(`FAILED in ${failure.target}: ${failure.failure}`);
  print(`input: ${failure.inputHex}`);
  print(again(failure));
}

function work(job: Job): void {
  const index = Buffer.alloc(INDEX_BYTES);
  const onIndex = (value: number): void => {
    index.writeUInt32LE(value);
    writeSync(PROGRESS_FD, index);
  };
  const report = runFuzz({ ...job, onIndex });
  printReport(job, report);
  process.exitCode = report.failure === null ? 0 : 1;
}

function spawnWorker({ seed, count, from }: Job): ChildProcess {
  const numbers = ['--seed', `${seed}`, '--count', `${count}`, '--from', `${from}`];
  const args = [...process.execArgv, fileURLToPath(import.meta.url), '--child', ...numbers];
  return spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit', 'pipe'] });
}

/** The child's exit code, or the index that was begun and never ended. */
async function watch(child: ChildProcess): Promise<{ readonly code: number } | { readonly hungAt: number }> {
  let begun = 0;
  let tail = Buffer.alloc(0);
  child.stdio[PROGRESS_FD]?.on('data', (chunk: Buffer) => {
    const bytes = Buffer.concat([tail, chunk]);
    const whole = bytes.length - (bytes.length % INDEX_BYTES);
    if (whole > 0) begun = bytes.readUInt32LE(whole - INDEX_BYTES);
    tail = bytes.subarray(whole);
  });
  for (let seen = -1; ; seen = begun) {
    try {
      const [code] = await once(child, 'exit', { signal: AbortSignal.timeout(HANG_MS) });
      return { code: code ?? 1 };
    } catch (failure) {
      if (!(failure instanceof Error) || failure.name !== 'AbortError') throw failure;
    }
    if (begun === seen) return { hungAt: begun };
  }
}

async function main(): Promise<void> {
  const { job, role } = readJob();
  if (role === 'work') return work(job);
  const child = spawnWorker(job);
  const end = await watch(child);
  if ('code' in end) {
    process.exitCode = end.code;
    return;
  }
  child.kill('SIGKILL');
  print(`HANGS: seed ${job.seed}, index ${end.hungAt}`);
  print(again({ seed: job.seed, index: end.hungAt }));
  process.exitCode = 2;
}

await main();
