/**
 * The confirmed rows: what the server has said, nothing local. A row is held by every subscription that delivered it and
 * lives as long as at least one holds it, so overlapping subscriptions never take each other's rows away.
 */
import type { ColumnValue } from '../protocol/schema.ts';

/** A row as the application sees it: values by column name, frozen. */
export type Row = Readonly<Record<string, ColumnValue>>;

export interface HeldRow {
  readonly row: Row;
  /** The server's version of the row, at least 1. */
  readonly version: number;
  /** Log position at which the row is known to be so: the commit's, or the pin of a bootstrap. */
  readonly seq: number;
}

/** Whoever holds rows; compared by identity. */
export type RowHolder = object;

export interface RowArrival extends HeldRow {
  readonly table: string;
  readonly rowId: string;
  readonly holder: RowHolder;
}

export interface RowDeparture {
  readonly table: string;
  readonly rowId: string;
  readonly holder: RowHolder;
}

interface Entry {
  row: Row;
  version: number;
  seq: number;
  holders: number;
}

const NO_ROWS: ReadonlyMap<string, HeldRow> = new Map();

export class Replica {
  readonly #tables = new Map<string, Map<string, Entry>>();
  /** Holder → table → row ids. */
  readonly #held = new Map<RowHolder, Map<string, Set<string>>>();
  readonly #touched: (table: string, rowId: string) => void;

  /** `touched` is called for every row whose visible content changed. */
  constructor(touched: (table: string, rowId: string) => void) {
    this.#touched = touched;
  }

  rows(table: string): ReadonlyMap<string, HeldRow> {
    return this.#tables.get(table) ?? NO_ROWS;
  }

  get(table: string, rowId: string): HeldRow | undefined {
    return this.#tables.get(table)?.get(rowId);
  }

  /**
   * Log order decides, not arrival: a subscription that lags never takes a row back behind what another one delivered.
   * Versions cannot decide, since a row that is inserted again starts at 1.
   */
  arrive({ table, rowId, row, version, seq, holder }: RowArrival): void {
    const rows = this.#table(table);
    const entry = rows.get(rowId);
    const ids = this.#idsOf(holder, table);
    const heldBefore = ids.has(rowId);
    ids.add(rowId);
    if (entry === undefined) {
      rows.set(rowId, { row, version, seq, holders: 1 });
      this.#touched(table, rowId);
      return;
    }
    if (!heldBefore) entry.holders++;
    if (seq < entry.seq) return;
    entry.row = row;
    entry.version = version;
    entry.seq = seq;
    this.#touched(table, rowId);
  }

  /** The row is gone for this holder: deleted, or moved out of its scopes. Others keep it until they hear the same. */
  depart({ table, rowId, holder }: RowDeparture): void {
    const ids = this.#held.get(holder)?.get(table);
    if (ids?.delete(rowId)) this.#release(table, rowId);
  }

  /** The holder lets go of everything: first page of a bootstrap, revocation, unsubscribe. */
  departAll(holder: RowHolder): void {
    const held = this.#held.get(holder);
    if (held === undefined) return;
    this.#held.delete(holder);
    for (const [table, ids] of held) {
      for (const rowId of ids) this.#release(table, rowId);
    }
  }

  /** Every row of every holder: the log epoch changed (§2.1). */
  clear(): void {
    for (const holder of [...this.#held.keys()]) this.departAll(holder);
  }

  #release(table: string, rowId: string): void {
    const rows = this.#table(table);
    const entry = rows.get(rowId);
    if (entry === undefined || --entry.holders > 0) return;
    rows.delete(rowId);
    this.#touched(table, rowId);
  }

  #table(name: string): Map<string, Entry> {
    let rows = this.#tables.get(name);
    if (rows === undefined) {
      rows = new Map();
      this.#tables.set(name, rows);
    }
    return rows;
  }

  #idsOf(holder: RowHolder, table: string): Set<string> {
    let tables = this.#held.get(holder);
    if (tables === undefined) {
      tables = new Map();
      this.#held.set(holder, tables);
    }
    let ids = tables.get(table);
    if (ids === undefined) {
      ids = new Set();
      tables.set(table, ids);
    }
    return ids;
  }
}
