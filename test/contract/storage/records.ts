/** Admission, client records, bindings, cursors, and what operators call: rotation, pruning, listing. */
import { describe, expect, test } from 'vitest';
import type {
  ClientUpdate,
  CursorUpdate,
  Storage,
  StoredSubscription,
} from '../../../src/storage/storage.ts';
import {
  admitTo,
  asRead,
  failureOf,
  firstEpochOf,
  NO_LIMITS,
  newPartition,
  TASKS,
  task,
  WHOLE_LOG,
  WHOLE_PAGE,
  write,
} from './fixture.ts';

const SUBSCRIPTIONS: readonly StoredSubscription[] = [
  { id: 's1', table: 'tasks', scopes: { project: ['p1', 'p"2'], owner: ['ö'] }, state: 'live' },
  { id: 's2', table: 'notes', scopes: { project: [] }, state: 'bootstrapping' },
];

function update(partition: string, changes: Partial<ClientUpdate> = {}): ClientUpdate {
  return {
    partition,
    clientId: 'client-1',
    logEpoch: firstEpochOf(partition),
    actorId: 'actor-1',
    wireVersion: 2,
    schemaVersion: 3,
    subscriptions: SUBSCRIPTIONS,
    nowMs: 2_000,
    ...changes,
  };
}

function cursor(partition: string, changes: Partial<CursorUpdate> = {}): CursorUpdate {
  return { partition, clientId: 'client-1', mode: 'set', cursor: 0, nowMs: 3_000, ...changes };
}

async function clientOf(storage: Storage, partition: string, clientId = 'client-1') {
  return (await admitTo(storage, partition, clientId)).client;
}

