/** One batch until its outcome is certain: slow path, bounded retries, and the COMMIT whose answer was lost (architecture §3). */
import type { Clock, Random } from '../../protocol/clock.ts';
import type { Storage, StorageTx } from '../../storage/storage.ts';
import { StorageConstraintError, StorageError } from '../../storage/storage-error.ts';
import { writerFenced } from './gate.ts';
import {
  type BatchItem,
  type BatchMode,
  type BatchResult,
  type BatchServices,
  runBatch,
} from './push-batch.ts';

export interface AttemptServices extends BatchServices {
  readonly storage: Storage;
  readonly clock: Clock;
  readonly random: Random;
}

/**
 * Resolves once the batch is durable. Rejects when it is not, or when that cannot be learned: then the commits that did land
 * answer `cached` when they are sent again.
 */
export async function commitBatch(
  services: AttemptServices,
  partition: string,
  items: readonly BatchItem[],
): Promise<BatchResult> {
  const { limits, events } = services;
  const attempt: Attempt = { partition, items, mode: 'joined', staged: null, lost: null };
  for (let tries = 1; ; tries++) {
    try {
      return await tryOnce(services, attempt);
    } catch (failure) {
      if (takesSlowPath(attempt, failure)) {
        attempt.mode = 'one-by-one';
        const cause = failure instanceof StorageConstraintError ? failure.kind : 'failure';
        events.emit({ type: 'commit.slow_path', partition, commits: items.length, cause });
        continue;
      }
      events.emit({ type: 'storage.failed', partition, error: failure });
      if (!(failure instanceof StorageError)) throw failure;
      if (failure.code === 'sync.storage.writer_fence_rejected') {
        events.emit({ type: 'writer.fenced', partition, writerVersion: services.schema.version });
        throw writerFenced();
      }
      // What was staged may be durable; only the keys can tell, and only a new transaction can be asked.
      if (failure.outcome === 'unknown') attempt.lost = attempt.staged ?? attempt.lost;
      else if (!failure.retryable) throw failure;
      if (tries >= limits.commitAttemptsMax) throw failure;
      await pause(services, tries);
    }
  }
}

interface Attempt {
  readonly partition: string;
  readonly items: readonly BatchItem[];
  mode: BatchMode;
  /** What the transaction in flight would make durable. */
  staged: BatchResult | null;
  /** What a transaction with a lost answer may have made durable. */
  lost: BatchResult | null;
}

function tryOnce(services: AttemptServices, attempt: Attempt): Promise<BatchResult> {
  const { partition, items, mode } = attempt;
  attempt.staged = null;
  return services.storage.transaction(partition, async (tx) => {
    if (attempt.lost !== null && (await hasLanded(tx, attempt.lost))) return attempt.lost;
    attempt.lost = null;
    attempt.staged = await runBatch(services, tx, { items, mode, nowMs: services.clock.nowMs() });
    return attempt.staged;
  });
}

/** A batch lands whole or not at all, so every one of its records must be there, exactly as it was written. */
async function hasLanded(tx: StorageTx, { records }: BatchResult): Promise<boolean> {
  const stored = await tx.readResults(records);
  return records.every((record, index) => {
    const found = stored[index];
    return (
      found?.result === record.result &&
      found.contentHash === record.contentHash &&
      found.recordedAtMs === record.recordedAtMs
    );
  });
}

/** Once: a row that the database refused, or a failure that may be of one commit only while there are others. */
function takesSlowPath({ mode, items }: Attempt, failure: unknown): boolean {
  if (mode !== 'joined') return false;
  if (failure instanceof StorageConstraintError) return true;
  if (items.length === 1) return false;
  return !(failure instanceof StorageError) || failure.code === 'sync.storage.failed';
}

/** Doubles from try to try and is spread over its upper half, so that several nodes do not meet again. */
function pause({ limits, clock, random }: AttemptServices, tries: number): Promise<void> {
  const fullMs = Math.min(limits.commitRetryFirstMs * 2 ** (tries - 1), limits.commitRetryMaxMs);
  return new Promise((resolve) => {
    clock.after(Math.ceil(fullMs * (0.5 + random.unit() / 2)), resolve);
  });
}
