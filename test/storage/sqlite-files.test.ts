/** What stands in the file: typed tables for operators (part 6), durability settings, failures of the disk. */
import { existsSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import Database from 'better-sqlite3';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import type { TableDocument } from '../../src/protocol/schema-document.ts';
import { SqliteConnection, type SqlRow } from '../../src/storage/sqlite/driver.ts';
import { openSqliteStorage } from '../../src/storage/sqlite/sqlite-storage.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { StorageError } from '../../src/storage/storage-error.ts';
import {
  admitTo,
  failureOf,
  NO_LIMITS,
  newPartition,
  remove,
  SCHEMA,
  TASKS,
  task,
  write,
  writeIn,
} from '../contract/storage/fixture.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { makeSqlite, type SqliteHarness } from './sqlite-harness.ts';

let harness: SqliteHarness;
let storage: Storage;

beforeEach(async () => {
  harness = await makeSqlite();
  ({ storage } = await harness.open());
  await storage.ensureSchema(SCHEMA);
});

afterEach(async () => {
  vi.restoreAllMocks();
  await storage.close();
  await harness.dispose();
});

/** Reads or changes the file as an operator would, beside the open storage. */
function asOperator<T>(work: (connection: SqliteConnection) => T): T {
  const connection = new SqliteConnection(harness.path);
  try {
    return work(connection);
  } finally {
    connection.close();
  }
}

function query(sql: string): SqlRow[] {
  return asOperator((connection) => connection.all(sql));
}

function columns(table: string): string[] {
  return query(`SELECT name, type, "notnull" FROM pragma_table_info('${table}')`).map(
    ([name, type, notNull]) => `${name} ${type}${notNull === 1 ? ' NOT NULL' : ''}`,
  );
}

describe('synced tables', () => {
  test('typed columns hold the values in their own types', async () => {
    const partition = await newPartition(storage);
    const body = new Uint8Array([0, 1]);
    const rest = { rank: 2 ** 53 - 1, weight: 1.5, done: true, meta: '{"a": 1}', body, slug: null };
    await write(storage, partition, [task('t1', 'p1', rest)]);
    expect(
      query(`SELECT id, project_id, slug, rank, weight, done, meta, body, typeof(rank), typeof(weight), typeof(body),
        _sync_partition, _sync_row_id, _sync_server_version, _sync_scopes FROM tasks`),
    ).toEqual([
      [
        't1',
        'p1',
        null,
        2 ** 53 - 1,
        1.5,
        1,
        '{"a": 1}',
        body,
        'integer',
        'real',
        'blob',
        partition,
        't1',
        1,
        '{"owner":"o1","project":"p1"}',
      ],
    ]);
  });

  test('a fresh table carries NOT NULL, one without materialize our columns alone (part 6 rules 3 and 5)', () => {
    expect(columns('tasks')).toEqual(
      expect.arrayContaining(['id TEXT NOT NULL', 'title TEXT NOT NULL', 'rank INTEGER', 'weight REAL']),
    );
    expect(columns('sealed')).toEqual([
      '_sync_partition TEXT NOT NULL',
      '_sync_row_id TEXT NOT NULL',
      '_sync_server_version INTEGER NOT NULL',
      '_sync_scopes TEXT NOT NULL',
      '_sync_payload BLOB NOT NULL',
    ]);
    const [plain] = query("SELECT sql FROM sqlite_schema WHERE name = 'tasks_by_rank'");
    expect(plain![0]).toMatch(/\(_sync_partition, "rank"\)/);
  });

  test('bumps add nullable columns, keep dropped ones with their values, and spare indexes of operators', async () => {
    const partition = await newPartition(storage);
    await write(storage, partition, [task('t1', 'p1', { title: 'kept by the operator', rank: 4 })]);
    asOperator((connection) => connection.exec('CREATE INDEX mine ON tasks (title)'));
    const bumped = (rank: 'integer' | 'string'): TableDocument => ({
      name: 'tasks',
      primaryKey: 'id',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'project_id', type: 'string' },
        { name: 'rank', type: rank, nullable: true },
        { name: 'added', type: 'string', nullable: true },
      ],
      scopes: ['project:{project_id}'],
    });
    await storage.ensureSchema(compileSchema({ version: 4, tables: [bumped('integer')] }));
    expect(columns('tasks')).toEqual(
      expect.arrayContaining(['title TEXT', 'rank INTEGER', 'added TEXT', 'id TEXT NOT NULL']),
    );
    expect(query('SELECT title, rank, added FROM tasks')).toEqual([['kept by the operator', 4, null]]);
    const indexes = query(
      "SELECT name FROM sqlite_schema WHERE type = 'index' AND tbl_name = 'tasks'",
    ).flat();
    expect(indexes).toContain('mine');
    expect(indexes).not.toContain('tasks_by_rank');
    expect(query('SELECT count(*) FROM notes')).toEqual([[0]]);
    expect(query('SELECT schema_version FROM sync_schema_meta')).toEqual([[4]]);
    const without = {
      ...bumped('integer'),
      columns: bumped('integer').columns.filter(({ name }) => name !== 'rank'),
    };
    await storage.ensureSchema(compileSchema({ version: 5, tables: [without] }));
    await storage.ensureSchema(compileSchema({ version: 6, tables: [bumped('string')] }));
    expect(query('SELECT rank, _sync_retired_1_rank FROM tasks')).toEqual([[null, 4]]);
  });

  test('a table of the same name that is not ours is left alone, and named', async () => {
    asOperator((connection) => connection.exec('CREATE TABLE Guests (name TEXT)'));
    const guests: TableDocument = {
      name: 'guests',
      primaryKey: 'id',
      columns: [{ name: 'id', type: 'string' }],
      scopes: ['guest:{id}'],
    };
    const failure = await failureOf(storage.ensureSchema(compileSchema({ version: 4, tables: [guests] })));
    expect(failure).toMatchObject({ code: 'sync.storage.schema_changed' });
    expect((failure as StorageError).message).toMatch(/table guests .* Guests/);
    expect(query('SELECT name FROM Guests')).toEqual([]);
  });
});

