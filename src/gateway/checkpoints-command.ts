/** `tidegate checkpoints`: the backfills that the database knows, as a table or as JSON (part 4, 4.1). */
import { existsSync } from 'node:fs';
import type { Checkpoint } from '../storage/checkpoints.ts';
import type { Storage } from '../storage/storage.ts';
import { type CliIo, EXIT, type ExitCode } from './cli-io.ts';
import type { DataConfig } from './config.ts';
import { ConfigError } from './config-error.ts';
import { storageOptionOf } from './config-storage.ts';
import { createRealClock, keepAliveDuring } from './real-clock.ts';
import { openStorage } from './storage-option.ts';

export interface CheckpointsView {
  readonly format: 'table' | 'json';
  /** `null`: of every partition. */
  readonly partition: string | null;
}

const CHECKPOINTS_PER_PAGE = 256;

/** JSON is one object per line, written as it is read. Throws `ConfigError`, `StorageError`. */
export function showCheckpoints(config: DataConfig, view: CheckpointsView, io: CliIo): Promise<ExitCode> {
  return keepAliveDuring(run(config, view, io));
}

async function run(config: DataConfig, { format, partition }: CheckpointsView, io: CliIo): Promise<ExitCode> {
  // Opening would create it.
  if (config.storage.kind === 'sqlite' && !existsSync(config.storage.path)) {
    throw new ConfigError([`there is no database ${config.storage.path}`]);
  }
  const { storage, release } = await openStorage(storageOptionOf(config), createRealClock());
  try {
    const rows: Checkpoint[] = [];
    for await (const checkpoint of partition === null
      ? allCheckpoints(storage)
      : ofPartition(storage, partition)) {
      if (format === 'json') io.stdout(`${JSON.stringify(described(checkpoint))}\n`);
      else rows.push(checkpoint);
    }
    if (format === 'table') io.stdout(tableOf(rows));
    return EXIT.ok;
  } finally {
    await release();
  }
}

/** Of every partition, page by page. */
export async function* allCheckpoints(storage: Storage): AsyncGenerator<Checkpoint> {
  let after: { readonly partition: string; readonly name: string } | null = null;
  for (;;) {
    const page: readonly Checkpoint[] = await storage.listCheckpoints({ after, max: CHECKPOINTS_PER_PAGE });
    yield* page;
    const last = page.at(-1);
    if (last === undefined) return;
    after = { partition: last.partition, name: last.name };
  }
}

async function* ofPartition(storage: Storage, partition: string): AsyncGenerator<Checkpoint> {
  yield* (await storage.readCheckpoints(partition)).values();
}

function described({ updatedAtMs, scan, ...checkpoint }: Checkpoint) {
  return { ...checkpoint, scanning: scan?.table ?? null, updatedAt: new Date(updatedAtMs).toISOString() };
}

const COLUMNS: readonly (readonly [string, (checkpoint: Checkpoint) => string])[] = [
  // As JSON text: they may hold any character.
  ['partition', ({ partition }) => JSON.stringify(partition)],
  ['name', ({ name }) => JSON.stringify(name)],
  ['version', ({ schemaVersion }) => String(schemaVersion)],
  ['state', ({ state }) => state],
  ['watermark', ({ watermark }) => String(watermark)],
  ['rows', ({ observedRows }) => String(observedRows)],
  ['owner', ({ ownerEpoch }) => String(ownerEpoch)],
  ['updated', ({ updatedAtMs }) => new Date(updatedAtMs).toISOString()],
];

function tableOf(checkpoints: readonly Checkpoint[]): string {
  if (checkpoints.length === 0) return 'no checkpoints\n';
  const cells = [
    COLUMNS.map(([title]) => title),
    ...checkpoints.map((each) => COLUMNS.map(([, read]) => read(each))),
  ];
  const widths = COLUMNS.map((_, column) => Math.max(...cells.map((line) => line[column]!.length)));
  const lines = cells.map((line) =>
    line
      .map((cell, column) => cell.padEnd(widths[column]!))
      .join('  ')
      .trimEnd(),
  );
  return `${lines.join('\n')}\n`;
}
