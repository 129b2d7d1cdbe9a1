/** Part 4, 4.2: two that declare the same at once take their locks in one order, whoever is slow in between. */
import pg from 'pg';
import { expect, test } from 'vitest';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import { SCHEMA, SCHEMA_DOCUMENT } from '../contract/storage/fixture.ts';
import { runSql } from '../support/postgres-server.ts';
import { postgresPerFile } from './postgres-harness.ts';

const make = postgresPerFile();

test('4.2: a bump that meets a declaration half done waits for it and holds nothing that it needs', async () => {
  const harness = await make();
  const { storage } = await harness.open();
  await storage.ensureSchema(SCHEMA);
  const namespace = `"${harness.namespace.replaceAll('"', '""')}"`;
  const client = new pg.Client({ connectionString: harness.url });
  await client.connect();
  await client.query('BEGIN');
  await client.query(
    `INSERT INTO ${namespace}.sync_backfill_checkpoints (partition, name, schema_version, state, updated_at_ms)
     VALUES ('p', 'b', 4, 'declared', 1)`,
  );
  const declared = ['c', 'b', 'a'].map((name) => ({ partition: 'p', name, schemaVersion: 4 }));
  const bump = storage.ensureSchema(compileSchema({ ...SCHEMA_DOCUMENT, version: 4 }), declared);
  await untilBlocked(harness.url);
  await client.query(`INSERT INTO ${namespace}.sync_writer_fence VALUES ('p', 5)`);
  await client.query('COMMIT');
  await client.end();
  await bump;
  const records = [...(await storage.readCheckpoints('p')).values()];
  expect(records.map(({ name, updatedAtMs }) => [name, updatedAtMs === 1])).toEqual([
    ['a', false],
    ['b', true],
    ['c', false],
  ]);
  const fence = await runSql(
    harness.url,
    `SELECT required_writer_version AS v FROM ${namespace}.sync_writer_fence`,
  );
  expect(fence).toEqual([{ v: 5 }]);
  await storage.close();
  await harness.dispose();
});

/** Until a session of this database waits for a lock. */
async function untilBlocked(url: string): Promise<void> {
  const waits = `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`;
  while ((await runSql(url, waits)).length === 0);
}
