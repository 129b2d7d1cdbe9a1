/** Every fault of the database under load, through a whole gateway (architecture §5). */
import { afterAll, beforeAll, expect, test } from 'vitest';
import { PostgresLoad } from './postgres-load.ts';
import { runRandomFaults } from './random-faults.ts';

let load: PostgresLoad;

beforeAll(async () => {
  load = await PostgresLoad.start();
  await load.moreAnswers(20);
}, 60_000);

afterAll(() => load.close());

const REFUSALS = ['500 none', '429 sync.rate_limited', '503 sync.rate_limited', '200 cut'];

function codeOf(body: string): string {
  if (!body.startsWith('{')) return 'cut';
  return (JSON.parse(body) as { readonly code?: string }).code ?? 'none';
}

const BACKENDS = `FROM pg_stat_activity WHERE application_name = 'tidegate'`;

test('backends are terminated', async () => {
  for (let round = 0; round < 5; round++) {
    await load.moreAnswers(3 + round);
    await load.sql(`SELECT pg_terminate_backend(pid) ${BACKENDS}`);
  }
  await load.moreAnswers(20);
});

test('a connection is cut: before COMMIT arrives, after it arrived, in the middle of a result', async () => {
  const faults = [
    { on: 'request', text: 'COMMIT', what: 'drop' },
    { on: 'request', text: 'COMMIT', what: 'deliver' },
    { on: 'answer', text: 'COMMIT', what: 'drop' },
    { on: 'answer', what: 'drop' },
  ] as const;
  for (const fault of faults) {
    await load.proxy.next(fault);
    await load.moreAnswers(10);
  }
});

test('all connections are cut at once', async () => {
  for (let round = 0; round < 5; round++) {
    load.proxy.cutAll();
    if (round % 2 === 0) await load.moveOne();
    await load.moreAnswers(5);
  }
});

test.each(['immediate', 'fast'] as const)('the server stops (%s) and starts again', async (mode) => {
  await load.cluster.stop(mode);
  await load.untilReadiness('storage');
  await load.cluster.restart();
  await load.untilReadiness('ready');
  await load.moreAnswers(20);
});

test('the server turns read-only, as after a failover, and writable again (25006)', async () => {
  await load.sql('ALTER SYSTEM SET default_transaction_read_only = on');
  await load.sql('SELECT pg_reload_conf()');
  await load.untilReadiness('storage');
  await load.sql('ALTER SYSTEM RESET default_transaction_read_only');
  await load.sql('SELECT pg_reload_conf()');
  await load.untilReadiness('ready');
  await load.moreAnswers(20);
});

test('a lock that is held: statements and waits for a connection run out of time', async () => {
  const refused = load.refusals.length;
  // One transaction: the lock is held for as long as the sleep lasts.
  await load.sql(
    `BEGIN; LOCK TABLE tidegate.sync_partitions IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(1.5); COMMIT`,
  );
  expect(load.refusals.length).toBeGreaterThan(refused);
  await load.moreAnswers(20);
});

test.each([7, 20_261_201])(
  'faults in an order of its own, seed %i',
  async (seed) => {
    await runRandomFaults(load, { rounds: 4, seed });
  },
  60_000,
);

test('the disk is full (53100)', async () => {
  const refused = load.refusals.length;
  await load.sql(
    `CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
       $$ BEGIN RAISE EXCEPTION 'could not extend file "base/1/2": No space left' USING ERRCODE = '53100'; END $$;
     CREATE TRIGGER full_disk BEFORE INSERT ON tidegate.sync_commits FOR EACH STATEMENT EXECUTE FUNCTION full_disk()`,
  );
  while (load.refusals.length < refused + 3) await load.untilReadiness('ready');
  await load.sql('DROP TRIGGER full_disk ON tidegate.sync_commits');
  await load.moreAnswers(20);
});

test('S-036, S-133, S-134: nothing is lost, nothing is there twice, no hole, nothing is left over, and nothing was told that is secret', async () => {
  await load.settle();
  const { commits } = await load.check();
  expect(commits).toBeGreaterThan(200);
  expect(load.refusals.length).toBeGreaterThan(0);
  const { password, port } = new URL(load.cluster.url);
  for (const { status, body } of load.refusals) {
    // The catalogue has no code for a database that is away: 500 without one, or a refusal that says when to come again.
    expect(REFUSALS).toContain(`${status} ${codeOf(body)}`);
    for (const secret of [password, port, 'sync_', 'tidegate', 'SELECT', 'INSERT', 'base/', '127.0.0.1']) {
      expect(body).not.toContain(secret);
    }
  }
});
