/** What the application sees: the confirmed rows under the optimistic layer. */
import type { Changes } from './changes.ts';
import type { Overlay } from './overlay.ts';
import type { Replica, Row } from './replica.ts';

interface CachedRows {
  readonly revision: number;
  readonly rows: readonly Row[];
}

export class LocalView {
  readonly #replica: Replica;
  readonly #overlay: Overlay;
  readonly #changes: Changes;
  readonly #cache = new Map<string, CachedRows>();

  constructor(parts: { readonly replica: Replica; readonly overlay: Overlay; readonly changes: Changes }) {
    this.#replica = parts.replica;
    this.#overlay = parts.overlay;
    this.#changes = parts.changes;
  }

  get(table: string, rowId: string): Row | undefined {
    const held = this.#replica.get(table, rowId);
    const local = this.#overlay.top(table, rowId, held);
    if (local === undefined) return held?.row;
    return local.row ?? undefined;
  }

  /** The same array until the table changes. In no particular order. */
  rows(table: string): readonly Row[] {
    const revision = this.#changes.revision(table);
    const cached = this.#cache.get(table);
    if (cached !== undefined && cached.revision === revision) return cached.rows;
    const rows = Object.freeze([...this.#collect(table)]);
    this.#cache.set(table, { revision, rows });
    return rows;
  }

  /** See `Overlay.versionAfter`. */
  version(table: string, rowId: string): number {
    return this.#overlay.versionAfter(table, rowId, this.#replica.get(table, rowId));
  }

  /** True while something local decides what is seen of the row. */
  isPending(table: string, rowId: string): boolean {
    return this.#overlay.top(table, rowId, this.#replica.get(table, rowId)) !== undefined;
  }

  *#collect(table: string): Generator<Row> {
    const held = this.#replica.rows(table);
    for (const [rowId, { row }] of held) {
      if (!this.#overlay.has(table, rowId)) yield row;
    }
    for (const rowId of this.#overlay.rowIds(table)) {
      const row = this.get(table, rowId);
      if (row !== undefined) yield row;
    }
  }
}
