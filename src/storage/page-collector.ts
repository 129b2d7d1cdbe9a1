/** Cuts a page of rows at a row boundary, whatever database the rows come from. */
import type { RowPage, RowScan, StoredRow } from './storage.ts';

type PageLimits = Pick<RowScan, 'rowsMax' | 'bytesMax'>;

export class PageCollector {
  readonly #scan: PageLimits;
  readonly #rows: StoredRow[] = [];
  #bytes = 0;
  isCut = false;

  constructor(scan: PageLimits) {
    this.#scan = scan;
  }

  /** Rows that still fit, and one more: it tells whether more follow. */
  get wanted(): number {
    return this.#scan.rowsMax - this.#rows.length + 1;
  }

  /** Payload bytes that still fit. */
  get bytesLeft(): number {
    return this.#scan.bytesMax - this.#bytes;
  }

  /** False when the page is full. */
  add(row: StoredRow): boolean {
    const { rowsMax, bytesMax } = this.#scan;
    this.#bytes += row.payload.length;
    if (this.#rows.length > 0 && (this.#rows.length >= rowsMax || this.#bytes > bytesMax)) {
      this.isCut = true;
      return false;
    }
    this.#rows.push(row);
    return true;
  }

  finish(): RowPage {
    return { rows: this.#rows, nextRowId: this.isCut ? this.#rows.at(-1)!.rowId : null };
  }
}
