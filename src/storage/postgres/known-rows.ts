/**
 * What a transaction knows of rows, from having read or written them: nobody else writes in its partition. It spares the scope
 * index of a row that keeps its scopes and the tombstones of one that was never deleted, and the database is told which rows
 * are new.
 */
import type { CompiledTable } from '../../protocol/schema.ts';

export type KnownRow =
  | { readonly kind: 'present'; readonly scopes: string }
  /** `buried`: it was deleted before, and a tombstone says so. */
  | { readonly kind: 'absent'; readonly buried: boolean };

/** How a row stands before it is written. */
export type Presence = KnownRow['kind'] | 'unknown';

export class KnownRows {
  readonly #tables = new Map<string, Map<string, KnownRow>>();

  note(table: CompiledTable, rowId: string, row: KnownRow): void {
    let rows = this.#tables.get(table.name);
    if (rows === undefined) {
      rows = new Map();
      this.#tables.set(table.name, rows);
    }
    rows.set(rowId, row);
  }

  get(table: CompiledTable, rowId: string): KnownRow | undefined {
    return this.#tables.get(table.name)?.get(rowId);
  }

  presence(table: CompiledTable, rowId: string): Presence {
    return this.get(table, rowId)?.kind ?? 'unknown';
  }

  /** After writes were undone. */
  forget(): void {
    this.#tables.clear();
  }
}
