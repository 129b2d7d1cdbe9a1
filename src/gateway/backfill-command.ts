/** `tidegate backfill`: runs what is pending on a database, with the functions that the configuration module brings. */
import type { CompiledSchema } from '../protocol/schema.ts';
import type { BackfillResult } from '../session/sync/backfill-request.ts';
import type { Checkpoint } from '../storage/checkpoints.ts';
import type { Storage } from '../storage/storage.ts';
import { type BackfillDisplay, createBackfillDisplay } from './backfill-display.ts';
import { type BackfillTarget, PartitionLanes, withBackfillDeps } from './backfills.ts';
import { allCheckpoints } from './checkpoints-command.ts';
import { type CliIo, EXIT, type ExitCode } from './cli-io.ts';
import type { BackfillConfig } from './config.ts';
import { ConfigError } from './config-error.ts';
import { readSchemaDocument, storageOptionOf } from './config-storage.ts';
import { keepAliveDuring } from './real-clock.ts';

export interface BackfillChoice {
  /** `null`: of every partition, of every name. */
  readonly partition: string | null;
  readonly name: string | null;
  readonly concurrency: number;
  /** `declare` first what the configuration lists: for a projection that comes without a new schema version (part 4, 4.2). */
  readonly declaring: 'declare' | 'as-declared';
}

/** Rows beyond which the progress is not measured any more: counting costs a read of as many keys. */
const COUNTED_ROWS_MAX = 10_000_000;

/**
 * Ends with success when everything pending that was chosen is activated; interrupted, or superseded by another worker, it fails,
 * and the next run goes on. Throws `ConfigError`, `StorageError`, `BackfillError`, and what a batch function throws.
 */
export function backfill(config: BackfillConfig, choice: BackfillChoice, io: CliIo): Promise<ExitCode> {
  return keepAliveDuring(run(config, choice, io));
}

async function run(config: BackfillConfig, choice: BackfillChoice, io: CliIo): Promise<ExitCode> {
  const target: BackfillTarget = {
    schema: (await readSchemaDocument(config)) as BackfillTarget['schema'],
    storage: storageOptionOf(config),
    crdtTypes: Object.keys(config.hooks.crdtMergers),
    limits: config.limits,
  };
  const stop = new AbortController();
  void io.untilStopped().then(() => stop.abort());
  return withBackfillDeps(target, async (deps) => {
    const { storage, schema, clock } = deps;
    if (choice.declaring === 'declare') {
      for (const declared of config.checkpoints.filter((each) => isChosen(each, choice))) {
        await storage.declareCheckpoint({ ...declared, nowMs: clock.nowMs() });
      }
    }
    const pending = await pendingOf({ storage, schema, choice });
    assertConfigured(config, pending);
    if (pending.length === 0) {
      io.stdout('nothing to do: no backfill of this schema version is pending\n');
      return EXIT.ok;
    }
    const display = createBackfillDisplay(io, pending.length);
    try {
      const lanes = new PartitionLanes(choice.concurrency, deps);
      const results = await lanes.run(pending, async ({ partition, name }) => {
        const { sources, derived, batch } = config.hooks.backfills[name]!;
        const rows = await countSources({ storage, schema, partition, sources });
        const bar = display.start({ partition, name, rows });
        const request = { partition, name, sources, batch, signal: stop.signal, onProgress: bar.update };
        return { request: derived === undefined ? request : { ...request, derived }, ended: bar.end };
      });
      return conclude(results, display);
    } finally {
      display.close();
    }
  });
}

function conclude(results: readonly BackfillResult[], display: BackfillDisplay): ExitCode {
  const failed = results.filter(({ status }) => status !== 'activated').length;
  if (failed === 0) return EXIT.ok;
  display.note(`${failed} of ${results.length} not activated; run it again to go on`);
  return EXIT.failed;
}

type Named = Pick<Checkpoint, 'partition' | 'name'>;

function isChosen({ partition, name }: Named, choice: BackfillChoice): boolean {
  return (
    (choice.partition === null || choice.partition === partition) &&
    (choice.name === null || choice.name === name)
  );
}

interface PendingRequest {
  readonly storage: Storage;
  readonly schema: CompiledSchema;
  readonly choice: BackfillChoice;
}

async function pendingOf({ storage, schema, choice }: PendingRequest): Promise<readonly Checkpoint[]> {
  const pending: Checkpoint[] = [];
  for await (const checkpoint of allCheckpoints(storage)) {
    const { state, schemaVersion } = checkpoint;
    if (state === 'activated' || schemaVersion !== schema.version) continue;
    if (isChosen(checkpoint, choice)) pending.push(checkpoint);
  }
  return pending;
}

/** Before anything is claimed. */
function assertConfigured({ hooks }: BackfillConfig, pending: readonly Checkpoint[]): void {
  const missing = [...new Set(pending.map(({ name }) => name))].filter(
    (name) => !Object.hasOwn(hooks.backfills, name),
  );
  if (missing.length === 0) return;
  throw new ConfigError(
    missing.map(
      (name) => `the checkpoint ${name} is pending, and the configuration has no backfills.${name}`,
    ),
  );
}

interface CountRequest {
  readonly storage: Storage;
  readonly schema: CompiledSchema;
  readonly partition: string;
  readonly sources: readonly string[];
}

async function countSources({ storage, schema, partition, sources }: CountRequest): Promise<number> {
  let rows = 0;
  for (const source of sources) {
    const table = schema.tableByName.get(source);
    if (table === undefined) continue;
    rows += await storage.countRows({ partition, table, max: COUNTED_ROWS_MAX });
  }
  return rows;
}
