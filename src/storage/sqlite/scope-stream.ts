/**
 * Keys that the values of one scope variable lead to, ascending and without duplicates: commits through
 * `sync_change_scopes`, rows through `sync_row_scopes`. Each value is one range of the index, read in small pieces, and
 * the ranges are merged; so the cost follows the number of keys taken, not the number of keys there are (guarantee 7).
 */
import type { ScopeMap } from '../../protocol/frames.ts';
import { compareUtf8 } from '../utf8-order.ts';
import type { SqliteConnection, SqlParams } from './driver.ts';

type Key = number | string;

/** An ordered range of one scope index. */
export interface ScopeRange {
  readonly connection: SqliteConnection;
  /** What the keys are: commits of the change index, rows of the row index. */
  readonly source: 'commits' | 'rows';
  readonly partition: string;
  readonly table: string;
  /** Exclusive; `null` is before everything. */
  readonly after: Key | null;
  /** Inclusive; commits only. */
  readonly through: number | null;
}

const PIECE_FIRST = 8;
const PIECE_MAX = 512;
/** Entries counted per variable before one of them is chosen. */
const PROBE_MAX = 256;

const INDEXES = {
  commits: { table: 'sync_change_scopes', key: 'commit_seq' },
  rows: { table: 'sync_row_scopes', key: 'row_id' },
} as const;

/** One value's range, positioned at its next key. */
interface ValueCursor {
  readonly value: string;
  piece: readonly Key[];
  at: number;
  /** Size of the next piece; 0 when the range is used up behind this one. */
  nextPiece: number;
}

export class ScopeStream {
  readonly #range: ScopeRange;
  readonly #variable: string;
  /** A binary heap by next key. */
  readonly #heap: ValueCursor[] = [];
  #last: Key | null = null;

  constructor(range: ScopeRange, variable: string, values: readonly string[]) {
    this.#range = range;
    this.#variable = variable;
    for (const [value, first] of this.#firstKeys([...new Set(values)])) {
      this.#heap.push({ value, piece: [first], at: 0, nextPiece: PIECE_FIRST });
    }
    for (let i = (this.#heap.length >> 1) - 1; i >= 0; i--) this.#sink(i);
  }

  /** At most `max` further keys; fewer only at the end. */
  take(max: number): Key[] {
    const keys: Key[] = [];
    while (keys.length < max && this.#heap.length > 0) {
      const top = this.#heap[0]!;
      const key = top.piece[top.at]!;
      if (key !== this.#last) {
        keys.push(key);
        this.#last = key;
      }
      this.#advance(top, max - keys.length);
      this.#sink(0);
    }
    return keys;
  }

  /** Moves behind the key; a cursor at its end leaves the heap. */
  #advance(cursor: ValueCursor, wanted: number): void {
    cursor.at++;
    if (cursor.at < cursor.piece.length) return;
    if (cursor.nextPiece > 0) {
      // A lone value is read no further than asked for; among many, nobody knows which one continues.
      const size = this.#heap.length === 1 ? Math.max(wanted, PIECE_FIRST) : cursor.nextPiece;
      const after = cursor.piece[cursor.piece.length - 1]!;
      cursor.piece = this.#piece(cursor.value, after, size);
      cursor.at = 0;
      cursor.nextPiece = cursor.piece.length < size ? 0 : Math.min(cursor.nextPiece * 4, PIECE_MAX);
      if (cursor.piece.length > 0) return;
    }
    const last = this.#heap.pop()!;
    if (this.#heap.length > 0) this.#heap[0] = last;
  }

  #sink(from: number): void {
    const heap = this.#heap;
    for (let at = from; ; ) {
      let least = at;
      for (const child of [at * 2 + 1, at * 2 + 2]) {
        if (child < heap.length && compareKeys(nextKey(heap[child]!), nextKey(heap[least]!)) < 0)
          least = child;
      }
      if (least === at) return;
      [heap[at], heap[least]] = [heap[least]!, heap[at]!];
      at = least;
    }
  }

  #firstKeys(values: readonly string[]): [string, Key][] {
    const { connection, source } = this.#range;
    const { table, key } = INDEXES[source];
    const bounds = boundsOf(this.#range, this.#range.after);
    const sql = `SELECT wanted.value, (SELECT entry.${key} FROM ${table} AS entry
        WHERE entry.partition = ? AND entry.tbl = ? AND entry.var = ? AND entry.value = wanted.value ${bounds.sql}
        ORDER BY entry.${key} LIMIT 1)
      FROM json_each(?) AS wanted`;
    const rows = connection.all(sql, [...this.#prefix(), ...bounds.params, JSON.stringify(values)]);
    return rows.flatMap(([value, first]) => (first === null ? [] : [[value as string, first as Key]]));
  }

  #piece(value: string, after: Key, size: number): readonly Key[] {
    const { connection, source } = this.#range;
    const { table, key } = INDEXES[source];
    const bounds = boundsOf(this.#range, after);
    const sql = `SELECT entry.${key} FROM ${table} AS entry
      WHERE entry.partition = ? AND entry.tbl = ? AND entry.var = ? AND entry.value = ? ${bounds.sql}
      ORDER BY entry.${key} LIMIT ?`;
    const rows = connection.all(sql, [...this.#prefix(), value, ...bounds.params, size]);
    return rows.map(([first]) => first as Key);
  }

  #prefix(): SqlParams {
    return [this.#range.partition, this.#range.table, this.#variable];
  }
}

/**
 * Of several variables the one whose index ranges are shortest, as far as a bounded count can tell, then the one with the
 * fewest values. A row or change must match all of them, so any one leads to every match.
 */
export function cheapestVariable(range: ScopeRange, scopes: ScopeMap): string {
  const variables = Object.keys(scopes);
  if (variables.length === 1) return variables[0]!;
  const costs = variables.map((variable) => ({
    variable,
    entries: countEntries(range, variable, scopes[variable]!),
    values: scopes[variable]!.length,
  }));
  costs.sort((a, b) => a.entries - b.entries || a.values - b.values);
  return costs[0]!.variable;
}

function countEntries(range: ScopeRange, variable: string, values: readonly string[]): number {
  const { table } = INDEXES[range.source];
  const bounds = boundsOf(range, range.after);
  const sql = `SELECT count(*) FROM (SELECT 1 FROM json_each(?) AS wanted CROSS JOIN ${table} AS entry
    WHERE entry.partition = ? AND entry.tbl = ? AND entry.var = ? AND entry.value = wanted.value ${bounds.sql}
    LIMIT ${PROBE_MAX})`;
  const params = [JSON.stringify(values), range.partition, range.table, variable, ...bounds.params];
  return range.connection.get(sql, params)![0] as number;
}

function boundsOf(
  range: ScopeRange,
  after: Key | null,
): { readonly sql: string; readonly params: SqlParams } {
  const { key } = INDEXES[range.source];
  const lower = after === null ? '' : ` AND entry.${key} > ?`;
  const upper = range.through === null ? '' : ` AND entry.${key} <= ?`;
  return {
    sql: `${lower}${upper}`,
    params: [...(after === null ? [] : [after]), ...(range.through === null ? [] : [range.through])],
  };
}

function nextKey(cursor: ValueCursor): Key {
  return cursor.piece[cursor.at]!;
}

function compareKeys(a: Key, b: Key): number {
  return typeof a === 'number' ? a - (b as number) : compareUtf8(a, b as string);
}
