/** `tidegate migrate` as an operator runs it: a process of its own, on a SQLite file and on a PostgreSQL database. */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import Database from 'better-sqlite3';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { openStorage } from '../../src/gateway/storage-option.ts';
import type { SchemaDocument } from '../../src/protocol/schema-document.ts';
import { createTestDatabase, runSql } from '../support/postgres-server.ts';
import { type CliRun, newFolder, runProcess } from './support/cli-process.ts';
import { startGateway } from './support/live-gateway.ts';
import { ada, postSync, SCHEMA } from './support/requests.ts';

/** The next version: a column more, so that rows and log change their layout. */
const GROWN: SchemaDocument = {
  version: SCHEMA.version + 1,
  tables: SCHEMA.tables.map((table) => ({
    ...table,
    columns: [...table.columns, { name: 'color', type: 'string', nullable: true }],
  })),
};

interface Target {
  readonly folder: string;
  readonly storage: string;
  /** Everything the database holds, as text. */
  dump(): Promise<string>;
  /** As a person with the database's own shell. */
  execute(sql: string): Promise<void>;
}

async function sqliteTarget(): Promise<Target> {
  const folder = newFolder();
  const path = join(folder, 'app.db');
  return {
    folder,
    storage: `sqlite:${path}`,
    dump: async () => {
      if (!existsSync(path)) return 'no file';
      const database = new Database(path, { readonly: true });
      const tables = database.prepare<[], { name: string; sql: string }>(
        "SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY name",
      );
      const found = tables
        .all()
        .map(({ name, sql }) => [sql, database.prepare(`SELECT * FROM "${name}"`).all()]);
      database.close();
      return JSON.stringify(found);
    },
    execute: async (sql) => {
      const database = new Database(path);
      database.exec(sql);
      database.close();
    },
  };
}

async function postgresTarget(): Promise<Target> {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  return {
    folder: newFolder(),
    storage: database.url,
    dump: async () => {
      const columns = await runSql(
        database.url,
        `SELECT table_name, column_name, data_type FROM information_schema.columns
         WHERE table_schema = 'tidegate' ORDER BY 1, 2`,
      );
      const hasRows = columns.some(({ table_name }) => table_name === 'notes');
      const rows = hasRows
        ? await runSql(database.url, 'SELECT t::text AS row FROM tidegate.notes AS t ORDER BY 1')
        : [];
      return JSON.stringify([columns, rows]);
    },
    execute: async (sql) => {
      await runSql(database.url, sql);
    },
  };
}

function writeSchema({ folder }: Target, schema: SchemaDocument): void {
  writeFileSync(join(folder, 'schema.json'), JSON.stringify(schema));
}

function migrate({ folder, storage }: Target, ...args: readonly string[]): Promise<CliRun> {
  return runProcess(['migrate', ...args], {
    folder,
    env: { TIDEGATE_STORAGE: storage, TIDEGATE_SCHEMA: 'schema.json' },
  });
}

/** Rows of the version before, written by a gateway. */
async function fill({ storage }: Target): Promise<void> {
  const live = await startGateway({ storage: { url: storage } });
  await postSync(live.url, ada.push({ rowId: 'r1', title: 'kept' }));
  await live.gateway.close();
}

const DONE = { code: 0, err: '' };

describe.each([
  ['SQLite', sqliteTarget],
  ['PostgreSQL', postgresTarget],
])('%s', (_name, makeTarget) => {
  test('brings an empty database up, says what it did, and finds nothing to do the second time', async () => {
    const target = await makeTarget();
    writeSchema(target, SCHEMA);
    const first = await migrate(target);
    expect(first).toEqual({ ...DONE, out: 'migrated: the database is at schema version 3\n' });
    const before = await target.dump();
    expect(before).toContain('notes');
    const second = await migrate(target);
    expect(second).toEqual({ ...DONE, out: 'nothing to do: the database is at schema version 3\n' });
    expect(await target.dump()).toBe(before);
  });

  test('--dry-run changes nothing; its SQL carried out by hand leaves nothing to do', async () => {
    const target = await makeTarget();
    writeSchema(target, SCHEMA);
    const before = await target.dump();
    const planned = await migrate(target, '--dry-run');
    expect(planned).toMatchObject(DONE);
    expect(planned.out).toMatch(/^BEGIN( IMMEDIATE)?;\n/);
    expect(planned.out).toMatch(/COMMIT;\n$/);
    expect(await target.dump()).toBe(before);
    await target.execute(planned.out);
    expect(await migrate(target, '--dry-run')).toEqual({ ...DONE, out: '' });
    expect((await migrate(target)).out).toContain('nothing to do');
    await fill(target);
  });

  test('a bump that writes rows anew is shown, is undone when carried out by hand, and done by the program', async () => {
    const target = await makeTarget();
    writeSchema(target, SCHEMA);
    await fill(target);
    writeSchema(target, GROWN);
    const before = await target.dump();
    const planned = await migrate(target, '--dry-run');
    expect(planned).toMatchObject(DONE);
    expect(planned.out).toMatch(/ALTER TABLE .*"?notes"? ADD COLUMN "?color"?/);
    expect(planned.out).toMatch(/^-- .*notes.* written anew/m);
    expect(planned.out).toMatch(/^ROLLBACK; -- by hand this is incomplete: run tidegate migrate$/m);
    expect(await target.dump()).toBe(before);
    await target.execute(planned.out);
    expect(await target.dump()).toBe(before);
    expect((await migrate(target)).out).toContain('schema version 4');
    expect(await target.dump()).toContain('color');
    expect(await migrate(target, '--dry-run')).toEqual({ ...DONE, out: '' });
  });

  test('checkpoints of the configuration are declared by the transaction that raises the version, by hand as well', async () => {
    const target = await makeTarget();
    const schema = { ...SCHEMA, version: 7 };
    const checkpoints = [{ partition: 'acme', name: 'totals', schemaVersion: 7 }];
    writeFileSync(join(target.folder, 'tidegate.json'), JSON.stringify({ schema, checkpoints }));
    const migrateWithFile = (...args: readonly string[]) =>
      runProcess(['migrate', '--config', 'tidegate.json', ...args], {
        folder: target.folder,
        env: { TIDEGATE_STORAGE: target.storage },
      });
    const planned = await migrateWithFile('--dry-run');
    expect(planned.out).toMatch(/^INSERT INTO \S*sync_backfill_checkpoints/m);
    expect(planned.out).not.toMatch(/^--/m);
    await target.execute(planned.out);
    expect((await migrateWithFile()).out).toContain('nothing to do');
    const { storage, release } = await openStorage({ url: target.storage }, createRealClock());
    const declared = await storage.readCheckpoints('acme');
    await release();
    expect([...declared.values()]).toMatchObject([{ name: 'totals', schemaVersion: 7, state: 'declared' }]);
    writeSchema(target, schema);
    expect(await migrate(target)).toMatchObject({
      code: 1,
      err: expect.stringMatching(/^tidegate: sync\.storage\.checkpoint_incomplete: /),
    });
  });

  test('what the running schema must not touch is refused with its code, by the plan and by the run', async () => {
    const target = await makeTarget();
    writeSchema(target, GROWN);
    await migrate(target);
    writeSchema(target, SCHEMA);
    const message = 'the database is at schema version 4, this process runs 3';
    for (const args of [['--dry-run'], []]) {
      expect(await migrate(target, ...args)).toEqual({
        code: 1,
        out: '',
        err: `tidegate: sync.storage.schema_newer: ${message}\n`,
      });
    }
  });
});

