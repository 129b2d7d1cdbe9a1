/** Backfill workers that race each other, the pushes and the pruning (part 4, 4.5-4 to 4.5-6), two processes on one database. */
import fc from 'fast-check';
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { Checkpoint } from '../../src/storage/checkpoints.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { admitTo, failureOf, gate, note, SCHEMA, task, write, writeIn } from '../contract/storage/fixture.ts';
import { onBothStorages, type RawHarness } from './checkpoints-harness.ts';

const CHECKPOINT = { partition: 'p', name: 'totals', schemaVersion: 3, nowMs: 1 };

class Superseded extends Error {}

onBothStorages('backfill workers', (make) => {
  let harness: RawHarness;
  let storage: Storage;
  let other: Storage;

  beforeEach(async () => {
    harness = await make();
    ({ storage } = await harness.open());
    other = (await harness.open()).storage;
    for (const instance of [storage, other]) await instance.ensureSchema(SCHEMA);
    await admitTo(storage, 'p');
    await write(storage, 'p', [task('t1', 'p1')], [task('t2', 'p1')]);
    await storage.declareCheckpoint(CHECKPOINT);
  });

  afterEach(async () => {
    await Promise.all([storage.close(), other.close()]);
    await harness.dispose();
  });

  /** One batch: a projected row and the progress that counts it, or nothing. */
  function batch(worker: Storage, ownerEpoch: number, seen: number): Promise<void> {
    return worker.transaction('p', async (tx) => {
      await writeIn(tx, [note(seen, 'p1', `by ${ownerEpoch}`)]);
      const progress = { name: 'totals', ownerEpoch, watermark: tx.state.head, observedRows: seen };
      if (!(await tx.advanceCheckpoint({ ...progress, scan: null, nowMs: 2 }))) throw new Superseded();
    });
  }

  function activate(worker: Storage, ownerEpoch: number, watermark: number, sources = ['tasks']) {
    return worker.activateCheckpoint({
      partition: 'p',
      name: 'totals',
      ownerEpoch,
      watermark,
      sources,
      nowMs: 3,
    });
  }

  async function record(): Promise<Checkpoint> {
    return (await storage.readCheckpoints('p')).get('totals')!;
  }

  async function notes(): Promise<readonly (readonly string[])[]> {
    return harness.sql(`SELECT text FROM ${harness.table('notes')} ORDER BY id`);
  }

  test('4.5-4: the superseded worker cannot advance, write or activate', async () => {
    const first = (await storage.claimCheckpoint(CHECKPOINT)).ownerEpoch;
    await batch(storage, first, 1);
    const second = (await other.claimCheckpoint(CHECKPOINT)).ownerEpoch;
    expect([first, second]).toEqual([1, 2]);
    expect(await failureOf(batch(storage, first, 2))).toBeInstanceOf(Superseded);
    const progress = { partition: 'p', name: 'totals', ownerEpoch: first, watermark: 9, observedRows: 9 };
    expect(await storage.advanceCheckpoint({ ...progress, scan: null, nowMs: 9 })).toBe(false);
    expect(await activate(storage, first, 3)).toBe('stale');
    expect(await record()).toMatchObject({
      state: 'backfilling',
      watermark: 3,
      observedRows: 1,
      ownerEpoch: 2,
    });
    await batch(other, second, 2);
    expect(await notes()).toEqual([['by 1'], ['by 2']]);
    expect(await activate(other, second, 4)).toBe('activated');
  });

  test('4.5-4: a worker superseded in the middle of its batch loses the rows of that batch', async () => {
    await storage.claimCheckpoint(CHECKPOINT);
    if (harness.dialect === 'sqlite') {
      // One writer at a time: the claim waits for the batch, which then has landed as a whole.
      const [, claim] = await Promise.all([batch(storage, 1, 1), other.claimCheckpoint(CHECKPOINT)]);
      expect(claim).toMatchObject({ ownerEpoch: 2, observedRows: 1 });
      expect(await notes()).toEqual([['by 1']]);
      return;
    }
    const [inside, hold] = [gate(), gate()];
    const losing = storage.transaction('p', async (tx) => {
      await writeIn(tx, [note(1, 'p1', 'by 1')]);
      inside.open();
      await hold.opened;
      const progress = { name: 'totals', ownerEpoch: 1, watermark: 3, observedRows: 1 };
      if (!(await tx.advanceCheckpoint({ ...progress, scan: null, nowMs: 2 }))) throw new Superseded();
    });
    await inside.opened;
    expect(await other.claimCheckpoint(CHECKPOINT)).toMatchObject({ ownerEpoch: 2 });
    hold.open();
    expect(await failureOf(losing)).toBeInstanceOf(Superseded);
    expect(await notes()).toEqual([]);
    expect(await record()).toMatchObject({ ownerEpoch: 2, observedRows: 0, watermark: 0 });
  });

  test('4.5-4: whatever the order of two workers’ steps, only the newest owner’s land', async () => {
    const steps = fc.array(
      fc.record({
        worker: fc.nat(1),
        act: fc.constantFrom('claim', 'batch', 'advance', 'activate' as const),
      }),
      { minLength: 1, maxLength: 12 },
    );
    let nth = 0;
    await fc.assert(
      fc.asyncProperty(steps, async (sequence) => {
        const declared = { ...CHECKPOINT, name: `run-${++nth}` };
        await storage.declareCheckpoint(declared);
        const workers = [storage, other];
        const held = [0, 0];
        let newest = 0;
        let isActivated = false;
        for (const { worker: who, act } of sequence) {
          const worker = workers[who]!;
          const isOwner: boolean = held[who] === newest && !isActivated;
          const step = {
            name: declared.name,
            ownerEpoch: held[who]!,
            watermark: 2,
            observedRows: 1,
            nowMs: 2,
          };
          if (act === 'claim') {
            held[who] = (await worker.claimCheckpoint(declared)).ownerEpoch;
            if (!isActivated) newest++;
            expect(held[who]).toBe(newest);
          } else if (act === 'activate') {
            const activation = { partition: 'p', ...step, sources: [] };
            expect(await worker.activateCheckpoint(activation)).toBe(isOwner ? 'activated' : 'stale');
            isActivated ||= isOwner;
          } else {
            const advance = { ...step, scan: null };
            const landed =
              act === 'advance'
                ? worker.advanceCheckpoint({ partition: 'p', ...advance })
                : worker.transaction('p', (tx) => tx.advanceCheckpoint(advance));
            // Progress needs a claim; before the first there is nobody to be.
            expect(await landed).toBe(isOwner && newest > 0);
          }
        }
        await storage.declareCheckpoint(declared);
        const stored = (await other.readCheckpoints('p')).get(declared.name);
        expect(stored).toMatchObject({ ownerEpoch: newest });
        expect(stored?.state === 'activated').toBe(isActivated);
      }),
      { numRuns: 40 },
    );
  });

  test('4.5-5: a source commit between the last batch and the activation makes it stale, never activated', async () => {
    const { ownerEpoch } = await storage.claimCheckpoint(CHECKPOINT);
    await batch(storage, ownerEpoch, 1);
    await write(other, 'p', [task('t3', 'p1')]);
    expect(await activate(storage, ownerEpoch, 3)).toBe('stale');
    expect(await record()).toMatchObject({ state: 'backfilling', watermark: 3 });
    await batch(storage, ownerEpoch, 2);
    expect(await activate(storage, ownerEpoch, 5)).toBe('activated');
  });

  test('4.5-5: pushes that race the activation: what landed before it is seen by it', async () => {
    for (let round = 0; round < 20; round++) {
      const declared = { ...CHECKPOINT, name: `race-${round}` };
      await storage.declareCheckpoint(declared);
      const { ownerEpoch } = await storage.claimCheckpoint(declared);
      const watermark = await storage.sourceCoverageSeq('p', ['tasks']);
      const request = { ...declared, ownerEpoch, watermark, sources: ['tasks'] };
      let activatedFirst: boolean | null = null;
      const push = other.transaction('p', async (tx) => {
        activatedFirst = tx.state.pending.every(({ name }) => name !== declared.name);
        await writeIn(tx, [task(`r${round}`, 'p1')]);
      });
      const [outcome] = await Promise.all([storage.activateCheckpoint(request), push]);
      expect(outcome).toBe(activatedFirst === true ? 'activated' : 'stale');
    }
  });

  test('4.5-6: history that was pruned above the watermark makes it unverifiable, never activated', async () => {
    const { ownerEpoch } = await storage.claimCheckpoint(CHECKPOINT);
    await write(other, 'p', [task('t3', 'p1')], [note(9, 'p1')]);
    await other.pruneLog({ partition: 'p', horizon: 4, commitsMax: 100 });
    expect(await activate(storage, ownerEpoch, 2)).toBe('unverifiable');
    expect(await activate(storage, ownerEpoch, 3)).toBe('unverifiable');
    expect(await record()).toMatchObject({ state: 'backfilling', watermark: 0 });
    expect(await activate(storage, ownerEpoch, 4)).toBe('activated');
  });
});
