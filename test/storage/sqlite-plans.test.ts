/** Guarantee 7 (S-043): no statement of the push, pull and fanout paths scans the log, a scope index or a table. */
import { afterEach, expect, test, vi } from 'vitest';
import type { ScopeMap } from '../../src/protocol/frames.ts';
import { SqliteConnection, type SqlParams } from '../../src/storage/sqlite/driver.ts';
import type { Storage } from '../../src/storage/storage.ts';
import {
  admitTo,
  firstEpochOf,
  NO_LIMITS,
  note,
  remove,
  SCHEMA,
  SEALED,
  TASKS,
  task,
  WHOLE_LOG,
  WHOLE_PAGE,
  write,
} from '../contract/storage/fixture.ts';
import { makeSqlite } from './sqlite-harness.ts';

afterEach(() => {
  vi.restoreAllMocks();
});

const WIDE_SEARCH = /\((_sync_)?partition=\?( AND tbl=\?)?\)$/;
/** Keyed by the partition alone; its few checkpoints (`own`, `checkpoint`); and a rotation deletes all client records of its partition. */
const ONE_PER_PARTITION =
  /^SEARCH (p|registry|sync_partitions|sync_partition_registry|sync_clients|own|checkpoint|fence) /;
/** The list of unfinished checkpoints, which stand alone in a partial index: few, and bounded by a LIMIT. */
const UNFINISHED =
  /^SCAN (sync_backfill_checkpoints USING INDEX sync_backfill_checkpoints_unfinished|unfinished|u)$/;

/** Everything a gateway does while it serves; start and schema bumps excepted. */
async function serve(storage: Storage): Promise<void> {
  const [partition, clientId] = ['p', 'c'];
  await admitTo(storage, partition);
  await storage.bindClient({ partition, clientId, actorId: 'a' });
  await write(storage, partition, [task('t1', 'p1'), task('t2', 'p1'), note(1, 'p1')]);
  await write(
    storage,
    partition,
    [task('t1', 'p2', { title: 'moved' }), remove(TASKS, 't2')],
    [{ op: 'upsert', table: SEALED, values: ['s1', 'r1', new Uint8Array([1])] }],
  );
  await storage.transaction(partition, async (tx) => {
    await tx.readResults([{ clientId: 'client-1', clientCommitId: 'commit-1' }]);
    await tx.scanRows({ table: TASKS, scopes: { project: ['p1'], owner: ['o1'] }, ...WHOLE_PAGE });
    await tx.savepoint(async () => undefined);
  });
  await storage.readSnapshot(partition, async (reader) => {
    const asked: ScopeMap[] = [{ project: ['p1'] }, { project: ['p1', 'p2'], owner: ['o1', 'o2'] }];
    for (const scopes of asked) {
      const window = { table: TASKS, scopes, afterSeq: 0, throughSeq: 3, ...NO_LIMITS };
      await reader.readWindow(window);
      await reader.readRowPage({ table: TASKS, scopes, ...WHOLE_PAGE });
      await reader.readRowPage({ table: TASKS, scopes, ...WHOLE_PAGE, afterRowId: 't0' });
    }
    await reader.readRow(TASKS, 't1');
    await reader.readClient(clientId);
    await reader.readCommits(WHOLE_LOG);
  });
  const subscriptions = [{ id: 's', table: 'tasks', scopes: { project: ['p1'] }, state: 'live' as const }];
  const client = {
    partition,
    clientId,
    logEpoch: firstEpochOf(partition),
    actorId: 'a',
    wireVersion: 2 as const,
    schemaVersion: 3,
    nowMs: 1,
  };
  await storage.saveClient({ ...client, subscriptions });
  await storage.saveClient({ ...client, subscriptions: null });
  const cursor = { partition, clientId, cursor: 1, nowMs: 1 };
  await storage.saveCursors([
    { ...cursor, mode: 'set' },
    { ...cursor, mode: 'raise' },
  ]);
  await storage.touchPartitions(new Map([[partition, 1]]));
  await backfill(storage, partition);
  await storage.pruneLog({ partition, horizon: 2, commitsMax: 10 });
  await storage.rotateEpoch({ partition, logEpoch: 'e2' });
}

