/**
 * Group commit (architecture §3): per partition a FIFO of pushes; one transaction at a time takes all that wait, up to named
 * bounds. There is no timer: an idle partition starts on the next turn of the event loop, so that pushes which arrived in
 * one turn share a transaction also where the storage blocks the loop. Idle partitions hold no memory.
 */
import type { Clock, Random } from '../../protocol/clock.ts';
import { SyncError } from '../../protocol/errors.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { CompiledSchema } from '../../protocol/schema.ts';
import { isStorableText } from '../../storage/storable-values.ts';
import type { Storage } from '../../storage/storage.ts';
import type { BlobReferences } from './blob-references.ts';
import { type AttemptServices, commitBatch } from './commit-attempts.ts';
import type { Declarations } from './declarations.ts';
import { PartitionQueue, type Slot, WaitingRequest } from './partition-queue.ts';
import { type BatchItem, type BatchResult, idempotencyKey } from './push-batch.ts';
import { compilePushPlan } from './push-plan.ts';
import { prepareCommit } from './push-prepare.ts';
import type {
  CommitQueue,
  CommitSink,
  HostHooks,
  PushOutcome,
  PushRequest,
  SyncEvents,
} from './sync-deps.ts';

export interface CommitQueueDeps {
  readonly schema: CompiledSchema;
  /** Checkpoints that the host of this process declared. */
  readonly declarations: Declarations;
  readonly storage: Storage;
  readonly hooks: HostHooks;
  readonly limits: Limits;
  readonly clock: Clock;
  readonly random: Random;
  readonly events: SyncEvents;
  readonly sink: CommitSink;
  readonly blobs: BlobReferences;
  /** SHA-256 as 64 lower-case hex digits. */
  readonly sha256: (bytes: Uint8Array) => string;
}

interface PreparedSlot extends BatchItem {
  readonly entry: WaitingRequest;
}

export function createCommitQueue(deps: CommitQueueDeps): CommitQueue {
  return new GroupCommitQueue(deps);
}

class GroupCommitQueue implements CommitQueue {
  readonly #deps: CommitQueueDeps;
  readonly #services: AttemptServices;
  readonly #queues = new Map<string, PartitionQueue>();
  #depth = 0;
  #isClosing = false;
  #closed: (() => void)[] = [];

