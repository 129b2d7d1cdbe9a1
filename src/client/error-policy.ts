/** What the client does about an error that failed a whole round (part 1.11). */
import { ERROR_CATALOGUE, isErrorCode } from '../protocol/errors.ts';
import type { ErrorFrame } from '../protocol/frames.ts';

/**
 * `upgrade-wait`: a deploy is under way, ask again. `retry`: the same request may succeed later. `reauthenticate`: with other
 * credentials. `split`: with fewer commits. `stop`: never.
 */
export type ErrorPolicy = 'upgrade-wait' | 'retry' | 'reauthenticate' | 'split' | 'stop';

export function policyOf({ code, retryable }: Pick<ErrorFrame, 'code' | 'retryable'>): ErrorPolicy {
  if (!isErrorCode(code)) return retryable ? 'retry' : 'stop';
  const known = ERROR_CATALOGUE[code];
  switch (known.action) {
    case 'refreshAuth':
      return 'reauthenticate';
    case 'splitBatch':
      return 'split';
    default:
      if (code === 'sync.schema_not_ready') return 'upgrade-wait';
      return known.retryable ? 'retry' : 'stop';
  }
}

/** The server's wish in ms, if `details` has one. */
export function retryAfterMs({ details }: Pick<ErrorFrame, 'details'>): number {
  if (details === undefined) return 0;
  const parsed: unknown = JSON.parse(details);
  if (typeof parsed !== 'object' || parsed === null || !('retryAfterMs' in parsed)) return 0;
  const { retryAfterMs: wish } = parsed;
  return typeof wish === 'number' && Number.isFinite(wish) && wish > 0 ? wish : 0;
}
