/** Bringing a PostgreSQL database up to date: planned, at the same time, with few rights, and past what is in the way. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import { planMigration } from '../../src/storage/postgres/plan-migration.ts';
import { openPostgresStorage } from '../../src/storage/postgres/postgres-storage.ts';
import { admitTo, failureOf, gate, SCHEMA, TASKS, task, write } from '../contract/storage/fixture.ts';
import { runSql } from '../support/postgres-server.ts';
import { type PostgresHarness, postgresPerFile } from './postgres-harness.ts';

const make = postgresPerFile();
let harness: PostgresHarness;

beforeEach(async () => {
  harness = await make();
});

afterEach(() => harness.dispose());

function options() {
  return { connection: harness.url, namespace: harness.namespace, clock: createRealClock() };
}

function items(version: number, columns: readonly { name: string; type: string; nullable?: boolean }[]) {
  const all = [{ name: 'id', type: 'string' }, { name: 'list', type: 'string' }, ...columns];
  return compileSchema({
    version,
    tables: [{ name: 'items', primaryKey: 'id', columns: all, scopes: ['list:{list}'] }],
  });
}

async function tables(): Promise<string[]> {
  const rows = await runSql<{ name: string }>(
    harness.url,
    `SELECT relname AS name FROM pg_class WHERE relkind = 'r' AND relnamespace =
      (SELECT oid FROM pg_namespace WHERE nspname = '${harness.namespace}') ORDER BY 1`,
  );
  return rows.map(({ name }) => name);
}

test('the plan names every statement, changes nothing, and carried out by hand it leaves nothing to do', async () => {
  const plan = await planMigration(options(), SCHEMA);
  expect(await tables()).toEqual([]);
  expect(plan.filter((text) => text === 'BEGIN')).toHaveLength(2);
  expect(plan.some((text) => text.startsWith('CREATE SCHEMA'))).toBe(true);
  expect(plan.filter((text) => text.startsWith('CREATE TABLE')).length).toBeGreaterThan(14);
  await runSql(harness.url, plan.join(';\n'));
  expect(await tables()).toEqual(expect.arrayContaining(['notes', 'sealed', 'sync_commits', 'tasks']));
  expect(await planMigration(options(), SCHEMA)).toEqual([]);
  const { storage } = await harness.open();
  await storage.ensureSchema(SCHEMA);
  await admitTo(storage, 'p');
  expect(await write(storage, 'p', [task('t1', 'p1')])).toHaveLength(1);
  await storage.close();
});

test('the plan of a bump says what the program rewrites, and refuses what ensureSchema would', async () => {
  const { storage } = await harness.open();
  const one = items(1, []);
  await storage.ensureSchema(one);
  await admitTo(storage, 'p');
  await write(storage, 'p', [{ op: 'upsert', table: one.tables[0]!, values: ['i1', 'l1'] }]);
  const plan = await planMigration(options(), items(2, [{ name: 'note', type: 'string', nullable: true }]));
  expect(plan[0]).toBe('BEGIN');
  expect(plan[1]).toMatch(/^LOCK TABLE .*"sync_partitions" IN EXCLUSIVE MODE$/);
  expect(plan).toContainEqual(expect.stringMatching(/^ALTER TABLE .*"items" ADD COLUMN "note" text/));
  expect(plan.filter((text) => text.startsWith('--'))).toHaveLength(2);
  expect(await planMigration(options(), one)).toEqual([]);
  const impossible = items(2, [{ name: 'must', type: 'string' }]);
  const failure = await failureOf(planMigration(options(), impossible));
  expect(failure).toMatchObject({ code: 'sync.storage.schema_changed' });
  await storage.close();
});

test('eight processes that start at once on an empty database all start, and the schema is there once', async () => {
  const opened = await Promise.all(Array.from({ length: 8 }, () => harness.open()));
  await Promise.all(opened.map(({ storage }) => storage.ensureSchema(SCHEMA)));
  const rows = await runSql(harness.url, `SELECT 1 FROM "${quotedNamespace()}".sync_schema_meta`);
  expect(rows).toHaveLength(1);
  await Promise.all(opened.map(({ storage }) => storage.close()));
});

test('a bump waits for the writer that is inside, and the writer that comes waits for the bump', async () => {
  const { storage } = await harness.open();
  const other = (await harness.open()).storage;
  await storage.ensureSchema(items(1, []));
  await admitTo(storage, 'p');
  const [inside, hold] = [gate(), gate()];
  const events: string[] = [];
  const first = storage.transaction('p', async () => {
    inside.open();
    await hold.opened;
    events.push('first writer');
  });
  await inside.opened;
  const bump = other.ensureSchema(items(2, [])).then(() => events.push('bump'));
  await untilBlocked(1);
  const second = storage.transaction('p', async (tx) => {
    events.push(`second writer at version ${tx.state.storedSchemaVersion}`);
  });
  await untilBlocked(2);
  expect((await admitTo(storage, 'p')).state.storedSchemaVersion).toBe(1);
  hold.open();
  await Promise.all([first, bump, second]);
  expect(events.toSorted()).toEqual(['bump', 'first writer', 'second writer at version 2']);
  expect(events[0]).toBe('first writer');
  await Promise.all([storage.close(), other.close()]);
});

test('where everything is in place, the rights to read and write rows are enough', async () => {
  const owner = await harness.open();
  await owner.storage.ensureSchema(SCHEMA);
  await owner.storage.close();
  const role = `role_${harness.namespace.replaceAll(/\W/g, '').toLowerCase()}`;
  const namespace = `"${quotedNamespace()}"`;
  await runSql(
    harness.url,
    `CREATE ROLE ${role} LOGIN PASSWORD 'secret'; GRANT USAGE ON SCHEMA ${namespace} TO ${role};
     GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ${namespace} TO ${role}`,
  );
  const url = new URL(harness.url);
  url.username = role;
  url.password = 'secret';
  const { storage, segments } = await openPostgresStorage({ ...options(), connection: url.href });
  await storage.ensureSchema(SCHEMA);
  await storage.ping();
  await admitTo(storage, 'p');
  await write(storage, 'p', [task('t1', 'p1')]);
  await storage.pruneLog({ partition: 'p', horizon: 1, commitsMax: 10 });
  await segments.sweep({ expiredBeforeMs: 1, max: 1 });
  const failure = await failureOf(storage.ensureSchema(compileSchema({ version: 4, tables: [] })));
  expect(failure).toMatchObject({ code: expect.stringMatching(/^sync\.storage\./) });
  await storage.close();
  await runSql(harness.url, `DROP OWNED BY ${role}; DROP ROLE ${role}`);
});

test('a table that is in the way is named, and nothing was changed', async () => {
  const { storage } = await harness.open();
  await runSql(harness.url, `CREATE TABLE "${quotedNamespace()}".notes (id int)`);
  const failure = await failureOf(storage.ensureSchema(SCHEMA));
  expect(failure).toMatchObject({ code: 'sync.storage.schema_changed' });
  expect(String(failure)).toMatch(/table notes .*rename/);
  expect(await tables()).not.toContain('tasks');
  await storage.close();
});

test('own tables of a later version are refused', async () => {
  await (await harness.open()).storage.close();
  await runSql(harness.url, `UPDATE "${quotedNamespace()}".sync_storage_version SET version = 99`);
  expect(await failureOf(harness.open())).toMatchObject({ code: 'sync.storage.schema_newer' });
});

test('typed columns hold what the payload says, in types that anybody may query', async () => {
  const { storage } = await harness.open();
  await storage.ensureSchema(SCHEMA);
  await admitTo(storage, 'p');
  const values = {
    title: 'it\'s "odd" \\ 🦆\n',
    rank: Number.MAX_SAFE_INTEGER,
    weight: -0.1,
    done: false,
    meta: ' {"b": 1.0, "a":[null,1e2]} ',
    body: new Uint8Array([0, 1, 255]),
  };
  await write(storage, 'p', [
    task('t1', 'p1', values),
    task('t2', 'p1', { weight: Number.NEGATIVE_INFINITY }),
  ]);
  const rows = await runSql(
    harness.url,
    `SELECT id, title, rank::text, weight::text, done, meta->'a'->>1 AS meta, encode(body, 'hex') AS body,
       _sync_scopes->>'project' AS project, octet_length(_sync_payload) > 0 AS payload
     FROM "${quotedNamespace()}".tasks WHERE _sync_partition = 'p' ORDER BY id`,
  );
  expect(rows).toEqual([
    {
      id: 't1',
      title: values.title,
      rank: '9007199254740991',
      weight: '-0.1',
      done: false,
      meta: '100',
      body: '0001ff',
      project: 'p1',
      payload: true,
    },
    expect.objectContaining({ id: 't2', weight: '-Infinity', rank: null, done: null }),
  ]);
  expect(TASKS.columns).toHaveLength(10);
  await storage.close();
});

function quotedNamespace(): string {
  return harness.namespace.replaceAll('"', '""');
}

/** Until so many sessions of this database wait for a lock. */
async function untilBlocked(sessions: number): Promise<void> {
  for (;;) {
    const waiting = await runSql(
      harness.url,
      `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`,
    );
    if (waiting.length >= sessions) return;
  }
}
