/** `npm run bench -- SCENARIO [--small|--full] [--storage sqlite|memory|postgres] [--pg URL] [--profile FOLDER] [--json FILE] [--record]` */
import { writeFileSync } from 'node:fs';
import { Command, Option } from 'commander';
import { type Databases, type StorageKind, withDatabases } from './databases.ts';
import { recordRun } from './record.ts';
import { formatReport, type ScenarioReport } from './report.ts';
import { FANOUT_SIZES, runFanout } from './scenarios/fanout.ts';
import { fillForPullCost, PULL_COST_SIZES, runPullCost } from './scenarios/pull-cost.ts';
import { PUSH_SIZES, runPush } from './scenarios/push.ts';
import { runWriteCost, WRITE_COST_SIZES } from './scenarios/write-cost.ts';
import { ServerProcess } from './server-process.ts';

type SizeName = 'small' | 'full';

export interface BenchOptions {
  readonly size: SizeName;
  readonly storage: StorageKind;
  /** A PostgreSQL server to use; `null` starts one. */
  readonly pgUrl?: string | null;
  /** Where the gateways leave their CPU profiles; `null` for none. */
  readonly profileFolder?: string | null;
}

interface Run extends BenchOptions {
  readonly databases: Databases;
  readonly withServers: WithServers;
}

/** Runs with a gateway on each database; ends them on every path. */
type WithServers = (
  storageUrls: readonly string[],
  run: (servers: readonly ServerProcess[]) => Promise<ScenarioReport>,
) => Promise<ScenarioReport>;

function serversProfiledTo(profileFolder: string | null): WithServers {
  return async (storageUrls, run) => {
    const servers: ServerProcess[] = [];
    try {
      for (const url of storageUrls) servers.push(await ServerProcess.start(url, profileFolder));
      return await run(servers);
    } finally {
      await Promise.all(servers.map((server) => server.stop()));
    }
  };
}

const SCENARIOS: Readonly<Record<string, (run: Run) => Promise<ScenarioReport>>> = {
  fanout: async ({ size, databases, withServers }) =>
    withServers([await databases.create()], ([server]) => runFanout(server!, FANOUT_SIZES[size])),
  push: async ({ size, databases, withServers }) => {
    const [url, rawUrl] = [await databases.create(), await databases.create()];
    return withServers([url], ([server]) => runPush({ server: server!, rawUrl }, PUSH_SIZES[size]));
  },
  'pull-cost': async ({ size, storage, databases, withServers }) => {
    if (storage === 'memory') throw new RangeError('pull-cost fills a database before the gateway opens it');
    const url = await databases.create();
    await fillForPullCost(url, PULL_COST_SIZES[size]);
    return withServers([url], ([server]) => runPullCost(server!, PULL_COST_SIZES[size]));
  },
  'write-cost': async ({ size, databases, withServers }) =>
    withServers([await databases.create(), await databases.create()], ([empty, filled]) =>
      runWriteCost({ empty: empty!, filled: filled! }, WRITE_COST_SIZES[size]),
    ),
};

export async function runBench(scenario: string, options: BenchOptions): Promise<ScenarioReport> {
  const run = SCENARIOS[scenario];
  if (run === undefined) {
    throw new RangeError(`no scenario ${scenario}; there are ${Object.keys(SCENARIOS).join(', ')}`);
  }
  const { storage, pgUrl = null, profileFolder = null } = options;
  const withServers = serversProfiledTo(profileFolder);
  const serverAge = options.size === 'full' ? 'aged' : 'fresh';
  return withDatabases({ storage, pgUrl, serverAge }, async (databases) => {
    const { scenario: title, figures } = await run({ ...options, databases, withServers });
    return { scenario: title, figures: { ...figures, ...databases.settings } };
  });
}

export async function main(argv: readonly string[]): Promise<void> {
  const program = new Command('bench')
    .argument('<scenario>', Object.keys(SCENARIOS).join(' | '))
    .option('--small', 'seconds, to see that it works (default)')
    .option('--full', 'the size that figures are quoted for')
    .addOption(
      new Option('--storage <kind>', 'database').choices(['sqlite', 'memory', 'postgres']).default('sqlite'),
    )
    .option('--pg <url>', 'a PostgreSQL server to use; default: one of its own, durable, for the run')
    .option('--profile <folder>', 'also write the CPU profiles of the gateways; figures are worse then')
    .option('--json <file>', 'also write the figures as JSON')
    .option('--record', 'also add the run to bench/results.json, and write bench/RESULTS.md anew')
    .parse(argv);
  const { full, storage, pg, profile, json, record } = program.opts<Flags>();
  const scenario = program.args[0]!;
  const size = full ? 'full' : 'small';
  const report = await runBench(scenario, {
    size,
    storage,
    pgUrl: pg ?? null,
    profileFolder: profile ?? null,
  });
  process.stdout.write(`\n${formatReport(report)}`);
  if (json !== undefined) writeFileSync(json, `${JSON.stringify(report, null, 2)}\n`);
  if (record) recordRun({ command: `npm run bench -- ${scenario} --${size} --storage ${storage}`, report });
}

interface Flags {
  readonly full?: boolean;
  readonly storage: StorageKind;
  readonly pg?: string;
  readonly profile?: string;
  readonly json?: string;
  readonly record?: boolean;
}
