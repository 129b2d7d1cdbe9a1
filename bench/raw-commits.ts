/** The baseline of `push`: the same database with no gateway in it, one single-row commit at a time. */
import Database from 'better-sqlite3';
import pg from 'pg';
import { itemPayload } from './schema.ts';

export interface RawCommits {
  /** Commits `count` rows, one transaction each. */
  run(count: number): Promise<void>;
  /** Commits `count` rows, `ROWS_PER_BATCH` in one statement each: what the database gains from batches alone. */
  runBatched(count: number): Promise<void>;
  close(): Promise<void>;
}

/** About as many as group commit has at 64 writers. */
export const ROWS_PER_BATCH = 32;

export async function openRawCommits(storageUrl: string): Promise<RawCommits> {
  return storageUrl.startsWith('postgres') ? openPostgres(storageUrl) : openSqlite(storageUrl);
}

async function openPostgres(url: string): Promise<RawCommits> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  await client.query('CREATE TABLE raw_rows (id bigint PRIMARY KEY, payload bytea NOT NULL)');
  let id = 0;
  return {
    run: async (count) => {
      for (const end = id + count; id < end; id++) {
        const values = [id, Buffer.from(itemPayload(`raw-${id}`, 'p1', id))];
        await client.query({ name: 'raw', text: 'INSERT INTO raw_rows VALUES ($1, $2)', values });
      }
    },
    runBatched: async (count) => {
      for (const end = id + count; id < end; ) {
        const ids = Array.from({ length: ROWS_PER_BATCH }, () => id++);
        const values = [ids, ids.map((each) => Buffer.from(itemPayload(`raw-${each}`, 'p1', each)))];
        const text = 'INSERT INTO raw_rows SELECT * FROM unnest($1::bigint[], $2::bytea[])';
        await client.query({ name: 'raw-batch', text, values });
      }
    },
    close: () => client.end(),
  };
}

async function openSqlite(url: string): Promise<RawCommits> {
  const database = new Database(url.replace(/^sqlite:/, ''));
  database.pragma('journal_mode = WAL');
  database.pragma('synchronous = FULL');
  database.exec('CREATE TABLE raw_rows (id INTEGER PRIMARY KEY, payload BLOB NOT NULL)');
  const insert = database.prepare('INSERT INTO raw_rows VALUES (?, ?)');
  let id = 0;
  return {
    run: async (count) => {
      for (const end = id + count; id < end; id++) insert.run(id, itemPayload(`raw-${id}`, 'p1', id));
    },
    runBatched: async (count) => {
      const batch = database.transaction(() => {
        for (let n = 0; n < ROWS_PER_BATCH; n++, id++) insert.run(id, itemPayload(`raw-${id}`, 'p1', id));
      });
      for (const end = id + count; id < end; ) batch();
    },
    close: async () => void database.close(),
  };
}