describe('misuse and failures', () => {
  test('without a schema, or on a database that ends with the command, nothing is started (exit code 2)', async () => {
    const folder = newFolder();
    const none = await runProcess(['migrate', '--storage', 'sqlite:x.db'], { folder });
    expect(none).toMatchObject({ code: 2, err: expect.stringContaining('schema is missing') });
    const memory = await runProcess(['migrate', '--storage', 'sqlite::memory:', '--schema', 's.json'], {
      folder,
    });
    expect(memory).toMatchObject({ code: 2, err: expect.stringContaining('outlives this command') });
    expect(existsSync(join(folder, 'x.db'))).toBe(false);
  });

  test('a configuration file of `serve` serves here as well', async () => {
    const target = await sqliteTarget();
    const auth = { tokens: { t1: { actorId: 'a', partition: 'p', scopes: {} } } };
    const config = { schema: SCHEMA, storage: 'sqlite:app.db', auth, port: 1 };
    writeFileSync(join(target.folder, 'tidegate.json'), JSON.stringify(config));
    const run = await runProcess(['migrate', '--config', 'tidegate.json'], target);
    expect(run).toMatchObject(DONE);
    expect(await target.dump()).toContain('notes');
  });

  test('a file that is no database is named by its code, and left as it is', async () => {
    const target = await sqliteTarget();
    writeSchema(target, SCHEMA);
    const path = join(target.folder, 'app.db');
    writeFileSync(path, 'something else '.repeat(100));
    const run = await migrate(target, '--dry-run');
    expect(run).toMatchObject({ code: 1, out: '' });
    expect(run.err).toMatch(/^tidegate: sync\.storage\.\w+: .*\n$/);
    expect(readFileSync(path, 'utf8')).toBe('something else '.repeat(100));
  });

  test('SQLite: planned beside a gateway that serves; a lock that is not let go in time is named by its code', async () => {
    const target = await sqliteTarget();
    writeSchema(target, SCHEMA);
    const live = await startGateway({ storage: { url: target.storage } });
    await postSync(live.url, ada.push({ rowId: 'r1' }));
    writeSchema(target, GROWN);
    expect((await migrate(target, '--dry-run')).out).toContain('ADD COLUMN "color"');
    expect((await postSync(live.url, ada.push({ rowId: 'r2' }))).status).toBe(200);
    const holder = new Database(join(target.folder, 'app.db'));
    onTestFinished(() => {
      holder.close();
    });
    holder.exec('BEGIN IMMEDIATE');
    const run = await migrate(target);
    expect(run).toMatchObject({
      code: 1,
      out: '',
      err: expect.stringMatching(/^tidegate: sync\.storage\.busy: /),
    });
  });

  test('one line of a database that nobody answers for, or that refuses the password; never the url or the password', async () => {
    const target = await postgresTarget();
    writeSchema(target, SCHEMA);
    const server = createServer().listen(0, '127.0.0.1');
    await new Promise((resolve) => server.once('listening', resolve));
    const address = server.address();
    const port = typeof address === 'object' && address !== null ? address.port : 0;
    await new Promise((resolve) => server.close(resolve));
    const silent = `postgres://ann:hunter%402@127.0.0.1:${port}/app`;
    const refused = new URL(target.storage);
    refused.password = 'hunter%402';
    for (const storage of [silent, refused.href]) {
      const run = await migrate({ ...target, storage }, '--dry-run');
      expect(run).toMatchObject({ code: 1, out: '' });
      expect(run.err).toMatch(/^tidegate: sync\.storage\.unavailable: .* \(.+\)\n$/);
      expect(run.err).not.toMatch(/hunter|postgres:/);
    }
  });
});
