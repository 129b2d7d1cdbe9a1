/** Client cursors, written behind: one write per interval for all clients that moved (architecture §4.7). */
import type { Clock, Timer } from '../../protocol/clock.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { CursorUpdate, Storage } from '../../storage/storage.ts';
import type { ClientKey, CursorWriter } from '../sync/sync-deps.ts';
import type { LiveEvents } from './live-events.ts';

export interface CursorWriterDeps {
  readonly storage: Storage;
  readonly clock: Clock;
  readonly limits: Limits;
  readonly events: LiveEvents;
}

/** `flush` and `flushAll` reject with the storage's error; what was noted stays noted and is tried again. */
export function createCursorWriter(deps: CursorWriterDeps): CursorWriter {
  return new WriteBehind(deps);
}

/** By partition, then client. */
class NotedCursors {
  readonly #byPartition = new Map<string, Map<string, CursorUpdate>>();
  #size = 0;

  get size(): number {
    return this.#size;
  }

  has({ partition, clientId }: ClientKey): boolean {
    return this.#byPartition.get(partition)?.has(clientId) ?? false;
  }

  /** As if `update` were written after what is noted: a pull's cursor replaces, an ack's only raises. */
  append(update: CursorUpdate): void {
    const { partition, clientId } = update;
    let clients = this.#byPartition.get(partition);
    if (clients === undefined) {
      clients = new Map();
      this.#byPartition.set(partition, clients);
    }
    const noted = clients.get(clientId);
    if (noted === undefined) this.#size++;
    clients.set(clientId, noted === undefined ? update : inOrder(noted, update));
  }

  updates(): CursorUpdate[] {
    return [...this.#byPartition.values()].flatMap((clients) => [...clients.values()]);
  }
}

/** The one update that does what `earlier` and then `later` do. */
function inOrder(earlier: CursorUpdate, later: CursorUpdate): CursorUpdate {
  if (later.mode === 'set') return later;
  return { ...later, mode: earlier.mode, cursor: Math.max(earlier.cursor, later.cursor) };
}

/** A write that fails puts its entries back and is reported; who waits for it looks again. */
function over(write: Promise<void>): Promise<void> {
  return write.catch(() => undefined);
}

class WriteBehind implements CursorWriter {
  readonly #deps: CursorWriterDeps;
  #noted = new NotedCursors();
  /** What the write that is on its way holds. */
  #writing: { readonly noted: NotedCursors; readonly done: Promise<void> } | null = null;
  #timer: Timer | null = null;

  constructor(deps: CursorWriterDeps) {
    this.#deps = deps;
  }

  pulled(key: ClientKey, cursor: number): void {
    this.#note(key, 'set', cursor);
  }

  acked(key: ClientKey, cursor: number): void {
    this.#note(key, 'raise', cursor);
  }

  /** Waits for writes on their way, and starts one for everybody when this client is among those that wait. */
  async flush(key: ClientKey): Promise<void> {
    if (this.#writing?.noted.has(key)) await over(this.#writing.done);
    if (this.#noted.has(key)) await this.flushAll();
  }

  async flushAll(): Promise<void> {
    // Writes follow each other: two at a time could land in the wrong order.
    while (this.#writing !== null) await over(this.#writing.done);
    if (this.#noted.size === 0) return;
    this.#timer?.cancel();
    this.#timer = null;
    const noted = this.#noted;
    this.#noted = new NotedCursors();
    const done = this.#write(noted);
    this.#writing = { noted, done };
    await done;
  }

  async #write(noted: NotedCursors): Promise<void> {
    try {
      await this.#deps.storage.saveCursors(noted.updates());
    } catch (error) {
      this.#takeBack(noted);
      this.#deps.events.emit({ type: 'write_behind.failed', what: 'cursors', entries: noted.size, error });
      throw error;
    } finally {
      this.#writing = null;
    }
  }

  #takeBack(noted: NotedCursors): void {
    const newer = this.#noted.updates();
    this.#noted = noted;
    for (const update of newer) this.#noted.append(update);
    this.#arm();
  }

  #note({ partition, clientId }: ClientKey, mode: CursorUpdate['mode'], cursor: number): void {
    this.#noted.append({ partition, clientId, mode, cursor, nowMs: this.#deps.clock.nowMs() });
    this.#arm();
  }

  #arm(): void {
    this.#timer ??= this.#deps.clock.after(this.#deps.limits.cursorFlushMs, () => {
      this.#timer = null;
      // Reported where it failed, and tried again at the next interval.
      this.flushAll().catch(() => undefined);
    });
  }
}
