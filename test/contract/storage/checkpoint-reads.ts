/** What is read of checkpoints: records, the list of all, the serve gate (4.3), and what every state takes along. */
import { expect, test } from 'vitest';
import type { Checkpoint, PendingCheckpoint } from '../../../src/storage/checkpoints.ts';
import { GATE_PENDING_MAX } from '../../../src/storage/pending-checkpoints.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { activateIn, declaration, NAME } from './checkpoint-fixture.ts';
import { admitTo, firstEpochOf, newPartition, task, writeIn } from './fixture.ts';

interface Instances {
  readonly storage: () => Storage;
  readonly other: () => Storage;
}

export function checkpointReadSuite({ storage, other }: Instances): void {
  test('records lie in their partition, and the list of all pages by partition and name', async () => {
    const [one, two] = [await newPartition(storage()), await newPartition(storage())];
    await storage().declareCheckpoint(declaration(one, { name: 'b' }));
    await storage().declareCheckpoint(declaration(one, { name: 'a' }));
    await storage().declareCheckpoint(declaration(two, { name: 'a', schemaVersion: 4 }));
    await storage().claimCheckpoint(declaration(one, { name: 'a' }));
    expect([...(await storage().readCheckpoints(one)).keys()]).toEqual(['a', 'b']);
    expect((await storage().readCheckpoints(two)).get('a')).toMatchObject({
      state: 'declared',
      schemaVersion: 4,
    });
    const listed: Checkpoint[] = [];
    for (let after: Checkpoint | null = null; ; ) {
      const page: readonly Checkpoint[] = await storage().listCheckpoints({ after, max: 2 });
      listed.push(...page);
      after = page.at(-1) ?? null;
      if (after === null) break;
    }
    const keys = listed.map(({ partition, name }) => `${partition} ${name}`);
    expect(keys).toEqual([...new Set(keys)].sort());
    expect(listed.filter(({ partition }) => partition === one || partition === two)).toEqual([
      ...(await storage().readCheckpoints(one)).values(),
      ...(await storage().readCheckpoints(two)).values(),
    ]);
  });

  test('the serve gate: stored version, log epoch, what is unfinished in the running version (4.3)', async () => {
    const [mine, theirs] = [await newPartition(storage()), await newPartition(storage())];
    const at = (schemaVersion: number) => ({ name: NAME, schemaVersion });
    await storage().declareCheckpoint(declaration(mine, at(71)));
    await storage().declareCheckpoint(declaration(theirs, at(71)));
    await storage().declareCheckpoint(declaration(theirs, { name: 'other', schemaVersion: 72 }));
    expect(await other().readServeGate(mine, 71)).toEqual({
      storedSchemaVersion: 3,
      logEpoch: firstEpochOf(mine),
      pending: [mine, theirs].map((partition) => ({ partition, name: NAME })),
    });
    await storage().claimCheckpoint(declaration(mine, at(71)));
    expect(await activateIn(storage(), mine)).toBe('activated');
    expect((await other().readServeGate(mine, 71)).pending).toEqual([{ partition: theirs, name: NAME }]);
    expect(await storage().readServeGate('nobody', 73)).toEqual({ storedSchemaVersion: 3, pending: [] });
  });

  test('every read of a state tells what is unfinished: its own first, then the newest of others, bounded', async () => {
    const partition = await newPartition(storage());
    const own = Array.from({ length: 3 }, (_, nth) => declaration(partition, { name: `own-${nth}` }));
    for (const declared of own) await storage().declareCheckpoint(declared);
    await storage().claimCheckpoint(own[1]!);
    await activateIn(storage(), partition, { name: 'own-1', sources: [] });
    const others = Array.from({ length: GATE_PENDING_MAX + 1 }, (_, nth) => `roll-out-${1_000 + nth}`);
    for (const name of others) await storage().declareCheckpoint(declaration(name, { schemaVersion: 90 }));
    const { pending, newestCheckpointVersion } = (await admitTo(other(), partition)).state;
    const strip = ({ partition: owner, name, schemaVersion }: PendingCheckpoint) => [
      owner,
      name,
      schemaVersion,
    ];
    expect(pending.map(strip)).toEqual([
      [partition, 'own-0', 3],
      [partition, 'own-2', 3],
      ...others.slice(0, GATE_PENDING_MAX - 2).map((name) => [name, NAME, 90]),
    ]);
    expect(newestCheckpointVersion).toBe(3);
    await other().readSnapshot(partition, async (reader) => {
      expect((await reader.state()).pending).toEqual(pending);
    });
    await other().transaction(partition, async (tx) => {
      expect(tx.state.pending).toEqual(pending);
      await writeIn(tx, [task('t', 'p1')]);
      expect(tx.state).toMatchObject({ pending, newestCheckpointVersion: 3, head: 1 });
    });
    const listed = await other().listPartitions({ afterPartition: null, max: 1_000 });
    expect(listed.find((state) => state.partition === partition)?.pending).toEqual(pending);
  });
}
