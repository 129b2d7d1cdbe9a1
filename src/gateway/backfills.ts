/** Backfills (part 4, 4.4): of a running gateway, and by themselves on a database that gateways serve. */
import type { Clock, Random } from '../protocol/clock.ts';
import { assertLimits, DEFAULT_LIMITS, type Limits } from '../protocol/limits.ts';
import type { SchemaDocument } from '../protocol/schema-document.ts';
import { type BackfillDeps, runBackfill as runOn } from '../session/sync/backfill.ts';
import type { BackfillProgress, BackfillRequest, BackfillResult } from '../session/sync/backfill-request.ts';
import { BackfillError } from '../session/sync/backfill-writes.ts';
import type { CommitSink } from '../session/sync/sync-deps.ts';
import type { Storage } from '../storage/storage.ts';
import { compileReadySchema } from './ensure-ready.ts';
import type { StorageOption } from './gateway-options.ts';
import { logEvents } from './logged-events.ts';
import { type GatewayLogger, SILENT_LOGGER } from './logger.ts';
import { createRandom } from './random.ts';
import { createRealClock, keepAliveDuring } from './real-clock.ts';
import { openStorage } from './storage-option.ts';

/** Where a backfill runs that no gateway of this process is part of. */
export interface BackfillTarget {
  /** Of the version whose checkpoint is to be activated; the database must be at it. */
  readonly schema: SchemaDocument;
  readonly storage: StorageOption;
  readonly crdtTypes?: readonly string[];
  readonly limits?: Partial<Limits>;
  readonly logger?: GatewayLogger;
  readonly clock?: Clock;
  readonly random?: Random;
}

export interface PartitionsRequest extends Omit<BackfillRequest, 'partition' | 'onProgress'> {
  readonly partitions: readonly string[];
  /** Partitions at a time. Default 2. */
  readonly concurrency?: number;
  readonly onProgress?: (progress: BackfillProgress) => void;
}

const CONCURRENCY_DEFAULT = 2;

/** Gateways find the commits in the log, at their next look at its head. */
const TO_NOBODY: CommitSink = { accept: () => undefined };

/**
 * One partition, from any process. Throws `ReadinessError` for a schema that is not valid, `BackfillError` for a request that does not
 * fit it or a database at another version, `StorageError`, and what `batch` throws. Run again after whatever happened: it goes
 * on behind the last batch that landed.
 */
export async function runBackfill(request: BackfillRequest & BackfillTarget): Promise<BackfillResult> {
  return keepAliveDuring(withBackfillDeps(request, (deps) => runOnVersion(request, deps)));
}

/**
 * Several partitions, `concurrency` of them at a time. After the first failure no other one is begun; those that run come to
 * their end, and the failure is thrown. Results by partition.
 */
export async function runBackfills(
  request: PartitionsRequest & BackfillTarget,
): Promise<ReadonlyMap<string, BackfillResult>> {
  const { partitions, concurrency = CONCURRENCY_DEFAULT, ...shared } = request;
  const unique = [...new Set(partitions)];
  return keepAliveDuring(
    withBackfillDeps(request, async (deps) => {
      const lanes = new PartitionLanes(concurrency, deps);
      const results = await lanes.run(unique, async (partition) => ({ request: { ...shared, partition } }));
      return new Map(unique.map((partition, nth) => [partition, results[nth]!]));
    }),
  );
}

/** Opens the storage for as long as `run` takes. */
export async function withBackfillDeps<T>(
  target: BackfillTarget,
  run: (deps: BackfillDeps) => Promise<T>,
): Promise<T> {
  const { crdtTypes = [], clock = createRealClock(), random = createRandom() } = target;
  const limits: Limits = Object.freeze({ ...DEFAULT_LIMITS, ...target.limits });
  assertLimits(limits);
  const schema = compileReadySchema({ schema: target.schema, crdtTypes });
  const { storage, release } = await openStorage(target.storage, clock);
  try {
    const events = logEvents(target.logger ?? SILENT_LOGGER);
    return await run({ schema, storage, sink: TO_NOBODY, limits, clock, random, events });
  } finally {
    await release();
  }
}

export interface LaneWork {
  readonly request: BackfillRequest;
  readonly ended?: (result: BackfillResult) => void;
}

/** So many backfills at a time. After the first failure none is begun; those that run come to their end, and it is thrown. */
export class PartitionLanes {
  readonly #lanes: number;
  readonly #deps: BackfillDeps;

  constructor(lanes: number, deps: BackfillDeps) {
    if (!Number.isSafeInteger(lanes) || lanes < 1) {
      throw new RangeError('the concurrency of backfills is a whole number from 1');
    }
    this.#lanes = lanes;
    this.#deps = deps;
  }

  /** Results in the order of `items`. */
  async run<T>(
    items: readonly T[],
    prepare: (item: T) => Promise<LaneWork>,
  ): Promise<readonly BackfillResult[]> {
    const results = new Array<BackfillResult>(items.length);
    const failures: unknown[] = [];
    let next = 0;
    const lane = async (): Promise<void> => {
      while (next < items.length && failures.length === 0) {
        const nth = next++;
        try {
          const { request, ended } = await prepare(items[nth]!);
          const result = await runOnVersion(request, this.#deps);
          results[nth] = result;
          ended?.(result);
        } catch (failure) {
          failures.push(failure);
        }
      }
    };
    await Promise.all(Array.from({ length: Math.min(this.#lanes, items.length) }, lane));
    if (failures.length > 0) throw failures[0];
    return results;
  }
}

async function runOnVersion(request: BackfillRequest, deps: BackfillDeps): Promise<BackfillResult> {
  await assertVersion(deps.storage, { partition: request.partition, version: deps.schema.version });
  return runOn(request, deps);
}

async function assertVersion(
  storage: Storage,
  { partition, version }: { readonly partition: string; readonly version: number },
): Promise<void> {
  const { storedSchemaVersion } = await storage.readServeGate(partition, version);
  if (storedSchemaVersion === version) return;
  throw new BackfillError(
    `the database is at schema version ${storedSchemaVersion}, the backfill is for ${version}; migrate first`,
  );
}

/** Backfills of a gateway: its subscribers get the commits at once, and its shutdown ends them between two batches. */
export class GatewayBackfills {
  readonly #deps: BackfillDeps;
  readonly #closing = new AbortController();
  readonly #running = new Set<Promise<unknown>>();

  constructor(deps: BackfillDeps) {
    this.#deps = deps;
  }

  async run(request: BackfillRequest): Promise<BackfillResult> {
    const signals = [this.#closing.signal, ...(request.signal === undefined ? [] : [request.signal])];
    const running = runOnVersion({ ...request, signal: AbortSignal.any(signals) }, this.#deps);
    this.#running.add(running);
    try {
      return await running;
    } finally {
      this.#running.delete(running);
    }
  }

  /** Resolves when the last one has ended. */
  async close(): Promise<void> {
    this.#closing.abort();
    await Promise.allSettled(this.#running);
  }
}
