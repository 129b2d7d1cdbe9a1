/** Which processes may start while a backfill is unfinished (part 4, 4.2 step 2). */
import type { CheckpointDeclaration } from './checkpoints.ts';
import { StorageQueryError } from './storage-error.ts';

/** `pending`: checkpoints of the running schema version, of any partition, that are not activated. */
export function assertDeclared(
  pending: readonly Pick<CheckpointDeclaration, 'partition' | 'name'>[],
  { running, declared }: { readonly running: number; readonly declared: readonly CheckpointDeclaration[] },
): void {
  if (pending.length === 0) return;
  const known = new Set(declared.filter(({ schemaVersion }) => schemaVersion === running).map(checkpointKey));
  const missing = pending.filter((checkpoint) => !known.has(checkpointKey(checkpoint)));
  const [first] = missing;
  if (first === undefined) return;
  throw new StorageQueryError(
    'sync.storage.checkpoint_incomplete',
    `the backfill ${first.name} of partition ${first.partition} for schema version ${running} is unfinished and not ` +
      `declared by this process${missing.length > 1 ? ` (nor are ${missing.length - 1} others)` : ''}; declare it or ` +
      'wait until it is activated',
  );
}

function checkpointKey({ partition, name }: Pick<CheckpointDeclaration, 'partition' | 'name'>): string {
  return JSON.stringify([partition, name]);
}
