/** Frequent statements are kept by the server; a server connection that does not have them (a pooler's) costs one refusal, once. */
import { createHash } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { PgConnection, type Step } from '../../src/storage/postgres/driver.ts';
import type { PostgresStorageOptions } from '../../src/storage/postgres/options.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { admitTo, failureOf, SCHEMA, task, write, writeIn } from '../contract/storage/fixture.ts';
import { type PostgresHarness, postgresPerFile } from './postgres-harness.ts';

const make = postgresPerFile();
const send = PgConnection.prototype.send;

let harness: PostgresHarness;
let storage: Storage;
let timesGivenUp: number;
/** What every connection runs before its next flight. */
let beforeFlight: (steps: readonly Step[]) => readonly Step[];

async function open(options: Partial<PostgresStorageOptions>): Promise<void> {
  const onUnnamed = () => {
    timesGivenUp++;
  };
  ({ storage } = await harness.openWith({ onUnnamed, ...options }));
  await storage.ensureSchema(SCHEMA);
  await admitTo(storage, 'p');
  // Twice, so that what is kept is used.
  for (const rowId of ['t1', 't2']) await write(storage, 'p', [task(rowId, 'p1')]);
}

beforeEach(async () => {
  timesGivenUp = 0;
  beforeFlight = () => [];
  PgConnection.prototype.send = async function (this: PgConnection, steps, ...rest) {
    const before = beforeFlight(steps);
    if (before.length > 0) await send.call(this, before);
    return send.call(this, steps, ...rest);
  };
  harness = await make();
});

afterEach(async () => {
  PgConnection.prototype.send = send;
  await storage.close();
  await harness.dispose();
});

const opensTransaction = (steps: readonly Step[]): boolean =>
  steps.some((step) => 'text' in step && step.text.startsWith('BEGIN'));

/** As a pooler does: the next transaction runs where the statements of this client were never parsed. */
const otherServer = (steps: readonly Step[]): readonly Step[] =>
  opensTransaction(steps) ? [{ text: 'DEALLOCATE ALL' }] : [];

async function head(): Promise<number> {
  return (await storage.readSnapshot('p', (reader) => reader.state())).head;
}

async function namedStatements(): Promise<number> {
  let found = -1;
  await storage.transaction('p', async () => undefined);
  beforeFlight = () => [];
  PgConnection.prototype.send = async function (this: PgConnection, steps, ...rest) {
    const results = await send.call(this, steps, ...rest);
    if (opensTransaction(steps)) {
      const [counted] = await send.call(this, [
        { text: 'SELECT count(*)::text FROM pg_prepared_statements' },
      ]);
      found = Number(counted?.rows[0]?.[0]);
    }
    return results;
  };
  await storage.transaction('p', async () => undefined);
  return found;
}

describe('auto', () => {
  test('straight to the server: the statements of commits are kept', async () => {
    await open({ writersMax: 1 });
    expect(await namedStatements()).toBeGreaterThan(5);
    expect(timesGivenUp).toBe(0);
  });

  test('a name that the server does not know: nothing is lost or refused, and names are given up once', async () => {
    await open({});
    beforeFlight = otherServer;
    await Promise.all(['t3', 't4', 't5'].map((rowId) => write(storage, 'p', [task(rowId, 'p1')])));
    expect(await head()).toBe(5);
    expect(timesGivenUp).toBe(1);
    expect(await namedStatements()).toBe(0);
  });

  test('a name that the server has already: the same', async () => {
    await open({ writersMax: 1 });
    await storage.close();
    // A server connection on which another client of the pooler has parsed the same statement before.
    const taken = (text: string) =>
      `tg_${createHash('sha256').update(text).digest('base64url').slice(0, 32)}`;
    const prepared = new WeakSet<PgConnection>();
    PgConnection.prototype.send = async function (this: PgConnection, steps, ...rest) {
      const first = steps.find((step) => 'text' in step && step.text.startsWith('BEGIN'));
      if (first !== undefined && 'text' in first && !prepared.has(this)) {
        prepared.add(this);
        await send.call(this, [{ text: `PREPARE "${taken(first.text)}" AS SELECT 1` }]);
      }
      return send.call(this, steps, ...rest);
    };
    ({ storage } = await harness.openWith({ onUnnamed: () => void timesGivenUp++ }));
    await write(storage, 'p', [task('t3', 'p1')]);
    expect(await head()).toBe(3);
    expect(timesGivenUp).toBe(1);
  });

  test('met inside a transaction: it fails as busy with nothing landed, and succeeds when it runs again', async () => {
    await open({ writersMax: 1 });
    const keys = [{ clientId: 'c', clientCommitId: 'x' }];
    await storage.transaction('p', (tx) => tx.readResults(keys));
    const once = storage.transaction('p', async (tx) => {
      beforeFlight = () => [{ text: 'DEALLOCATE ALL' }];
      await tx.readResults(keys);
    });
    const failure = await failureOf(once);
    expect(failure).toMatchObject({ code: 'sync.storage.busy', outcome: 'nothing', retryable: true });
    beforeFlight = otherServer;
    await storage.transaction('p', (tx) => writeIn(tx, [task('t3', 'p1')]));
    expect(await head()).toBe(3);
    expect(timesGivenUp).toBe(1);
  });
});

test('named: a name that the server does not know is an error, and stays one', async () => {
  await open({ preparedStatements: 'named', writersMax: 1 });
  beforeFlight = otherServer;
  const failure = await failureOf(write(storage, 'p', [task('t3', 'p1')]));
  expect(failure).toMatchObject({ code: 'sync.storage.failed' });
  expect(timesGivenUp).toBe(0);
});

test('unnamed: nothing is kept', async () => {
  await open({ preparedStatements: 'unnamed', writersMax: 1 });
  expect(await namedStatements()).toBe(0);
});
