/**
 * Keeps a batch equal to its commits one at a time. A unique index judges final states only: a commit that breaks it could hide
 * behind a later one of the same batch that resolves the clash, and one that is fine could fail against a row that an earlier
 * one had already moved away. Both need a key that one commit takes and another gives up, so the batch's writes are sent to
 * the database before such a commit.
 */
import { toBase64 } from '../../protocol/base64.ts';
import type { ColumnValue } from '../../protocol/schema.ts';
import type { CandidateRow, JournalEntry, RowCell } from './overlay.ts';
import type { TablePlan } from './push-plan.ts';

interface KeyMoves {
  readonly taken: readonly string[];
  readonly freed: readonly string[];
}

const NO_MOVES: KeyMoves = { taken: [], freed: [] };

export class UniqueKeyLedger {
  readonly #taken = new Set<string>();
  readonly #freed = new Set<string>();

  /** True when the commit's writes may not stand in one batch with those admitted since the last `clear`. */
  clashes(moves: KeyMoves): boolean {
    return moves.freed.some((key) => this.#taken.has(key)) || moves.taken.some((key) => this.#freed.has(key));
  }

  admit(moves: KeyMoves): void {
    for (const key of moves.taken) this.#taken.add(key);
    for (const key of moves.freed) this.#freed.add(key);
  }

  /** The database has taken the writes so far. */
  clear(): void {
    this.#taken.clear();
    this.#freed.clear();
  }
}

/** Unique keys that rows of the commit have after it and had not before, and the reverse. */
export function keyMoves(entries: readonly JournalEntry[]): KeyMoves {
  if (!entries.some(({ plan }) => plan.uniqueIndexes.length > 0)) return NO_MOVES;
  // The first entry of a cell holds the row before the commit, the cell itself the row after it.
  const befores = new Map<RowCell, JournalEntry>();
  for (const entry of entries) {
    if (!befores.has(entry.cell)) befores.set(entry.cell, entry);
  }
  const taken: string[] = [];
  const freed: string[] = [];
  for (const { plan, cell, before } of befores.values()) {
    for (const [index, columns] of plan.uniqueIndexes.entries()) {
      if (sameValues(columns, before, cell.current)) continue;
      const place = { plan, index, columns };
      const had = uniqueKey(place, before);
      const has = uniqueKey(place, cell.current);
      if (had !== null) freed.push(had);
      if (has !== null) taken.push(has);
    }
  }
  return { taken, freed };
}

interface IndexPlace {
  readonly plan: TablePlan;
  readonly index: number;
  readonly columns: readonly number[];
}

function sameValues(
  columns: readonly number[],
  before: CandidateRow | null,
  after: CandidateRow | null,
): boolean {
  if (before === null || after === null) return before === after;
  return columns.every((column) => sameText(before.values[column]!, after.values[column]!));
}

function sameText(a: ColumnValue, b: ColumnValue): boolean {
  return a !== null && b !== null ? keyText(a) === keyText(b) : a === b;
}

/** `null`: no row, or a NULL among the values, which clashes with nothing. */
function uniqueKey({ plan, index, columns }: IndexPlace, row: CandidateRow | null): string | null {
  if (row === null) return null;
  const parts: (string | number)[] = [plan.position, index];
  for (const column of columns) {
    const value = row.values[column]!;
    if (value === null) return null;
    // Two JSON texts may be one value to a database, so all of them count as the same key.
    parts.push(plan.table.columns[column]!.type === 'json' ? '' : keyText(value));
  }
  return JSON.stringify(parts);
}

function keyText(value: Exclude<ColumnValue, null>): string {
  return value instanceof Uint8Array ? toBase64(value) : String(value);
}
