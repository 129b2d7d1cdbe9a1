/** Data in a namespace of its own, in the database of this test file. */
import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll } from 'vitest';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import type { PostgresStorageOptions } from '../../src/storage/postgres/options.ts';
import { openPostgresStorage } from '../../src/storage/postgres/postgres-storage.ts';
import type { StorageHarness } from '../contract/storage/fixture.ts';
import { createTestDatabase, runSql, type TestDatabase } from '../support/postgres-server.ts';

export interface PostgresHarness extends StorageHarness {
  readonly url: string;
  readonly namespace: string;
  openWith(options: Partial<PostgresStorageOptions>): ReturnType<typeof openPostgresStorage>;
}

/** Registers the database of the calling file; every call of the result is a namespace in it. */
export function postgresPerFile(
  options: Partial<PostgresStorageOptions> = {},
): () => Promise<PostgresHarness> {
  let database: TestDatabase;
  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());
  return async () => {
    const { url } = database;
    const namespace = `Test "${randomBytes(4).toString('hex')}"`;
    const defaults = { connection: url, namespace, clock: createRealClock(), ...options };
    return {
      url,
      namespace,
      open: () => openPostgresStorage(defaults),
      openWith: (own) => openPostgresStorage({ ...defaults, ...own }),
      dispose: async () => {
        await runSql(url, `DROP SCHEMA IF EXISTS "${namespace.replaceAll('"', '""')}" CASCADE`);
      },
    };
  };
}
