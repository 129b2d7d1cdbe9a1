import type { ScopeMap } from '../protocol/frames.ts';
import { StorageError } from './storage-error.ts';

/** A row or change is never found without a scope: that would be a scan of the partition. */
export function assertScoped(scopes: ScopeMap): void {
  if (Object.keys(scopes).length === 0) {
    throw new StorageError('sync.storage.scan_requires_scope', 'a read of rows or changes names no scope');
  }
}
