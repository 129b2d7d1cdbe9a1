/** What a read of a partition's state says about checkpoints (part 4, 4.3), out of two JSON columns of the same statement. */
import type { CheckpointState, PendingCheckpoint } from './checkpoints.ts';
import type { PartitionState } from './storage.ts';

/** Unfinished checkpoints of other partitions in one state: a roll-out over very many must not slow every read. */
export const GATE_PENDING_MAX = 256;

/** Shared by every state of a database without unfinished checkpoints. */
export const NO_PENDING: readonly PendingCheckpoint[] = [];

/** JSON texts; `null` or an empty list for none. */
export interface CheckpointColumns {
  /** `[name, schemaVersion, state]` of every checkpoint of the partition. */
  readonly own: string | null;
  /** `[partition, name, schemaVersion]` of unfinished ones of any partition, the first `GATE_PENDING_MAX`. */
  readonly unfinished: string | null;
}

export function checkpointsOfState(
  partition: string,
  { own, unfinished }: CheckpointColumns,
): Pick<PartitionState, 'pending' | 'newestCheckpointVersion'> {
  const mine = listOf<readonly [string, number, CheckpointState]>(own);
  const all = listOf<readonly [string, string, number]>(unfinished);
  if (mine.length === 0 && all.length === 0) return NO_CHECKPOINTS;
  const pending = mine
    .filter(([, , state]) => state !== 'activated')
    .map(([name, schemaVersion]): PendingCheckpoint => ({ partition, name, schemaVersion }));
  for (const [owner, name, schemaVersion] of all) {
    if (pending.length >= GATE_PENDING_MAX) break;
    if (owner !== partition) pending.push({ partition: owner, name, schemaVersion });
  }
  return {
    pending: pending.length === 0 ? NO_PENDING : pending,
    newestCheckpointVersion: mine.reduce((newest, [, version]) => Math.max(newest, version), 0),
  };
}

const NO_CHECKPOINTS = { pending: NO_PENDING, newestCheckpointVersion: 0 } as const;

function listOf<Entry>(json: string | null): readonly Entry[] {
  return json === null || json === '[]' ? [] : (JSON.parse(json) as Entry[]);
}
