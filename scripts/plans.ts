/**
 * The plans of the storage's statements at a long log: `npx tsx scripts/plans.ts [changes]`, 1,000,000 unless said otherwise.
 * Starts a PostgreSQL of its own. Exit code 1 where a statement reads a large table from front to back.
 */
import { createRealClock } from '../src/gateway/real-clock.ts';
import { openPostgresStorage } from '../src/storage/postgres/postgres-storage.ts';
import { admitTo, SCHEMA } from '../test/contract/storage/fixture.ts';
import {
  capture,
  explain,
  fillLog,
  LARGE_TABLES,
  PARTITION,
  type PlanNode,
  scansOf,
  serve,
} from '../test/storage/large-log.ts';
import { PostgresCluster } from '../test/support/postgres-cluster.ts';

const CHANGES_DEFAULT = 1_000_000;

const changes = Number(process.argv[2] ?? CHANGES_DEFAULT);
const cluster = await PostgresCluster.start();
try {
  const { url } = cluster;
  const { storage } = await openPostgresStorage({ connection: url, clock: createRealClock() });
  await storage.ensureSchema(SCHEMA);
  await admitTo(storage, PARTITION);
  const startedAtMs = performance.now();
  await fillLog({ url, namespace: 'tidegate' }, changes);
  say(`${changes} changes written in ${Math.round(performance.now() - startedAtMs)} ms`);
  const [state] = await storage.listPartitions({ afterPartition: null, max: 1 });
  const explained = await explain(url, await capture(() => serve(storage, state?.head ?? 0)));
  await storage.close();
  for (const { text, plan } of explained) {
    const nodes = plan.filter((node) => LARGE_TABLES.includes(node['Relation Name'] ?? ''));
    if (nodes.length === 0) continue;
    say(`\n${text.replaceAll(/\s+/g, ' ').slice(0, 110)}`);
    for (const node of nodes) say(`  ${describe(node)}`);
  }
  const scans = scansOf(explained);
  say(`\n${explained.length} statements, ${scans.length} of them read a large table from front to back`);
  for (const scan of scans) say(scan);
  if (scans.length > 0) process.exitCode = 1;
} finally {
  await cluster.dispose();
}

function describe(node: PlanNode): string {
  const index = node['Index Name'] === undefined ? '' : ` by ${node['Index Name']}`;
  const condition = node['Index Cond'] === undefined ? '' : `: ${node['Index Cond'].slice(0, 140)}`;
  return `${node['Node Type']} on ${node['Relation Name'] ?? ''}${index}${condition}`;
}

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}
