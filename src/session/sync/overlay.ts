/**
 * The candidate state of a transaction: rows as the database has them, and over them what the pushes of the batch have made of
 * them so far, so that a later push sees an earlier one (architecture §3). A journal undoes a rejected commit.
 */
import type { StoredScopes } from '../../protocol/frames.ts';
import type { CompiledTable, RowValues } from '../../protocol/schema.ts';
import type { RowUpsert, StorageTx, StoredRow, TableWrites } from '../../storage/storage.ts';
import type { TablePlan } from './push-plan.ts';

/** One version of a row; immutable. */
export class CandidateRow implements StoredRow {
  readonly rowId: string;
  readonly serverVersion: number;
  readonly scopes: StoredScopes;
  readonly payload: Uint8Array;
  readonly #plan: TablePlan;
  #values: RowValues | null;

  /** Without `values` the payload stays undecoded until somebody asks. */
  constructor(row: StoredRow, plan: TablePlan, values: RowValues | null = null) {
    this.rowId = row.rowId;
    this.serverVersion = row.serverVersion;
    this.scopes = row.scopes;
    this.payload = row.payload;
    this.#plan = plan;
    this.#values = values;
  }

  get values(): RowValues {
    this.#values ??= this.#plan.codec.decode(this.payload);
    return this.#values;
  }
}

/** One row id of one table. */
export class RowCell {
  readonly rowId: string;
  /** As the transaction's database has it; `null`: absent. */
  stored: CandidateRow | null;
  /** As the commits so far leave it. */
  current: CandidateRow | null;
  /** The commit that made `current`; 0 while it is `stored`. */
  commitSeq = 0;
  /** Set while `writes` collects, so that a row is listed once. */
  listed = false;

  constructor(rowId: string, stored: CandidateRow | null) {
    this.rowId = rowId;
    this.stored = stored;
    this.current = stored;
  }
}

/** One write of one operation. */
export interface JournalEntry {
  readonly plan: TablePlan;
  readonly cell: RowCell;
  readonly opIndex: number;
  readonly before: CandidateRow | null;
  readonly beforeSeq: number;
  readonly after: CandidateRow | null;
  readonly afterSeq: number;
}

export interface CellWrite {
  readonly plan: TablePlan;
  readonly cell: RowCell;
  readonly opIndex: number;
  /** `null` deletes. */
  readonly row: CandidateRow | null;
  readonly commitSeq: number;
}

export class Overlay {
  readonly #tx: StorageTx;
  readonly #cells = new Map<CompiledTable, Map<string, RowCell>>();
  #journal: JournalEntry[] = [];

  constructor(tx: StorageTx) {
    this.#tx = tx;
  }

  /**
   * One query per table, all at once. Rows that are here already are not asked for again. Returns the bytes of what came.
   */
  async load(wanted: ReadonlyMap<TablePlan, ReadonlySet<string>>): Promise<number> {
    const loads = [...wanted].map(([plan, rowIds]) => this.#loadTable(plan, rowIds));
    return (await Promise.all(loads)).reduce((sum, bytes) => sum + bytes, 0);
  }

  async #loadTable(plan: TablePlan, rowIds: ReadonlySet<string>): Promise<number> {
    const cells = this.#tableCells(plan.table);
    const missing = [...rowIds].filter((rowId) => !cells.has(rowId));
    if (missing.length === 0) return 0;
    const rows = await this.#tx.readRows(plan.table, missing);
    let bytes = 0;
    for (const rowId of missing) {
      const row = rows.get(rowId);
      bytes += row?.payload.length ?? 0;
      cells.set(rowId, new RowCell(rowId, row === undefined ? null : new CandidateRow(row, plan)));
    }
    return bytes;
  }

  /** A cell that `load` has brought here. */
  cell(table: CompiledTable, rowId: string): RowCell {
    const cell = this.#cells.get(table)?.get(rowId);
    if (cell === undefined) throw new Error('a push touches a row that was not loaded');
    return cell;
  }

  find(table: CompiledTable, rowId: string): RowCell | undefined {
    return this.#cells.get(table)?.get(rowId);
  }

  write({ plan, cell, opIndex, row, commitSeq }: CellWrite): void {
    const entry = {
      plan,
      cell,
      opIndex,
      before: cell.current,
      beforeSeq: cell.commitSeq,
      after: row,
      afterSeq: commitSeq,
    };
    this.#journal.push(entry);
    cell.current = row;
    cell.commitSeq = commitSeq;
  }

  /** A point to which `undoTo` returns. */
  get mark(): number {
    return this.#journal.length;
  }

  /** Entries since the mark, oldest first. */
  entriesSince(mark: number): readonly JournalEntry[] {
    return this.#journal.slice(mark);
  }

  /** Takes back every write since the mark and hands them out, oldest first, for `redo`. */
  undoTo(mark: number): readonly JournalEntry[] {
    const undone = this.#journal.splice(mark);
    for (let i = undone.length - 1; i >= 0; i--) {
      const { cell, before, beforeSeq } = undone[i]!;
      cell.current = before;
      cell.commitSeq = beforeSeq;
    }
    return undone;
  }

  redo(entries: readonly JournalEntry[]): void {
    for (const entry of entries) {
      this.#journal.push(entry);
      entry.cell.current = entry.after;
      entry.cell.commitSeq = entry.afterSeq;
    }
  }

  /** Final state of every row that differs from the database, in the order of the first touch; parents before children. */
  writes(): TableWrites[] {
    const byPlan = new Map<TablePlan, { upserts: RowUpsert[]; deletes: TableWrites['deletes'][number][] }>();
    for (const { plan, cell } of this.#journal) {
      if (cell.listed || cell.current === cell.stored) continue;
      cell.listed = true;
      let lists = byPlan.get(plan);
      if (lists === undefined) {
        lists = { upserts: [], deletes: [] };
        byPlan.set(plan, lists);
      }
      if (cell.current !== null) lists.upserts.push(cell.current);
      else lists.deletes.push({ rowId: cell.rowId, commitSeq: cell.commitSeq });
    }
    for (const { cell } of this.#journal) cell.listed = false;
    const plans = [...byPlan.keys()].sort((a, b) => a.position - b.position);
    return plans.map((plan) => ({ table: plan.table, ...byPlan.get(plan)! }));
  }

  /** The database has taken `writes()`: what was candidate is stored now. */
  settle(): void {
    for (const { cell } of this.#journal) {
      cell.stored = cell.current;
      cell.commitSeq = 0;
    }
    this.#journal = [];
  }

  /** Cells of a table whose candidate state differs from the database, in no order. */
  changedCells(table: CompiledTable): ReadonlySet<RowCell> {
    const changed = new Set<RowCell>();
    for (const { plan, cell } of this.#journal) {
      if (plan.table === table && cell.current !== cell.stored) changed.add(cell);
    }
    return changed;
  }

  #tableCells(table: CompiledTable): Map<string, RowCell> {
    let cells = this.#cells.get(table);
    if (cells === undefined) {
      cells = new Map();
      this.#cells.set(table, cells);
    }
    return cells;
  }
}
