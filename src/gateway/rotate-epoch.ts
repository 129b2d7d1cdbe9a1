/** `tidegate rotate-epoch`: new log epochs after a restore from a backup (§2.1, S-032). */
import { existsSync } from 'node:fs';
import type { Random } from '../protocol/clock.ts';
import type { Storage } from '../storage/storage.ts';
import { type CliIo, EXIT, type ExitCode } from './cli-io.ts';
import type { DataConfig } from './config.ts';
import { ConfigError } from './config-error.ts';
import { storageOptionOf } from './config-storage.ts';
import { createRandom } from './random.ts';
import { createRealClock, keepAliveDuring } from './real-clock.ts';
import { openStorage } from './storage-option.ts';

export type RotationTarget = { readonly kind: 'all' } | { readonly kind: 'one'; readonly partition: string };

const PARTITIONS_PER_PAGE = 256;

/**
 * A line per partition, written once its rotation is durable; whoever is interrupted runs it again. A gateway that runs on the
 * database ends the sessions of the partition when it next looks at the log (`headPollMs`), and every request meets the new
 * epoch at once. Throws `ConfigError`, `StorageError`.
 */
export function rotateEpoch(config: DataConfig, target: RotationTarget, io: CliIo): Promise<ExitCode> {
  return keepAliveDuring(run(config, target, io));
}

async function run(config: DataConfig, target: RotationTarget, io: CliIo): Promise<ExitCode> {
  // Opening would create it.
  if (config.storage.kind === 'sqlite' && !existsSync(config.storage.path)) {
    throw new ConfigError([`there is no database ${config.storage.path}`]);
  }
  const { storage, release } = await openStorage(storageOptionOf(config), createRealClock());
  const rotation: Rotation = { storage, random: createRandom(), io };
  try {
    if (target.kind === 'all') return await rotateAll(rotation);
    await rotateOne(rotation, await readEpoch(storage, target.partition));
    return EXIT.ok;
  } finally {
    await release();
  }
}

interface Rotation {
  readonly storage: Storage;
  readonly random: Random;
  readonly io: CliIo;
}

interface KnownEpoch {
  readonly partition: string;
  readonly logEpoch: string;
}

async function readEpoch(storage: Storage, partition: string): Promise<KnownEpoch> {
  const { logEpoch } = await storage.readSnapshot(partition, (reader) => reader.state());
  return { partition, logEpoch };
}

async function rotateAll(rotation: Rotation): Promise<ExitCode> {
  let afterPartition: string | null = null;
  for (;;) {
    const page: readonly KnownEpoch[] = await rotation.storage.listPartitions({
      afterPartition,
      max: PARTITIONS_PER_PAGE,
    });
    for (const known of page) await rotateOne(rotation, known);
    const last = page.at(-1);
    if (last === undefined) break;
    afterPartition = last.partition;
  }
  if (afterPartition === null) rotation.io.stdout('nothing to do: the database knows no partition\n');
  return EXIT.ok;
}

/** The partition as JSON text: it may hold any character. */
async function rotateOne(
  { storage, random, io }: Rotation,
  { partition, logEpoch }: KnownEpoch,
): Promise<void> {
  const next = random.id();
  await storage.rotateEpoch({ partition, logEpoch: next });
  io.stdout(`${JSON.stringify(partition)}: ${logEpoch} -> ${next}\n`);
}