describe('indexes and tombstones', () => {
  test('an update that keeps its scopes writes no row scope, one that moves writes what differs', async () => {
    const partition = await newPartition(storage);
    await write(storage, partition, [task('t1', 'p1')]);
    asOperator((connection) =>
      connection.exec(`CREATE TABLE seen (what TEXT);
        CREATE TRIGGER on_insert AFTER INSERT ON sync_row_scopes BEGIN
          INSERT INTO seen VALUES ('+' || new.var || ':' || new.value); END;
        CREATE TRIGGER on_delete AFTER DELETE ON sync_row_scopes BEGIN
          INSERT INTO seen VALUES ('-' || old.var || ':' || old.value); END;`),
    );
    const seen = () =>
      asOperator((connection) => {
        const rows = connection.all('SELECT what FROM seen ORDER BY rowid').flat();
        connection.run('DELETE FROM seen');
        return rows;
      });
    await write(storage, partition, [task('t1', 'p1', { title: 'same place' })]);
    expect(seen()).toEqual([]);
    await write(storage, partition, [task('t1', 'p2')]);
    expect(seen()).toEqual(['-project:p1', '+project:p2']);
    await write(storage, partition, [remove(TASKS, 't1')]);
    expect(seen().sort()).toEqual(['-owner:o1', '-project:p2']);
  });

  test('a delete leaves a tombstone with its commit, an insert takes it away', async () => {
    const partition = await newPartition(storage);
    const tombstones = () => query('SELECT partition, tbl, row_id, commit_seq FROM sync_tombstones');
    await write(storage, partition, [task('t1', 'p1')], [task('t2', 'p1')]);
    await write(storage, partition, [remove(TASKS, 't2')], [remove(TASKS, 't1')]);
    expect(tombstones()).toEqual([
      [partition, 'tasks', 't1', 4],
      [partition, 'tasks', 't2', 3],
    ]);
    await write(storage, partition, [task('t1', 'p1')]);
    expect(tombstones()).toEqual([[partition, 'tasks', 't2', 3]]);
    await write(storage, partition, [task('brief', 'p1')], [remove(TASKS, 'brief')]);
    expect(tombstones()).toHaveLength(1);
  });

  test('pruning leaves no entry of the change index behind', async () => {
    const partition = await newPartition(storage);
    await write(
      storage,
      partition,
      [task('t1', 'p1'), task('t2', 'p2')],
      [task('t1', 'p3')],
      [task('t9', 'p1')],
    );
    await storage.pruneLog({ partition, horizon: 2, commitsMax: 10 });
    expect(query('SELECT DISTINCT commit_seq FROM sync_change_scopes')).toEqual([[3]]);
    expect(query('SELECT DISTINCT commit_seq FROM sync_changes')).toEqual([[3]]);
  });

  test('last-seen times only go up (S-028)', async () => {
    const partition = await newPartition(storage);
    const seen = () => query('SELECT last_authenticated_at_ms FROM sync_partition_registry');
    expect(seen()).toEqual([[1_000]]);
    await storage.touchPartitions(new Map([[partition, 5_000]]));
    await storage.touchPartitions(new Map([[partition, 4_000]]));
    expect(seen()).toEqual([[5_000]]);
  });
});

