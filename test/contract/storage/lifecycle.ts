/** Reopening, closing, and schema bumps: each test with data of its own. */
import { afterEach, describe, expect, test } from 'vitest';
import { rowCodecOf } from '../../../src/protocol/row-codec.ts';
import type { ColumnValue, CompiledSchema, CompiledTable } from '../../../src/protocol/schema.ts';
import { compileSchema } from '../../../src/protocol/schema-compiler.ts';
import type { ColumnDocument, TableDocument } from '../../../src/protocol/schema-document.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { StorageError } from '../../../src/storage/storage-error.ts';
import {
  admitTo,
  asRead,
  failureOf,
  gate,
  type MakeStorage,
  type OpenStorage,
  type Operation,
  remove,
  SCHEMA,
  type StorageHarness,
  TASKS,
  task,
  WHOLE_LOG,
  WHOLE_PAGE,
  write,
  writeIn,
} from './fixture.ts';

const ID: ColumnDocument = { name: 'id', type: 'string' };
const LIST: ColumnDocument = { name: 'list', type: 'string' };
const TITLE: ColumnDocument = { name: 'title', type: 'string' };
const NOTE: ColumnDocument = { name: 'note', type: 'string', nullable: true };
const COUNT: ColumnDocument = { name: 'count', type: 'integer', nullable: true };

function items(columns: readonly ColumnDocument[], rest: Partial<TableDocument> = {}): TableDocument {
  return { name: 'items', primaryKey: 'id', columns, scopes: ['list:{list}'], ...rest };
}

function schemaOf(version: number, ...tables: readonly TableDocument[]): CompiledSchema {
  return compileSchema({ version, tables });
}

function row(schema: CompiledSchema, ...values: readonly ColumnValue[]): Operation {
  return { op: 'upsert', table: schema.tables[0]!, values };
}

