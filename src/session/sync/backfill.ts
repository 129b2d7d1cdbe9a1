/**
 * One backfill (part 4, 4.4): claim, scan the sources, follow their log, activate. Each batch is one transaction of rows and
 * progress, so a worker that is killed at any instruction continues from the last one that landed, and a worker that was
 * superseded finds out before it writes.
 */
import type { Clock, Random, Timer } from '../../protocol/clock.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { CompiledSchema } from '../../protocol/schema.ts';
import type { Checkpoint } from '../../storage/checkpoints.ts';
import type { NewCommit, Storage, StorageTx } from '../../storage/storage.ts';
import { StorageError } from '../../storage/storage-error.ts';
import { type BackfillPlan, planBackfill } from './backfill-plan.ts';
import { BackfillReader, type BatchStep, type OpenBatch, type Position } from './backfill-reader.ts';
import type { BackfillProgress, BackfillRequest, BackfillResult } from './backfill-request.ts';
import { BackfillError, type DerivedRow, stageDerived } from './backfill-writes.ts';
import { TxCandidateReader } from './candidate-reader.ts';
import { Overlay } from './overlay.ts';
import type { CommitSink, SyncEvents } from './sync-deps.ts';

export interface BackfillDeps {
  readonly schema: CompiledSchema;
  readonly storage: Storage;
  /** Gets the commits after each batch, for the subscribers of this process; other nodes find them in the log. */
  readonly sink: CommitSink;
  readonly limits: Limits;
  readonly clock: Clock;
  readonly random: Random;
  readonly events: SyncEvents;
}

/** Stands as actor and client of a backfill's commits. */
export const BACKFILL_IDENTITY = 'tidegate-backfill';

/**
 * Runs until activated, superseded or cancelled. Throws `BackfillError` for a configuration or a batch that does not fit,
 * `StorageQueryError` with `sync.storage.checkpoint_not_declared` or `…_fence_missing`, `StorageError` when the database stays away
 * for `commitAttemptsMax` tries, and whatever `batch` throws.
 */
export async function runBackfill(request: BackfillRequest, deps: BackfillDeps): Promise<BackfillResult> {
  const { partition, name } = request;
  const { schema, storage, clock, random, events } = deps;
  const plan = planBackfill(request, schema);
  await storage.admit({
    partition,
    clientId: BACKFILL_IDENTITY,
    newLogEpoch: random.id(),
    nowMs: clock.nowMs(),
  });
  try {
    return await new Backfill({ request, deps, plan }).run();
  } catch (error) {
    events.emit({ type: 'backfill.failed', partition, name, error });
    throw error;
  }
}

interface BackfillParts {
  readonly request: BackfillRequest;
  readonly deps: BackfillDeps;
  readonly plan: BackfillPlan;
}

interface Landed {
  readonly position: Position;
  readonly logEpoch: string;
  readonly head: number;
  readonly commits: readonly NewCommit[];
  readonly rowsSeen: number;
  readonly isCaughtUp: boolean;
  readonly isRestarted: boolean;
}

/** Ends a transaction without a trace. */
class Superseded extends Error {}

class Backfill {
  readonly #request: BackfillRequest;
  readonly #deps: BackfillDeps;
  readonly #plan: BackfillPlan;
  readonly #reader: BackfillReader;
  #ownerEpoch = 0;
  #startedMs = 0;
  #rowsSeen = 0;
  #batches = 0;
  #rowsWritten = 0;
  /** Tries of the step under way. */
  #tries = 0;

  constructor({ request, deps, plan }: BackfillParts) {
    this.#request = request;
    this.#deps = deps;
    this.#plan = plan;
    this.#reader = new BackfillReader(request, plan, deps.limits);
  }

  async run(): Promise<BackfillResult> {
    this.#startedMs = this.#deps.clock.monotonicMs();
    const claimed = await this.#claim();
    let position: Position | null = claimed.state === 'activated' ? null : await this.#startOf(claimed);
    let last: Position = claimed;
    while (position !== null) {
      last = position;
      if (this.#request.signal?.aborted === true) return this.#ended('cancelled', position);
      const next: Position | 'activated' | 'superseded' = await this.#advance(position);
      if (next === 'superseded') {
        this.#emit('backfill.superseded', position);
        return this.#ended('superseded', position);
      }
      position = next === 'activated' ? null : next;
    }
    return this.#ended('activated', last);
  }

  async #claim(): Promise<Checkpoint> {
    const { partition, name } = this.#request;
    const { schema, storage, clock } = this.#deps;
    const checkpoint = await storage.claimCheckpoint({
      partition,
      name,
      schemaVersion: schema.version,
      nowMs: clock.nowMs(),
    });
    this.#ownerEpoch = checkpoint.ownerEpoch;
    if (checkpoint.state !== 'activated') this.#emit('backfill.claimed', checkpoint);
    return checkpoint;
  }

