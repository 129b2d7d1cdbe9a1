/** The baseline of `push`: the same database with no gateway in it, one single-row commit at a time. */
import Database from 'better-sqlite3';
import pg from 'pg';
import { itemPayload } from './schema.ts';

export interface RawCommits {
  /** Commits `count` rows, one transaction each. */
  run(count: number): Promise<void>;
  close(): Promise<void>;
}

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
    close: async () => void database.close(),
  };
}
