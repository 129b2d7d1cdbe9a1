/** Import it before test files: their harnesses then open namespaces of one PostgreSQL database. */
import { createHash, randomBytes } from 'node:crypto';
import { afterAll, beforeAll } from 'vitest';
import { PgConnection } from '../../src/storage/postgres/driver.ts';
import { openPostgresStorage } from '../../src/storage/postgres/postgres-storage.ts';
import { watchIo } from './manual-clock.ts';
import { createTestDatabase, type TestDatabase } from './postgres-server.ts';
import { useTestStorage } from './storage-under-test.ts';

let database: TestDatabase;

beforeAll(async () => {
  database = await createTestDatabase();
});

afterAll(() => database.drop());

useTestStorage(({ path, clock }) => {
  const namespace =
    path === undefined
      ? `own_${randomBytes(8).toString('hex')}`
      : `path_${createHash('sha256').update(path).digest('hex').slice(0, 16)}`;
  return openPostgresStorage({ connection: database.url, namespace, clock, writersMax: 4, readersMax: 4 });
});

let inFlight = 0;

async function counted<T>(answer: Promise<T>): Promise<T> {
  inFlight++;
  try {
    return await answer;
  } finally {
    inFlight--;
  }
}

const { send } = PgConnection.prototype;
PgConnection.prototype.send = function (this: PgConnection, ...flight) {
  return counted(send.apply(this, flight));
};
const { open } = PgConnection;
PgConnection.open = (options) => counted(open.call(PgConnection, options));
watchIo(() => inFlight);
