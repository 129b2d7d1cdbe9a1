/** Order, atomicity, isolation, savepoints: several transactions, snapshots and instances at once. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { expect, test } from 'vitest';
import type { SnapshotReader, Storage, StorageTx } from '../../../src/storage/storage.ts';
import { StorageError } from '../../../src/storage/storage-error.ts';
import {
  admitTo,
  failureOf,
  firstEpochOf,
  gate,
  NO_LIMITS,
  newPartition,
  planBatch,
  remove,
  TASKS,
  task,
  WHOLE_LOG,
  WHOLE_PAGE,
  write,
  writeIn,
} from './fixture.ts';

class Boom extends Error {}

interface Instances {
  readonly storage: () => Storage;
  /** A second instance on the same data, open for the whole suite. */
  readonly other: () => Storage;
}

export function isolationSuite({ storage, other }: Instances): void {
  test('16 transactions at once on two instances, some failing: dense, no gap, none lost (S-025, S-129)', async () => {
    const partition = await newPartition(storage());
    const outcomes = await Promise.allSettled(
      Array.from({ length: 16 }, (_, nth) =>
        (nth % 2 === 0 ? storage() : other()).transaction(partition, async (tx) => {
          const [commit] = await writeIn(tx, [task(`t${nth}`, 'p1')]);
          if (nth % 5 === 4) throw new Boom();
          return commit!.commitSeq;
        }),
      ),
    );
    const landed = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
    expect(landed.sort((a, b) => a - b)).toEqual(Array.from({ length: 13 }, (_, n) => n + 1));
    for (const outcome of outcomes) {
      if (outcome.status === 'rejected') expect(outcome.reason).toBeInstanceOf(Boom);
    }
    const log = await storage().readSnapshot(partition, (reader) => reader.readCommits(WHOLE_LOG));
    expect(log.map(({ commitSeq }) => commitSeq)).toEqual(Array.from({ length: 13 }, (_, n) => n + 1));
  });

  test('transactions of one partition never overlap', async () => {
    const partition = await newPartition(storage());
    const events: string[] = [];
    const [first, inside] = [gate(), gate()];
    const running = storage().transaction(partition, async (tx) => {
      events.push('first in');
      inside.open();
      await first.opened;
      await writeIn(tx, [task('t1', 'p1')]);
      events.push('first out');
    });
    await inside.opened;
    const waiting = [2, 3].map((nth) =>
      storage().transaction(partition, async (tx) => {
        events.push(`next in, head ${tx.state.head}`);
        await writeIn(tx, [task(`t${nth}`, 'p1')]);
      }),
    );
    first.open();
    await Promise.all([running, ...waiting]);
    expect(events).toEqual(['first in', 'first out', 'next in, head 1', 'next in, head 2']);
  });

  test('a transaction that throws leaves nothing: log, rows, index, results, head (S-133)', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('t1', 'p1', { title: 'old' }), task('t2', 'p1')]);
    const before = await dump(storage(), partition);
    const failure = await failureOf(
      storage().transaction(partition, async (tx) => {
        await writeIn(tx, [task('t1', 'p2', { title: 'new' }), remove(TASKS, 't2'), task('t3', 'p1')]);
        throw new Boom();
      }),
    );
    expect(failure).toBeInstanceOf(Boom);
    expect(await dump(storage(), partition)).toEqual(before);
    await write(storage(), partition, [task('t3', 'p1')]);
    expect((await dump(storage(), partition)).state.head).toBe(2);
  });

  test('a snapshot sees one state while transactions commit beside it', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('t1', 'p1')]);
    await storage().readSnapshot(partition, async (reader) => {
      const before = await dumpOf(reader);
      await write(storage(), partition, [task('t1', 'p2'), task('t2', 'p1')]);
      await write(other(), partition, [remove(TASKS, 't2')]);
      await storage().saveClient({
        partition,
        clientId: 'client-1',
        logEpoch: firstEpochOf(partition),
        actorId: 'a',
        wireVersion: 2,
        schemaVersion: 3,
        subscriptions: [],
        nowMs: 1,
      });
      expect(await dumpOf(reader)).toEqual(before);
      expect(await reader.readClient('client-1')).toBeNull();
    });
    expect((await dump(storage(), partition)).state.head).toBe(3);
  });

  test('what a transaction has not committed is invisible, then visible whole (S-136)', async () => {
    const partition = await newPartition(storage());
    const before = await dump(storage(), partition);
    await storage().transaction(partition, async (tx) => {
      await writeIn(tx, [task('t1', 'p1')], [task('t2', 'p1')]);
      expect(await dump(storage(), partition)).toEqual(before);
      expect(await dump(other(), partition)).toEqual(before);
    });
    const after = await dump(other(), partition);
    expect([after.state.head, after.log.length, after.rows.length]).toEqual([2, 2, 2]);
  });

  test('readers that poll during writes never see a part of a commit', async () => {
    const partition = await newPartition(storage());
    const writers = Array.from({ length: 12 }, (_, nth) =>
      write(nth % 3 === 0 ? other() : storage(), partition, [
        task(`t${nth}a`, 'p1'),
        task(`t${nth}b`, 'p1'),
        task('shared', 'p1', { rank: nth }),
      ]),
    );
    const everything = Promise.all(writers);
    let done = false;
    everything.finally(() => {
      done = true;
    });
    while (!done) {
      await nextTurn();
      const { state, log, rows } = await dump(storage(), partition);
      expect(log.map(({ commitSeq }) => commitSeq)).toEqual(
        Array.from({ length: state.head }, (_, n) => n + 1),
      );
      expect(rows.length).toBe(state.head === 0 ? 0 : state.head * 2 + 1);
      const shared = rows.find(({ rowId }) => rowId === 'shared');
      expect(shared?.serverVersion ?? 0).toBe(state.head);
    }
    await everything;
  });

  test('many snapshots at once are served, also more than there are connections', async () => {
    const partition = await newPartition(storage());
    await write(storage(), partition, [task('t1', 'p1')]);
    const heads = await Promise.all(
      Array.from({ length: 64 }, () =>
        storage().readSnapshot(partition, async (reader) => {
          await reader.readRow(TASKS, 't1');
          return (await reader.state()).head;
        }),
      ),
    );
    expect(heads).toEqual(new Array(64).fill(1));
  });

  test('a savepoint that throws undoes its writes alone and the head follows', async () => {
    const partition = await newPartition(storage());
    await storage().transaction(partition, async (tx) => {
      await writeIn(tx, [task('kept', 'p1')]);
      const failure = await failureOf(
        tx.savepoint(async () => {
          await writeIn(tx, [task('lost', 'p1'), task('kept', 'p2')]);
          expect(tx.state.head).toBe(2);
          throw new Boom();
        }),
      );
      expect(failure).toBeInstanceOf(Boom);
      expect(tx.state.head).toBe(1);
      expect(await tx.readRows(TASKS, ['lost'])).toEqual(new Map());
      const value = await tx.savepoint(async () => {
        await writeIn(tx, [task('second', 'p1')]);
        return 'given back';
      });
      expect(value).toBe('given back');
      expect(tx.state.head).toBe(2);
    });
    const { log, rows } = await dump(storage(), partition);
    expect(log.map(({ commitSeq }) => commitSeq)).toEqual([1, 2]);
    expect(rows.map(({ rowId, scopes }) => [rowId, scopes.project])).toEqual([
      ['kept', 'p1'],
      ['second', 'p1'],
    ]);
  });

  test('a refused row inside a savepoint spares its neighbours (architecture §3)', async () => {
    const partition = await newPartition(storage());
    await storage().transaction(partition, async (tx) => {
      await tx.savepoint(() => writeIn(tx, [task('t1', 'p1', { slug: 's' })]));
      const failure = await failureOf(tx.savepoint(() => writeIn(tx, [task('t2', 'p1', { slug: 's' })])));
      expect(failure).toMatchObject({ kind: 'unique' });
      await tx.savepoint(() => writeIn(tx, [task('t3', 'p1')]));
    });
    const { state, rows } = await dump(storage(), partition);
    expect([state.head, rows.map(({ rowId }) => rowId)]).toEqual([2, ['t1', 't3']]);
  });

  test('savepoints nest: an outer one that throws takes the inner one along', async () => {
    const partition = await newPartition(storage());
    await storage().transaction(partition, async (tx) => {
      await failureOf(
        tx.savepoint(async () => {
          await tx.savepoint(() => writeIn(tx, [task('inner', 'p1')]));
          await failureOf(
            tx.savepoint(async () => {
              await writeIn(tx, [task('innermost', 'p1')]);
              throw new Boom();
            }),
          );
          expect(tx.state.head).toBe(1);
          throw new Boom();
        }),
      );
      expect(tx.state.head).toBe(0);
    });
    expect((await dump(storage(), partition)).rows).toEqual([]);
  });

  test('partitions share nothing: same ids, same scopes, same clients (S-026)', async () => {
    const [mine, theirs] = [await newPartition(storage()), await newPartition(storage())];
    await write(storage(), mine, [task('t1', 'p1', { title: 'mine' }), task('t2', 'p1')]);
    await write(storage(), theirs, [task('t1', 'p1', { title: 'theirs' })]);
    await write(storage(), theirs, [remove(TASKS, 't1')]);
    await write(storage(), theirs, [task('t9', 'p1')]);
    const { state, log, rows } = await dump(storage(), mine);
    expect([state.head, log.length, rows.map(({ rowId }) => rowId)]).toEqual([1, 1, ['t1', 't2']]);
    const found = await storage().transaction(mine, async (tx) => [
      await tx.readResults([{ clientId: 'client-1', clientCommitId: 'commit-2' }]),
      [...(await tx.readRows(TASKS, ['t1', 't9'])).keys()],
    ]);
    expect(found).toEqual([[null], ['t1']]);
  });

  test('a partition that was never admitted is refused', async () => {
    for (const attempt of [
      () => storage().transaction('nobody', async () => 1),
      () => storage().readSnapshot('nobody', async () => 1),
      () => storage().rotateEpoch({ partition: 'nobody', logEpoch: 'e' }),
      () => storage().pruneLog({ partition: 'nobody', horizon: 1, commitsMax: 1 }),
    ]) {
      const failure = await failureOf(attempt());
      expect(failure).toBeInstanceOf(StorageError);
      expect(failure).toMatchObject({ code: 'sync.storage.unknown_partition' });
    }
    await admitTo(storage(), 'somebody');
    expect(await storage().transaction('somebody', async (tx) => tx.state.head)).toBe(0);
  });

  test('readers and transactions are dead once their function has settled', async () => {
    const partition = await newPartition(storage());
    const tx = await storage().transaction(partition, async (alive: StorageTx) => alive);
    const reader = await storage().readSnapshot(partition, async (alive) => alive);
    const batch = { commits: [], rows: [], results: [] };
    for (const late of [
      () => tx.append(batch),
      () => tx.readRows(TASKS, ['t1']),
      () => tx.savepoint(async () => 1),
      () => reader.readRow(TASKS, 't1'),
      () => reader.state(),
    ]) {
      expect(await failureOf(late())).toBeInstanceOf(StorageError);
    }
    expect(await planOutside(storage(), partition)).toBe(0);
  });
}

async function planOutside(storage: Storage, partition: string): Promise<number> {
  return storage.transaction(partition, async (tx) => (await planBatch(tx, [])).commits.length);
}

function dump(storage: Storage, partition: string) {
  return storage.readSnapshot(partition, dumpOf);
}

/** Everything that one snapshot shows of the tasks. */
async function dumpOf(reader: SnapshotReader) {
  const state = await reader.state();
  const scopes = { project: ['p1', 'p2', 'p3'] };
  const { rows } = await reader.readRowPage({ table: TASKS, scopes, ...WHOLE_PAGE });
  const window = await reader.readWindow({
    table: TASKS,
    scopes,
    afterSeq: 0,
    throughSeq: state.head,
    ...NO_LIMITS,
  });
  const log = await reader.readCommits(WHOLE_LOG);
  return { state, rows, window, log };
}