  constructor(deps: CommitQueueDeps) {
    this.#deps = deps;
    this.#services = {
      ...deps,
      plan: compilePushPlan(deps.schema, deps.hooks),
      commitValidator: deps.hooks.commitValidator,
      schemaVersion: deps.schema.version,
    };
  }

  get depth(): number {
    return this.#depth;
  }

  async push(request: PushRequest): Promise<readonly PushOutcome[]> {
    if (request.commits.length === 0) return [];
    this.#assertServed(request);
    const { partition } = request.who;
    const { limits } = this.#deps;
    const entry = new WaitingRequest(request);
    let queue = this.#queues.get(partition);
    if (this.#isClosing || (queue !== undefined && !queue.hasRoom(entry, limits))) {
      throw this.#refusal(partition);
    }
    if (queue === undefined) {
      queue = new PartitionQueue();
      this.#queues.set(partition, queue);
      void this.#drain(partition, queue);
    }
    queue.add(entry);
    this.#depth += request.commits.length;
    return entry.outcomes;
  }

  async close(): Promise<void> {
    this.#isClosing = true;
    if (this.#queues.size > 0) await new Promise<void>((resolve) => this.#closed.push(resolve));
  }

  /** The round answers the floor and refuses such ids long before; here a mistake would reach the log. */
  #assertServed({ schemaVersion, clientId }: PushRequest): void {
    if (schemaVersion !== this.#deps.schema.version) {
      throw new SyncError('sync.client_schema_unsupported', 'the schema version of the push is not served');
    }
    if (!isStorableText(clientId)) {
      throw new SyncError('sync.invalid_client_id', 'the clientId cannot be stored');
    }
  }

  #refusal(partition: string): SyncError {
    const { limits, random, events } = this.#deps;
    const retryAfterMs = Math.ceil(limits.commitQueueRetryAfterMs * (1 + random.unit()));
    events.emit({ type: 'request.refused', partition, code: 'sync.rate_limited' });
    return new SyncError('sync.rate_limited', 'too many commits are waiting, try again later', {
      details: { retryAfterMs },
    });
  }

  /** Runs while somebody waits; never rejects. */
  async #drain(partition: string, queue: PartitionQueue): Promise<void> {
    do {
      await new Promise<void>((resolve) => this.#deps.clock.nextTurn(resolve));
      await this.#runBatch(partition, queue);
    } while (queue.hasWaiting);
    this.#queues.delete(partition);
    if (this.#queues.size > 0) return;
    for (const resolve of this.#closed.splice(0)) resolve();
  }

  async #runBatch(partition: string, queue: PartitionQueue): Promise<void> {
    const { clock, limits, sink } = this.#deps;
    const startedMs = clock.monotonicMs();
    const batch = this.#prepare(queue, queue.take(limits));
    if (batch.length === 0) return;
    try {
      const result = await commitBatch(this.#services, partition, batch);
      // Fanout is queued in commit order and before any writer is answered (architecture §4.1).
      if (result.commits.length > 0) sink.accept(partition, result.logEpoch, result.commits);
      this.#answer(queue, batch, result);
      queue.putBack(batch.slice(result.answers.length).filter(({ entry }) => !entry.isSettled));
      this.#report(partition, result, clock.monotonicMs() - startedMs);
    } catch (error) {
      for (const { entry } of batch) this.#fail(queue, entry, error);
    }
  }

  /** A commit that cannot even be looked at is a defect, and fails its own request only. */
  #prepare(queue: PartitionQueue, slots: readonly Slot[]): PreparedSlot[] {
    const batch: PreparedSlot[] = [];
    for (const { entry, index } of slots) {
      if (entry.isSettled) continue;
      const { request } = entry;
      try {
        const deps = { plan: this.#services.plan, sha256: this.#deps.sha256 };
        const commit = prepareCommit(request.commits[index]!, deps);
        batch.push({ entry, request, commit, key: idempotencyKey(request.clientId, commit) });
      } catch (error) {
        this.#fail(queue, entry, error);
      }
    }
    return batch.filter(({ entry }) => !entry.isSettled);
  }

  #answer(queue: PartitionQueue, batch: readonly PreparedSlot[], { answers }: BatchResult): void {
    const { pushAnswerBytesMax } = this.#deps.limits;
    for (const [index, answer] of answers.entries()) {
      const { entry } = batch[index]!;
      if (entry.isSettled) continue;
      if (answer.kind === 'failed') this.#fail(queue, entry, answer.error);
      else this.#depth -= entry.answer(answer.outcome);
      if (entry.answerBytes > pushAnswerBytesMax) this.#fail(queue, entry, answersTooLarge());
    }
  }

  #fail(queue: PartitionQueue, entry: WaitingRequest, error: unknown): void {
    if (entry.isSettled) return;
    queue.drop(entry);
    this.#depth -= entry.fail(error);
    const refused = SyncError.from(error);
    if (refused === null) return;
    this.#deps.events.emit({
      type: 'request.refused',
      partition: entry.request.who.partition,
      code: refused.code,
    });
  }

  #report(partition: string, { commits, rejected }: BatchResult, durationMs: number): void {
    const { events } = this.#deps;
    for (const { actorId, record } of rejected) {
      const { code, opIndex } = record;
      events.emit({ type: 'push.rejected', partition, actorId, code, opIndex });
    }
    events.emit({
      type: 'commit.batch',
      partition,
      commits: commits.length,
      rejected: rejected.length,
      durationMs,
    });
  }
}

/** Commits that ended keep their results, so a client that sends fewer at once gets all of them in the end. */
function answersTooLarge(): SyncError {
  return new SyncError(
    'sync.too_many_operations',
    'the conflicts of this request are too large for one response, send fewer commits at once',
  );
}
