/** Connections that break at every moment of a transaction, and a database that is busy, full, read-only or silent. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import type { PostgresStorageOptions } from '../../src/storage/postgres/options.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { StorageError } from '../../src/storage/storage-error.ts';
import {
  admitTo,
  failureOf,
  gate,
  SCHEMA,
  TASKS,
  task,
  WHOLE_LOG,
  WHOLE_PAGE,
  write,
  writeIn,
} from '../contract/storage/fixture.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { runSql } from '../support/postgres-server.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { type PostgresHarness, postgresPerFile } from './postgres-harness.ts';

const make = postgresPerFile();
let harness: PostgresHarness;
let proxy: TcpProxy;
let storage: Storage;
const opened: Storage[] = [];

/** Through the proxy. */
async function open(options: Partial<PostgresStorageOptions> = {}): Promise<Storage> {
  const url = new URL(harness.url);
  url.port = String(proxy.port);
  const instance = await harness.openWith({ connection: url.href, ...options });
  opened.push(instance.storage);
  return instance.storage;
}

beforeEach(async () => {
  harness = await make();
  proxy = await TcpProxy.start({ target: Number(new URL(harness.url).port) });
  storage = await open();
  await storage.ensureSchema(SCHEMA);
  await admitTo(storage, 'p');
  await write(storage, 'p', [task('t0', 'p1')]);
});

afterEach(async () => {
  // Nothing is left in a transaction, whatever happened.
  await sessions(`state LIKE 'idle in transaction%'`, 0);
  await Promise.all(opened.splice(0).map((instance) => instance.close()));
  await proxy.close();
  await sessions('true', 0);
  await harness.dispose();
});

/** Waits until so many sessions of storages are in the state. */
async function sessions(condition: string, count: number): Promise<void> {
  for (;;) {
    const found = await runSql(
      harness.url,
      `SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tidegate'
         AND ${condition}`,
    );
    if (found.length === count) return;
  }
}

async function terminate(condition: string): Promise<void> {
  const found = await runSql(
    harness.url,
    `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
     WHERE datname = current_database() AND application_name = 'tidegate' AND ${condition}`,
  );
  expect(found.length).toBeGreaterThan(0);
}

function logOf(instance: Storage) {
  return instance.readSnapshot('p', async (reader) => {
    const commits = await reader.readCommits(WHOLE_LOG);
    return commits.flatMap(({ changes }) => changes.map(({ rowId }) => rowId));
  });
}

async function expectFailure(promise: Promise<unknown>, expected: Partial<StorageError>): Promise<void> {
  const failure = await failureOf(promise);
  expect(failure).toBeInstanceOf(StorageError);
  expect(failure).toMatchObject(expected);
  expect((failure as StorageError).cause).toBeInstanceOf(Error);
}

const UNAVAILABLE = { code: 'sync.storage.unavailable', outcome: 'nothing', retryable: true } as const;
const BUSY = { code: 'sync.storage.busy', outcome: 'nothing', retryable: true } as const;
const UNKNOWN = { code: 'sync.storage.outcome_unknown', outcome: 'unknown' } as const;

describe('the backend is terminated', () => {
  test('before anything was written: nothing landed, the next transaction goes on', async () => {
    const running = storage.transaction('p', async (tx) => {
      await terminate(`state = 'idle in transaction'`);
      await writeIn(tx, [task('t1', 'p1')]);
    });
    await expectFailure(running, UNAVAILABLE);
    await write(storage, 'p', [task('t2', 'p1')]);
    expect(await logOf(storage)).toEqual(['t0', 't2']);
  });

  test('between append and COMMIT: the outcome is unknown to the caller, and in truth nothing landed', async () => {
    const running = storage.transaction('p', async (tx) => {
      await writeIn(tx, [task('t1', 'p1')]);
      await terminate(`state = 'idle in transaction'`);
    });
    const failure = (await failureOf(running)) as StorageError;
    // The termination may be noticed before COMMIT leaves, or only by it.
    expect(['sync.storage.outcome_unknown', 'sync.storage.unavailable']).toContain(failure.code);
    await write(storage, 'p', [task('t2', 'p1')]);
    expect(await logOf(storage)).toEqual(['t0', 't2']);
  });

  test('while it waits for a lock of another: nothing landed', async () => {
    const [inside, hold] = [gate(), gate()];
    const first = storage.transaction('p', async (tx) => {
      inside.open();
      await hold.opened;
      await writeIn(tx, [task('t1', 'p1')]);
    });
    await inside.opened;
    const second = write(storage, 'p', [task('t2', 'p1')]);
    const failing = failureOf(second);
    await sessions(`wait_event_type = 'Lock'`, 1);
    await terminate(`wait_event_type = 'Lock'`);
    expect(await failing).toMatchObject({ outcome: 'nothing' });
    hold.open();
    await first;
    expect(await logOf(storage)).toEqual(['t0', 't1']);
  });

  test('after COMMIT, idle in the pool: nobody notices', async () => {
    await Promise.all([admitTo(storage, 'p'), admitTo(storage, 'p'), logOf(storage)]);
    await terminate(`state = 'idle'`);
    await write(storage, 'p', [task('t1', 'p1')]);
    expect(await logOf(storage)).toEqual(['t0', 't1']);
  });

  test('in a snapshot: the read fails, the next one is served', async () => {
    const reading = storage.readSnapshot('p', async (reader) => {
      await terminate(`state = 'idle in transaction'`);
      return reader.readRow(TASKS, 't0');
    });
    await expectFailure(reading, UNAVAILABLE);
    expect(await logOf(storage)).toEqual(['t0']);
  });

  test('in a savepoint: the whole transaction is lost, and says why', async () => {
    const running = storage.transaction('p', (tx) =>
      tx.savepoint(async () => {
        await terminate(`state = 'idle in transaction'`);
        await writeIn(tx, [task('t1', 'p1')]);
      }),
    );
    await expectFailure(running, UNAVAILABLE);
    expect(await logOf(storage)).toEqual(['t0']);
  });
});

