/** The real clock and randomness of browsers and Node: the only place of the client that asks the platform for them. */
import type { Clock, Random, Timer } from '../protocol/clock.ts';

const ID_BYTES = 16;

/** Timers keep a Node process alive, unlike the server's: between two attempts nothing else does. `close()` ends them all. */
export const BROWSER_CLOCK: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  after(delayMs: number, run: () => void): Timer {
    const handle = setTimeout(run, delayMs);
    return { cancel: () => clearTimeout(handle) };
  },
  nextTurn(run: () => void): void {
    setTimeout(run, 0);
  },
};

export const BROWSER_RANDOM: Random = {
  unit: () => Math.random(),
  id(): string {
    const bytes = crypto.getRandomValues(new Uint8Array(ID_BYTES));
    return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
  },
};
