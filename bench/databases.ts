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

export interface DatabasesRequest {
  readonly storage: StorageKind;
  /** A server to use instead of one that is started for the run; its user must be able to create databases. */
  readonly pgUrl: string | null;
  /** `aged`: a server of our own has written its log once round before the run, as one that has been up for some minutes. */
  readonly serverAge: 'fresh' | 'aged';
}

export async function withDatabases<T>(
  { storage, pgUrl, serverAge }: DatabasesRequest,
  run: (databases: Databases) => Promise<T>,
): Promise<T> {
  if (storage !== 'postgres') return withFiles(storage, run);
  if (pgUrl !== null) return withPostgres(pgUrl, run);
  const cluster = await PostgresCluster.start();
  try {
    if (serverAge === 'aged') await writeLogOnce(cluster.url);
    return await withPostgres(cluster.url, run);
  } finally {
    await cluster.dispose();
  }
}

const LOG_FILES = 48;
const LOG_FILE_BYTES = 16 * 1024 * 1024;

/** A server makes each file of its log once, which holds up every commit for tens of milliseconds, and uses it again from then on. */
async function writeLogOnce(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    await client.query(`ALTER SYSTEM SET min_wal_size = '${LOG_FILES * 16}MB'`);
    await client.query('SELECT pg_reload_conf()');
    for (let file = 0; file < LOG_FILES; file++) {
      await client.query('SELECT pg_logical_emit_message(false, $1, repeat($2, $3))', [
        'age',
        'x',
        LOG_FILE_BYTES,
      ]);
    }
    await client.query('CHECKPOINT');
  } finally {
    await client.end();
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
