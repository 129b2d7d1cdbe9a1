/** Records of backfills, the writer fence and the reads of a serve gate (part 4), on data of their own. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { Checkpoint, CheckpointAdvance } from '../../../src/storage/checkpoints.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { StorageQueryError } from '../../../src/storage/storage-error.ts';
import {
  type ActivationRequest,
  activateIn,
  advance,
  declaration,
  NAME,
  writeAs,
} from './checkpoint-fixture.ts';
import { checkpointReadSuite } from './checkpoint-reads.ts';
import { sourceSuite } from './checkpoint-sources.ts';
import {
  admitTo,
  failureOf,
  firstEpochOf,
  gate,
  type MakeStorage,
  newPartition,
  note,
  type OpenStorage,
  SCHEMA,
  type StorageHarness,
  task,
  write,
  writeIn,
} from './fixture.ts';

class Boom extends Error {}

export function checkpointSuite(make: MakeStorage): void {
  let harness: StorageHarness;
  let instances: OpenStorage[] = [];
  const storage = (): Storage => instances[0]!.storage;
  const other = (): Storage => instances[1]!.storage;

  beforeAll(async () => {
    harness = await make();
    instances = [await harness.open(), await harness.open()];
    for (const instance of instances) await instance.storage.ensureSchema(SCHEMA);
  });

  afterAll(async () => {
    await Promise.all(instances.map((instance) => instance.storage.close()));
    await harness.dispose();
  });

  /** Declared and claimed once: owner epoch 1. */
  async function claimed(): Promise<string> {
    const partition = await newPartition(storage());
    await storage().declareCheckpoint(declaration(partition));
    await storage().claimCheckpoint(declaration(partition));
    return partition;
  }

  async function recordOf(partition: string, name = NAME): Promise<Checkpoint | undefined> {
    return (await other().readCheckpoints(partition)).get(name);
  }

  const activate = (partition: string, rest: Partial<ActivationRequest> = {}) =>
    activateIn(storage(), partition, rest);

  describe('declaring', () => {
    test('a checkpoint begins as declared, and a later declaration never resets it', async () => {
      const partition = await newPartition(storage());
      await storage().declareCheckpoint(declaration(partition));
      expect(await recordOf(partition)).toEqual({
        partition,
        name: NAME,
        schemaVersion: 3,
        state: 'declared',
        watermark: 0,
        ownerEpoch: 0,
        observedRows: 0,
        updatedAtMs: 5_000,
        scan: null,
      });
      await storage().claimCheckpoint(declaration(partition));
      const scan = { headSeq: 1, table: 'tasks', afterRowId: 'a' };
      await storage().advanceCheckpoint({
        partition,
        ...advance(1, { watermark: 9, observedRows: 4, scan }),
      });
      const before = await recordOf(partition);
      await other().declareCheckpoint(declaration(partition, { schemaVersion: 2, nowMs: 9_000 }));
      expect(await recordOf(partition)).toEqual(before);
      expect(before).toMatchObject({
        state: 'backfilling',
        watermark: 9,
        ownerEpoch: 1,
        observedRows: 4,
        scan,
      });
    });

    test('the fence stops writers below it, is never lowered, and spares other partitions', async () => {
      const [fenced, free] = [await newPartition(storage()), await newPartition(storage())];
      await writeAs(storage(), fenced, 4);
      await storage().declareCheckpoint(declaration(fenced, { schemaVersion: 5 }));
      await storage().declareCheckpoint(declaration(fenced, { name: 'later', schemaVersion: 3 }));
      const failure = await failureOf(writeAs(other(), fenced, 4));
      expect(failure).toMatchObject({
        code: 'sync.storage.writer_fence_rejected',
        retryable: false,
        outcome: 'nothing',
      });
      await writeAs(other(), fenced, 5);
      await writeAs(other(), free, 1);
      expect((await admitTo(storage(), fenced)).state.head).toBe(2);
    });

    test('eight at once, of several names and versions, in two instances: each is there, the fence is the highest', async () => {
      const partition = await newPartition(storage());
      await Promise.all(
        Array.from({ length: 8 }, (_, nth) =>
          (nth % 2 === 0 ? storage() : other()).declareCheckpoint(
            declaration(partition, { name: `n${nth % 4}`, schemaVersion: 3 + (nth % 4) }),
          ),
        ),
      );
      const found = await storage().readCheckpoints(partition);
      expect([...found.values()].map(({ name, schemaVersion }) => [name, schemaVersion])).toEqual([
        ['n0', 3],
        ['n1', 4],
        ['n2', 5],
        ['n3', 6],
      ]);
      expect(await failureOf(writeAs(storage(), partition, 5))).toMatchObject({
        code: 'sync.storage.writer_fence_rejected',
      });
      await writeAs(storage(), partition, 6);
    });
  });

  describe('claiming and advancing', () => {
    test('16 claimers at once never get the same epoch (part 4, 4.4)', async () => {
      const partition = await newPartition(storage());
      await storage().declareCheckpoint(declaration(partition));
      const claims = await Promise.all(
        Array.from({ length: 16 }, (_, nth) =>
          (nth % 2 === 0 ? storage() : other()).claimCheckpoint(declaration(partition)),
        ),
      );
      expect(claims.map(({ ownerEpoch }) => ownerEpoch).sort((a, b) => a - b)).toEqual(
        Array.from({ length: 16 }, (_, nth) => nth + 1),
      );
      expect(new Set(claims.map(({ state }) => state))).toEqual(new Set(['backfilling']));
    });

    test('what is not declared, or in another version or partition, cannot be claimed', async () => {
      const [partition, stranger] = [await claimed(), await newPartition(storage())];
      for (const wrong of [
        declaration(partition, { name: 'nobody' }),
        declaration(partition, { schemaVersion: 4 }),
        declaration(stranger),
      ]) {
        const failure = await failureOf(storage().claimCheckpoint(wrong));
        expect(failure).toBeInstanceOf(StorageQueryError);
        expect(failure).toMatchObject({ code: 'sync.storage.checkpoint_not_declared', retryable: false });
      }
      expect(await recordOf(partition)).toMatchObject({ ownerEpoch: 1 });
    });

    test('progress is the newest owner’s alone, also where the state is not backfilling', async () => {
      const partition = await newPartition(storage());
      await storage().declareCheckpoint(declaration(partition));
      expect(await storage().advanceCheckpoint({ partition, ...advance(0, { watermark: 1 }) })).toBe(false);
      await storage().claimCheckpoint(declaration(partition));
      await other().claimCheckpoint(declaration(partition));
      const stale = advance(1, { watermark: 8, scan: { headSeq: 1, table: 'tasks', afterRowId: null } });
      expect(await storage().advanceCheckpoint({ partition, ...stale })).toBe(false);
      expect(await recordOf(partition)).toMatchObject({ watermark: 0, scan: null, updatedAtMs: 5_000 });
      expect(await storage().advanceCheckpoint({ partition, ...advance(2, { watermark: 8 }) })).toBe(true);
      expect(await activate(partition, { ownerEpoch: 2, watermark: 8 })).toBe('activated');
      expect(await storage().advanceCheckpoint({ partition, ...advance(2, { watermark: 9 }) })).toBe(false);
      expect(await storage().claimCheckpoint(declaration(partition, { nowMs: 9_000 }))).toMatchObject({
        state: 'activated',
        ownerEpoch: 2,
        watermark: 8,
        updatedAtMs: 7_000,
      });
    });

    test('the watermark only rises, unless a new scan begins at 0; the position is replaced and removed', async () => {
      const partition = await claimed();
      const scan = { headSeq: 4, table: 'tasks', afterRowId: null };
      const steps: [Partial<CheckpointAdvance>, Partial<Checkpoint>][] = [
        [{ scan }, { watermark: 0, scan }],
        [{ scan: { ...scan, afterRowId: 'ü"' } }, { watermark: 0, scan: { ...scan, afterRowId: 'ü"' } }],
        [
          { watermark: 7, observedRows: 3 },
          { watermark: 7, observedRows: 3, scan: null, updatedAtMs: 6_000 },
        ],
        [{ watermark: 5 }, { watermark: 7 }],
        [{ watermark: 0 }, { watermark: 7 }],
        [
          { watermark: 0, scan },
          { watermark: 0, scan },
        ],
      ];
      for (const [step, after] of steps) {
        expect(await storage().advanceCheckpoint({ partition, ...advance(1, step) })).toBe(true);
        expect(await recordOf(partition)).toMatchObject(after);
      }
    });

    test('rows and progress land together, and a rollback or a savepoint undoes both', async () => {
      const partition = await claimed();
      const step = async (
        tx: Parameters<Parameters<Storage['transaction']>[1]>[0],
        id: string,
        seen: number,
      ) => {
        await writeIn(tx, [note(seen, 'p1', id)]);
        expect(await tx.advanceCheckpoint(advance(1, { observedRows: seen }))).toBe(true);
      };
      await storage().transaction(partition, (tx) => step(tx, 'first', 1));
      expect(await recordOf(partition)).toMatchObject({ observedRows: 1 });
      const failure = await failureOf(
        storage().transaction(partition, async (tx) => {
          await step(tx, 'lost', 2);
          throw new Boom();
        }),
      );
      expect(failure).toBeInstanceOf(Boom);
      await storage().transaction(partition, async (tx) => {
        await failureOf(
          tx.savepoint(async () => {
            await step(tx, 'lost', 3);
            throw new Boom();
          }),
        );
      });
      expect(await recordOf(partition)).toMatchObject({ observedRows: 1 });
      expect((await admitTo(storage(), partition)).state.head).toBe(1);
      await other().claimCheckpoint(declaration(partition));
      const late = storage().transaction(partition, (tx) =>
        tx.advanceCheckpoint(advance(1, { observedRows: 9 })),
      );
      expect(await late).toBe(false);
    });
  });

  describe('activating', () => {
    test('by its owner, with sources unchanged above the watermark; once', async () => {
      const partition = await claimed();
      await write(storage(), partition, [task('t1', 'p1')], [note(1, 'p1')]);
      const scan = { headSeq: 1, table: 'tasks', afterRowId: null };
      await storage().advanceCheckpoint({ partition, ...advance(1, { scan }) });
      expect(await activate(partition, { watermark: 1 })).toBe('activated');
      expect(await recordOf(partition)).toMatchObject({
        state: 'activated',
        watermark: 1,
        ownerEpoch: 1,
        updatedAtMs: 7_000,
        scan: null,
      });
      expect(await activate(partition, { watermark: 1 })).toBe('stale');
      await writeAs(storage(), partition, 3);
      expect(await failureOf(writeAs(storage(), partition, 2))).toMatchObject({
        code: 'sync.storage.writer_fence_rejected',
      });
    });

    test('not by a superseded owner, and nothing changes', async () => {
      const partition = await claimed();
      await other().claimCheckpoint(declaration(partition));
      const before = await recordOf(partition);
      expect(await activate(partition, { watermark: 5 })).toBe('stale');
      expect(await recordOf(partition)).toEqual(before);
      expect(await activate(partition, { ownerEpoch: 2, sources: [] })).toBe('activated');
    });

    test('not after a change of a source above the watermark', async () => {
      const partition = await claimed();
      await write(storage(), partition, [task('t1', 'p1')], [note(1, 'p1')]);
      expect(await activate(partition, { watermark: 0 })).toBe('stale');
      expect(await activate(partition, { watermark: 1, sources: ['tasks', 'notes'] })).toBe('stale');
      expect(await recordOf(partition)).toMatchObject({ state: 'backfilling', watermark: 0 });
      expect(await activate(partition, { watermark: 2, sources: ['tasks', 'notes'] })).toBe('activated');
    });

    test('not where the history above the watermark was pruned; without sources that does not matter', async () => {
      const partition = await claimed();
      await write(storage(), partition, [task('t1', 'p1')], [note(1, 'p1')]);
      await storage().pruneLog({ partition, horizon: 2, commitsMax: 10 });
      expect(await activate(partition, { watermark: 1 })).toBe('unverifiable');
      expect(await recordOf(partition)).toMatchObject({ state: 'backfilling' });
      expect(await activate(partition, { watermark: 2 })).toBe('activated');
      const second = declaration(partition, { name: 'second' });
      await storage().declareCheckpoint(second);
      await storage().claimCheckpoint(second);
      expect(await activate(partition, { name: 'second', sources: [] })).toBe('activated');
    });

    test('not without its record and fence', async () => {
      const partition = await newPartition(storage());
      for (const missing of [() => activate(partition), () => activate('nobody-was-here')]) {
        const failure = await failureOf(missing());
        expect(failure).toBeInstanceOf(StorageQueryError);
        expect(failure).toMatchObject({ code: 'sync.storage.checkpoint_fence_missing', retryable: false });
      }
      expect(await failureOf(storage().transaction('nobody-was-here', async () => 1))).toMatchObject({
        code: 'sync.storage.unknown_partition',
      });
    });

    test('waits for the push that is inside, whose change then counts', async () => {
      const partition = await claimed();
      const [inside, hold] = [gate(), gate()];
      const push = other().transaction(partition, async (tx) => {
        inside.open();
        await hold.opened;
        await writeIn(tx, [task('t1', 'p1')]);
      });
      await inside.opened;
      const activation = activate(partition);
      hold.open();
      await push;
      expect(await activation).toBe('stale');
    });

    test('a partition that nobody was admitted to can be activated, and is admitted later', async () => {
      const partition = 'declared-before-its-first-client';
      await storage().declareCheckpoint(declaration(partition));
      await storage().claimCheckpoint(declaration(partition));
      expect(await activate(partition)).toBe('activated');
      expect((await admitTo(storage(), partition)).state).toMatchObject({
        head: 0,
        logEpoch: firstEpochOf(partition),
        newestCheckpointVersion: 3,
      });
      await writeAs(other(), partition, 3);
    });
  });

  describe('reads', () => checkpointReadSuite({ storage, other }));
  describe('sources', () => sourceSuite(storage));
}
