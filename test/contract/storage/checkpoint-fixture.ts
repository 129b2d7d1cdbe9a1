/** What the checkpoint suites share: a declaration, a progress, an activation, a writer of some schema version. */
import type {
  Activation,
  CheckpointAdvance,
  CheckpointDeclaration,
} from '../../../src/storage/checkpoints.ts';
import type { Storage } from '../../../src/storage/storage.ts';
import { planBatch, task } from './fixture.ts';

export const NAME = 'totals';

type Declared = CheckpointDeclaration & { readonly nowMs: number };

export function declaration(partition: string, rest: Partial<Declared> = {}): Declared {
  return { partition, name: NAME, schemaVersion: 3, nowMs: 5_000, ...rest };
}

export function advance(ownerEpoch: number, rest: Partial<CheckpointAdvance> = {}): CheckpointAdvance {
  return { name: NAME, ownerEpoch, watermark: 0, observedRows: 0, scan: null, nowMs: 6_000, ...rest };
}

export type ActivationRequest = Parameters<Storage['activateCheckpoint']>[0];

export function activateIn(
  storage: Storage,
  partition: string,
  rest: Partial<ActivationRequest> = {},
): Promise<Activation> {
  const request = { partition, name: NAME, ownerEpoch: 1, watermark: 0, sources: ['tasks'], nowMs: 7_000 };
  return storage.activateCheckpoint({ ...request, ...rest });
}

/** One commit by a process of that schema version. */
export async function writeAs(storage: Storage, partition: string, writerVersion: number): Promise<void> {
  await storage.transaction(partition, async (tx) => {
    const batch = await planBatch(tx, [[task(`by-${writerVersion}`, 'p1')]]);
    await tx.append({ ...batch, commits: batch.commits.map((commit) => ({ ...commit, writerVersion })) });
  });
}
