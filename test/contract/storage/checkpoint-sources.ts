/** Reading what a backfill is computed from (part 4, 4.4): rows of a table, changes of the log, and how far both reach. */
import { expect, test } from 'vitest';
import type { SourceChange, TableScan } from '../../../src/storage/checkpoints.ts';
import type { RowPage, Storage } from '../../../src/storage/storage.ts';
import { compareUtf8 } from '../../../src/storage/utf8-order.ts';
import {
  newPartition,
  note,
  type Operation,
  remove,
  SEALED,
  TASKS,
  task,
  WHOLE_PAGE,
  write,
  writeIn,
} from './fixture.ts';

export function sourceSuite(storage: () => Storage): void {
  function scan(partition: string, rest: Partial<TableScan> = {}): Promise<RowPage> {
    return storage().transaction(partition, (tx) => tx.scanTable({ table: TASKS, ...WHOLE_PAGE, ...rest }));
  }

  function changes(
    partition: string,
    rest: { afterSeq?: number; throughSeq?: number; changesMax?: number } = {},
  ) {
    const read = { tables: ['tasks', 'sealed'], afterSeq: 0, throughSeq: 1_000_000, changesMax: 1_000 };
    return storage().transaction(partition, (tx) => tx.readSourceChanges({ ...read, ...rest }));
  }

  test('a table scan gives every row of the partition, whatever its scopes, by the bytes of its id', async () => {
    const [partition, stranger] = [await newPartition(storage()), await newPartition(storage())];
    const ids = ['', 'a', 'B', 'ä', '\u{1F986}', '\uFF5E', 'a b', "it's"];
    await write(
      storage(),
      partition,
      ids.map((id, nth) => task(id, `p${nth % 3}`)),
    );
    await write(storage(), partition, [remove(TASKS, 'B'), note(1, 'p1')]);
    await write(storage(), stranger, [task('theirs', 'p1')]);
    const expected = ids.filter((id) => id !== 'B').sort(compareUtf8);
    const whole = await scan(partition);
    expect(whole.rows.map(({ rowId }) => rowId)).toEqual(expected);
    expect(whole.nextRowId).toBeNull();
    expect(whole.rows[0]).toMatchObject({
      rowId: '',
      serverVersion: 1,
      scopes: { owner: 'o1', project: 'p0' },
    });
    const paged: string[] = [];
    for (let afterRowId: string | null = null; ; ) {
      const page: RowPage = await scan(partition, { afterRowId, rowsMax: 3 });
      paged.push(...page.rows.map(({ rowId }) => rowId));
      if (page.nextRowId === null) break;
      afterRowId = page.nextRowId;
    }
    expect(paged).toEqual(expected);
  });

  test('a page of a table scan is cut by bytes, one row at least, and ends with null exactly at the last', async () => {
    const partition = await newPartition(storage());
    const rows: Operation[] = ['r1', 'r2', 'r3'].map((id) => ({
      op: 'upsert',
      table: SEALED,
      values: [id, 'room', new Uint8Array(1_000)],
    }));
    await write(storage(), partition, rows);
    const pages = [
      await scan(partition, { table: SEALED, bytesMax: 1 }),
      await scan(partition, { table: SEALED, bytesMax: 2_500 }),
      await scan(partition, { table: SEALED, rowsMax: 3 }),
      await scan(partition, { table: SEALED, afterRowId: 'r3' }),
    ];
    expect(pages.map((page) => [page.rows.length, page.nextRowId])).toEqual([
      [1, 'r1'],
      [2, 'r2'],
      [3, null],
      [0, null],
    ]);
    expect(pages[2]!.rows[2]!.payload.length).toBeGreaterThan(1_000);
  });

  test('a scan inside a transaction sees what the transaction wrote', async () => {
    const partition = await newPartition(storage());
    const rows = await storage().transaction(partition, async (tx) => {
      await writeIn(tx, [task('t1', 'p1')]);
      return (await tx.scanTable({ table: TASKS, ...WHOLE_PAGE })).rows;
    });
    expect(rows.map(({ rowId }) => rowId)).toEqual(['t1']);
  });

  test('source changes come oldest first, of the wanted tables alone, deletes with the scopes before', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('t1', 'p1'), note(1, 'p1')]);
    await write(storage(), partition, [note(2, 'p1')], [task('t1', 'p2')], [remove(TASKS, 't1')]);
    const window = await changes(partition);
    expect(window.scannedThrough).toBe(1_000_000);
    expect(
      window.changes.map(({ commitSeq, table, op, scopes }) => [commitSeq, table, op, scopes.project]),
    ).toEqual([
      [1, 'tasks', 'upsert', 'p1'],
      [3, 'tasks', 'delete', 'p1'],
      [3, 'tasks', 'upsert', 'p2'],
      [4, 'tasks', 'delete', 'p2'],
    ]);
    expect((await changes(partition, { afterSeq: 1, throughSeq: 3 })).changes).toHaveLength(2);
    const none = await storage().transaction(partition, (tx) =>
      tx.readSourceChanges({ tables: [], afterSeq: 0, throughSeq: 4, changesMax: 1 }),
    );
    expect(none).toEqual({ changes: [], scannedThrough: 4 });
  });

  test('a commit is never split: one too large comes whole and alone', async () => {
    const partition = await newPartition(storage());
    const many = (nth: number, count: number) =>
      Array.from({ length: count }, (_, row) => task(`c${nth}-${row}`, 'p1'));
    await write(storage(), partition, many(1, 5), many(2, 1), many(3, 2), [note(1, 'p1')], many(5, 1));
    const pages: [number[], number][] = [];
    for (let afterSeq = 0; afterSeq < 5; ) {
      const page = await changes(partition, { afterSeq, throughSeq: 5, changesMax: 3 });
      pages.push([page.changes.map(({ commitSeq }: SourceChange) => commitSeq), page.scannedThrough]);
      afterSeq = page.scannedThrough;
    }
    expect(pages).toEqual([
      [[1, 1, 1, 1, 1], 1],
      [[2, 3, 3], 3],
      [[5], 5],
    ]);
    const cut = await changes(partition, { afterSeq: 1, throughSeq: 5, changesMax: 2 });
    expect([cut.changes.map(({ commitSeq }) => commitSeq), cut.scannedThrough]).toEqual([[2], 2]);
  });

  test('through a log of thousands of other commits', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('t1', 'p1')]);
    for (let batch = 0; batch < 3; batch++) {
      await write(storage(), partition, ...Array.from({ length: 1_000 }, (_, nth) => [note(nth, 'p1')]));
    }
    await write(storage(), partition, [task('t2', 'p1')]);
    await write(storage(), partition, [note(1, 'p1')]);
    const { changes: found } = await changes(partition);
    expect(found.map(({ commitSeq }) => commitSeq)).toEqual([1, 3_002]);
    expect(await storage().sourceCoverageSeq(partition, ['tasks'])).toBe(3_002);
    expect(await storage().sourceCoverageSeq(partition, ['notes', 'tasks'])).toBe(3_003);
    expect(await storage().sourceCoverageSeq(partition, ['sealed'])).toBe(0);
    expect(await storage().sourceCoverageSeq(partition, [])).toBe(0);
    await storage().pruneLog({ partition, horizon: 3_002, commitsMax: 10_000 });
    expect(await storage().sourceCoverageSeq(partition, ['tasks'])).toBe(0);
    expect(await storage().sourceCoverageSeq(partition, ['notes'])).toBe(3_003);
    expect(await storage().sourceCoverageSeq('nobody', ['notes'])).toBe(0);
  });

  test('rows of a table are counted in the partition alone, up to a bound', async () => {
    const partition = await newPartition(storage());
    const other = await newPartition(storage());
    await write(
      storage(),
      partition,
      [task('t1', 'p1'), task('t2', 'p1'), note(1, 'p1')],
      [task('t3', 'p2')],
    );
    await write(storage(), other, [task('t1', 'p1')]);
    const count = (of: string, max: number) => storage().countRows({ partition: of, table: TASKS, max });
    expect(await count(partition, 10)).toBe(3);
    expect(await count(partition, 2)).toBe(2);
    expect(await count(other, 10)).toBe(1);
    expect(await count('nobody', 10)).toBe(0);
  });

  test('changes above a position: clean, changed, or unverifiable once the horizon is above it', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('t1', 'p1')], [note(1, 'p1')], [task('t2', 'p1')]);
    const above = (seq: number, ...tables: string[]) =>
      storage().hasSourceChangesAbove(partition, tables, seq);
    expect(await above(0, 'tasks')).toBe('changed');
    expect(await above(2, 'notes', 'tasks')).toBe('changed');
    expect(await above(3, 'notes', 'tasks')).toBe('clean');
    expect(await above(0, 'sealed')).toBe('clean');
    expect(await above(0)).toBe('clean');
    await storage().pruneLog({ partition, horizon: 2, commitsMax: 1 });
    // What is left proves a change; where nothing is left, nothing is proved.
    expect(await above(0, 'tasks')).toBe('changed');
    expect(await above(1, 'sealed')).toBe('unverifiable');
    expect(await above(2, 'sealed')).toBe('clean');
    await storage().pruneLog({ partition, horizon: 3, commitsMax: 10 });
    expect(await above(0, 'tasks')).toBe('unverifiable');
    expect(await above(3, 'tasks')).toBe('clean');
    expect(await above(0)).toBe('clean');
    expect(await storage().hasSourceChangesAbove('nobody', ['tasks'], 0)).toBe('clean');
  });
}