export function lifecycleSuite(make: MakeStorage): void {
  let harness: StorageHarness | null = null;
  const opened: OpenStorage[] = [];

  async function open(): Promise<Storage> {
    harness ??= await make();
    const instance = await harness.open();
    opened.push(instance);
    return instance.storage;
  }

  afterEach(async () => {
    await Promise.all(opened.splice(0).map(({ storage }) => storage.close()));
    await harness?.dispose();
    harness = null;
  });

  describe('opening and closing', () => {
    test('everything acknowledged is there after a reopen', async () => {
      const first = await open();
      await first.ensureSchema(SCHEMA);
      const admission = await admitTo(first, 'p');
      const commits = await write(first, 'p', [task('t1', 'p1')], [task('t2', 'p1')]);
      await first.bindClient({ partition: 'p', clientId: 'client-1', actorId: 'a' });
      await first.close();
      const second = await open();
      await second.ensureSchema(SCHEMA);
      const again = await admitTo(second, 'p');
      expect(again).toEqual({ ...admission, state: { ...admission.state, head: 2 }, boundActorId: 'a' });
      await second.readSnapshot('p', async (reader) => {
        expect(await reader.readCommits(WHOLE_LOG)).toEqual(asRead(commits));
        const { rows } = await reader.readRowPage({
          table: TASKS,
          scopes: { project: ['p1'] },
          ...WHOLE_PAGE,
        });
        expect(rows.map(({ rowId }) => rowId)).toEqual(['t1', 't2']);
      });
    });

    test('close waits for what runs, refuses what comes, and may be called again', async () => {
      const storage = await open();
      await storage.ensureSchema(SCHEMA);
      await admitTo(storage, 'p');
      const [hold, writes, reads] = [gate(), gate(), gate()];
      const running = storage.transaction('p', async (tx) => {
        writes.open();
        await hold.opened;
        return writeIn(tx, [task('t1', 'p1')]);
      });
      const reading = storage.readSnapshot('p', async (reader) => {
        reads.open();
        await hold.opened;
        return (await reader.state()).head;
      });
      await Promise.all([writes.opened, reads.opened]);
      let closed = false;
      const closing = storage.close().then(() => {
        closed = true;
      });
      for (const refused of [
        () => storage.transaction('p', async () => 1),
        () => storage.readSnapshot('p', async () => 1),
        () => admitTo(storage, 'p'),
        () => storage.ping(),
        () => storage.saveCursors([{ partition: 'p', clientId: 'c', mode: 'set', cursor: 1, nowMs: 1 }]),
      ]) {
        const failure = await failureOf(refused());
        expect(failure).toBeInstanceOf(StorageError);
        expect(failure).toMatchObject({ code: 'sync.storage.closed' });
      }
      expect(closed).toBe(false);
      hold.open();
      expect(await running).toHaveLength(1);
      expect(await reading).toBe(0);
      await closing;
      await storage.close();
      const reopened = await open();
      expect((await admitTo(reopened, 'p')).state.head).toBe(1);
    });
  });

  describe('schema', () => {
    async function seeded(
      schema: CompiledSchema,
      ...rows: readonly (readonly ColumnValue[])[]
    ): Promise<Storage> {
      const storage = await open();
      await storage.ensureSchema(schema);
      await admitTo(storage, 'p');
      if (rows.length > 0) {
        await write(
          storage,
          'p',
          rows.map((values) => row(schema, ...values)),
        );
      }
      return storage;
    }

    test('twice is once, and two instances may start at the same time', async () => {
      const [one, two] = [await open(), await open()];
      const schema = schemaOf(1, items([ID, LIST]));
      await Promise.all([one.ensureSchema(schema), two.ensureSchema(schema), one.ensureSchema(schema)]);
      expect((await admitTo(two, 'p')).state.storedSchemaVersion).toBe(1);
      await write(two, 'p', [row(schema, 'i1', 'l1')]);
      const next = schemaOf(2, items([ID, LIST, NOTE]));
      await Promise.all([two.ensureSchema(next), one.ensureSchema(next)]);
      expect(await rowsOf(one, next.tables[0]!)).toEqual([['i1', 'l1', null]]);
    });

    test('before the first ensureSchema the stored version is 0', async () => {
      const storage = await open();
      const schema = schemaOf(7, items([ID, LIST]));
      await storage.ensureSchema(schema);
      expect((await admitTo(storage, 'p')).state.storedSchemaVersion).toBe(7);
    });

    test('a bump re-encodes rows and log: new columns are NULL, the bytes of the others stay', async () => {
      const one = schemaOf(1, items([ID, LIST, TITLE]));
      const storage = await seeded(one, ['i1', 'l1', 'first'], ['i2', 'l1', 'second']);
      await write(storage, 'p', [remove(one.tables[0]!, 'i2')]);
      const two = schemaOf(2, items([ID, LIST, COUNT, TITLE, NOTE]));
      await storage.ensureSchema(two);
      const table = two.tables[0]!;
      expect((await admitTo(storage, 'p')).state.storedSchemaVersion).toBe(2);
      expect(await rowsOf(storage, table)).toEqual([['i1', 'l1', null, 'first', null]]);
      const log = await storage.readSnapshot('p', (reader) => reader.readCommits(WHOLE_LOG));
      const payloads = log.flatMap(({ changes }) => changes.flatMap(({ payload }) => payload ?? []));
      expect(payloads.map((payload) => rowCodecOf(table).decode(payload))).toEqual([
        ['i1', 'l1', null, 'first', null],
        ['i2', 'l1', null, 'second', null],
      ]);
      await write(storage, 'p', [
        row(two, 'i1', 'l1', 5, 'first', 'n'),
        row(two, 'i3', 'l1', 6, 'third', null),
      ]);
      expect(await rowsOf(storage, table)).toEqual([
        ['i1', 'l1', 5, 'first', 'n'],
        ['i3', 'l1', 6, 'third', null],
      ]);
    });

    test('a bump of many rows in several partitions', async () => {
      const one = schemaOf(1, items([ID, LIST]));
      const storage = await seeded(one);
      await admitTo(storage, 'q');
      const ids = Array.from({ length: 700 }, (_, n) => `i${String(n).padStart(4, '0')}`);
      for (const partition of ['p', 'q']) {
        await write(
          storage,
          partition,
          ids.map((id) => row(one, id, `l-${partition}`)),
        );
      }
      const two = schemaOf(2, items([ID, LIST, NOTE]));
      await storage.ensureSchema(two);
      for (const partition of ['p', 'q']) {
        const rows = await rowsOf(storage, two.tables[0]!, { partition, list: `l-${partition}` });
        expect(rows).toEqual(ids.map((id) => [id, `l-${partition}`, null]));
      }
    });

    test('a new column that may not be NULL is refused while rows exist, and named with a way out', async () => {
      const storage = await seeded(schemaOf(1, items([ID, LIST])), ['i1', 'l1']);
      const failure = await failureOf(storage.ensureSchema(schemaOf(2, items([ID, LIST, TITLE]))));
      expect(failure).toBeInstanceOf(StorageError);
      expect(failure).toMatchObject({ code: 'sync.storage.schema_changed' });
      expect((failure as StorageError).message).toMatch(/table items .*title.*nullable/);
      expect((await admitTo(storage, 'p')).state.storedSchemaVersion).toBe(1);
      expect(await rowsOf(storage, schemaOf(1, items([ID, LIST])).tables[0]!)).toEqual([['i1', 'l1']]);
    });

    test('without rows and changes any layout may follow', async () => {
      const storage = await seeded(schemaOf(1, items([ID, LIST, COUNT])));
      const text = schemaOf(2, items([ID, LIST, { name: 'count', type: 'string' }, TITLE]));
      await storage.ensureSchema(text);
      await write(storage, 'p', [row(text, 'i1', 'l1', 'many', 't')]);
      expect(await rowsOf(storage, text.tables[0]!)).toEqual([['i1', 'l1', 'many', 't']]);
    });

    test.each([
      ['another type', items([ID, LIST, { ...NOTE, type: 'integer' }])],
      ['no longer nullable', items([ID, LIST, { ...NOTE, nullable: false }])],
      ['another primary key', items([ID, LIST, NOTE], { primaryKey: 'list' })],
    ])('refused while rows exist: %s', async (_, changed) => {
      const storage = await seeded(schemaOf(1, items([ID, LIST, NOTE])), ['i1', 'l1', 'n']);
      expect(await failureOf(storage.ensureSchema(schemaOf(2, changed)))).toMatchObject({
        code: 'sync.storage.schema_changed',
      });
    });

    test('a stored version above ours, and a layout that changed without a version, are refused', async () => {
      const storage = await seeded(schemaOf(2, items([ID, LIST])));
      expect(await failureOf(storage.ensureSchema(schemaOf(1, items([ID, LIST]))))).toMatchObject({
        code: 'sync.storage.schema_newer',
      });
      expect(await failureOf(storage.ensureSchema(schemaOf(2, items([ID, LIST, NOTE]))))).toMatchObject({
        code: 'sync.storage.schema_changed',
      });
      await storage.ensureSchema(schemaOf(2, items([ID, LIST])));
    });

    test('a dropped column is retired: rows go on without it, also where it demanded a value', async () => {
      const storage = await seeded(schemaOf(1, items([ID, LIST, TITLE, NOTE])), ['i1', 'l1', 'gone', 'kept']);
      const two = schemaOf(2, items([ID, LIST, NOTE]));
      await storage.ensureSchema(two);
      await write(storage, 'p', [row(two, 'i2', 'l1', 'new')]);
      expect(await rowsOf(storage, two.tables[0]!)).toEqual([
        ['i1', 'l1', 'kept'],
        ['i2', 'l1', 'new'],
      ]);
      const three = schemaOf(3, items([ID, LIST, NOTE, { name: 'title', type: 'integer', nullable: true }]));
      await storage.ensureSchema(three);
      await write(storage, 'p', [row(three, 'i3', 'l1', 'n', 3)]);
      expect(await rowsOf(storage, three.tables[0]!)).toEqual([
        ['i1', 'l1', 'kept', null],
        ['i2', 'l1', 'new', null],
        ['i3', 'l1', 'n', 3],
      ]);
    });

    test('a column that becomes nullable takes NULL', async () => {
      const storage = await seeded(schemaOf(1, items([ID, LIST, TITLE])), ['i1', 'l1', 'first']);
      const two = schemaOf(2, items([ID, LIST, { ...TITLE, nullable: true }]));
      await storage.ensureSchema(two);
      await write(storage, 'p', [row(two, 'i2', 'l1', null)]);
      expect(await rowsOf(storage, two.tables[0]!)).toEqual([
        ['i1', 'l1', 'first'],
        ['i2', 'l1', null],
      ]);
    });

    test('a dropped table is retired and comes back with its rows in the new layout', async () => {
      const other = items([ID, LIST], { name: 'others' });
      const storage = await seeded(schemaOf(1, items([ID, LIST, TITLE]), other), ['i1', 'l1', 't']);
      await storage.ensureSchema(schemaOf(2, other));
      const three = schemaOf(3, items([ID, LIST, TITLE, NOTE]), other);
      await storage.ensureSchema(three);
      expect(await rowsOf(storage, three.tables[0]!)).toEqual([['i1', 'l1', 't', null]]);
    });

    test('a scope added by a bump finds the rows that exist', async () => {
      const storage = await seeded(
        schemaOf(1, items([ID, LIST, NOTE])),
        ['i1', 'l1', 'n1'],
        ['i2', 'l1', null],
      );
      const two = schemaOf(2, items([ID, LIST, NOTE], { scopes: ['list:{list}', 'note:{note}'] }));
      await storage.ensureSchema(two);
      const [table] = two.tables;
      const page = await storage.readSnapshot('p', (reader) =>
        reader.readRowPage({ table: table!, scopes: { note: ['n1'] }, ...WHOLE_PAGE }),
      );
      expect(page.rows.map(({ rowId, scopes }) => [rowId, scopes])).toEqual([
        ['i1', { list: 'l1', note: 'n1' }],
      ]);
      expect(await rowsOf(storage, table!)).toHaveLength(2);
      const three = schemaOf(3, items([ID, LIST, NOTE]));
      await storage.ensureSchema(three);
      const row1 = await storage.readSnapshot('p', (reader) => reader.readRow(three.tables[0]!, 'i1'));
      expect(row1?.scopes).toEqual({ list: 'l1' });
    });

    test('a table that becomes materialized, and one that no longer is', async () => {
      const secret: ColumnDocument = {
        name: 'secret',
        type: 'bytes',
        encrypted: true,
        declaredType: 'string',
      };
      const bytes = new Uint8Array([7]);
      const hidden = schemaOf(1, items([ID, LIST, secret], { materialize: false }));
      const storage = await seeded(hidden, ['i1', 'l1', bytes]);
      for (const [version, materialize] of [
        [2, true],
        [3, false],
        [4, true],
      ] as const) {
        const schema = schemaOf(version, items([ID, LIST, secret], { materialize }));
        await storage.ensureSchema(schema);
        await write(storage, 'p', [row(schema, `i${version}`, 'l1', bytes)]);
      }
      const last = schemaOf(4, items([ID, LIST, secret]));
      expect(await rowsOf(storage, last.tables[0]!)).toEqual(
        ['i1', 'i2', 'i3', 'i4'].map((id) => [id, 'l1', bytes]),
      );
    });

    test('declared indexes follow the schema, also without a new version', async () => {
      const withIndex = (unique: boolean) =>
        items([ID, LIST, NOTE], { indexes: [{ name: 'items_by_note', columns: ['note'], unique }] });
      const plain = schemaOf(1, items([ID, LIST, NOTE]));
      const storage = await seeded(plain, ['i1', 'l1', 'same'], ['i2', 'l1', 'other']);
      const unique = schemaOf(1, withIndex(true));
      await storage.ensureSchema(unique);
      const twin = row(unique, 'i3', 'l1', 'same');
      expect(await failureOf(write(storage, 'p', [twin]))).toMatchObject({ kind: 'unique' });
      await storage.ensureSchema(schemaOf(1, withIndex(false)));
      await write(storage, 'p', [twin]);
      const failure = await failureOf(storage.ensureSchema(unique));
      expect(failure).toMatchObject({ code: 'sync.storage.schema_changed' });
      expect((failure as StorageError).message).toMatch(/items_by_note.*items/);
      await storage.ensureSchema(plain);
    });
  });
}

async function rowsOf(
  storage: Storage,
  table: CompiledTable,
  { partition, list }: { readonly partition: string; readonly list: string } = { partition: 'p', list: 'l1' },
): Promise<readonly ColumnValue[][]> {
  const page = await storage.readSnapshot(partition, (reader) =>
    reader.readRowPage({ table, scopes: { list: [list] }, ...WHOLE_PAGE }),
  );
  return page.rows.map(({ payload }) => rowCodecOf(table).decode(payload));
}
