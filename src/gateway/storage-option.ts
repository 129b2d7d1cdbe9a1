/** From what the host wrote to an open storage. */
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Clock } from '../protocol/clock.ts';
import type { CompiledSchema } from '../protocol/schema.ts';
import type { CheckpointDeclaration } from '../storage/checkpoints.ts';
import type { SegmentStore } from '../storage/segments.ts';
import { planSqliteMigration } from '../storage/sqlite/plan-migration.ts';
import { openSqliteStorage } from '../storage/sqlite/sqlite-storage.ts';
import type { Storage } from '../storage/storage.ts';
import type { StorageOption } from './gateway-options.ts';

const IN_MEMORY = ':memory:';

/** Storages that a configuration can name: all but one that a host opened. */
export type ConfiguredStorage = Exclude<StorageOption, { readonly storage: unknown }>;

export interface OpenedStorage {
  readonly storage: Storage;
  readonly segments: SegmentStore;
  /** Closes what was opened here; a storage of the host's own stays open. */
  release(): Promise<void>;
}

/** `onUnnamed`: a pooler was met that does not keep statements. */
export async function openStorage(
  option: StorageOption,
  clock: Clock,
  onUnnamed: () => void = () => undefined,
): Promise<OpenedStorage> {
  if ('storage' in option) return { ...option, release: () => Promise.resolve() };
  if ('url' in option && isPostgresUrl(option.url)) return openPostgres(option, { clock, onUnnamed });
  const synchronous = 'path' in option ? (option.synchronous ?? 'FULL') : 'FULL';
  const path = 'path' in option ? option.path : pathOf(option.url);
  if (path !== IN_MEMORY) await mkdir(dirname(path), { recursive: true });
  const opened = await openSqliteStorage({ path, synchronous, clock });
  return { ...opened, release: () => opened.storage.close() };
}

export function isPostgresUrl(url: string): boolean {
  return /^postgres(ql)?:\/\//.test(url);
}

/** Its driver is loaded only by those who use it. */
async function openPostgres(
  { url, postgres }: Extract<StorageOption, { readonly url: string }>,
  context: { readonly clock: Clock; readonly onUnnamed: () => void },
): Promise<OpenedStorage> {
  const { openPostgresStorage } = await import('../storage/postgres/postgres-storage.ts');
  const opened = await openPostgresStorage({ ...postgres, connection: url, ...context });
  return { ...opened, release: () => opened.storage.close() };
}

export interface MigrationRequest {
  readonly schema: CompiledSchema;
  readonly checkpoints: readonly CheckpointDeclaration[];
  readonly clock: Clock;
}

/** The SQL that opening a storage and `ensureSchema` would run, without running it; empty where nothing is to be done. */
export async function planMigration(
  option: ConfiguredStorage,
  { schema, checkpoints, clock }: MigrationRequest,
): Promise<readonly string[]> {
  if ('url' in option && isPostgresUrl(option.url)) {
    const postgres = await import('../storage/postgres/plan-migration.ts');
    return postgres.planMigration({ ...option.postgres, connection: option.url, clock }, schema, checkpoints);
  }
  const path = 'path' in option ? option.path : pathOf(option.url);
  return planSqliteMigration({ path, clock }, schema, checkpoints);
}

/** The url itself is never repeated: it may hold a password. */
function pathOf(url: string): string {
  const path = /^sqlite:(.+)$/s.exec(url)?.[1];
  if (path !== undefined) return path;
  throw new RangeError('a storage url must be sqlite:PATH, sqlite::memory: or postgres://HOST/DATABASE');
}
