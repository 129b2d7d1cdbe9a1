/** `npm run bench -- SCENARIO [--small|--full] [--storage sqlite|memory] [--json FILE]` */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Command, Option } from 'commander';
import { formatReport, type ScenarioReport } from './report.ts';
import { FANOUT_SIZES, runFanout } from './scenarios/fanout.ts';
import { runWriteCost, WRITE_COST_SIZES } from './scenarios/write-cost.ts';
import { ServerProcess } from './server-process.ts';

type StorageKind = 'sqlite' | 'memory';
type SizeName = 'small' | 'full';

interface BenchOptions {
  readonly size: SizeName;
  readonly storage: StorageKind;
}

/** Runs with `count` gateways, each on a fresh database; ends them and removes the files on every path. */
async function withServers<T>(
  count: number,
  storage: StorageKind,
  run: (servers: readonly ServerProcess[]) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-bench-'));
  const servers: ServerProcess[] = [];
  try {
    for (let i = 0; i < count; i++) {
      const url = storage === 'memory' ? 'sqlite::memory:' : `sqlite:${join(folder, `${i}.db`)}`;
      servers.push(await ServerProcess.start(url));
    }
    return await run(servers);
  } finally {
    await Promise.all(servers.map((server) => server.stop()));
    rmSync(folder, { recursive: true, force: true });
  }
}

const SCENARIOS: Readonly<Record<string, (options: BenchOptions) => Promise<ScenarioReport>>> = {
  fanout: ({ size, storage }) =>
    withServers(1, storage, ([server]) => runFanout(server!, FANOUT_SIZES[size])),
  'write-cost': ({ size, storage }) =>
    withServers(2, storage, ([empty, filled]) =>
      runWriteCost({ empty: empty!, filled: filled! }, WRITE_COST_SIZES[size]),
    ),
};

export async function runBench(scenario: string, options: BenchOptions): Promise<ScenarioReport> {
  const run = SCENARIOS[scenario];
  if (run === undefined) {
    throw new RangeError(`no scenario ${scenario}; there are ${Object.keys(SCENARIOS).join(', ')}`);
  }
  return run(options);
}

export async function main(argv: readonly string[]): Promise<void> {
  const program = new Command('bench')
    .argument('<scenario>', Object.keys(SCENARIOS).join(' | '))
    .option('--small', 'seconds, to see that it works (default)')
    .option('--full', 'the size that figures are quoted for')
    .addOption(new Option('--storage <kind>', 'database').choices(['sqlite', 'memory']).default('sqlite'))
    .option('--json <file>', 'also write the figures as JSON')
    .parse(argv);
  const { full, storage, json } = program.opts<{ full?: boolean; storage: StorageKind; json?: string }>();
  const report = await runBench(program.args[0]!, { size: full ? 'full' : 'small', storage });
  process.stdout.write(`\n${formatReport(report)}`);
  if (json !== undefined) writeFileSync(json, `${JSON.stringify(report, null, 2)}\n`);
}