  /** A scan that other tables were configured for, or none yet, begins anew. */
  async #startOf({ scan, watermark, observedRows }: Checkpoint): Promise<Position> {
    const isKnown = scan !== null && this.#plan.order.some(({ table }) => table.name === scan.table);
    if (isKnown || (scan === null && watermark > 0)) return { scan, watermark, observedRows };
    const { partition } = this.#request;
    const head = await this.#deps.storage.transaction(partition, async (tx) => tx.state.head);
    return this.#scanFrom(head);
  }

  #scanFrom(headSeq: number): Position {
    const table = this.#plan.order[0]!.table.name;
    return { scan: { headSeq, table, afterRowId: null }, watermark: 0, observedRows: 0 };
  }

  async #advance(position: Position): Promise<Position | 'activated' | 'superseded'> {
    try {
      const landed = await this.#runBatch(position);
      this.#tries = 0;
      this.#note(landed);
      // A scan that is complete has to follow what happened meanwhile, at least once.
      if (landed.position.scan !== null || position.scan !== null || !landed.isCaughtUp)
        return landed.position;
      return await this.#activate(landed.position);
    } catch (failure) {
      if (failure instanceof Superseded) return 'superseded';
      if (!(failure instanceof StorageError) || !this.#mayRetry(failure)) throw failure;
      await this.#pause();
      return this.#reread();
    }
  }

  async #activate(position: Position): Promise<Position | 'activated'> {
    const { partition, name, sources } = this.#request;
    const { storage, clock } = this.#deps;
    const { watermark } = position;
    const verdict = await storage.activateCheckpoint({
      partition,
      name,
      ownerEpoch: this.#ownerEpoch,
      watermark,
      sources,
      nowMs: clock.nowMs(),
    });
    if (verdict === 'activated') {
      this.#emit('backfill.activated', position);
      this.#report('activated', { position, head: watermark });
      return 'activated';
    }
    // A worker that was superseded hears `stale` too; its next batch tells.
    this.#emit(verdict === 'stale' ? 'backfill.stale' : 'backfill.unverifiable', position);
    return position;
  }

  #runBatch(position: Position): Promise<Landed> {
    const { storage, limits } = this.#deps;
    const { plan } = this.#plan;
    return storage.transaction(this.#request.partition, async (tx) => {
      const overlay = new Overlay(tx);
      const reader = new TxCandidateReader({ plan, tx, overlay, pageBytesMax: limits.segmentBytesMax });
      try {
        return await this.#batchIn({ tx, overlay, reader }, position);
      } finally {
        reader.close();
      }
    });
  }

  async #batchIn(open: OpenBatch, position: Position): Promise<Landed> {
    const { tx, overlay } = open;
    const { horizon, logEpoch, head } = tx.state;
    const isLost = horizon > (position.scan?.headSeq ?? position.watermark);
    const step = isLost ? this.#restart(head) : await this.#reader.read(open, position);
    await this.#save(tx, step.position);
    const rows = step.derive === null ? [] : await step.derive();
    this.#assertBounded(rows);
    const commits = await stageDerived(
      {
        tx,
        overlay,
        plan: this.#plan.plan,
        derived: this.#plan.derived,
        changesPerCommit: this.#deps.limits.backfillChangesPerCommit,
      },
      rows,
      {
        actorId: BACKFILL_IDENTITY,
        clientId: BACKFILL_IDENTITY,
        commitIdPrefix: `${this.#request.name}:${this.#ownerEpoch}:`,
        writerVersion: this.#deps.schema.version,
        nowMs: this.#deps.clock.nowMs(),
      },
    );
    if (commits.length > 0) await tx.append({ commits, rows: overlay.writes(), results: [] }, 'last');
    const { position: next, rowsSeen, isCaughtUp } = step;
    return { position: next, logEpoch, head, commits, rowsSeen, isCaughtUp, isRestarted: isLost };
  }

  /** History above the watermark is gone: what changed there can only be found by looking at every row. */
  #restart(head: number): BatchStep {
    return { position: this.#scanFrom(head), derive: null, rowsSeen: 0, isCaughtUp: false };
  }

  #assertBounded(rows: readonly DerivedRow[]): void {
    const { backfillWritesMax } = this.#deps.limits;
    if (rows.length <= backfillWritesMax) return;
    throw new BackfillError(
      `one batch derived ${rows.length} rows, more than ${backfillWritesMax}; let it see fewer source rows (backfillBatchRowsMax)`,
    );
  }

  async #save(tx: StorageTx, { scan, watermark, observedRows }: Position): Promise<void> {
    const { name } = this.#request;
    const nowMs = this.#deps.clock.nowMs();
    const ownerEpoch = this.#ownerEpoch;
    const isOwner = await tx.advanceCheckpoint({ name, ownerEpoch, watermark, observedRows, scan, nowMs });
    if (!isOwner) throw new Superseded();
  }

  #note({ position, logEpoch, head, commits, rowsSeen, isRestarted }: Landed): void {
    const { partition } = this.#request;
    this.#batches++;
    this.#rowsSeen += rowsSeen;
    for (const { changes } of commits) this.#rowsWritten += changes.length;
    if (commits.length > 0) this.#deps.sink.accept(partition, logEpoch, commits);
    if (isRestarted) this.#emit('backfill.unverifiable', position);
    this.#report(position.scan === null ? 'follow' : 'scan', { position, head });
  }

  #report(
    phase: BackfillProgress['phase'],
    { position, head }: { readonly position: Position; readonly head: number },
  ): void {
    const { partition, name, onProgress } = this.#request;
    const { clock, events } = this.#deps;
    const { watermark, observedRows } = position;
    const elapsedMs = clock.monotonicMs() - this.#startedMs;
    const ratePerSecond = elapsedMs > 0 ? (this.#rowsSeen * 1_000) / elapsedMs : 0;
    const progress = { partition, name, observedRows, watermark, head, ratePerSecond };
    if (phase !== 'activated') events.emit({ type: 'backfill.advanced', phase, ...progress });
    onProgress?.({ phase, ...progress });
  }

  #emit(
    type: `backfill.${'claimed' | 'stale' | 'unverifiable' | 'activated' | 'superseded'}`,
    { watermark, observedRows }: Position,
  ): void {
    const { partition, name } = this.#request;
    const ownerEpoch = this.#ownerEpoch;
    this.#deps.events.emit({ type, partition, name, ownerEpoch, watermark, observedRows });
  }

  #ended(status: BackfillResult['status'], { watermark, observedRows }: Position): BackfillResult {
    return { status, watermark, observedRows, batches: this.#batches, rowsWritten: this.#rowsWritten };
  }

  #mayRetry(failure: StorageError): boolean {
    this.#tries++;
    const mayHelp = failure.retryable || failure.outcome === 'unknown';
    return mayHelp && this.#tries < this.#deps.limits.commitAttemptsMax;
  }

  #pause(): Promise<void> {
    const { limits, clock, random } = this.#deps;
    const { signal } = this.#request;
    const fullMs = Math.min(limits.commitRetryFirstMs * 2 ** (this.#tries - 1), limits.commitRetryMaxMs);
    return new Promise((resolve) => {
      let timer: Timer | null = null;
      const end = (): void => {
        timer?.cancel();
        signal?.removeEventListener('abort', end);
        resolve();
      };
      timer = clock.after(Math.ceil(fullMs * (0.5 + random.unit() / 2)), end);
      signal?.addEventListener('abort', end);
    });
  }

  /** After a failure, whose batch may have landed after all: the durable position says where to go on. */
  async #reread(): Promise<Position | 'activated' | 'superseded'> {
    const { partition, name } = this.#request;
    const { storage } = this.#deps;
    let found: Checkpoint | undefined;
    try {
      found = (await storage.readCheckpoints(partition)).get(name);
    } catch (failure) {
      if (!(failure instanceof StorageError) || !this.#mayRetry(failure)) throw failure;
      await this.#pause();
      return this.#reread();
    }
    if (found === undefined || found.ownerEpoch !== this.#ownerEpoch) return 'superseded';
    return found.state === 'activated' ? 'activated' : this.#startOf(found);
  }
}
