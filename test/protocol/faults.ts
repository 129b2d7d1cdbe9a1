/** What a call fails with: the code of its `SyncError`, the name of another error, or `'none'`. */
import { SyncError } from '../../src/protocol/errors.ts';

export function codeOf(run: () => unknown): string {
  try {
    run();
  } catch (failure) {
    if (failure instanceof SyncError) return failure.code;
    return failure instanceof Error ? failure.name : String(failure);
  }
  return 'none';
}

export const INVALID = 'sync.invalid_request';