describe('the connection is cut', () => {
  test('before COMMIT reaches the server: unknown, and nothing landed', async () => {
    const running = storage.transaction('p', async (tx) => {
      await writeIn(tx, [task('t1', 'p1')]);
      void proxy.next({ on: 'request', text: '\0COMMIT\0', what: 'drop' });
    });
    await expectFailure(running, UNKNOWN);
    await write(storage, 'p', [task('t2', 'p1')]);
    expect(await logOf(storage)).toEqual(['t0', 't2']);
  });

  test('behind COMMIT, before its answer: unknown, and it landed whole', async () => {
    const running = storage.transaction('p', async (tx) => {
      await writeIn(tx, [task('t1', 'p1')], [task('t2', 'p1')]);
      void proxy.next({ on: 'request', text: '\0COMMIT\0', what: 'deliver' });
    });
    await expectFailure(running, UNKNOWN);
    const results = await storage.transaction('p', (tx) =>
      tx.readResults([2, 3].map((n) => ({ clientId: 'client-1', clientCommitId: `commit-${n}` }))),
    );
    expect(results.map((record) => record?.clientCommitId)).toEqual(['commit-2', 'commit-3']);
    expect(await logOf(storage)).toEqual(['t0', 't1', 't2']);
  });

  test('in the middle of a long result: the read fails whole, the next one is served', async () => {
    const body = new Uint8Array(200_000).fill(7);
    await write(
      storage,
      'p',
      ['a', 'b', 'c', 'd'].map((id) => task(id, 'big', { body })),
    );
    const page = { table: TASKS, scopes: { project: ['big'] }, ...WHOLE_PAGE };
    const reading = storage.readSnapshot('p', async (reader) => {
      void proxy.next({ on: 'answer', text: '0707070707', what: 'drop' });
      return reader.readRowPage(page);
    });
    await expectFailure(reading, UNAVAILABLE);
    const { rows } = await storage.readSnapshot('p', (reader) => reader.readRowPage(page));
    expect(rows.map(({ rowId }) => rowId)).toEqual(['a', 'b', 'c', 'd']);
  });

  test('at once everywhere: what is running fails, everything afterwards is served', async () => {
    const [inside, hold] = [gate(), gate()];
    const running = storage.transaction('p', async (tx) => {
      inside.open();
      await hold.opened;
      await writeIn(tx, [task('t1', 'p1')]);
    });
    await inside.opened;
    proxy.cutAll();
    hold.open();
    await expectFailure(running, UNAVAILABLE);
    await storage.ping();
    await write(storage, 'p', [task('t2', 'p1')]);
    expect(await logOf(storage)).toEqual(['t0', 't2']);
  });

  test('a write that is one round trip and idempotent is repeated on another connection', async () => {
    const fault = proxy.next({ on: 'request', text: 'sync_client_bindings', what: 'deliver' });
    expect(await storage.bindClient({ partition: 'p', clientId: 'c', actorId: 'a' })).toBe('a');
    await fault;
    expect(await storage.bindClient({ partition: 'p', clientId: 'c', actorId: 'b' })).toBe('a');
  });

  test('a server that is silent is given up after the statement timeout and a little', async () => {
    const clock = new ManualClock();
    const patient = await open({ clock, statementTimeoutMs: 1_000 });
    let fault: Promise<void> | null = null;
    const failing = failureOf(
      patient.transaction('p', (tx) => {
        fault = proxy.next({ on: 'request', text: 'sync_commits', what: 'silence' });
        return writeIn(tx, [task('t1', 'p1')]);
      }),
    );
    await clock.until(() => fault !== null);
    await fault;
    clock.advance(6_000);
    expect(await failing).toMatchObject(UNAVAILABLE);
    await write(patient, 'p', [task('t1', 'p1')]);
    expect(await logOf(patient)).toEqual(['t0', 't1']);
  });

  test('no server at all: unavailable at once, and served when it is back', async () => {
    const { port } = proxy;
    await proxy.close();
    await expectFailure(storage.ping(), UNAVAILABLE);
    await expectFailure(write(storage, 'p', [task('t1', 'p1')]), UNAVAILABLE);
    await expectFailure(logOf(storage), UNAVAILABLE);
    proxy = await TcpProxy.start({ target: Number(new URL(harness.url).port), port });
    await storage.ping();
    expect(await logOf(storage)).toEqual(['t0']);
  });
});

