/** What a read of a partition's state says about checkpoints (part 4, 4.3), out of two lists of the same statement. */
import type { CheckpointState, PendingCheckpoint } from './checkpoints.ts';
import type { PartitionState } from './storage.ts';

/** Unfinished checkpoints of other partitions in one state: a roll-out over very many must not slow every read. */
export const GATE_PENDING_MAX = 256;

/** Shared by every state of a database without unfinished checkpoints. */
export const NO_PENDING: readonly PendingCheckpoint[] = [];

/** As the statement gives them; `null` for none. */
export interface StateCheckpoints {
  /** Every checkpoint of the partition: name, schema version, state. */
  readonly own: readonly (readonly [string, number, CheckpointState])[] | null;
  /** Unfinished ones of any partition, the first `GATE_PENDING_MAX`: partition, name, schema version. */
  readonly unfinished: readonly (readonly [string, string, number])[] | null;
}

const NO_CHECKPOINTS = { pending: NO_PENDING, newestCheckpointVersion: 0 } as const;

export function checkpointsOfState(
  partition: string,
  { own, unfinished }: StateCheckpoints,
): Pick<PartitionState, 'pending' | 'newestCheckpointVersion'> {
  if (own === null && unfinished === null) return NO_CHECKPOINTS;
  const pending: PendingCheckpoint[] = [];
  let newestCheckpointVersion = 0;
  for (const [name, schemaVersion, state] of own ?? []) {
    newestCheckpointVersion = Math.max(newestCheckpointVersion, schemaVersion);
    if (state !== 'activated') pending.push({ partition, name, schemaVersion });
  }
  for (const [owner, name, schemaVersion] of unfinished ?? []) {
    if (pending.length >= GATE_PENDING_MAX) break;
    if (owner !== partition) pending.push({ partition: owner, name, schemaVersion });
  }
  return { pending: pending.length === 0 ? NO_PENDING : pending, newestCheckpointVersion };
}
