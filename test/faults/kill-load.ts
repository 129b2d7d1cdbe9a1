/**
 * Kills a gateway with SIGKILL while clients push, restarts it on the same file, and checks after every round: no answered
 * commit is lost, none exists twice, the log has no hole. The test runs a few rounds, `npm run kill` any number.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { BENCH_SCHEMA, itemPayload } from '../../bench/schema.ts';
import { ServerProcess } from '../../bench/server-process.ts';
import { WireClient } from '../../bench/wire-client.ts';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import type { PushCommitFrame, PushResultFrame } from '../../src/protocol/frames.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import { openSqliteStorage } from '../../src/storage/sqlite/sqlite-storage.ts';
import type { LogCommit } from '../../src/storage/storage.ts';

export interface KillLoad {
  readonly rounds: number;
  readonly clients: number;
  readonly seed: number;
  readonly onRound?: (report: KillReport & { readonly round: number }) => void;
}

export interface KillReport {
  /** Commits whose answer arrived. */
  readonly acknowledged: number;
  readonly inLog: number;
  /** Commits in flight at a kill that had landed: their retry said `cached`. */
  readonly landedUnanswered: number;
}

const PARTITION = 'bench';
/** A process is killed after this many answers of the round, uniformly chosen: sometimes at once, sometimes in full flight. */
const ANSWERS_BEFORE_KILL_MAX = 80;
const COMMITS_PER_PUSH_MAX = 3;
const READ = { commitsMax: 1_000, bytesMax: 64_000_000 };

export async function runKillLoad(load: KillLoad): Promise<KillReport> {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-kill-'));
  const log = new LogChecker(join(folder, 'kill.db'));
  const random = seeded(load.seed);
  const pushers = Array.from({ length: load.clients }, (_, i) => new Pusher(`client-${i}`, random));
  const report = (): KillReport => ({
    acknowledged: pushers.reduce((total, { acknowledged }) => total + acknowledged.size, 0),
    inLog: log.head,
    landedUnanswered: pushers.reduce((total, { landedUnanswered }) => total + landedUnanswered, 0),
  });
  try {
    for (let round = 1; round <= load.rounds; round++) {
      await runRound(log.path, pushers, Math.floor(random() * ANSWERS_BEFORE_KILL_MAX));
      await log.check(pushers);
      load.onRound?.({ round, ...report() });
    }
    return report();
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function runRound(path: string, pushers: readonly Pusher[], answersBeforeKill: number): Promise<void> {
  const server = await ServerProcess.start(`sqlite:${path}`);
  let answers = 0;
  let killed: Promise<void> | null = null;
  const onAnswer = (): void => {
    answers += 1;
    if (answers > answersBeforeKill) killed ??= server.kill();
  };
  await Promise.all(pushers.map((pusher) => pusher.pushUntilCut(server.url, onAnswer)));
  if (killed === null) throw new Error('the server ended before it was killed');
  await killed;
}

/** One client: pushes without pause, and after a cut sends the same bytes again first. */
class Pusher {
  readonly clientId: string;
  /** clientCommitId → commitSeq of its answer. */
  readonly acknowledged = new Map<string, number>();
  landedUnanswered = 0;
  #unanswered: readonly PushCommitFrame[] = [];
  #commitsMade = 0;
  readonly #random: () => number;

  constructor(clientId: string, random: () => number) {
    this.clientId = clientId;
    this.#random = random;
  }

  async pushUntilCut(url: string, onAnswer: () => void): Promise<void> {
    const client = await WireClient.connect({ url, token: 'bench', schemaVersion: 1 }, this.clientId).catch(
      () => null,
    );
    try {
      await client?.learnEpoch();
      for (;;) {
        if (client === null) return;
        const isRetry = this.#unanswered.length > 0;
        if (!isRetry) this.#unanswered = this.#makeCommits();
        const frames = await client.round(this.#unanswered);
        for (const frame of frames) if (frame.type === 'PUSH_RESULT') this.#take(frame, isRetry);
        this.#unanswered = [];
        onAnswer();
      }
    } catch (failure) {
      if (!(failure instanceof Error) || !/^closed|ECONN|socket hang up/.test(failure.message)) throw failure;
    }
  }

  #makeCommits(): readonly PushCommitFrame[] {
    const count = 1 + Math.floor(this.#random() * COMMITS_PER_PUSH_MAX);
    return Array.from({ length: count }, () => {
      const id = `${this.clientId}-${this.#commitsMade++}`;
      const payload = itemPayload(id, 'p1', this.#commitsMade);
      return {
        type: 'PUSH_COMMIT',
        clientCommitId: id,
        operations: [{ table: 'items', rowId: id, op: 'upsert', payload }],
      };
    });
  }

  #take({ clientCommitId, status, commitSeq }: PushResultFrame, isRetry: boolean): void {
    if (status === 'rejected' || commitSeq === undefined) throw new Error(`${clientCommitId} was rejected`);
    if (status === 'cached' && !isRetry) throw new Error(`${clientCommitId} was cached at its first push`);
    if (status === 'cached') this.landedUnanswered += 1;
    this.acknowledged.set(clientCommitId, commitSeq);
  }
}

/** Reads what the killed process left behind, each commit once over all rounds. */
class LogChecker {
  readonly path: string;
  head = 0;
  readonly #seqOf = new Map<string, number>();

  constructor(path: string) {
    this.path = path;
  }

  async check(pushers: readonly Pusher[]): Promise<void> {
    const { storage } = await openSqliteStorage({ path: this.path, clock: createRealClock() });
    try {
      await storage.ensureSchema(compileSchema(BENCH_SCHEMA));
      await storage.readSnapshot(PARTITION, async (reader) => {
        const { head } = await reader.state();
        while (this.head < head) {
          const range = { afterSeq: this.head, throughSeq: head, ...READ };
          for (const commit of await reader.readCommits(range)) this.#take(commit);
        }
      });
    } finally {
      await storage.close();
    }
    for (const { acknowledged } of pushers) {
      for (const [id, seq] of acknowledged) {
        if (this.#seqOf.get(id) !== seq) {
          throw new Error(`${id} was answered with ${seq}, the log has ${this.#seqOf.get(id)}`);
        }
      }
    }
  }

  #take({ commitSeq, clientCommitId, changes }: LogCommit): void {
    if (commitSeq !== this.head + 1) throw new Error(`hole: ${commitSeq} follows ${this.head}`);
    if (this.#seqOf.has(clientCommitId)) throw new Error(`${clientCommitId} is in the log twice`);
    if (changes.length !== 1 || changes[0]?.rowId !== clientCommitId) {
      throw new Error(`${clientCommitId} landed in part`);
    }
    this.#seqOf.set(clientCommitId, commitSeq);
    this.head = commitSeq;
  }
}

/** mulberry32: enough to vary a load, and the same for everyone. */
function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}
