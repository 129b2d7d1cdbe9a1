/**
 * `write-cost`: what one commit costs in a table that holds many rows against an empty one. Two gateways with a database each,
 * measured in turns, so that noise of the machine meets both.
 */
import { Latency, round, type ScenarioReport } from '../report.ts';
import { itemPayload } from '../schema.ts';
import type { ServerProcess } from '../server-process.ts';
import { WireClient } from '../wire-client.ts';

export interface WriteCostSize {
  readonly rows: number;
  readonly turns: number;
  readonly commitsPerTurn: number;
}

export const WRITE_COST_SIZES = {
  small: { rows: 5_000, turns: 4, commitsPerTurn: 50 },
  full: { rows: 100_000, turns: 20, commitsPerTurn: 100 },
} as const satisfies Record<string, WriteCostSize>;

const PROJECT = 'p1';
const ROWS_PER_COMMIT = 500;

export interface WriteCostServers {
  readonly empty: ServerProcess;
  readonly filled: ServerProcess;
}

export async function runWriteCost(servers: WriteCostServers, size: WriteCostSize): Promise<ScenarioReport> {
  const empty = await openWriter(servers.empty.url);
  const filled = await openWriter(servers.filled.url);
  await fill(filled, size.rows);
  const latency = { empty: new Latency(), filled: new Latency() };
  for (let turn = 0; turn < size.turns; turn++) {
    await writeTurn(empty, { turn, size, latency: latency.empty });
    await writeTurn(filled, { turn, size, latency: latency.filled });
  }
  await Promise.all([empty.close(), filled.close()]);
  return {
    scenario: `write-cost, ${size.rows} rows against none, ${size.turns * size.commitsPerTurn} commits each`,
    figures: {
      ...latency.empty.figures('empty table'),
      ...latency.filled.figures('filled table'),
      'ratio of medians': round(latency.filled.medianMs() / latency.empty.medianMs()),
    },
  };
}

async function openWriter(url: string): Promise<WireClient> {
  const writer = await WireClient.connect({ url, token: 'bench', schemaVersion: 1 }, 'writer');
  await writer.learnEpoch();
  return writer;
}

async function fill(writer: WireClient, rows: number): Promise<void> {
  for (let first = 0; first < rows; first += ROWS_PER_COMMIT) {
    const operations = Array.from({ length: Math.min(ROWS_PER_COMMIT, rows - first) }, (_, i) => {
      const rowId = `fill-${first + i}`;
      return {
        table: 'items',
        rowId,
        op: 'upsert' as const,
        payload: itemPayload(rowId, PROJECT, first + i),
      };
    });
    await writer.round([{ type: 'PUSH_COMMIT', clientCommitId: `fill-${first}`, operations }]);
  }
}

interface Turn {
  readonly turn: number;
  readonly size: WriteCostSize;
  readonly latency: Latency;
}

async function writeTurn(writer: WireClient, { turn, size, latency }: Turn): Promise<void> {
  for (let i = 0; i < size.commitsPerTurn; i++) {
    const rowId = `row-${turn}-${i}`;
    const payload = itemPayload(rowId, PROJECT, i);
    const commit = {
      type: 'PUSH_COMMIT',
      clientCommitId: rowId,
      operations: [{ table: 'items', rowId, op: 'upsert', payload }],
    } as const;
    const request = writer.encode([commit]);
    const startMs = performance.now();
    await writer.roundBytes(request);
    latency.record(startMs, performance.now());
  }
}
