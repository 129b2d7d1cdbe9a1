/** A host that never answers must not pile up requests and half-open sockets. */
import type { Clock } from '../protocol/clock.ts';
import { SyncError } from '../protocol/errors.ts';

/** Rejects with `sync.rate_limited` (503) when `work` has not settled in time; what it comes to later is nobody's business. */
export async function withinTime<T>(
  work: Promise<T>,
  { clock, timeoutMs, what }: { readonly clock: Clock; readonly timeoutMs: number; readonly what: string },
): Promise<T> {
  let onLate: (reason: SyncError) => void = () => undefined;
  const late = new Promise<never>((_, reject) => {
    onLate = reject;
  });
  const timer = clock.after(timeoutMs, () =>
    onLate(new SyncError('sync.rate_limited', `${what} took too long`, { httpStatus: 503 })),
  );
  try {
    return await Promise.race([work, late]);
  } finally {
    timer.cancel();
  }
}