describe('the database is', () => {
  test('busy: every connection in use for too long', async () => {
    const clock = new ManualClock();
    const small = await open({ clock, writersMax: 1, readersMax: 1, acquireTimeoutMs: 500 });
    const [inside, hold] = [gate(), gate()];
    const running = small.transaction('p', async (tx) => {
      inside.open();
      await hold.opened;
      return writeIn(tx, [task('t1', 'p1')]);
    });
    await inside.opened;
    const failing = failureOf(small.ping());
    clock.advance(499);
    const waiting = admitTo(small, 'p');
    clock.advance(1);
    expect(await failing).toMatchObject(BUSY);
    hold.open();
    await running;
    expect((await waiting).state.head).toBe(2);
    await small.ping();
  });

  test('locked: by another process, for longer than a lock or a statement may take', async () => {
    const [inside, hold] = [gate(), gate()];
    const running = storage.transaction('p', async () => {
      inside.open();
      await hold.opened;
    });
    await inside.opened;
    const hasty = await open({ lockTimeoutMs: 20 });
    await expectFailure(write(hasty, 'p', [task('t1', 'p1')]), BUSY);
    const strict = await open({ statementTimeoutMs: 20 });
    await expectFailure(write(strict, 'p', [task('t1', 'p1')]), BUSY);
    hold.open();
    await running;
    await write(hasty, 'p', [task('t1', 'p1')]);
    await write(strict, 'p', [task('t2', 'p1')]);
    expect(await logOf(storage)).toEqual(['t0', 't1', 't2']);
  });

  test('left alone in a transaction: the server ends it, and what was written is gone', async () => {
    const hurried = await open({ idleInTransactionTimeoutMs: 20 });
    const running = hurried.transaction('p', async (tx) => {
      await writeIn(tx, [task('t1', 'p1')]);
      await sessions(`state LIKE 'idle in transaction%'`, 0);
      await writeIn(tx, [task('t2', 'p1')]);
    });
    await expectFailure(running, UNAVAILABLE);
    expect(await logOf(hurried)).toEqual(['t0']);
  });

  test('read-only, as after a failover: writes and ping fail, reads go on, and writes again when it is over', async () => {
    const name = new URL(harness.url).pathname.slice(1);
    await runSql(harness.url, `ALTER DATABASE ${name} SET default_transaction_read_only = on`);
    const demoted = await open();
    await expectFailure(demoted.ping(), UNAVAILABLE);
    await expectFailure(write(demoted, 'p', [task('t1', 'p1')]), UNAVAILABLE);
    expect(await logOf(demoted)).toEqual(['t0']);
    await runSql(
      harness.url,
      `BEGIN READ WRITE; ALTER DATABASE ${name} RESET default_transaction_read_only; COMMIT`,
    );
    // Connections of the old primary are not used again.
    await demoted.ping();
    await write(demoted, 'p', [task('t1', 'p1')]);
    expect(await logOf(demoted)).toEqual(['t0', 't1']);
  });

  test.each([
    ['53100', UNAVAILABLE, 'full'],
    ['53200', UNAVAILABLE, 'out of memory'],
    ['40001', BUSY, 'at odds with another transaction'],
    ['40P01', BUSY, 'in a deadlock'],
    ['XX000', UNAVAILABLE, 'broken inside'],
  ] as const)(
    '%s: a statement fails, the transaction leaves nothing, the connection serves on',
    async (state, expected, _) => {
      const changes = `"${harness.namespace.replaceAll('"', '""')}".sync_changes`;
      await runSql(
        harness.url,
        `CREATE FUNCTION refuse_${state}() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN RAISE EXCEPTION 'as asked' USING ERRCODE = '${state}'; END $$;
       CREATE TRIGGER refuse BEFORE INSERT ON ${changes} FOR EACH ROW
         WHEN (NEW.row_id = 'refused') EXECUTE FUNCTION refuse_${state}()`,
      );
      const { connections } = proxy;
      await expectFailure(write(storage, 'p', [task('t1', 'p1')], [task('refused', 'p1')]), expected);
      await write(storage, 'p', [task('t2', 'p1')]);
      expect(await logOf(storage)).toEqual(['t0', 't2']);
      expect(proxy.connections).toBeLessThanOrEqual(connections + 1);
      await runSql(harness.url, `DROP TRIGGER refuse ON ${changes}; DROP FUNCTION refuse_${state}()`);
    },
  );
});

test('a wrong password is unavailable, and no use trying again', async () => {
  const url = new URL(harness.url);
  url.password = 'wrong';
  const failure = await failureOf(harness.openWith({ connection: url.href, clock: createRealClock() }));
  expect(failure).toMatchObject({ code: 'sync.storage.unavailable', retryable: false });
  expect(String(failure)).not.toContain('wrong');
});
