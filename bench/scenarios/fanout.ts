/**
 * `fanout`: subscribers of one scope, writers with one commit in flight each. Measures commits, deliveries and the time from a
 * push leaving its writer to its delta arriving at each subscriber.
 */
import { createHash } from 'node:crypto';
import { Latency, round, type ScenarioReport } from '../report.ts';
import { itemPayload } from '../schema.ts';
import type { ServerProcess } from '../server-process.ts';
import { WireClient, type WireTarget } from '../wire-client.ts';

export interface FanoutSize {
  readonly subscribers: number;
  readonly writers: number;
  readonly commitsPerWriter: number;
}

export const FANOUT_SIZES = {
  small: { subscribers: 100, writers: 4, commitsPerWriter: 100 },
  full: { subscribers: 1_000, writers: 16, commitsPerWriter: 250 },
} as const satisfies Record<string, FanoutSize>;

const PROJECT = 'p1';
const CONNECTS_AT_ONCE = 50;

export async function runFanout(server: ServerProcess, size: FanoutSize): Promise<ScenarioReport> {
  const target: WireTarget = { url: server.url, token: 'bench', schemaVersion: 1 };
  const subscribers = await connectAll(target, size.subscribers);
  const writers = await Promise.all(
    Array.from({ length: size.writers }, (_, i) => WireClient.connect(target, `writer-${i}`)),
  );
  await Promise.all(writers.map((writer) => writer.learnEpoch()));

  const commits = size.writers * size.commitsPerWriter;
  const sentAt = new Map<string, number>();
  const delivery = new Latency();
  const answer = new Latency();
  const delivered = watch(subscribers, { commits, sentAt, delivery });
  const before = await server.usage();
  const startMs = performance.now();
  await Promise.all(writers.map((writer, i) => write(writer, { index: i, size, sentAt, answer })));
  const writtenMs = performance.now();
  await delivered.all;
  const endMs = performance.now();
  const after = await server.usage();
  await Promise.all([...subscribers, ...writers].map((client) => client.close()));

  const cpuMs = (after.cpu.user + after.cpu.system - before.cpu.user - before.cpu.system) / 1_000;
  return {
    scenario: `fanout, ${size.subscribers} subscribers, ${size.writers} writers, ${commits} commits`,
    figures: {
      'commits/s': round((commits * 1_000) / (writtenMs - startMs)),
      'deliveries/s': round((commits * size.subscribers * 1_000) / (endMs - startMs)),
      deliveries: delivery.count,
      'messages per delivery': round(sum(subscribers, 'deltas') / delivery.count),
      'wake-ups': sum(subscribers, 'wakeUps'),
      ...answer.figures('push → answer'),
      ...delivery.figures('push → delivery'),
      'server cpu': round(cpuMs / (endMs - startMs)),
      'server rss MB': round(after.rssBytes / 1_048_576),
      'delivered hash': delivered.hash(),
    },
  };
}

async function connectAll(target: WireTarget, count: number): Promise<WireClient[]> {
  const clients: WireClient[] = [];
  while (clients.length < count) {
    const group = Math.min(CONNECTS_AT_ONCE, count - clients.length);
    const more = Array.from({ length: group }, async (_, i) => {
      const client = await WireClient.connect(target, `subscriber-${clients.length + i}`);
      await client.subscribe('items', { project_id: [PROJECT] });
      return client;
    });
    clients.push(...(await Promise.all(more)));
  }
  return clients;
}

interface Watch {
  readonly commits: number;
  readonly sentAt: ReadonlyMap<string, number>;
  readonly delivery: Latency;
}

/** Resolves when every subscriber saw every commit once and in order. A client that was woken pulls nothing here: it fails the run. */
function watch(subscribers: readonly WireClient[], { commits, sentAt, delivery }: Watch) {
  const rowIds: string[][] = subscribers.map(() => []);
  const all = Promise.all(
    subscribers.map(
      (client, i) =>
        new Promise<void>((resolve, reject) => {
          let previousSeq = 0;
          client.onWakeUp = () => reject(new Error('a subscriber fell behind'));
          client.onCommit = ({ commitSeq, rowId }) => {
            delivery.record(sentAt.get(rowId)!, performance.now());
            if (commitSeq <= previousSeq) reject(new Error('commits out of order'));
            previousSeq = commitSeq;
            if (rowIds[i]!.push(rowId) === commits) resolve();
          };
        }),
    ),
  );
  const hash = (): string => {
    const sorted = rowIds.map((ids) => [...ids].sort().join());
    if (new Set(sorted).size !== 1) throw new Error('subscribers saw different commits');
    return createHash('sha256').update(sorted[0]!).digest('hex').slice(0, 16);
  };
  return { all, hash };
}

interface WriterLoad {
  readonly index: number;
  readonly size: FanoutSize;
  readonly sentAt: Map<string, number>;
  readonly answer: Latency;
}

async function write(writer: WireClient, { index, size, sentAt, answer }: WriterLoad): Promise<void> {
  for (let i = 0; i < size.commitsPerWriter; i++) {
    const rowId = `w${index}-${i}`;
    const payload = itemPayload(rowId, PROJECT, i);
    const request = writer.encode([
      {
        type: 'PUSH_COMMIT',
        clientCommitId: rowId,
        operations: [{ table: 'items', rowId, op: 'upsert', payload }],
      },
    ]);
    const startMs = performance.now();
    sentAt.set(rowId, startMs);
    await writer.roundBytes(request);
    answer.record(startMs, performance.now());
  }
}

function sum(clients: readonly WireClient[], field: 'deltas' | 'wakeUps'): number {
  return clients.reduce((total, client) => total + client[field], 0);
}
