/** From what the host wrote to an open storage. */
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { Clock } from '../protocol/clock.ts';
import type { SegmentStore } from '../storage/segments.ts';
import { openSqliteStorage } from '../storage/sqlite/sqlite-storage.ts';
import type { Storage } from '../storage/storage.ts';
import type { StorageOption } from './gateway-options.ts';

const IN_MEMORY = ':memory:';

export interface OpenedStorage {
  readonly storage: Storage;
  readonly segments: SegmentStore;
  /** Closes what was opened here; a storage of the host's own stays open. */
  release(): Promise<void>;
}

export async function openStorage(option: StorageOption, clock: Clock): Promise<OpenedStorage> {
  if ('storage' in option) return { ...option, release: () => Promise.resolve() };
  const synchronous = 'path' in option ? (option.synchronous ?? 'FULL') : 'FULL';
  const path = 'path' in option ? option.path : pathOf(option.url);
  if (path !== IN_MEMORY) await mkdir(dirname(path), { recursive: true });
  const opened = await openSqliteStorage({ path, synchronous, clock });
  return { ...opened, release: () => opened.storage.close() };
}

function pathOf(url: string): string {
  const path = /^sqlite:(.+)$/s.exec(url)?.[1];
  if (path !== undefined) return path;
  if (/^postgres(ql)?:/.test(url)) throw new RangeError('PostgreSQL is not supported by this version');
  throw new RangeError('a storage url must be sqlite:PATH or sqlite::memory:');
}
