/** What a refusal must look like, for tests of decoders. */
import { expect } from 'vitest';
import { SyncError } from '../../src/protocol/errors.ts';

/** The code of the `SyncError` that `run` throws; the test fails when it throws nothing or something else. */
export function refusal(run: () => unknown): string {
  try {
    run();
  } catch (failure) {
    if (failure instanceof SyncError) return failure.code;
    throw failure;
  }
  return expect.fail('nothing was refused');
}
