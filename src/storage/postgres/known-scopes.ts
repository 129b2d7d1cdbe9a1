/**
 * What a transaction knows of the scopes of rows, from having read or written them: nobody else writes in its partition. It
 * spares the scope index of a row that keeps its scopes, and the tombstones of one that existed.
 */
import type { CompiledTable } from '../../protocol/schema.ts';

export class KnownScopes {
  readonly #tables = new Map<string, Map<string, string | null>>();

  /** `scopes` as text; `null` for a row that does not exist. */
  note(table: CompiledTable, rowId: string, scopes: string | null): void {
    let rows = this.#tables.get(table.name);
    if (rows === undefined) {
      rows = new Map();
      this.#tables.set(table.name, rows);
    }
    rows.set(rowId, scopes);
  }

  /** `undefined` where nothing is known. */
  get(table: CompiledTable, rowId: string): string | null | undefined {
    return this.#tables.get(table.name)?.get(rowId);
  }

  /** After writes were undone. */
  forget(): void {
    this.#tables.clear();
  }
}
