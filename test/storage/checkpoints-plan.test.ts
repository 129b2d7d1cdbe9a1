/** The plan of a PostgreSQL migration with declarations, carried out by hand (part 4, 4.2). */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import { planMigration } from '../../src/storage/postgres/plan-migration.ts';
import { admitTo, failureOf, SCHEMA, SCHEMA_DOCUMENT, task, write } from '../contract/storage/fixture.ts';
import { runSql } from '../support/postgres-server.ts';
import { type PostgresHarness, postgresPerFile } from './postgres-harness.ts';

const make = postgresPerFile();
const NEXT = compileSchema({ ...SCHEMA_DOCUMENT, version: 4 });
const DECLARED = [
  { partition: "it's", name: 'totals', schemaVersion: 4 },
  { partition: 'p', name: 'totals', schemaVersion: 4 },
];
let harness: PostgresHarness;

beforeEach(async () => {
  harness = await make();
});

afterEach(() => harness.dispose());

function options() {
  return { connection: harness.url, namespace: harness.namespace, clock: createRealClock() };
}

test('4.2: the plan holds fence and checkpoints behind the lock, and leaves nothing to do', async () => {
  const { storage } = await harness.open();
  await storage.ensureSchema(SCHEMA);
  await admitTo(storage, 'p');
  const plan = await planMigration(options(), NEXT, DECLARED);
  expect(plan[1]).toMatch(/^LOCK TABLE .*"sync_partitions" IN EXCLUSIVE MODE$/);
  expect((await storage.readServeGate('p', 4)).pending).toEqual([]);
  await runSql(harness.url, plan.join(';\n'));
  expect(await storage.readServeGate('p', 4)).toMatchObject({
    storedSchemaVersion: 4,
    pending: DECLARED.map(({ partition, name }) => ({ partition, name })),
  });
  expect(await failureOf(write(storage, 'p', [task('t1', 'p1')]))).toMatchObject({
    code: 'sync.storage.writer_fence_rejected',
  });
  expect(await planMigration(options(), NEXT, DECLARED)).toEqual([]);
  expect(await failureOf(planMigration(options(), NEXT))).toMatchObject({
    code: 'sync.storage.checkpoint_incomplete',
  });
  await storage.close();
});

test('the first plan holds the trigger, and a database made by hand keeps the fence', async () => {
  const plan = await planMigration(options(), NEXT, DECLARED);
  expect(plan.filter((text) => text.includes('TRIGGER sync_commits_writer_fence'))).toHaveLength(1);
  await runSql(harness.url, plan.join(';\n'));
  const { storage } = await harness.open();
  await storage.ensureSchema(NEXT, DECLARED);
  await admitTo(storage, 'p');
  expect(await failureOf(write(storage, 'p', [task('t1', 'p1')]))).toMatchObject({
    code: 'sync.storage.writer_fence_rejected',
  });
  await storage.close();
});

test('a writer without rights on the fence neither fails nor gets around it, whatever its search path', async () => {
  const { storage } = await harness.open();
  await storage.ensureSchema(SCHEMA);
  await storage.declareCheckpoint({ partition: 'p', name: 'totals', schemaVersion: 3, nowMs: 1 });
  const role = `role_${harness.namespace.replaceAll(/\W/g, '').toLowerCase()}`;
  const namespace = `"${harness.namespace.replaceAll('"', '""')}"`;
  await runSql(
    harness.url,
    `CREATE ROLE ${role} LOGIN PASSWORD 'secret'; GRANT USAGE ON SCHEMA ${namespace} TO ${role};
     GRANT INSERT ON ${namespace}.sync_commits TO ${role}`,
  );
  const url = new URL(harness.url);
  url.username = role;
  url.password = 'secret';
  const insert = (partition: string): string =>
    `CREATE TEMP TABLE sync_writer_fence (partition text, required_writer_version int);
     SET search_path = pg_temp, pg_catalog;
     INSERT INTO ${namespace}.sync_commits
       (partition, commit_seq, client_id, client_commit_id, actor_id, created_at_ms) VALUES ('${partition}', 1, 'c', 'c', 'a', 1)`;
  await runSql(url.href, insert('free'));
  expect(await failureOf(runSql(url.href, insert('p')))).toMatchObject({
    message: 'sync.storage.writer_fence_rejected',
  });
  await storage.close();
  await runSql(harness.url, `DROP OWNED BY ${role}; DROP ROLE ${role}`);
});