describe('durability', () => {
  test('commits wait for the disk, cursors and segments do not (guarantee 3)', async () => {
    const partition = await newPartition(storage);
    const settings: string[] = [];
    const exec = SqliteConnection.prototype.exec;
    vi.spyOn(SqliteConnection.prototype, 'exec').mockImplementation(function (
      this: SqliteConnection,
      sql: string,
    ) {
      if (sql.startsWith('PRAGMA synchronous')) settings.push(sql.slice('PRAGMA synchronous = '.length));
      exec.call(this, sql);
    });
    const cursor = { partition, clientId: 'c', mode: 'set', cursor: 1, nowMs: 1 } as const;
    await storage.saveCursors([cursor]);
    await storage.saveCursors([cursor]);
    expect(settings).toEqual(['NORMAL']);
    await write(storage, partition, [task('t1', 'p1')]);
    expect(settings).toEqual(['NORMAL', 'FULL']);
    await write(storage, partition, [task('t2', 'p1')]);
    await storage.bindClient({ partition, clientId: 'c', actorId: 'a' });
    expect(settings).toEqual(['NORMAL', 'FULL']);
  });

  test.each([
    ['SQLITE_IOERR_FSYNC', { code: 'sync.storage.outcome_unknown', outcome: 'unknown', retryable: false }],
    ['SQLITE_FULL', { code: 'sync.storage.unavailable', outcome: 'nothing', retryable: true }],
  ])('a COMMIT that fails with %s says what is known, and the storage goes on', async (code, expected) => {
    const partition = await newPartition(storage);
    const run = SqliteConnection.prototype.run;
    vi.spyOn(SqliteConnection.prototype, 'run').mockImplementation(function (
      this: SqliteConnection,
      sql,
      params,
    ) {
      if (sql === 'COMMIT') throw new Database.SqliteError('disk trouble', code);
      return run.call(this, sql, params);
    });
    const failure = await failureOf(write(storage, partition, [task('t1', 'p1')]));
    expect(failure).toBeInstanceOf(StorageError);
    expect(failure).toMatchObject(expected);
    vi.restoreAllMocks();
    const [commit] = await write(storage, partition, [task('t1', 'p1')]);
    expect(commit?.commitSeq).toBe(1);
  });

  test('a transaction that the database ended by itself is never reported as written', async () => {
    const partition = await newPartition(storage);
    const spy = vi.spyOn(SqliteConnection.prototype, 'inTransaction', 'get');
    const failure = await failureOf(
      storage.transaction(partition, async (tx) => {
        await writeIn(tx, [task('t1', 'p1')]);
        spy.mockReturnValueOnce(false);
      }),
    );
    expect(failure).toMatchObject({ code: 'sync.storage.unavailable' });
    expect((await admitTo(storage, partition)).state.head).toBe(0);
  });

  test('a file that is no database, and a folder that does not exist, are unavailable', async () => {
    const clock = new ManualClock();
    const garbage = join(dirname(harness.path), 'garbage.db');
    writeFileSync(garbage, 'not a database, whatever its name says'.repeat(100));
    for (const path of [garbage, join(dirname(harness.path), 'missing', 'data.db')]) {
      expect(await failureOf(openSqliteStorage({ path, clock }))).toBeInstanceOf(StorageError);
    }
    expect(await failureOf(openSqliteStorage({ path: garbage, clock }))).toMatchObject({
      code: 'sync.storage.unavailable',
    });
  });

  test('tables of a later program are refused', async () => {
    asOperator((connection) => connection.run('UPDATE sync_storage_version SET version = 99'));
    expect(
      await failureOf(openSqliteStorage({ path: harness.path, clock: new ManualClock() })),
    ).toMatchObject({
      code: 'sync.storage.schema_newer',
    });
    asOperator((connection) => connection.run('UPDATE sync_storage_version SET version = 2'));
  });
});

