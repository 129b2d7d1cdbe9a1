/**
 * `pull-cost`: a pull from a cursor 100 commits behind, on a log of a million commits against a log of those 100 alone. Two
 * partitions of one gateway and one database, measured in turns.
 */
import { fillLogs } from '../long-log.ts';
import { Latency, round, type ScenarioReport } from '../report.ts';
import type { ServerProcess } from '../server-process.ts';
import { WireClient } from '../wire-client.ts';

export interface PullCostSize {
  readonly commits: number;
  readonly pulls: number;
}

export const PULL_COST_SIZES = {
  small: { commits: 4_000, pulls: 20 },
  full: { commits: 1_000_000, pulls: 1_000 },
} as const satisfies Record<string, PullCostSize>;

const BEHIND = 100;
const PROJECT = 'hot';
const WARM_UP_PULLS = 50;

export async function fillForPullCost(storageUrl: string, { commits }: PullCostSize): Promise<void> {
  const logs = [
    { partition: 'long', commits, tail: BEHIND, project: PROJECT },
    { partition: 'short', commits: BEHIND, tail: BEHIND, project: PROJECT },
  ];
  await fillLogs(storageUrl, logs, (text) => process.stderr.write(`${text}\n`));
}

export async function runPullCost(server: ServerProcess, size: PullCostSize): Promise<ScenarioReport> {
  const long = await openReader(server, 'long', size.commits - BEHIND);
  const short = await openReader(server, 'short', 0);
  const latency = { long: new Latency(), short: new Latency() };
  for (let i = 0; i < WARM_UP_PULLS; i++) {
    await long.pull();
    await short.pull();
  }
  for (let i = 0; i < size.pulls; i++) {
    await long.pull(latency.long);
    await short.pull(latency.short);
  }
  await Promise.all([long.close(), short.close()]);
  return {
    scenario: `pull-cost, ${BEHIND} commits behind in a log of ${size.commits} against one of ${BEHIND}, ${size.pulls} pulls each`,
    figures: {
      ...latency.long.figures('long log'),
      ...latency.short.figures('short log'),
      'commits per pull': BEHIND,
      'ratio of medians': round(latency.long.medianMs() / latency.short.medianMs()),
    },
  };
}

interface Reader {
  /** One round; rejects unless it brings exactly the commits behind the cursor. */
  pull(latency?: Latency): Promise<void>;
  close(): Promise<void>;
}

async function openReader({ url }: ServerProcess, partition: string, cursor: number): Promise<Reader> {
  const client = await WireClient.connect({ url, token: partition, schemaVersion: 1 }, 'reader');
  await client.learnEpoch();
  const request = client.encode([
    { type: 'PULL_HEADER', limitCommits: 0, limitSnapshotRows: 0, maxSnapshotPages: 0, accept: 3 },
    { type: 'SUBSCRIPTION', id: 's', table: 'items', scopes: { project_id: [PROJECT] }, cursor },
  ]);
  return {
    pull: async (latency) => {
      const startMs = performance.now();
      const response = await client.roundBytes(request);
      latency?.record(startMs, performance.now());
      const commits = client.decode(response).filter(({ type }) => type === 'COMMIT').length;
      if (commits !== BEHIND) throw new Error(`a pull brought ${commits} commits instead of ${BEHIND}`);
    },
    close: () => client.close(),
  };
}
