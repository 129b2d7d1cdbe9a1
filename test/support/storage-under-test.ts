/**
 * The database that the harnesses of sync core and session layer open. SQLite by itself; a test file that imports
 * `on-postgres.ts` before other test files runs them on PostgreSQL.
 */
import type { Clock } from '../../src/protocol/clock.ts';
import type { SegmentStore } from '../../src/storage/segments.ts';
import { openSqliteStorage } from '../../src/storage/sqlite/sqlite-storage.ts';
import type { Storage } from '../../src/storage/storage.ts';

export interface StorageRequest {
  /** Data that outlives its storage and can be opened again, or twice; default is data of its own that nobody else sees. */
  readonly path?: string | undefined;
  readonly clock: Clock;
}

export type OpenTestStorage = (
  request: StorageRequest,
) => Promise<{ readonly storage: Storage; readonly segments: SegmentStore }>;

let answers: 'at once' | 'over a network' = 'at once';

let open: OpenTestStorage = ({ path = ':memory:', clock }) => openSqliteStorage({ path, clock });

export function openTestStorage(request: StorageRequest): ReturnType<OpenTestStorage> {
  return open(request);
}

export function useTestStorage(other: OpenTestStorage): void {
  open = other;
  answers = 'over a network';
}

/** Few tests may care: those of what happens within one turn of the event loop. */
export function storageAnswers(): typeof answers {
  return answers;
}