async function backfill(storage: Storage, partition: string): Promise<void> {
  const declared = { partition, name: 'totals', schemaVersion: 3, nowMs: 1 };
  await storage.declareCheckpoint(declared);
  await storage.readServeGate(partition, 3);
  await storage.readCheckpoints(partition);
  await storage.listCheckpoints({ after: { partition: 'a', name: 'a' }, max: 10 });
  const { ownerEpoch } = await storage.claimCheckpoint(declared);
  const progress = { name: 'totals', ownerEpoch, watermark: 0, observedRows: 0, nowMs: 1 };
  await storage.transaction(partition, async (tx) => {
    await tx.scanTable({ table: TASKS, ...WHOLE_PAGE });
    await tx.scanTable({ table: TASKS, ...WHOLE_PAGE, afterRowId: 't0' });
    await tx.readSourceChanges({ tables: ['tasks'], afterSeq: 0, throughSeq: 3, changesMax: 10 });
    await tx.advanceCheckpoint({ ...progress, scan: { headSeq: 3, table: 'tasks', afterRowId: null } });
  });
  await storage.advanceCheckpoint({ partition, ...progress, scan: null });
  const watermark = await storage.sourceCoverageSeq(partition, ['tasks']);
  await storage.hasSourceChangesAbove(partition, ['tasks'], watermark);
  await storage.activateCheckpoint({ ...declared, ownerEpoch, watermark, sources: ['tasks'] });
}

test('S-043: every statement finds its rows through a key or an index', async () => {
  const harness = await makeSqlite();
  const { storage, segments } = await harness.open();
  await storage.ensureSchema(SCHEMA);
  const statements = new Map<string, SqlParams>();
  for (const method of ['run', 'get', 'all', 'iterate'] as const) {
    const original = SqliteConnection.prototype[method] as (sql: string, params?: SqlParams) => never;
    vi.spyOn(SqliteConnection.prototype, method).mockImplementation(function (
      this: SqliteConnection,
      sql: string,
      params: SqlParams = [],
    ) {
      statements.set(sql, params);
      return original.call(this, sql, params);
    });
  }
  await serve(storage);
  await segments.sweep({ expiredBeforeMs: 1, max: 1 });
  await segments.entries('p', 'sha256:x');
  await segments.read('p', 'sha256:x');
  vi.restoreAllMocks();
  expect(statements.size).toBeGreaterThan(45);

  const explainer = new SqliteConnection(harness.path);
  const scans: string[] = [];
  const sorts: string[] = [];
  for (const [sql, params] of statements) {
    if (/^(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE)/.test(sql)) continue;
    const plan = explainer.all(`EXPLAIN QUERY PLAN ${sql}`, params).map((row) => String(row[3]));
    // The lists that a statement is handed are virtual tables, read once from front to back.
    scans.push(
      ...plan
        .filter((step) => step.startsWith('SCAN') && !/VIRTUAL TABLE|CONSTANT ROW|\(subquery/.test(step))
        .filter((step) => !UNFINISHED.test(step))
        .map((step) => `${step}: ${sql}`),
    );
    // A prefix of a key is a scan too, of all rows of the partition or of the table in it.
    scans.push(
      ...plan
        .filter((step) => WIDE_SEARCH.test(step) && !ONE_PER_PARTITION.test(step))
        .map((step) => `${step}: ${sql}`),
    );
    sorts.push(
      ...plan.filter((step) => step.includes('TEMP B-TREE FOR ORDER BY')).map((step) => `${step}: ${sql}`),
    );
  }
  explainer.close();
  await storage.close();
  await harness.dispose();
  expect(scans).toEqual([]);
  expect(sorts).toEqual([]);
});
