/** Rows: pages, moves between scopes, tombstones, values. */
import { expect, test } from 'vitest';
import type { ScopeMap } from '../../../src/protocol/frames.ts';
import { rowCodecOf } from '../../../src/protocol/row-codec.ts';
import type { RowPage, RowScan, Storage } from '../../../src/storage/storage.ts';
import { StorageConstraintError } from '../../../src/storage/storage-error.ts';
import {
  failureOf,
  NOTES,
  newPartition,
  note,
  planBatch,
  remove,
  SEALED,
  TASKS,
  task,
  WHOLE_PAGE,
  write,
  writeIn,
} from './fixture.ts';

/** Ascending by UTF-8 bytes; by UTF-16 units the last two would stand the other way round. */
const ROW_IDS = [' ', '0', '10', '2', 'A', 'Z', 'a', 'a ', 'ab', 'é', 'ż', '東', '\uff21', '😀'];

export function rowSuite(storage: () => Storage): void {
  test('page: rows of the scopes by key, in the order of UTF-8 bytes, in pages of any size', async () => {
    const partition = await newPartition(storage());
    const shuffled = ROW_IDS.map((_, n) => ROW_IDS[(n * 5) % ROW_IDS.length]!);
    await write(
      storage(),
      partition,
      shuffled.map((id) => task(id, id < 'a' ? 'p1' : 'p2')),
      [task('elsewhere', 'p3')],
    );
    for (const rowsMax of [1, 2, 3, 5, ROW_IDS.length - 1, ROW_IDS.length, 100]) {
      const pages = await allPages(storage(), partition, { scopes: { project: ['p1', 'p2'] }, rowsMax });
      expect(pages.flatMap(({ rows }) => rows.map(({ rowId }) => rowId))).toEqual(ROW_IDS);
      expect(pages).toHaveLength(Math.ceil(ROW_IDS.length / rowsMax));
    }
  });

  test('page: the byte limit cuts between rows, one row at least', async () => {
    const partition = await newPartition(storage());
    const body = new Uint8Array(1_000);
    await write(
      storage(),
      partition,
      ['a', 'b', 'c'].map((id) => task(id, 'p1', { body })),
    );
    const sizes = async (bytesMax: number) =>
      (await allPages(storage(), partition, { scopes: { project: ['p1'] }, bytesMax })).map(
        (p) => p.rows.length,
      );
    expect(await sizes(1)).toEqual([1, 1, 1]);
    expect(await sizes(2_200)).toEqual([2, 1]);
    expect(await sizes(4_000)).toEqual([3]);
  });

  test('page: several variables must all match, whichever is the rarer', async () => {
    const partition = await newPartition(storage());
    const rows = Array.from({ length: 600 }, (_, n) =>
      task(`t${String(n).padStart(3, '0')}`, `p${n % 2}`, { owner_id: n % 100 === 7 ? 'rare' : 'common' }),
    );
    await write(storage(), partition, rows);
    const ids = async (scopes: ScopeMap) =>
      (await allPages(storage(), partition, { scopes, rowsMax: 4 })).flatMap((p) =>
        p.rows.map((r) => r.rowId),
      );
    expect(await ids({ project: ['p1'], owner: ['rare'] })).toEqual([
      't007',
      't107',
      't207',
      't307',
      't407',
      't507',
    ]);
    expect(await ids({ owner: ['rare'], project: ['p0'] })).toEqual([]);
    expect(await ids({ owner: ['common', 'rare'], project: ['p0'] })).toHaveLength(300);
    expect(await ids({ owner: [], project: ['p0'] })).toEqual([]);
  });

  test('page: an empty scope gives an empty page', async () => {
    const partition = await newPartition(storage());
    expect(await allPages(storage(), partition, { scopes: { project: ['none'] } })).toEqual([
      { rows: [], nextRowId: null },
    ]);
  });

  test('a row that moves leaves its old scope and joins the new one, the other variable stays (S-035)', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [
      task('t1', 'p1', { owner_id: 'o1' }),
      task('t2', 'p1', { owner_id: 'o1' }),
    ]);
    await write(storage(), partition, [task('t1', 'p2', { owner_id: 'o1' })]);
    const ids = async (scopes: ScopeMap) =>
      (await allPages(storage(), partition, { scopes })).flatMap((p) => p.rows.map((r) => r.rowId));
    expect(await ids({ project: ['p1'] })).toEqual(['t2']);
    expect(await ids({ project: ['p2'] })).toEqual(['t1']);
    expect(await ids({ owner: ['o1'] })).toEqual(['t1', 't2']);
    const window = await storage().readSnapshot(partition, (reader) =>
      reader.readWindow({
        table: TASKS,
        scopes: { project: ['p1', 'p2'] },
        afterSeq: 1,
        throughSeq: 2,
        changesMax: 10,
        bytesMax: 10_000,
      }),
    );
    expect(window.commits[0]?.changes.map(({ op, scopes }) => [op, scopes.project])).toEqual([
      ['delete', 'p1'],
      ['upsert', 'p2'],
    ]);
  });

  test('deleted rows are gone from rows and pages, and may come back', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('t1', 'p1'), task('t2', 'p1')]);
    await write(storage(), partition, [remove(TASKS, 't1')]);
    const scopes = { project: ['p1'] };
    const ids = async () => (await allPages(storage(), partition, { scopes })).flatMap((p) => p.rows);
    expect((await ids()).map(({ rowId }) => rowId)).toEqual(['t2']);
    expect(await storage().readSnapshot(partition, (reader) => reader.readRow(TASKS, 't1'))).toBeNull();
    await write(storage(), partition, [task('t1', 'p1')]);
    expect((await ids()).map(({ rowId, serverVersion }) => [rowId, serverVersion])).toEqual([
      ['t1', 1],
      ['t2', 1],
    ]);
  });

  test('readRows gives the existing ones by id; readRow the same row', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('t1', 'p1'), task('t2', 'p2'), note(7, 'p1', 'seven')]);
    const rows = await storage().transaction(partition, (tx) => tx.readRows(TASKS, ['t2', 'missing', 't1']));
    expect([...rows.keys()].sort()).toEqual(['t1', 't2']);
    expect(await storage().readSnapshot(partition, (reader) => reader.readRow(TASKS, 't2'))).toEqual(
      rows.get('t2'),
    );
    const notes = await storage().transaction(partition, (tx) => tx.readRows(NOTES, ['7']));
    expect(rowCodecOf(NOTES).decode(notes.get('7')!.payload)).toEqual([7, 'p1', 'seven']);
    expect(await storage().transaction(partition, (tx) => tx.readRows(TASKS, []))).toEqual(new Map());
  });

  test('scanRows inside a transaction sees what it has written', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('t1', 'p1')]);
    await storage().transaction(partition, async (tx) => {
      await writeIn(tx, [task('t2', 'p1'), task('t1', 'p9')]);
      const page = await tx.scanRows({ table: TASKS, scopes: { project: ['p1'] }, ...WHOLE_PAGE });
      expect(page.rows.map(({ rowId }) => rowId)).toEqual(['t2']);
    });
  });

  test('payloads come back byte for byte, large and odd ones too', async () => {
    const partition = await newPartition(storage());
    const every = Uint8Array.from({ length: 512 }, (_, n) => n % 256);
    const large = new Uint8Array(3 * 1024 * 1024).map((_, n) => (n * 31) % 251);
    const odd = task('odd', 'p1', {
      title: 'it\'s "odd" \\ 🦆\n',
      slug: 'é',
      rank: Number.MAX_SAFE_INTEGER,
      weight: -0,
      done: false,
      meta: ' {"b": 1.0, "a":[null,1e2]} ',
      body: every,
    });
    const lowest = task('low', 'p1', {
      rank: Number.MIN_SAFE_INTEGER,
      weight: Number.NEGATIVE_INFINITY,
      done: true,
      body: new Uint8Array(0),
    });
    const operations = [odd, lowest, task('large', 'p1', { body: large })];
    await write(storage(), partition, operations);
    const stored = await storage().transaction(partition, (tx) =>
      tx.readRows(TASKS, ['odd', 'low', 'large']),
    );
    for (const { values } of operations) {
      const payload = stored.get(values[0] as string)!.payload;
      expect(Buffer.compare(payload, rowCodecOf(TASKS).encode(values))).toBe(0);
    }
    const [commit] = await storage().readSnapshot(partition, (reader) =>
      reader.readCommits({ afterSeq: 0, throughSeq: 1, commitsMax: 1, bytesMax: 1 }),
    );
    for (const { rowId, payload } of commit!.changes) {
      expect(Buffer.compare(payload!, stored.get(rowId)!.payload)).toBe(0);
    }
  });

  test('tables that are not materialized keep their payload alone', async () => {
    const partition = await newPartition(storage());
    const values = ['s1', 'r1', new Uint8Array([1, 2, 3])];
    await write(storage(), partition, [{ op: 'upsert', table: SEALED, values }]);
    const row = await storage().readSnapshot(partition, (reader) => reader.readRow(SEALED, 's1'));
    expect(rowCodecOf(SEALED).decode(row!.payload)).toEqual(values);
  });

  test.each([
    ['unique', 'a second row with a unique value', task('t2', 'p1', { slug: 'taken' })],
    ['not_null', 'NULL where none may be', { ...task('t2', 'p1'), column: 'title', value: null }],
    ['value', 'a text where an integer belongs', { ...task('t2', 'p1'), column: 'rank', value: 'many' }],
  ] as const)('constraints: %s for %s, and the transaction rolls back whole', async (kind, _, operation) => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('t1', 'p1', { slug: 'taken' })]);
    const failure = await failureOf(
      storage().transaction(partition, async (tx) => {
        await writeIn(tx, [task('t0', 'p1')]);
        const batch = await planBatch(tx, [[{ op: 'upsert', table: TASKS, values: operation.values }]]);
        const rows = batch.rows.map((writes) => ({
          ...writes,
          upserts: writes.upserts.map((row) => ({ ...row, values: spoil(row.values, operation) })),
        }));
        await tx.append({ ...batch, rows });
      }),
    );
    expect(failure).toBeInstanceOf(StorageConstraintError);
    expect(failure).toMatchObject({ kind, code: 'sync.storage.constraint', retryable: false });
    expect((failure as StorageConstraintError).cause).toBeInstanceOf(Error);
    const rows = await allPages(storage(), partition, { scopes: { project: ['p1'] } });
    expect(rows.flatMap((page) => page.rows.map(({ rowId }) => rowId))).toEqual(['t1']);
  });

  test('a unique value that a delete of the same batch frees may be taken; unique counts per partition', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('t1', 'p1', { slug: 's' })]);
    await write(storage(), partition, [remove(TASKS, 't1')], [task('t2', 'p1', { slug: 's' })]);
    const other = await newPartition(storage());
    await write(storage(), other, [task('t1', 'p1', { slug: 's' })]);
    expect(await storage().readSnapshot(other, (reader) => reader.readRow(TASKS, 't1'))).not.toBeNull();
  });
}

function spoil<T>(values: readonly T[], operation: object): readonly T[] {
  if (!('column' in operation) || !('value' in operation)) return values;
  return values.map((value, index) =>
    TASKS.columns[index]!.name === operation.column ? (operation.value as T) : value,
  );
}

async function allPages(storage: Storage, partition: string, scan: Partial<RowScan>): Promise<RowPage[]> {
  return storage.readSnapshot(partition, async (reader) => {
    const pages: RowPage[] = [];
    for (let afterRowId: string | null = null; ; ) {
      const page: RowPage = await reader.readRowPage({
        table: TASKS,
        scopes: {},
        ...WHOLE_PAGE,
        ...scan,
        afterRowId,
      });
      pages.push(page);
      afterRowId = page.nextRowId;
      if (afterRowId === null) return pages;
      expect(afterRowId).toBe(page.rows.at(-1)?.rowId);
    }
  });
}
