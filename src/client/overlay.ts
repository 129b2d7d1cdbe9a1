/**
 * The optimistic layer: operations of commits that are pending, or applied but not yet visible in the replica. Order of
 * writing decides, the last operation on a row wins.
 */
import type { LocalOperation, PendingCommit } from './outbox.ts';
import type { HeldRow } from './replica.ts';

interface LayeredOperation {
  readonly operation: LocalOperation;
  readonly commit: PendingCommit;
}

/** Whether every subscription on `table` has everything up to `seq`. */
export type Coverage = (table: string, seq: number) => boolean;

const NO_OPERATIONS: ReadonlyMap<string, readonly LayeredOperation[]> = new Map();

export class Overlay {
  readonly #tables = new Map<string, Map<string, LayeredOperation[]>>();
  /** Applied by the server, not yet retired. */
  readonly #applied = new Set<PendingCommit>();
  readonly #touched: (table: string, rowId: string) => void;

  constructor(touched: (table: string, rowId: string) => void) {
    this.#touched = touched;
  }

  add(commit: PendingCommit): void {
    for (const operation of commit.operations) {
      const { table, rowId } = operation;
      let rows = this.#tables.get(table);
      if (rows === undefined) {
        rows = new Map();
        this.#tables.set(table, rows);
      }
      const layers = rows.get(rowId);
      if (layers === undefined) rows.set(rowId, [{ operation, commit }]);
      else layers.push({ operation, commit });
      this.#touched(table, rowId);
    }
  }

  /** The commit was rejected, or its rows are visible in the replica. */
  remove(commit: PendingCommit): void {
    this.#applied.delete(commit);
    for (const { table, rowId } of commit.operations) {
      const rows = this.#tables.get(table);
      const layers = rows?.get(rowId);
      if (rows === undefined || layers === undefined) continue;
      const left = layers.filter((layer) => layer.commit !== commit);
      if (left.length === 0) rows.delete(rowId);
      else rows.set(rowId, left);
      this.#touched(table, rowId);
    }
  }

  /** Stays visible until the replica has caught up with it, so that a row never flickers back in between. */
  markApplied(commit: PendingCommit): void {
    this.#applied.add(commit);
  }

  retire(covered: Coverage): void {
    for (const commit of [...this.#applied]) {
      const seq = commit.commitSeq;
      if (seq === null) continue;
      if (commit.operations.every(({ table }) => covered(table, seq))) this.remove(commit);
    }
  }

  /** Applied commits vanish with the rows of their log epoch; pending ones stay (§2.1). */
  dropApplied(): void {
    for (const commit of [...this.#applied]) this.remove(commit);
  }

  rowIds(table: string): Iterable<string> {
    return (this.#tables.get(table) ?? NO_OPERATIONS).keys();
  }

  has(table: string, rowId: string): boolean {
    return this.#tables.get(table)?.has(rowId) ?? false;
  }

  /** The operation that decides what is seen over `held`, if any. */
  top(table: string, rowId: string, held: HeldRow | undefined): LocalOperation | undefined {
    return this.#layers(table, rowId, held).at(-1)?.operation;
  }

  /** The version that the row will have when everything pending on it was applied; 0 for an absent row. */
  versionAfter(table: string, rowId: string, held: HeldRow | undefined): number {
    let version = held?.version ?? 0;
    for (const { operation } of this.#layers(table, rowId, held)) {
      version = operation.op === 'upsert' ? version + 1 : 0;
    }
    return version;
  }

  /** An applied operation at or below what the replica holds of the row is history. */
  #layers(table: string, rowId: string, held: HeldRow | undefined): readonly LayeredOperation[] {
    const layers = this.#tables.get(table)?.get(rowId) ?? [];
    if (held === undefined) return layers;
    return layers.filter(({ commit }) => commit.commitSeq === null || commit.commitSeq > held.seq);
  }
}
