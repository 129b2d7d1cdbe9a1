/** `ensureSchema` with declarations (part 4, 4.2): barrier, one transaction, nothing without a bump. Data per test. */
import { afterEach, expect, test } from 'vitest';
import type { CompiledSchema } from '../../../src/protocol/schema.ts';
import { compileSchema } from '../../../src/protocol/schema-compiler.ts';
import type { CheckpointDeclaration } from '../../../src/storage/checkpoints.ts';
import { NO_PENDING } from '../../../src/storage/pending-checkpoints.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { StorageQueryError } from '../../../src/storage/storage-error.ts';
import {
  admitTo,
  failureOf,
  type MakeStorage,
  type OpenStorage,
  type StorageHarness,
  writeIn,
} from './fixture.ts';

function schemaOf(version: number, ...extra: readonly string[]): CompiledSchema {
  const columns = [
    { name: 'id', type: 'string' },
    { name: 'list', type: 'string' },
    ...extra.map((name) => ({ name, type: 'string', nullable: true })),
  ];
  return compileSchema({
    version,
    tables: [{ name: 'items', primaryKey: 'id', columns, scopes: ['list:{list}'] }],
  });
}

function declared(partition: string, name = 'totals', schemaVersion = 2): CheckpointDeclaration {
  return { partition, name, schemaVersion };
}

const REFUSED = { code: 'sync.storage.checkpoint_incomplete', retryable: false };

