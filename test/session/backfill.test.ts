/** Running a backfill (part 4, 4.4): from scratch, from where it stood, against other workers and writers, on both storages. */
import fc from 'fast-check';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { Limits } from '../../src/protocol/limits.ts';
import { runBackfill } from '../../src/session/sync/backfill.ts';
import type { BackfillInput, BackfillRequest } from '../../src/session/sync/backfill-request.ts';
import { BackfillError, type DerivedRow } from '../../src/session/sync/backfill-writes.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { StorageError } from '../../src/storage/storage-error.ts';
import { failureOf, write } from '../contract/storage/fixture.ts';
import { onBothStorages, type RawHarness } from '../storage/checkpoints-harness.ts';
import { type Intercept, interceptStorage } from '../support/intercepted-storage.ts';
import {
  CHECKPOINT,
  compare,
  DECLARED,
  depsOf,
  PARTITION,
  Recorder,
  removeTask,
  replay,
  seed,
  task,
  totalsBatch,
} from './support/backfill-fixture.ts';

onBothStorages('backfill', (make) => {
  let harness: RawHarness;
  let storage: Storage;
  let recorder: Recorder;

  beforeEach(async () => {
    harness = await make();
    ({ storage } = await harness.open());
    recorder = new Recorder();
  });

  afterEach(async () => {
    await storage.close();
    await harness.dispose();
  });

  function run(
    rest: Partial<BackfillRequest> = {},
    over: { readonly on?: Storage; readonly recorder?: Recorder; readonly limits?: Partial<Limits> } = {},
  ) {
    const request = {
      partition: PARTITION,
      name: CHECKPOINT,
      sources: ['tasks'],
      batch: totalsBatch,
      ...rest,
    };
    return runBackfill(request, depsOf(over.on ?? storage, over.recorder ?? recorder, over.limits));
  }

  const on = (intercept: Intercept): Storage => interceptStorage(storage, intercept);

  async function expectRight(): Promise<void> {
    const { stored, expected } = await compare(storage);
    expect(stored).toEqual(expected);
    expect(await replay(storage)).toEqual(expected);
  }

  async function record() {
    return (await storage.readCheckpoints(PARTITION)).get(CHECKPOINT)!;
  }

  async function head(): Promise<number> {
    return (await storage.readSnapshot(PARTITION, (reader) => reader.state())).head;
  }

  test('part 4 4.4: claim, scan, follow, activate; what subscribers get is what stands in the table', async () => {
    await seed(storage, { count: 130 });
    const before = await head();
    const phases: string[] = [];
    const result = await run({ onProgress: ({ phase }) => void phases.push(phase) });
    expect(result).toMatchObject({ status: 'activated', observedRows: 130 });
    await expectRight();
    expect(await record()).toMatchObject({
      state: 'activated',
      ownerEpoch: 1,
      observedRows: 130,
      scan: null,
    });
    expect(recorder.accepted.map(({ commitSeq }) => commitSeq)).toEqual(
      Array.from({ length: (await head()) - before }, (_, i) => before + 1 + i),
    );
    expect(recorder.accepted.flatMap(({ changes }) => changes).every(({ table }) => table === 'totals')).toBe(
      true,
    );
    expect([...new Set(phases)]).toEqual(['scan', 'follow', 'activated']);
    expect(recorder.types()[0]).toBe('backfill.claimed');
    expect(recorder.types().at(-1)).toBe('backfill.activated');
    expect((await storage.readServeGate(PARTITION, 2)).pending).toEqual([]);
  });

  test('a totals row that is right already is not written again', async () => {
    await seed(storage, { count: 60, projects: 3 });
    // Every page of 20 has rows of all three projects, and the totals come from the whole table.
    const { rowsWritten } = await run();
    expect(rowsWritten).toBe(3);
  });

  test('an empty partition, and one that is activated already', async () => {
    await seed(storage, { count: 0 });
    expect(await run()).toMatchObject({ status: 'activated', observedRows: 0, rowsWritten: 0 });
    expect(await run()).toMatchObject({ status: 'activated', batches: 0 });
    expect(recorder.count('backfill.claimed')).toBe(1);
  });

  test('not declared: sync.storage.checkpoint_not_declared', async () => {
    await seed(storage, { count: 3 });
    const failure = await failureOf(run({ name: 'other', derived: ['totals'] }));
    expect(failure).toMatchObject({ code: 'sync.storage.checkpoint_not_declared' });
    expect(recorder.types()).toEqual(['backfill.failed']);
  });

  test('cancelled between two batches, run again: it goes on behind the last batch', async () => {
    await seed(storage, { count: 130 });
    const seen: string[] = [];
    const stop = new AbortController();
    const batch = (input: BackfillInput) => {
      seen.push(...input.rows.map(({ rowId }) => rowId));
      if (seen.length === 60) stop.abort();
      return totalsBatch(input);
    };
    expect(await run({ batch, signal: stop.signal })).toMatchObject({
      status: 'cancelled',
      observedRows: 60,
    });
    expect((await storage.readServeGate(PARTITION, 2)).pending).toHaveLength(1);
    expect(await run({ batch })).toMatchObject({ status: 'activated', observedRows: 130 });
    expect(seen.length).toBe(130);
    expect(new Set(seen).size).toBe(130);
    await expectRight();
  });

  test('part 4 4.5-5: a source commit between the last batch and activation: stale, then right', async () => {
    await seed(storage, { count: 30 });
    let injected = 0;
    const result = await run(
      {},
      {
        on: on(async ({ method }) => {
          if (method !== 'activateCheckpoint' || injected++ > 1) return;
          await write(storage, PARTITION, [task(`late-${injected}`, 'p1', 100), removeTask(`t${injected}`)]);
        }),
      },
    );
    expect(result.status).toBe('activated');
    expect(recorder.count('backfill.stale')).toBe(2);
    expect(injected).toBe(3);
    await expectRight();
  });

  test('part 4 4.5-6: history that was pruned above the watermark: unverifiable, and the scan starts again', async () => {
    await seed(storage, { count: 60 });
    let batches = 0;
    const stop = new AbortController();
    await run({ onProgress: () => void (++batches === 4 && stop.abort()), signal: stop.signal });
    // All of a project goes, and with its history the only trace of it.
    const ids = Array.from({ length: 60 }, (_, n) => n).filter((n) => n % 7 === 3);
    await write(
      storage,
      PARTITION,
      ids.map((n) => removeTask(`t${n}`)),
    );
    await write(storage, PARTITION, [task('t5', 'p2', 50)]);
    await storage.pruneLog({ partition: PARTITION, horizon: await head(), commitsMax: 1_000 });
    await run();
    expect(recorder.count('backfill.unverifiable')).toBe(1);
    const { stored, expected } = await compare(storage);
    expect(stored).toEqual(expected);
    expect(stored.map(([project]) => project)).not.toContain('p3');
    expect((await record()).state).toBe('activated');
  });

  test('part 4 4.5-6: pruned right before activation: never activated on it', async () => {
    await seed(storage, { count: 30 });
    let injected = 0;
    await run(
      {},
      {
        on: on(async ({ method }) => {
          if (method !== 'activateCheckpoint' || injected++ > 0) return;
          await write(storage, PARTITION, [removeTask('t1')]);
          await storage.pruneLog({ partition: PARTITION, horizon: await head(), commitsMax: 1_000 });
        }),
      },
    );
    expect(recorder.count('backfill.unverifiable')).toBeGreaterThan(0);
    const { stored, expected } = await compare(storage);
    expect(stored).toEqual(expected);
  });

  test('part 4 4.5-4: the superseded worker writes nothing more, advances nothing, activates nothing', async () => {
    await seed(storage, { count: 130 });
    const second = new Recorder();
    const other = (await harness.open()).storage;
    let transactions = 0;
    let acceptedBefore = -1;
    const result = await run(
      {},
      {
        on: on(async ({ method }) => {
          if (method !== 'transaction' || ++transactions !== 4) return;
          acceptedBefore = recorder.accepted.length;
          await run({}, { on: other, recorder: second });
          await write(storage, PARTITION, [task('t1', 'p1', 1_000)]);
        }),
      },
    );
    expect(result).toMatchObject({ status: 'superseded' });
    expect(recorder.types().at(-1)).toBe('backfill.superseded');
    expect(second.types().at(-1)).toBe('backfill.activated');
    expect(await record()).toMatchObject({ state: 'activated', ownerEpoch: 2 });
    expect(recorder.accepted.length).toBe(acceptedBefore);
    // What came after the activation is nobody's to project any more.
    const { stored, expected } = await compare(storage);
    expect(stored).not.toEqual(expected);
    await other.close();
  });

  test('part 4 4.5-4: superseded right before activation', async () => {
    await seed(storage, { count: 30 });
    let isFirst = true;
    const result = await run(
      {},
      {
        on: on(async ({ method }) => {
          if (method !== 'activateCheckpoint' || !isFirst) return;
          isFirst = false;
          await storage.claimCheckpoint({ ...DECLARED, nowMs: 9 });
        }),
      },
    );
    expect(result.status).toBe('superseded');
    expect((await record()).state).toBe('backfilling');
  });

  describe('a batch that does not fit lands nothing and fails the backfill', () => {
    const right = { project: 'p1', tasks: 1, points: 1 };
    const cases: readonly (readonly [string, readonly DerivedRow[], RegExp])[] = [
      ['a source table', [{ table: 'tasks', rowId: 't1', row: null }], /not among the derived tables/],
      ['an unknown table', [{ table: 'none', rowId: 'x', row: null }], /not among the derived tables/],
      ['one row twice', [1, 2].map(() => ({ table: 'totals', rowId: 'p1', row: right })), /twice/],
      ['another id', [{ table: 'totals', rowId: 'p2', row: right }], /primary key/],
      ['an unknown column', [{ table: 'totals', rowId: 'p1', row: { ...right, more: 1 } }], /more/],
      ['a wrong type', [{ table: 'totals', rowId: 'p1', row: { ...right, tasks: 'one' } }], /tasks/],
      [
        'an unstorable id',
        [{ table: 'totals', rowId: 'a\0', row: { ...right, project: 'a\0' } }],
        /cannot be stored/,
      ],
      ['no scope', [{ table: 'totals', rowId: '', row: { ...right, project: '' } }], /scope/],
      [
        'too many rows',
        Array.from({ length: 6 }, (_, n) => ({ table: 'totals', rowId: `p${n}`, row: null })),
        /backfillBatchRowsMax/,
      ],
    ];
    test.each(cases)('%s', async (_, rows, message) => {
      await seed(storage, { count: 3 });
      const before = await head();
      const failure = await failureOf(run({ batch: () => rows }, { limits: { backfillWritesMax: 5 } }));
      expect((failure as Error).message).toMatch(message);
      expect(await head()).toBe(before);
      expect(await record()).toMatchObject({ state: 'backfilling', observedRows: 0 });
      expect(recorder.types().at(-1)).toBe('backfill.failed');
      await run();
      await expectRight();
    });

    test('a throw of the host comes out as it was', async () => {
      await seed(storage, { count: 3 });
      const thrown = new Error('the host knows why');
      expect(
        await failureOf(
          run({
            batch: () => {
              throw thrown;
            },
          }),
        ),
      ).toBe(thrown);
    });

    test.each<[string, Partial<BackfillRequest>]>([
      ['no source', { sources: [] }],
      ['a source that is not there', { sources: ['none'] }],
      ['a source that is derived', { sources: ['tasks', 'totals'] }],
      ['nothing derived', { derived: [] }],
      ['no table of the name', { name: 'summary' }],
    ])('%s: BackfillError before anything is claimed', async (_, rest) => {
      await seed(storage, { count: 3 });
      expect(await failureOf(run(rest))).toBeInstanceOf(BackfillError);
      expect((await record()).ownerEpoch).toBe(0);
    });
  });

  test('many rows per batch leave in commits of bounded size', async () => {
    await seed(storage, { count: 40, projects: 40 });
    await run({}, { limits: { backfillChangesPerCommit: 6 } });
    const sizes = recorder.accepted.map(({ changes }) => changes.length);
    expect(Math.max(...sizes)).toBe(6);
    expect(sizes.reduce((sum, size) => sum + size, 0)).toBe(40);
    await expectRight();
  });

  test('a database that is busy, or whose COMMIT was not answered: tried again from what is durable', async () => {
    await seed(storage, { count: 130 });
    let calls = 0;
    const faulty = new Proxy(storage, {
      get(inner, name) {
        if (name !== 'transaction') {
          const member: unknown = Reflect.get(inner, name, inner);
          return typeof member === 'function' ? member.bind(inner) : member;
        }
        return async (...args: Parameters<Storage['transaction']>) => {
          calls++;
          if (calls % 3 === 1) throw new StorageError('sync.storage.busy', 'busy', { retryable: true });
          const result = await inner.transaction(...args);
          if (calls % 3 === 2) return result;
          throw new StorageError('sync.storage.outcome_unknown', 'lost', { outcome: 'unknown' });
        };
      },
    });
    // The first call of all is where the scan begins, which is not tried again.
    calls = 1;
    const result = await run({}, { on: faulty });
    expect(result).toMatchObject({ status: 'activated', observedRows: 130 });
    await expectRight();
  });

  test('a database that stays away ends it with the storage error', async () => {
    await seed(storage, { count: 30 });
    let transactions = 0;
    const failure = await failureOf(
      run(
        {},
        {
          on: on(({ method }) => {
            if (method === 'transaction' && ++transactions > 2) {
              throw new StorageError('sync.storage.unavailable', 'away', { retryable: true });
            }
          }),
        },
      ),
    );
    expect(failure).toMatchObject({ code: 'sync.storage.unavailable' });
    expect(transactions).toBe(2 + 6);
    await run();
    await expectRight();
  });

  test('random writes between batches, random cancels: the projection is that of the sources', async () => {
    const anyWrite = fc.record({
      id: fc.nat(40),
      project: fc.nat(4),
      points: fc.nat(9),
      isDelete: fc.boolean(),
      before: fc.constantFrom('transaction', 'activateCheckpoint'),
      nth: fc.nat(8),
    });
    await fc.assert(
      fc.asyncProperty(
        fc.array(anyWrite, { maxLength: 12 }),
        fc.nat(6),
        fc.boolean(),
        async (writes, stopAt, isPruned) => {
          const own = await make();
          const { storage: fresh } = await own.open();
          try {
            await seed(fresh, { count: 40, projects: 5 });
            const calls = new Map<string, number>();
            const wrapped = interceptStorage(fresh, async ({ method }) => {
              const nth = calls.get(method) ?? 0;
              calls.set(method, nth + 1);
              for (const { id, project, points, isDelete, before, nth: at } of writes) {
                if (before !== method || at !== nth) continue;
                const operation = isDelete ? removeTask(`t${id}`) : task(`t${id}`, `p${project}`, points);
                await write(fresh, PARTITION, [operation]);
              }
            });
            const stop = new AbortController();
            let batches = 0;
            const onProgress = () => void (++batches > stopAt && stop.abort());
            const limits = { backfillBatchRowsMax: 7 };
            await run({ onProgress, signal: stop.signal }, { on: wrapped, limits });
            const state = await fresh.readSnapshot(PARTITION, (reader) => reader.state());
            if (isPruned)
              await fresh.pruneLog({ partition: PARTITION, horizon: state.head, commitsMax: 1_000 });
            expect((await run({}, { on: wrapped, limits })).status).toBe('activated');
            const { stored, expected } = await compare(fresh);
            expect(stored).toEqual(expected);
          } finally {
            await fresh.close();
            await own.dispose();
          }
        },
      ),
      { seed: 20_261_204, numRuns: 10 },
    );
  });
});
