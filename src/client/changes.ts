/** Which rows changed, gathered while something is applied and told once per table when it is done. */
import type { Clock } from '../protocol/clock.ts';
import { Listeners } from './listeners.ts';

export interface TableChange {
  readonly table: string;
  /** Rows that were written, removed or rolled back. */
  readonly rowIds: ReadonlySet<string>;
}

export class Changes {
  readonly #clock: Clock;
  readonly #listeners = new Map<string, Listeners<TableChange>>();
  readonly #revisions = new Map<string, number>();
  #touched = new Map<string, Set<string>>();

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  readonly touch = (table: string, rowId: string): void => {
    this.#revisions.set(table, this.revision(table) + 1);
    let rowIds = this.#touched.get(table);
    if (rowIds === undefined) {
      rowIds = new Set();
      this.#touched.set(table, rowIds);
    }
    rowIds.add(rowId);
  };

  /** Grows with every touched row of the table: the key of what was computed from it. */
  revision(table: string): number {
    return this.#revisions.get(table) ?? 0;
  }

  onChange(table: string, listener: (change: TableChange) => void): () => void {
    let listeners = this.#listeners.get(table);
    if (listeners === undefined) {
      listeners = new Listeners(this.#clock);
      this.#listeners.set(table, listeners);
    }
    return listeners.add(listener);
  }

  /** Listeners may write or read at once: what they touch is told by a flush of its own. */
  flush(): void {
    const touched = this.#touched;
    if (touched.size === 0) return;
    this.#touched = new Map();
    for (const [table, rowIds] of touched) this.#listeners.get(table)?.emit({ table, rowIds });
  }
}
