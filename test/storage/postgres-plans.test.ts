/** Guarantee 7 (S-043) on PostgreSQL: what the planner makes of the statements of pushes, pulls and fanout at a long log. */
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { Storage } from '../../src/storage/storage.ts';
import { admitTo, SCHEMA } from '../contract/storage/fixture.ts';
import { runSql } from '../support/postgres-server.ts';
import { capture, explain, fillLog, LARGE_TABLES, PARTITION, scansOf, serve } from './large-log.ts';
import { type PostgresHarness, postgresPerFile } from './postgres-harness.ts';

/** `npx tsx scripts/plans.ts` does the same at 1,000,000. */
const CHANGES = 100_000;

const make = postgresPerFile();
let harness: PostgresHarness;
let storage: Storage;

beforeAll(async () => {
  harness = await make();
  ({ storage } = await harness.open());
  await storage.ensureSchema(SCHEMA);
  await admitTo(storage, PARTITION);
  await fillLog(harness, CHANGES);
});

afterAll(async () => {
  await storage.close();
  await harness.dispose();
});

test(`S-043: at ${CHANGES} changes no statement reads the log, the rows or the results but through a key`, async () => {
  const [state] = await storage.listPartitions({ afterPartition: null, max: 1 });
  const sent = await capture(() => serve(storage, state!.head));
  const explained = await explain(harness.url, sent);
  expect(explained.length).toBeGreaterThan(30);
  const touched = new Set(explained.flatMap(({ plan }) => plan.map((node) => node['Relation Name'])));
  for (const table of LARGE_TABLES) expect(touched).toContain(table);
  expect(scansOf(explained)).toEqual([]);

  // The same statements, were an index forgotten.
  const namespace = `"${harness.namespace.replaceAll('"', '""')}"`;
  const table = `${namespace}.sync_change_scopes`;
  await runSql(harness.url, `ALTER TABLE ${table} DROP CONSTRAINT sync_change_scopes_pkey`);
  expect(scansOf(await explain(harness.url, sent))).toContainEqual(
    expect.stringMatching(/^Seq Scan sync_change_scopes: SELECT candidate/),
  );
});
