/** The fence that the database itself keeps (part 4, 4.1 and 4.5-1), an upgrade in place, and a fence that is missing. */
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Storage } from '../../src/storage/storage.ts';
import { admitTo, failureOf, SCHEMA, task, write } from '../contract/storage/fixture.ts';
import { insertCommit, onBothStorages, type RawHarness } from './checkpoints-harness.ts';

const FENCED = /^sync\.storage\.writer_fence_rejected$/;
const CHECKPOINT = { partition: 'p', name: 'totals', schemaVersion: 3, nowMs: 1 };
const ACTIVATION = { partition: 'p', name: 'totals', watermark: 2, sources: ['tasks'], nowMs: 1 };

onBothStorages('writer fence', (make) => {
  let harness: RawHarness;
  let storage: Storage;

  beforeEach(async () => {
    harness = await make();
    ({ storage } = await harness.open());
    await storage.ensureSchema(SCHEMA);
    for (const partition of ['p', 'q']) {
      await admitTo(storage, partition);
      await write(storage, partition, [task('t1', 'p1')]);
    }
  });

  afterEach(async () => {
    await storage.close();
    await harness.dispose();
  });

  async function commits(partition: string): Promise<number> {
    const [row] = await harness.sql(
      `SELECT count(*) FROM ${harness.table('sync_commits')} WHERE partition = '${partition}'`,
    );
    return Number(row![0]);
  }

  /** Every way in which a program without a high enough version may try. */
  async function assertFenced(partition: string): Promise<void> {
    const before = await commits(partition);
    const ways = [{}, { version: null }, { version: 0 }, { version: 2 }, { version: -1 }];
    for (const way of ways) {
      const statement = insertCommit(harness, { partition, seq: 900, ...way });
      expect(await failureOf(harness.sql(statement))).toMatchObject({
        message: expect.stringMatching(FENCED),
      });
    }
    const lenient =
      harness.dialect === 'sqlite'
        ? ['INSERT OR IGNORE INTO', 'INSERT OR REPLACE INTO', 'INSERT OR FAIL INTO'].map((or) =>
            insertCommit(harness, { partition, seq: 900, or }),
          )
        : [`${insertCommit(harness, { partition, seq: 900 })} ON CONFLICT DO NOTHING`];
    for (const statement of lenient) {
      expect(await failureOf(harness.sql(statement))).toMatchObject({
        message: expect.stringMatching(FENCED),
      });
    }
    expect(await commits(partition)).toBe(before);
  }

  async function assertFree(partition: string): Promise<void> {
    const seq = 500 + (await commits(partition));
    await harness.sql(insertCommit(harness, { partition, seq }));
    await harness.sql(insertCommit(harness, { partition, seq: seq + 100, version: 1 }));
  }

  test('4.5-1: an old program’s INSERT is rejected before, during and after the backfill; other partitions are untouched', async () => {
    await storage.declareCheckpoint(CHECKPOINT);
    await assertFenced('p');
    await assertFree('q');
    const { ownerEpoch } = await storage.claimCheckpoint(CHECKPOINT);
    await assertFenced('p');
    await storage.transaction('p', (tx) =>
      tx.advanceCheckpoint({ ...ACTIVATION, ownerEpoch, observedRows: 1, scan: null }),
    );
    await assertFenced('p');
    expect(await storage.activateCheckpoint({ ...ACTIVATION, ownerEpoch })).toBe('activated');
    await assertFenced('p');
    await assertFree('q');
    await harness.sql(insertCommit(harness, { partition: 'p', seq: 901, version: 3 }));
    await harness.sql(insertCommit(harness, { partition: 'p', seq: 902, version: 4 }));
  });

  test('4.5-1: without a declaration an old program writes as ever', async () => {
    await assertFree('p');
    await assertFree('q');
  });

  test('4.1: the columns are those of the specification, and no other state is taken', async () => {
    await storage.declareCheckpoint(CHECKPOINT);
    const checkpoints = harness.table('sync_backfill_checkpoints');
    const [record] = await harness.sql(
      `SELECT partition, name, schema_version, state, watermark, owner_epoch, observed_rows, updated_at_ms FROM ${checkpoints}`,
    );
    expect(record).toEqual(['p', 'totals', '3', 'declared', '0', '0', '0', '1']);
    expect(await harness.sql(`SELECT * FROM ${checkpoints}`)).toEqual([record]);
    expect(await harness.sql(`SELECT * FROM ${harness.table('sync_writer_fence')}`)).toEqual([['p', '3']]);
    expect(await failureOf(harness.sql(`UPDATE ${checkpoints} SET state = 'paused'`))).toMatchObject({
      message: expect.stringMatching(/check/i),
    });
    const [version] = await harness.sql(
      `SELECT writer_version FROM ${harness.table('sync_commits')} WHERE partition = 'p'`,
    );
    expect(version).toEqual(['3']);
  });

  test('4.4: without its fence, or with one that is too low, a checkpoint is not activated', async () => {
    await storage.declareCheckpoint(CHECKPOINT);
    const { ownerEpoch } = await storage.claimCheckpoint(CHECKPOINT);
    const fence = harness.table('sync_writer_fence');
    for (const damage of [`UPDATE ${fence} SET required_writer_version = 2`, `DELETE FROM ${fence}`]) {
      await harness.sql(damage);
      expect(await failureOf(storage.activateCheckpoint({ ...ACTIVATION, ownerEpoch }))).toMatchObject({
        code: 'sync.storage.checkpoint_fence_missing',
      });
    }
    await storage.declareCheckpoint(CHECKPOINT);
    expect(await storage.activateCheckpoint({ ...ACTIVATION, ownerEpoch })).toBe('activated');
  });

  test('a push below the fence leaves nothing, no result either, and the same storage goes on', async () => {
    await storage.declareCheckpoint({ ...CHECKPOINT, schemaVersion: 9 });
    const failure = await failureOf(write(storage, 'p', [task('t1', 'p2')], [task('t2', 'p1')]));
    expect(failure).toMatchObject({ code: 'sync.storage.writer_fence_rejected', retryable: false });
    expect(await commits('p')).toBe(1);
    const [results] = await harness.sql(
      `SELECT count(*) FROM ${harness.table('sync_push_results')} WHERE partition = 'p'`,
    );
    expect(results).toEqual(['1']);
    expect(
      await harness.sql(`SELECT project_id FROM ${harness.table('tasks')} WHERE _sync_partition = 'p'`),
    ).toEqual([['p1']]);
    expect(await write(storage, 'q', [task('t2', 'p1')])).toHaveLength(1);
  });

  test('a database of the version before this feature is upgraded in place, with its data', async () => {
    await storage.close();
    await harness.sql(withoutCheckpoints(harness));
    await harness.sql(insertCommit(harness, { partition: 'p', seq: 2 }));
    await harness.sql(
      `UPDATE ${harness.table('sync_partitions')} SET max_commit_seq = 2 WHERE partition = 'p'`,
    );
    const opened = await Promise.all([harness.open(), harness.open(), harness.open()]);
    for (const instance of opened) await instance.storage.ensureSchema(SCHEMA);
    storage = opened[0]!.storage;
    expect((await admitTo(storage, 'p')).state).toMatchObject({
      head: 2,
      pending: [],
      newestCheckpointVersion: 0,
    });
    await assertFree('q');
    await storage.declareCheckpoint(CHECKPOINT);
    await assertFenced('p');
    expect(await write(storage, 'p', [task('t2', 'p1')])).toHaveLength(1);
    await Promise.all(opened.map((instance) => instance.storage.close()));
  });
});

/** Takes a database back to the step before this feature. */
function withoutCheckpoints({ dialect, table }: RawHarness): string {
  const functions =
    dialect === 'sqlite'
      ? 'DROP TRIGGER sync_commits_writer_fence'
      : `DROP TRIGGER sync_commits_writer_fence ON ${table('sync_commits')};
         DROP FUNCTION ${table('sync_writer_fence_check')}; DROP FUNCTION ${table('sync_checkpoints_of')}`;
  return `${functions};
    DROP TABLE ${table('sync_writer_fence')}; DROP TABLE ${table('sync_backfill_scans')};
    DROP TABLE ${table('sync_backfill_checkpoints')};
    UPDATE ${table('sync_storage_version')} SET version = 2`;
}
