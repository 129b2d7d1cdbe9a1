/** When a partition was last authenticated for, written behind: at most once per interval, never a hot row (S-028, architecture §4.7). */
import type { Clock, Timer } from '../../protocol/clock.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { Storage } from '../../storage/storage.ts';
import type { LiveEvents } from './live-events.ts';

export interface LastSeen {
  /** Somebody was authenticated for the partition just now, on either binding. */
  touch(partition: string): void;
  /** Writes what was noted. Rejects with the storage's error; it stays noted. */
  flush(): Promise<void>;
}

export interface LastSeenDeps {
  readonly storage: Storage;
  readonly clock: Clock;
  readonly limits: Limits;
  readonly events: LiveEvents;
}

export function createLastSeen(deps: LastSeenDeps): LastSeen {
  return new LastSeenWriter(deps);
}

class LastSeenWriter implements LastSeen {
  readonly #deps: LastSeenDeps;
  #seen = new Map<string, number>();
  #timer: Timer | null = null;

  constructor(deps: LastSeenDeps) {
    this.#deps = deps;
  }

  touch(partition: string): void {
    this.#seen.set(partition, this.#deps.clock.nowMs());
    this.#arm();
  }

  async flush(): Promise<void> {
    this.#timer?.cancel();
    this.#timer = null;
    if (this.#seen.size === 0) return;
    const seen = this.#seen;
    this.#seen = new Map();
    try {
      await this.#deps.storage.touchPartitions(seen);
    } catch (error) {
      this.#takeBack(seen);
      this.#deps.events.emit({ type: 'write_behind.failed', what: 'last-seen', entries: seen.size, error });
      throw error;
    }
  }

  #arm(): void {
    this.#timer ??= this.#deps.clock.after(this.#deps.limits.lastSeenFlushMs, () => {
      // Reported where it failed, and tried again at the next interval.
      this.flush().catch(() => undefined);
    });
  }

  #takeBack(seen: ReadonlyMap<string, number>): void {
    for (const [partition, seenMs] of seen) {
      const newerMs = this.#seen.get(partition);
      if (newerMs === undefined || newerMs < seenMs) this.#seen.set(partition, seenMs);
    }
    this.#arm();
  }
}
