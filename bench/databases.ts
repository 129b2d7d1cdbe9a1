/** The databases of a run: made fresh, durable, and removed afterwards on every path. */
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { PostgresCluster } from '../test/support/postgres-cluster.ts';

export type StorageKind = 'sqlite' | 'memory' | 'postgres';

export interface Databases {
  /** Storage url of one more empty database. */
  create(): Promise<string>;
  /** What the figures depend on: version and durability of the database. */
  readonly settings: Readonly<Record<string, string>>;
}

/** `pgUrl` names a server to use instead of one that is started for the run; its user must be able to create databases. */
export async function withDatabases<T>(
  { storage, pgUrl }: { readonly storage: StorageKind; readonly pgUrl: string | null },
  run: (databases: Databases) => Promise<T>,
): Promise<T> {
  if (storage !== 'postgres') return withFiles(storage, run);
  if (pgUrl !== null) return withPostgres(pgUrl, run);
  const cluster = await PostgresCluster.start();
  try {
    return await withPostgres(cluster.url, run);
  } finally {
    await cluster.dispose();
  }
}

async function withFiles<T>(
  storage: 'sqlite' | 'memory',
  run: (databases: Databases) => Promise<T>,
): Promise<T> {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-bench-'));
  let count = 0;
  try {
    return await run({
      create: async () =>
        storage === 'memory' ? 'sqlite::memory:' : `sqlite:${join(folder, `${count++}.db`)}`,
      settings: {
        database: storage === 'memory' ? 'SQLite, in memory' : 'SQLite file, WAL, synchronous FULL',
      },
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function withPostgres<T>(serverUrl: string, run: (databases: Databases) => Promise<T>): Promise<T> {
  const created: string[] = [];
  const client = new pg.Client({ connectionString: serverUrl });
  await client.connect();
  try {
    const show = async (name: string): Promise<string> => (await client.query(`SHOW ${name}`)).rows[0][name];
    const durability = `fsync ${await show('fsync')}, synchronous_commit ${await show('synchronous_commit')}`;
    return await run({
      create: async () => {
        const name = `tidegate_bench_${randomBytes(6).toString('hex')}`;
        await client.query(`CREATE DATABASE ${name} TEMPLATE template0 ENCODING 'UTF8'`);
        created.push(name);
        const url = new URL(serverUrl);
        url.pathname = `/${name}`;
        return url.href;
      },
      settings: { database: `PostgreSQL ${await show('server_version')}, ${durability}` },
    });
  } finally {
    for (const name of created) await client.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    await client.end();
  }
}
