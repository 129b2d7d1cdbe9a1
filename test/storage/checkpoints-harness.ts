/** Both storages with a way around them: raw SQL, as a program that knows nothing of this one would run it. */
import Database from 'better-sqlite3';
import { describe } from 'vitest';
import type { StorageHarness } from '../contract/storage/fixture.ts';
import { runSql } from '../support/postgres-server.ts';
import { postgresPerFile } from './postgres-harness.ts';
import { makeSqlite } from './sqlite-harness.ts';

export interface RawHarness extends StorageHarness {
  readonly dialect: 'sqlite' | 'postgres';
  /** A table as it stands in a statement. */
  table(name: string): string;
  /** Runs statements on a connection of their own; the rows of the last as lists of texts. */
  sql(text: string): Promise<readonly (readonly string[])[]>;
}

/** Registers `suite` for each storage. */
export function onBothStorages(title: string, suite: (make: () => Promise<RawHarness>) => void): void {
  describe(`${title}: sqlite`, () => suite(makeRawSqlite));
  describe(`${title}: postgres`, () => {
    const make = postgresPerFile();
    suite(async () => {
      const harness = await make();
      return {
        ...harness,
        dialect: 'postgres',
        table: (name) => `"${harness.namespace.replaceAll('"', '""')}".${name}`,
        sql: async (text) => (await runSql(harness.url, text)).map(toTexts),
      };
    });
  });
}

async function makeRawSqlite(): Promise<RawHarness> {
  const harness = await makeSqlite();
  return {
    ...harness,
    dialect: 'sqlite',
    table: (name) => name,
    sql: async (text) => {
      const database = new Database(harness.path, { timeout: 5_000 });
      try {
        if (!/^\s*SELECT/i.test(text)) {
          database.exec(text);
          return [];
        }
        return database.prepare<[], Record<string, unknown>>(text).all().map(toTexts);
      } finally {
        database.close();
      }
    },
  };
}

function toTexts(row: Readonly<Record<string, unknown>>): readonly string[] {
  return Object.values(row).map(String);
}

/** What a program from before this feature does: a commit without a writer version, and the head. */
export function insertCommit(
  { table }: Pick<RawHarness, 'table'>,
  commit: {
    readonly partition: string;
    readonly seq: number;
    readonly version?: number | null;
    readonly or?: string;
  },
): string {
  const { partition, seq, version, or = 'INSERT INTO' } = commit;
  const columns = 'partition, commit_seq, client_id, client_commit_id, actor_id, created_at_ms';
  const values = `'${partition}', ${seq}, 'old', 'old-${seq}', 'a', 1`;
  return version === undefined
    ? `${or} ${table('sync_commits')} (${columns}) VALUES (${values})`
    : `${or} ${table('sync_commits')} (${columns}, writer_version) VALUES (${values}, ${version})`;
}
