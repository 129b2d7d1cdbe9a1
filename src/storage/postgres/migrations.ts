/** Brings the storage's own tables up to date (part 6). */
import { StorageError } from '../storage-error.ts';
import type { PgConnections, Sql } from './connections.ts';
import type { Statement } from './driver.ts';
import { type Names, quoted } from './names.ts';
import { ownTableSteps } from './own-tables.ts';
import { toInteger, toText } from './wire-values.ts';

/** A reader of committed state: a transaction, or one round trip of its own. */
export interface Reader {
  run: Sql['run'];
}

/** Idempotent, and safe when several processes start at once: the steps run under a lock that ends with the transaction. */
export async function migrateStorage(connections: PgConnections, names: Names): Promise<void> {
  const reader = { run: connections.read.bind(connections) };
  await assertEncoding(reader);
  if ((await pendingStatements(reader, names)).length === 0) return;
  await connections.migration([lockMigrations(names)], async (sql) => {
    for (const statement of await pendingStatements(sql, names)) await sql.run(statement);
  });
}

/** What is left to do, in order; empty where everything is in place. */
export async function pendingStatements(reader: Reader, names: Names): Promise<readonly Statement[]> {
  const steps = ownTableSteps(names);
  const done = await readStep(reader, names);
  if (done > steps.length) {
    throw new StorageError(
      'sync.storage.schema_newer',
      `the database's own tables are of version ${done}, this program knows ${steps.length}`,
    );
  }
  if (done === steps.length) return [];
  const statements = steps.slice(done).flat();
  if (done === 0) statements.unshift(...(await firstStatements(reader, names)));
  const texts = [...statements, versionSql(names, steps.length)];
  return texts.map((text) => ({ text }));
}

async function firstStatements(reader: Reader, names: Names): Promise<readonly string[]> {
  const [found] = await reader.run({
    text: 'SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1',
    params: [names.namespace],
  });
  // Asked for first, because IF NOT EXISTS demands the right to create one also where it exists.
  const create = found?.rows.length === 0 ? [`CREATE SCHEMA ${quoted(names.namespace)}`] : [];
  const version = `CREATE TABLE ${names.storageVersion} (
  id integer NOT NULL PRIMARY KEY CHECK (id = 1),
  version integer NOT NULL
) WITH (fillfactor = 50)`;
  return [...create, version];
}

function versionSql(names: Names, version: number): string {
  return `INSERT INTO ${names.storageVersion} (id, version) VALUES (1, ${version})
  ON CONFLICT (id) DO UPDATE SET version = excluded.version`;
}

async function readStep(reader: Reader, names: Names): Promise<number> {
  if (!(await relationExists(reader, names, 'sync_storage_version'))) return 0;
  const [found] = await reader.run({ text: `SELECT version FROM ${names.storageVersion} WHERE id = 1` });
  const row = found?.rows[0];
  return row === undefined ? 0 : toInteger(row[0]);
}

/**
 * A table, view or index. Asks the catalog's tables: name lookups go through a cache of the session, which need not know yet
 * what another process created while this one waited for the lock.
 */
export async function relationExists(reader: Reader, names: Names, name: string): Promise<boolean> {
  const [found] = await reader.run({
    text: `SELECT 1 FROM pg_catalog.pg_class AS c
      JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relname = $2`,
    params: [names.namespace, name],
  });
  return found?.rows.length === 1;
}

/** Transaction-scoped, so that it also holds behind a pooler; one per namespace. */
function lockMigrations(names: Names): Statement {
  return {
    text: 'SELECT pg_advisory_xact_lock(hashtextextended($1, 0))',
    params: [`tidegate migrations ${names.namespace}`],
  };
}

async function assertEncoding(reader: Reader): Promise<void> {
  const [found] = await reader.run({ text: 'SHOW server_encoding' });
  const encoding = toText(found?.rows[0]?.[0]);
  if (encoding === 'UTF8') return;
  throw new StorageError(
    'sync.storage.failed',
    `the database is encoded in ${encoding}; create one with ENCODING 'UTF8'`,
  );
}