export function recordSuite(storage: () => Storage, other: () => Storage): void {
  describe('partitions', () => {
    test('admit creates the partition once, with the first epoch (S-027)', async () => {
      const partition = `new-${Math.trunc(performance.now() * 1_000)}`;
      const admissions = await Promise.all(
        ['epoch-a', 'epoch-b', 'epoch-c'].map((newLogEpoch, nth) =>
          (nth === 1 ? other() : storage()).admit({ partition, clientId: 'c', newLogEpoch, nowMs: 1 }),
        ),
      );
      const [first] = admissions;
      expect(new Set(admissions.map(({ state }) => state.logEpoch)).size).toBe(1);
      expect(first).toEqual({
        state: {
          partition,
          head: 0,
          horizon: 0,
          logEpoch: first!.state.logEpoch,
          epochRequired: false,
          storedSchemaVersion: 3,
          pending: [],
          newestCheckpointVersion: 0,
        },
        client: null,
        boundActorId: null,
      });
      const again = await storage().admit({ partition, clientId: 'c', newLogEpoch: 'late', nowMs: 2 });
      expect(again.state.logEpoch).toBe(first!.state.logEpoch);
    });

    test('admit reads head, record and binding together', async () => {
      const partition = await newPartition(storage());
      await write(storage(), partition, [task('t1', 'p1')]);
      await storage().saveClient(update(partition));
      await storage().bindClient({ partition, clientId: 'client-1', actorId: 'actor-1' });
      const admission = await admitTo(storage(), partition);
      expect(admission.state.head).toBe(1);
      expect(admission.boundActorId).toBe('actor-1');
      expect(admission.client).toEqual({
        clientId: 'client-1',
        actorId: 'actor-1',
        wireVersion: 2,
        schemaVersion: 3,
        cursor: -1,
        subscriptions: SUBSCRIPTIONS,
        updatedAtMs: 2_000,
      });
    });

    test('partitions are listed in order, in pieces', async () => {
      const names = await Promise.all([1, 2, 3].map(() => newPartition(storage())));
      await write(storage(), names[1]!, [task('t1', 'p1')]);
      const listed: string[] = [];
      for (let afterPartition: string | null = null; ; ) {
        const piece: readonly { partition: string }[] = await storage().listPartitions({
          afterPartition,
          max: 2,
        });
        listed.push(...piece.map(({ partition }) => partition));
        if (piece.length < 2) break;
        afterPartition = listed.at(-1)!;
      }
      expect(listed).toEqual([...listed].sort());
      expect(new Set(listed).size).toBe(listed.length);
      expect(listed).toEqual(expect.arrayContaining(names));
      const [state] = await storage().listPartitions({ afterPartition: names[0]!, max: 1 });
      expect(state).toEqual((await admitTo(storage(), names[1]!)).state);
    });

    test('touchPartitions and ping are accepted, also for a partition that is unknown (S-028)', async () => {
      const partition = await newPartition(storage());
      await storage().touchPartitions(
        new Map([
          [partition, 5_000],
          ['unknown', 5_000],
        ]),
      );
      await storage().touchPartitions(new Map());
      await storage().ping();
      const listed = await storage().listPartitions({ afterPartition: 'unknowm', max: 1 });
      expect(listed.filter((state) => state.partition === 'unknown')).toEqual([]);
    });
  });

  describe('client records', () => {
    test('saveClient replaces the list, null keeps it, and without a record null creates none (S-056, R-080)', async () => {
      const partition = await newPartition(storage());
      await storage().saveClient(update(partition, { subscriptions: null }));
      expect(await clientOf(storage(), partition)).toBeNull();
      await storage().saveClient(update(partition));
      await storage().saveClient(
        update(partition, { subscriptions: null, wireVersion: 1, schemaVersion: 2, nowMs: 9_000 }),
      );
      expect(await clientOf(storage(), partition)).toMatchObject({
        subscriptions: SUBSCRIPTIONS,
        wireVersion: 1,
        schemaVersion: 2,
        updatedAtMs: 9_000,
      });
      await storage().saveClient(update(partition, { subscriptions: [] }));
      expect(await clientOf(storage(), partition)).toMatchObject({ subscriptions: [], cursor: -1 });
    });

    test('saveClient leaves the cursor, cursors leave the list (R-080)', async () => {
      const partition = await newPartition(storage());
      await storage().saveClient(update(partition));
      await storage().saveCursors([cursor(partition, { cursor: 7 })]);
      await storage().saveClient(update(partition, { subscriptions: SUBSCRIPTIONS.slice(1) }));
      expect(await clientOf(storage(), partition)).toMatchObject({
        cursor: 7,
        subscriptions: SUBSCRIPTIONS.slice(1),
      });
    });

    test('a pull sets the cursor, an ack only raises it, a missing record stays missing (S-063)', async () => {
      const partition = await newPartition(storage());
      await storage().saveClient(update(partition));
      const cursorAfter = async (...updates: readonly Partial<CursorUpdate>[]) => {
        await storage().saveCursors(updates.map((changes) => cursor(partition, changes)));
        return (await clientOf(storage(), partition))?.cursor;
      };
      expect(await cursorAfter({ cursor: 10 })).toBe(10);
      expect(await cursorAfter({ mode: 'raise', cursor: 4 })).toBe(10);
      expect(await cursorAfter({ mode: 'raise', cursor: 12 })).toBe(12);
      expect(await cursorAfter({ cursor: 3 })).toBe(3);
      expect(
        await cursorAfter({ cursor: 5 }, { mode: 'raise', cursor: 8 }, { mode: 'raise', cursor: 6 }),
      ).toBe(8);
      expect(await cursorAfter({ cursor: Number.MAX_SAFE_INTEGER })).toBe(Number.MAX_SAFE_INTEGER);
      await storage().saveCursors([
        cursor(partition, { clientId: 'missing', cursor: 1 }),
        cursor('unknown-partition', { cursor: 1 }),
      ]);
      expect(await clientOf(storage(), partition, 'missing')).toBeNull();
      await storage().saveCursors([]);
    });

    test('a cursor update shows when the client was last seen', async () => {
      const partition = await newPartition(storage());
      await storage().saveClient(update(partition, { nowMs: 5_000 }));
      await storage().saveCursors([cursor(partition, { nowMs: 8_000 })]);
      expect((await clientOf(storage(), partition))?.updatedAtMs).toBe(8_000);
      await storage().saveCursors([cursor(partition, { nowMs: 6_000 })]);
      expect((await clientOf(storage(), partition))?.updatedAtMs).toBe(8_000);
    });

    test('readClient reads the same record inside a snapshot', async () => {
      const partition = await newPartition(storage());
      await storage().saveClient(update(partition));
      const read = await storage().readSnapshot(partition, (reader) => reader.readClient('client-1'));
      expect(read).toEqual(await clientOf(storage(), partition));
      expect(await storage().readSnapshot(partition, (reader) => reader.readClient('other'))).toBeNull();
    });

    test('the first binder of a client id wins, also in a race of two instances (S-009)', async () => {
      const partition = await newPartition(storage());
      const bind = (instance: Storage, actorId: string) =>
        instance.bindClient({ partition, clientId: 'contested', actorId });
      const holders = await Promise.all([bind(storage(), 'a'), bind(other(), 'b'), bind(storage(), 'c')]);
      expect(new Set(holders).size).toBe(1);
      expect(await bind(other(), 'd')).toBe(holders[0]);
      expect((await admitTo(storage(), partition, 'contested')).boundActorId).toBe(holders[0]);
      const elsewhere = await newPartition(storage());
      expect(await storage().bindClient({ partition: elsewhere, clientId: 'contested', actorId: 'z' })).toBe(
        'z',
      );
    });
  });

  describe('rotation', () => {
    test('a new epoch, validation required, records gone; bindings, results, log and rows stay (S-032, 2.24-24)', async () => {
      const partition = await newPartition(storage());
      const bystander = await newPartition(storage());
      await write(storage(), partition, [task('t1', 'p1')]);
      for (const each of [partition, bystander]) {
        await storage().saveClient(update(each));
        await storage().bindClient({ partition: each, clientId: 'client-1', actorId: 'actor-1' });
      }
      await storage().rotateEpoch({ partition, logEpoch: 'rotated' });
      expect(await admitTo(storage(), partition)).toMatchObject({
        state: { logEpoch: 'rotated', epochRequired: true, head: 1 },
        client: null,
        boundActorId: 'actor-1',
      });
      const [result] = await storage().transaction(partition, (tx) =>
        tx.readResults([{ clientId: 'client-1', clientCommitId: 'commit-1' }]),
      );
      expect(result).not.toBeNull();
      expect(await storage().readSnapshot(partition, (reader) => reader.readRow(TASKS, 't1'))).not.toBeNull();
      expect(await admitTo(storage(), bystander)).toMatchObject({ state: { epochRequired: false } });
      expect(await clientOf(storage(), bystander)).not.toBeNull();
    });

    test('a round that a rotation overtook saves no record, neither a new list nor versions (S-032)', async () => {
      const partition = await newPartition(storage());
      await storage().rotateEpoch({ partition, logEpoch: 'rotated' });
      await storage().saveClient(update(partition));
      await other().saveClient(update(partition));
      expect(await clientOf(storage(), partition)).toBeNull();
      const logEpoch = 'rotated';
      await storage().saveClient(update(partition, { logEpoch, subscriptions: [] }));
      await other().saveClient(update(partition, { wireVersion: 1, subscriptions: null }));
      await other().saveClient(update(partition, { wireVersion: 1 }));
      expect(await clientOf(storage(), partition)).toMatchObject({ wireVersion: 2, subscriptions: [] });
      await other().saveClient(update(partition, { logEpoch, wireVersion: 1, subscriptions: null }));
      expect(await clientOf(storage(), partition)).toMatchObject({ wireVersion: 1, subscriptions: [] });
    });

    test('a rotation and rounds that end at the same time: no record of the old timeline is left (S-032)', async () => {
      const partition = await newPartition(storage());
      const save = (nth: number) =>
        (nth % 2 === 0 ? storage() : other()).saveClient(update(partition, { clientId: `client-${nth}` }));
      const rotated = storage().rotateEpoch({ partition, logEpoch: 'rotated' });
      await Promise.all([rotated, ...Array.from({ length: 12 }, (_, nth) => save(nth))]);
      for (let nth = 0; nth < 12; nth++) {
        expect(await clientOf(storage(), partition, `client-${nth}`)).toBeNull();
      }
    });
  });

  describe('pruning', () => {
    test('raises the horizon at once and removes in bounded batches, rows and results stay (part 6 rule 6)', async () => {
      const partition = await newPartition(storage());
      const commits = asRead(
        await write(storage(), partition, ...[1, 2, 3, 4, 5, 6].map((n) => [task(`t${n % 2}`, `p${n % 2}`)])),
      );
      const prune = (horizon: number, commitsMax: number) =>
        storage().pruneLog({ partition, horizon, commitsMax });
      expect(await prune(4, 3)).toEqual({ removed: 3, more: true });
      expect((await admitTo(storage(), partition)).state.horizon).toBe(4);
      expect(await prune(4, 3)).toEqual({ removed: 1, more: false });
      expect(await prune(4, 3)).toEqual({ removed: 0, more: false });
      expect(await prune(2, 3)).toEqual({ removed: 0, more: false });
      expect((await admitTo(storage(), partition)).state).toMatchObject({ horizon: 4, head: 6 });
      await storage().readSnapshot(partition, async (reader) => {
        expect(await reader.readCommits(WHOLE_LOG)).toEqual(commits.slice(4));
        const scopes = { project: ['p0', 'p1'] };
        const window = await reader.readWindow({
          table: TASKS,
          scopes,
          afterSeq: 4,
          throughSeq: 6,
          ...NO_LIMITS,
        });
        expect(window.commits.map(({ commitSeq }) => commitSeq)).toEqual([5, 6]);
        const { rows } = await reader.readRowPage({ table: TASKS, scopes, ...WHOLE_PAGE });
        expect(rows.map(({ serverVersion }) => serverVersion)).toEqual([3, 3]);
      });
      const results = await storage().transaction(partition, (tx) =>
        tx.readResults([1, 6].map((n) => ({ clientId: 'client-1', clientCommitId: `commit-${n}` }))),
      );
      expect(results.every((record) => record !== null)).toBe(true);
    });

    test('the horizon never passes the head, and numbers go on after everything was pruned', async () => {
      const partition = await newPartition(storage());
      await write(storage(), partition, [task('t1', 'p1')], [task('t2', 'p1')]);
      expect(await storage().pruneLog({ partition, horizon: 99, commitsMax: 10 })).toEqual({
        removed: 2,
        more: false,
      });
      expect((await admitTo(storage(), partition)).state).toMatchObject({ head: 2, horizon: 2 });
      const [commit] = await write(storage(), partition, [task('t3', 'p1')]);
      expect(commit?.commitSeq).toBe(3);
    });

    test('other partitions keep their log', async () => {
      const [pruned, kept] = [await newPartition(storage()), await newPartition(storage())];
      for (const partition of [pruned, kept]) await write(storage(), partition, [task('t1', 'p1')]);
      await storage().pruneLog({ partition: pruned, horizon: 1, commitsMax: 10 });
      const log = await storage().readSnapshot(kept, (reader) => reader.readCommits(WHOLE_LOG));
      expect(log).toHaveLength(1);
      expect(
        await failureOf(storage().pruneLog({ partition: 'no', horizon: 1, commitsMax: 1 })),
      ).toMatchObject({
        code: 'sync.storage.unknown_partition',
      });
    });
  });
}
