/** The one place where real time and real timers enter (part of the composition root). */
import type { Clock, Timer } from '../protocol/clock.ts';

/** Node clamps a longer delay to 1 ms, which would end a grant of thirty days at once. */
const TIMER_MS_MAX = 2 ** 31 - 1;

export function createRealClock(): Clock {
  return {
    nowMs: () => Date.now(),
    monotonicMs: () => performance.now(),
    after: startTimer,
    nextTurn: (run) => {
      setImmediate(run);
    },
  };
}

function startTimer(delayMs: number, run: () => void): Timer {
  let remainingMs = delayMs;
  let handle: NodeJS.Timeout;
  const arm = (): void => {
    const stepMs = Math.min(remainingMs, TIMER_MS_MAX);
    remainingMs -= stepMs;
    handle = setTimeout(() => (remainingMs > 0 ? arm() : run()), stepMs);
    handle.unref();
  };
  arm();
  return { cancel: () => clearTimeout(handle) };
}

/**
 * The timers of this clock keep no process alive. Where work may have nothing else to wait on, such as another process's lock
 * on the database before a server listens, Node would end in the middle of it (exit code 13).
 */
export async function keepAliveDuring<T>(work: Promise<T>): Promise<T> {
  const hold = setInterval(() => undefined, TIMER_MS_MAX);
  try {
    return await work;
  } finally {
    clearInterval(hold);
  }
}