describe(':memory:', () => {
  test('is private, behaves like a file, and leaves nothing behind', async () => {
    const folders = () => readdirSync(tmpdir()).filter((name) => /^tidegate-(?!test-)/.test(name));
    const before = folders();
    const clock = new ManualClock();
    const [one, two] = [
      await openSqliteStorage({ path: ':memory:', clock }),
      await openSqliteStorage({ path: ':memory:', clock }),
    ];
    const mine = folders().filter((name) => !before.includes(name));
    await one.storage.ensureSchema(SCHEMA);
    await two.storage.ensureSchema(SCHEMA);
    await admitTo(one.storage, 'p');
    await write(one.storage, 'p', [task('t1', 'p1')]);
    await one.storage.readSnapshot('p', async (reader) => {
      await write(one.storage, 'p', [task('t2', 'p1')]);
      expect(await reader.readRow(TASKS, 't2')).toBeNull();
    });
    expect(await failureOf(two.storage.readSnapshot('p', async () => 1))).toMatchObject({
      code: 'sync.storage.unknown_partition',
    });
    await Promise.all([one.storage.close(), two.storage.close()]);
    expect(mine.length).toBeGreaterThanOrEqual(2);
    expect(mine.filter((name) => existsSync(join(tmpdir(), name)))).toEqual([]);
  });
});

describe('long reads', () => {
  test('a window that looks at hundreds of commits lets the event loop turn', async () => {
    const clock = new ManualClock();
    const { storage: slow } = await openSqliteStorage({ path: ':memory:', clock });
    await slow.ensureSchema(SCHEMA);
    await admitTo(slow, 'p');
    const total = 600;
    await write(
      slow,
      'p',
      ...Array.from({ length: total }, (_, n) => [
        task(`t${n}`, 'p1', { owner_id: n % 2 === 0 ? 'o1' : 'o2' }),
      ]),
    );
    let finished = false;
    const reading = slow
      .readSnapshot('p', (reader) =>
        reader.readWindow({
          table: TASKS,
          scopes: { project: ['p1'], owner: ['o1', 'o2'] },
          afterSeq: 0,
          throughSeq: total,
          ...NO_LIMITS,
        }),
      )
      .finally(() => {
        finished = true;
      });
    await nextTurn();
    expect([clock.turnsWaiting, finished]).toEqual([1, false]);
    await clock.until(() => finished);
    expect((await reading).commits).toHaveLength(total);
    await slow.close();
  });
});