export function checkpointSchemaSuite(make: MakeStorage): void {
  let harness: StorageHarness | null = null;
  let opened: OpenStorage[] = [];

  afterEach(async () => {
    await Promise.all(opened.map(({ storage }) => storage.close()));
    opened = [];
    await harness?.dispose();
    harness = null;
  });

  async function open(): Promise<Storage> {
    harness ??= await make();
    const instance = await harness.open();
    opened.push(instance);
    return instance.storage;
  }

  /** At version 1, with a row in partition `p`. */
  async function running(): Promise<Storage> {
    const storage = await open();
    const schema = schemaOf(1);
    await storage.ensureSchema(schema);
    await admitTo(storage, 'p');
    await storage.transaction('p', (tx) =>
      writeIn(tx, [{ op: 'upsert', table: schema.tables[0]!, values: ['i1', 'l1'] }]),
    );
    return storage;
  }

  async function activateTotals(storage: Storage, partition: string): Promise<void> {
    const { ownerEpoch } = await storage.claimCheckpoint({ ...declared(partition), nowMs: 1 });
    const request = { partition, name: 'totals', ownerEpoch, watermark: 1, sources: ['items'], nowMs: 2 };
    expect(await storage.activateCheckpoint(request)).toBe('activated');
  }

  test('a bump installs what is declared, and the fence with it', async () => {
    const storage = await running();
    await storage.ensureSchema(schemaOf(2, 'note'), [declared('p'), declared('q'), declared('q', 'more')]);
    expect(await storage.readServeGate('p', 2)).toMatchObject({
      storedSchemaVersion: 2,
      pending: [
        { partition: 'p', name: 'totals' },
        { partition: 'q', name: 'more' },
        { partition: 'q', name: 'totals' },
      ],
    });
    const [record] = (await storage.readCheckpoints('p')).values();
    expect(record).toMatchObject({ state: 'declared', schemaVersion: 2, ownerEpoch: 0 });
    expect(record?.updatedAtMs).toBeGreaterThan(1_600_000_000_000);
    const old = storage.transaction('p', (tx) =>
      tx.append({
        commits: [
          {
            commitSeq: tx.state.head + 1,
            createdAtMs: 1,
            actorId: 'a',
            clientId: 'c',
            clientCommitId: 'x',
            writerVersion: 1,
            changes: [],
          },
        ],
        rows: [],
        results: [],
      }),
    );
    expect(await failureOf(old)).toMatchObject({ code: 'sync.storage.writer_fence_rejected' });
  });

  test('a first start installs as well; without a bump nothing is installed', async () => {
    const storage = await open();
    expect((await admitTo(storage, 'p')).state.pending).toBe(NO_PENDING);
    await storage.ensureSchema(schemaOf(2), [declared('p')]);
    expect((await storage.readServeGate('p', 2)).pending).toHaveLength(1);
    const again = await open();
    await again.ensureSchema(schemaOf(2), [declared('p'), declared('p', 'late'), declared('z')]);
    expect((await storage.readServeGate('p', 2)).pending).toEqual([{ partition: 'p', name: 'totals' }]);
  });

  test('the barrier refuses whoever did not declare what is unfinished: omitted, empty, foreign, of another version', async () => {
    const storage = await running();
    await storage.ensureSchema(schemaOf(2), [declared('p'), declared('q')]);
    const attempts: (readonly CheckpointDeclaration[] | undefined)[] = [
      undefined,
      [],
      [declared('p')],
      [declared('p'), declared('q', 'other')],
      [declared('p'), declared('r')],
      [declared('p'), declared('q', 'totals', 1)],
    ];
    for (const attempt of attempts) {
      const failure = await failureOf((await open()).ensureSchema(schemaOf(2), attempt));
      expect(failure).toBeInstanceOf(StorageQueryError);
      expect(failure).toMatchObject(REFUSED);
    }
    await (await open()).ensureSchema(schemaOf(2), [declared('q'), declared('p'), declared('r')]);
  });

  test('an activated checkpoint bars nobody, and one of an older version neither', async () => {
    const storage = await running();
    await storage.ensureSchema(schemaOf(2), [declared('p')]);
    const plain = await open();
    expect(await failureOf(plain.ensureSchema(schemaOf(2)))).toMatchObject(REFUSED);
    await activateTotals(storage, 'p');
    // A refusal is not remembered.
    await plain.ensureSchema(schemaOf(2));
    const { pending, newestCheckpointVersion } = (await admitTo(storage, 'p')).state;
    expect([pending, newestCheckpointVersion]).toEqual([[], 2]);
    expect(pending).toBe(NO_PENDING);
    await storage.declareCheckpoint({ ...declared('q'), nowMs: 1 });
    expect(await failureOf((await open()).ensureSchema(schemaOf(2)))).toMatchObject(REFUSED);
    await (await open()).ensureSchema(schemaOf(3));
    expect((await storage.readServeGate('q', 3)).pending).toEqual([]);
    expect((await storage.readServeGate('q', 2)).pending).toEqual([{ partition: 'q', name: 'totals' }]);
  });

  test('the barrier stands before the bump as well, and a newer database refuses', async () => {
    const storage = await running();
    await storage.declareCheckpoint({ ...declared('q', 'early', 2), nowMs: 1 });
    expect(await failureOf(storage.ensureSchema(schemaOf(2)))).toMatchObject(REFUSED);
    expect((await storage.readServeGate('q', 2)).storedSchemaVersion).toBe(1);
    await storage.ensureSchema(schemaOf(2), [declared('q', 'early')]);
    const late = await failureOf((await open()).ensureSchema(schemaOf(1), [declared('p', 'x', 1)]));
    expect(late).toMatchObject({ code: 'sync.storage.schema_newer' });
    expect(await storage.readCheckpoints('p')).toEqual(new Map());
  });

  test('a bump that fails declares nothing', async () => {
    const storage = await running();
    const impossible = compileSchema({
      version: 2,
      tables: [
        {
          name: 'items',
          primaryKey: 'id',
          columns: [
            { name: 'id', type: 'string' },
            { name: 'list', type: 'string' },
            { name: 'must', type: 'string' },
          ],
          scopes: ['list:{list}'],
        },
      ],
    });
    expect(await failureOf(storage.ensureSchema(impossible, [declared('p')]))).toMatchObject({
      code: 'sync.storage.schema_changed',
    });
    expect(await storage.readServeGate('p', 2)).toMatchObject({ storedSchemaVersion: 1, pending: [] });
    await storage.transaction('p', (tx) =>
      writeIn(tx, [{ op: 'upsert', table: schemaOf(1).tables[0]!, values: ['i2', 'l1'] }]),
    );
  });

  test('a bump raises a fence and never lowers it, and never resets a checkpoint', async () => {
    const storage = await running();
    await storage.declareCheckpoint({ ...declared('p', 'totals', 7), nowMs: 1 });
    await storage.claimCheckpoint({ ...declared('p', 'totals', 7), nowMs: 1 });
    await storage.ensureSchema(schemaOf(2), [declared('p'), declared('p', 'more')]);
    const records = await storage.readCheckpoints('p');
    expect(records.get('totals')).toMatchObject({ schemaVersion: 7, state: 'backfilling', ownerEpoch: 1 });
    expect(records.get('more')).toMatchObject({ schemaVersion: 2, state: 'declared' });
    expect((await admitTo(storage, 'p')).state.newestCheckpointVersion).toBe(7);
    const item = { op: 'upsert', table: schemaOf(2).tables[0]!, values: ['i2', 'l1'] } as const;
    expect(await failureOf(storage.transaction('p', (tx) => writeIn(tx, [item])))).toMatchObject({
      code: 'sync.storage.writer_fence_rejected',
    });
  });

  test('who looks on during a bump never sees the new version without fence and checkpoint', async () => {
    const storage = await running();
    const onlooker = await open();
    for (let version = 2; version <= 8; version++) {
      let isOver = false;
      const bump = storage
        .ensureSchema(schemaOf(version), [declared('p', `n${version}`, version)])
        .finally(() => {
          isOver = true;
        });
      while (!isOver) {
        const gate = await onlooker.readServeGate('p', version);
        expect(gate.pending).toHaveLength(gate.storedSchemaVersion === version ? 1 : 0);
      }
      await bump;
    }
  });

  test('two that start at once, one of them without the declaration: it starts only where it came first', async () => {
    const [one, two] = [await running(), await open()];
    for (let version = 2; version <= 9; version++) {
      const mine = one.ensureSchema(schemaOf(version), [declared('p', `n${version}`, version)]);
      const theirs = two.ensureSchema(schemaOf(version));
      const [first, second] = await Promise.allSettled([mine, theirs]);
      expect(first.status).toBe('fulfilled');
      const { pending } = await one.readServeGate('p', version);
      expect(second.status).toBe(pending.length === 0 ? 'fulfilled' : 'rejected');
    }
  });

  test('the same call again shares one run, and asks the database nothing', async () => {
    const storage = await running();
    const calls = [1, 2].map(() => storage.ensureSchema(schemaOf(2), [declared('p')]));
    expect(calls[0]).toBe(calls[1]);
    await Promise.all(calls);
    await (await open()).ensureSchema(schemaOf(3));
    await storage.ensureSchema(schemaOf(2), [declared('p')]);
    expect(await failureOf(storage.ensureSchema(schemaOf(2)))).toMatchObject(REFUSED);
    expect(await failureOf(storage.ensureSchema(schemaOf(2), [declared('p')]))).toMatchObject({
      code: 'sync.storage.schema_newer',
    });
  });
}
