/** Data in a SQLite file of its own, for the contract suites and the tests of this storage alone. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { openSqliteStorage, type SqliteStorageOptions } from '../../src/storage/sqlite/sqlite-storage.ts';
import type { StorageHarness } from '../contract/storage/fixture.ts';

export interface SqliteHarness extends StorageHarness {
  readonly path: string;
}

export async function makeSqlite(options: Partial<SqliteStorageOptions> = {}): Promise<SqliteHarness> {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-test-'));
  const path = join(folder, 'data.db');
  return {
    path,
    open: () => openSqliteStorage({ path, clock: createRealClock(), ...options }),
    dispose: async () => rmSync(folder, { recursive: true, force: true }),
  };
}
