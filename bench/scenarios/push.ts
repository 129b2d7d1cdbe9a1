/**
 * `push`: writers of one partition with one commit in flight each, against the same database committing one row at a time with
 * no gateway in it, and against one writer alone. All are measured in turns, so that noise of the machine meets each.
 */
import { openRawCommits, type RawCommits } from '../raw-commits.ts';
import { Latency, round, type ScenarioReport } from '../report.ts';
import { itemPayload } from '../schema.ts';
import type { ServerProcess, Usage } from '../server-process.ts';
import { WireClient } from '../wire-client.ts';

export interface PushSize {
  readonly writers: number;
  readonly turns: number;
  readonly commitsPerTurn: number;
  readonly rawCommitsPerTurn: number;
  /** A multiple of `ROWS_PER_BATCH`. */
  readonly rawBatchedRowsPerTurn: number;
}

export const PUSH_SIZES = {
  small: { writers: 8, turns: 2, commitsPerTurn: 10, rawCommitsPerTurn: 50, rawBatchedRowsPerTurn: 320 },
  full: {
    writers: 64,
    turns: 10,
    commitsPerTurn: 150,
    rawCommitsPerTurn: 1_500,
    rawBatchedRowsPerTurn: 9_600,
  },
} as const satisfies Record<string, PushSize>;

export interface PushTargets {
  readonly server: ServerProcess;
  /** Storage url of an empty database on the same server. */
  readonly rawUrl: string;
}

export async function runPush({ server, rawUrl }: PushTargets, size: PushSize): Promise<ScenarioReport> {
  const raw = await openRawCommits(rawUrl);
  const target = { url: server.url, token: 'bench', schemaVersion: 1 };
  const writers = await Promise.all(
    Array.from({ length: size.writers }, (_, i) => WireClient.connect(target, `writer-${i}`)),
  );
  try {
    await Promise.all(writers.map((writer) => writer.learnEpoch()));
    const load = new PushLoad(writers, size);
    // Compiled code, a warm pool and plans: the first turn counts for neither.
    await raw.run(size.rawCommitsPerTurn);
    await load.turn(null);
    return await measure({ server, raw, load }, size);
  } finally {
    await Promise.all(writers.map((writer) => writer.close()));
    await raw.close();
  }
}

class PushLoad {
  readonly #writers: readonly WireClient[];
  readonly #size: PushSize;
  #turn = 0;

  constructor(writers: readonly WireClient[], size: PushSize) {
    this.#writers = writers;
    this.#size = size;
  }

  /** Every writer pushes its commits, one in flight each. */
  async turn(latency: Latency | null): Promise<void> {
    const turn = this.#turn++;
    await Promise.all(this.#writers.map((writer, i) => this.#write(writer, `t${turn}-w${i}`, latency)));
  }

  /** One writer alone. */
  alone(): Promise<void> {
    return this.#write(this.#writers[0]!, `a${this.#turn++}`, null);
  }

  /** A row of its own for each commit. */
  async #write(writer: WireClient, name: string, latency: Latency | null): Promise<void> {
    for (let i = 0; i < this.#size.commitsPerTurn; i++) {
      const rowId = `${name}-${i}`;
      const operation = {
        table: 'items',
        rowId,
        op: 'upsert',
        payload: itemPayload(rowId, 'p1', i),
      } as const;
      const request = writer.encode([
        { type: 'PUSH_COMMIT', clientCommitId: rowId, operations: [operation] },
      ]);
      const startMs = performance.now();
      await writer.roundBytes(request);
      latency?.record(startMs, performance.now());
    }
  }
}

interface Measured {
  readonly server: ServerProcess;
  readonly raw: RawCommits;
  readonly load: PushLoad;
}

async function measure({ server, raw, load }: Measured, size: PushSize): Promise<ScenarioReport> {
  const latency = new Latency();
  const spent = { rawMs: 0, batchedMs: 0, aloneMs: 0, pushMs: 0, serverCpuMs: 0, generatorCpuMs: 0 };
  for (let turn = 0; turn < size.turns; turn++) {
    const rawStartMs = performance.now();
    await raw.run(size.rawCommitsPerTurn);
    spent.rawMs += performance.now() - rawStartMs;
    const batchedStartMs = performance.now();
    await raw.runBatched(size.rawBatchedRowsPerTurn);
    spent.batchedMs += performance.now() - batchedStartMs;
    const aloneStartMs = performance.now();
    await load.alone();
    spent.aloneMs += performance.now() - aloneStartMs;
    const before = await server.usage();
    const generator = process.cpuUsage();
    const startMs = performance.now();
    await load.turn(latency);
    spent.pushMs += performance.now() - startMs;
    spent.generatorCpuMs += cpuMs(process.cpuUsage(generator));
    spent.serverCpuMs += cpuMs((await server.usage()).cpu) - cpuMs(before.cpu);
  }
  const commits = size.turns * size.writers * size.commitsPerTurn;
  const commitsPerSecond = (commits * 1_000) / spent.pushMs;
  const rawPerSecond = (size.turns * size.rawCommitsPerTurn * 1_000) / spent.rawMs;
  const stored = await countCommits(server);
  const alone = size.turns * size.commitsPerTurn;
  const alonePerSecond = (alone * 1_000) / spent.aloneMs;
  const expected = commits + alone + size.writers * size.commitsPerTurn;
  if (stored !== expected) throw new Error(`the log has ${stored} commits instead of ${expected}`);
  return {
    scenario: `push, ${size.writers} writers of one partition, ${commits} commits`,
    figures: {
      'commits/s': round(commitsPerSecond),
      'raw single-row commits/s': round(rawPerSecond),
      'raw rows/s, 32 in one commit': round(
        (size.turns * size.rawBatchedRowsPerTurn * 1_000) / spent.batchedMs,
      ),
      'commits/s of one writer alone': round(alonePerSecond),
      'ratio to raw': round(commitsPerSecond / rawPerSecond),
      'ratio to one writer alone': round(commitsPerSecond / alonePerSecond),
      ...latency.figures('push → answer'),
      commits: stored,
      'server cpu': round(spent.serverCpuMs / spent.pushMs),
      'generator cpu': round(spent.generatorCpuMs / spent.pushMs),
    },
  };
}

function cpuMs({ user, system }: Usage['cpu']): number {
  return (user + system) / 1_000;
}

/** Every commit has a sequence number of its own and none is skipped, so the head counts them. */
async function countCommits(server: ServerProcess): Promise<number> {
  const client = await WireClient.connect({ url: server.url, token: 'bench', schemaVersion: 1 }, 'counter');
  await client.subscribe('items', { project_id: ['nobody'] });
  await client.close();
  return client.cursor;
}
