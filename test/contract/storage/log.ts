/** Appending, windows and whole commits. */
import { expect, test } from 'vitest';
import type { ScopeMap } from '../../../src/protocol/frames.ts';
import type { CommitWindow, Storage, WindowQuery } from '../../../src/storage/storage.ts';
import { StorageError } from '../../../src/storage/storage-error.ts';
import {
  asRead,
  failureOf,
  NO_LIMITS,
  NOTES,
  newPartition,
  note,
  planBatch,
  remove,
  SEALED,
  TASKS,
  task,
  WHOLE_LOG,
  WHOLE_PAGE,
  write,
  writeIn,
} from './fixture.ts';

const BYTES = { bytesMax: 2 ** 40 };

export function logSuite(storage: () => Storage): void {
  test('append: commits are dense, and a number that does not continue the head is a RangeError (S-025)', async () => {
    const partition = await newPartition(storage());
    const [first, second] = await write(storage(), partition, [task('t1', 'p1')], [task('t2', 'p1')]);
    expect([first?.commitSeq, second?.commitSeq]).toEqual([1, 2]);
    for (const wrong of [2, 4]) {
      const failure = await failureOf(
        storage().transaction(partition, async (tx) => {
          const batch = await planBatch(tx, [[task('t3', 'p1')]]);
          await tx.append({ ...batch, commits: batch.commits.map((c) => ({ ...c, commitSeq: wrong })) });
        }),
      );
      expect(failure).toBeInstanceOf(RangeError);
    }
    expect(await headOf(storage(), partition)).toBe(2);
  });

  test('append: the transaction sees its own head, several appends continue each other', async () => {
    const partition = await newPartition(storage());
    await storage().transaction(partition, async (tx) => {
      expect(tx.state.head).toBe(0);
      await writeIn(tx, [task('t1', 'p1')], [task('t1', 'p1', { title: 'again' })]);
      expect(tx.state.head).toBe(2);
      await writeIn(tx, [task('t1', 'p1', { title: 'third' })]);
      expect(tx.state.head).toBe(3);
    });
    const row = await storage().readSnapshot(partition, (reader) => reader.readRow(TASKS, 't1'));
    expect(row?.serverVersion).toBe(3);
  });

  test('append: a batch of results alone leaves the head', async () => {
    const partition = await newPartition(storage());
    const key = { clientId: 'c', clientCommitId: 'rejected' };
    const record = {
      ...key,
      result: '{"status":"rejected" }',
      contentHash: 'f'.repeat(64),
      schemaVersion: 3,
      recordedAtMs: 5,
    };
    await storage().transaction(partition, (tx) => tx.append({ commits: [], rows: [], results: [record] }));
    expect(await headOf(storage(), partition)).toBe(0);
    const found = await storage().transaction(partition, (tx) => tx.readResults([key]));
    expect(found).toEqual([record]);
  });

  test('results come in the order of the keys, null where none is stored (S-037)', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('t1', 'p1')], [task('t2', 'p1')]);
    const found = await storage().transaction(partition, (tx) =>
      tx.readResults([
        { clientId: 'client-1', clientCommitId: 'commit-2' },
        { clientId: 'client-2', clientCommitId: 'commit-1' },
        { clientId: 'client-1', clientCommitId: 'commit-1' },
        { clientId: 'client-1', clientCommitId: 'commit-2' },
      ]),
    );
    expect(found.map((record) => record?.clientCommitId ?? null)).toEqual([
      'commit-2',
      null,
      'commit-1',
      'commit-2',
    ]);
    expect(found[2]?.result).toBe('{"status":"applied","commitSeq":1}');
    expect(await storage().transaction(partition, (tx) => tx.readResults([]))).toEqual([]);
  });

  test('window: exactly the matching changes of the table, oldest first, cursor exclusive (S-047, S-061)', async () => {
    const partition = await newPartition(storage());
    const commits = await write(
      storage(),
      partition,
      [task('t1', 'p1'), task('t2', 'p2'), note(1, 'p1')],
      [task('t3', 'p2')],
      [task('t4', 'p1'), task('t5', 'p1')],
      [note(2, 'p1')],
    );
    const window = await read(storage(), partition, { scopes: { project: ['p1'] } });
    const [first, , third] = asRead(commits);
    expect(window).toEqual({
      commits: [{ ...first, changes: first!.changes.slice(0, 1) }, third],
      scannedThrough: 4,
    });
    expect(seqs(await read(storage(), partition, { scopes: { project: ['p1'] }, afterSeq: 1 }))).toEqual([3]);
    expect(seqs(await read(storage(), partition, { scopes: { project: ['p1'] }, throughSeq: 2 }))).toEqual([
      1,
    ]);
    expect(seqs(await read(storage(), partition, { table: NOTES, scopes: { project: ['p1'] } }))).toEqual([
      1, 4,
    ]);
  });

  test('window: deletes carry scopes and no row (S-042)', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('t1', 'p1', { owner_id: 'o9' })]);
    await write(storage(), partition, [remove(TASKS, 't1')]);
    const window = await read(storage(), partition, { scopes: { project: ['p1'] }, afterSeq: 1 });
    expect(window.commits[0]?.changes).toEqual([
      { table: 'tasks', rowId: 't1', op: 'delete', scopes: { project: 'p1', owner: 'o9' } },
    ]);
  });

  test('window: several variables must all match in one change (S-047)', async () => {
    const partition = await newPartition(storage());
    await write(
      storage(),
      partition,
      [task('t1', 'p1', { owner_id: 'o1' }), task('t2', 'p2', { owner_id: 'o2' })],
      [task('t3', 'p1', { owner_id: 'o2' })],
      [task('t4', 'p2', { owner_id: 'o1' }), task('t5', 'p1', { owner_id: 'o1' })],
      [task('t6', 'p3', { owner_id: 'o3' })],
    );
    const ids = async (scopes: ScopeMap) =>
      (await read(storage(), partition, { scopes })).commits.map((c) =>
        c.changes.map((change) => change.rowId),
      );
    expect(await ids({ project: ['p1'], owner: ['o1'] })).toEqual([['t1'], ['t5']]);
    expect(await ids({ project: ['p1', 'p2'], owner: ['o2'] })).toEqual([['t2'], ['t3']]);
    expect(await ids({ project: ['p1', 'p2', 'p3'], owner: ['o1', 'o2'] })).toEqual([
      ['t1', 't2'],
      ['t3'],
      ['t4', 't5'],
    ]);
    expect(await ids({ project: ['p3'], owner: ['o1'] })).toEqual([]);
    expect(await ids({ project: ['p1'], owner: [] })).toEqual([]);
    expect(await ids({ nothing: ['p1'] })).toEqual([]);
  });

  test('window: one commit under several values comes once; repeated values change nothing', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('t1', 'p1'), task('t2', 'p2')], [task('t3', 'p2')]);
    const window = await read(storage(), partition, { scopes: { project: ['p2', 'p1', 'p2', 'p9'] } });
    expect(window.commits.map(({ changes }) => changes.length)).toEqual([2, 1]);
  });

  test('window: the limit counts changes, a first commit above it comes whole and alone (S-058)', async () => {
    const partition = await newPartition(storage());
    await write(
      storage(),
      partition,
      [1, 2, 3].map((n) => task(`a${n}`, 'p1')),
      [task('b1', 'p1')],
      [1, 2, 3, 4, 5].map((n) => task(`c${n}`, 'p1')),
      [task('d1', 'p1')],
    );
    const limited = (changesMax: number, afterSeq = 0) =>
      read(storage(), partition, { scopes: { project: ['p1'] }, changesMax, afterSeq });
    expect(shape(await limited(4))).toEqual([[1, 2], 2]);
    expect(shape(await limited(3))).toEqual([[1], 1]);
    expect(shape(await limited(2))).toEqual([[1], 1]);
    expect(shape(await limited(1, 2))).toEqual([[3], 3]);
    expect((await limited(1, 2)).commits[0]?.changes).toHaveLength(5);
    expect(shape(await limited(9))).toEqual([[1, 2, 3], 3]);
    expect(shape(await limited(10))).toEqual([[1, 2, 3, 4], 4]);
  });

  test('window: the byte limit cuts the same way', async () => {
    const partition = await newPartition(storage());
    const body = new Uint8Array(1_000);
    await write(
      storage(),
      partition,
      [task('a', 'p1', { body })],
      [task('b', 'p1', { body })],
      [task('c', 'p1')],
    );
    const limited = (bytesMax: number, afterSeq = 0) =>
      read(storage(), partition, { scopes: { project: ['p1'] }, bytesMax, afterSeq });
    expect(shape(await limited(1))).toEqual([[1], 1]);
    expect(shape(await limited(1_500))).toEqual([[1], 1]);
    expect(shape(await limited(2_500))).toEqual([[1, 2, 3], 3]);
    expect(shape(await limited(1_200, 1))).toEqual([[2, 3], 3]);
  });

  test('window: a quiet scope advances to the bound, a full window that nothing follows too (S-062)', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('a', 'p1')], [task('b', 'p2')], [task('c', 'p2')]);
    expect(shape(await read(storage(), partition, { scopes: { project: ['p9'] } }))).toEqual([[], 3]);
    expect(shape(await read(storage(), partition, { scopes: { project: ['p1'] }, changesMax: 1 }))).toEqual([
      [1],
      3,
    ]);
    expect(shape(await read(storage(), partition, { scopes: { project: ['p2'] }, afterSeq: 3 }))).toEqual([
      [],
      3,
    ]);
  });

  test('window: a long one is read whole in pieces', async () => {
    const partition = await newPartition(storage());
    const total = 700;
    await write(
      storage(),
      partition,
      ...Array.from({ length: total }, (_, n) => [task(`t${n}`, `p${n % 3}`)]),
    );
    const found: number[] = [];
    for (let afterSeq = 0; ; ) {
      const window = await read(storage(), partition, {
        scopes: { project: ['p0', 'p2'] },
        afterSeq,
        throughSeq: total,
        changesMax: 64,
      });
      found.push(...seqs(window));
      afterSeq = window.scannedThrough;
      if (afterSeq === total) break;
    }
    expect(found).toEqual(
      Array.from({ length: total }, (_, n) => n + 1).filter((seq) => (seq - 1) % 3 !== 1),
    );
  });

  test('a read of rows or changes without a scope is refused', async () => {
    const partition = await newPartition(storage());
    const query = { table: TASKS, scopes: {}, afterSeq: 0, throughSeq: 1, ...NO_LIMITS };
    const scan = { table: TASKS, scopes: {}, ...WHOLE_PAGE };
    const failures = [
      await failureOf(storage().readSnapshot(partition, (reader) => reader.readWindow(query))),
      await failureOf(storage().readSnapshot(partition, (reader) => reader.readRowPage(scan))),
      await failureOf(storage().transaction(partition, (tx) => tx.scanRows(scan))),
    ];
    for (const failure of failures) {
      expect(failure).toBeInstanceOf(StorageError);
      expect(failure).toMatchObject({ code: 'sync.storage.scan_requires_scope' });
    }
  });

  test('scope texts of any content find their changes and rows', async () => {
    const partition = await newPartition(storage());
    const texts = [
      '',
      "o'clock",
      '"quoted"',
      '*',
      '%',
      '[1]',
      'ünïcödé 🦆',
      ' spaced ',
      '{"json":1}',
      '12',
      'p\\1',
    ];
    for (const [nth, project] of texts.entries()) {
      const values = [`r${nth}`, project, new Uint8Array([nth])];
      await storage().transaction(partition, async (tx) => {
        const scopes = { room: project };
        const row = { rowId: `r${nth}`, serverVersion: 1, scopes, payload: new Uint8Array([nth]) };
        const change = {
          table: 'sealed',
          rowId: row.rowId,
          op: 'upsert',
          rowVersion: 1,
          payload: row.payload,
          scopes,
        };
        await tx.append({
          commits: [
            {
              commitSeq: nth + 1,
              createdAtMs: 1,
              actorId: 'a',
              clientId: 'c',
              clientCommitId: `c${nth}`,
              writerVersion: 3,
              changes: [change as never],
            },
          ],
          rows: [{ table: SEALED, upserts: [{ ...row, values }], deletes: [] }],
          results: [],
        });
      });
    }
    for (const [nth, room] of texts.entries()) {
      const window = await read(storage(), partition, { table: SEALED, scopes: { room: [room] } });
      expect(seqs(window), room).toEqual([nth + 1]);
      expect(window.commits[0]?.changes[0]?.scopes).toEqual({ room });
      const page = await storage().readSnapshot(partition, (reader) =>
        reader.readRowPage({ table: SEALED, scopes: { room: [room] }, ...WHOLE_PAGE }),
      );
      expect(page.rows.map(({ rowId }) => rowId)).toEqual([`r${nth}`]);
    }
  });

  test('readCommits: whole commits with all their changes, empty ones too, at least one', async () => {
    const partition = await newPartition(storage());
    const body = new Uint8Array(1_000);
    const commits = asRead(
      await write(
        storage(),
        partition,
        [task('a', 'p1', { body }), note(1, 'p2')],
        [],
        [task('b', 'p2', { body }), task('a', 'p3')],
        [remove(NOTES, '1')],
      ),
    );
    const readAll = (range: Partial<typeof WHOLE_LOG>) =>
      storage().readSnapshot(partition, (reader) => reader.readCommits({ ...WHOLE_LOG, ...range }));
    expect(await readAll({})).toEqual(commits);
    expect(await readAll({ afterSeq: 1, throughSeq: 3 })).toEqual(commits.slice(1, 3));
    expect(await readAll({ commitsMax: 2 })).toEqual(commits.slice(0, 2));
    expect(await readAll({ bytesMax: 1 })).toEqual(commits.slice(0, 1));
    expect(await readAll({ bytesMax: 1_200 })).toEqual(commits.slice(0, 2));
    expect(await readAll({ afterSeq: 2, bytesMax: 1 })).toEqual(commits.slice(2, 3));
    expect(await readAll({ afterSeq: 4 })).toEqual([]);
  });
}

function read(storage: Storage, partition: string, query: Partial<WindowQuery>): Promise<CommitWindow> {
  return storage.readSnapshot(partition, async (reader) =>
    reader.readWindow({
      table: TASKS,
      scopes: {},
      afterSeq: 0,
      throughSeq: (await reader.state()).head,
      changesMax: NO_LIMITS.changesMax,
      ...BYTES,
      ...query,
    }),
  );
}

async function headOf(storage: Storage, partition: string): Promise<number> {
  return storage.readSnapshot(partition, async (reader) => (await reader.state()).head);
}

function seqs({ commits }: CommitWindow): number[] {
  return commits.map(({ commitSeq }) => commitSeq);
}

function shape(window: CommitWindow): [number[], number] {
  return [seqs(window), window.scannedThrough];
}
