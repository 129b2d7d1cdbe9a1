/** What a commit validator may look at: the partition as it would be after the commit, read-only (§6.8). */
import type { ScopeMap } from '../../protocol/frames.ts';
import { rowToObject } from '../../protocol/named-rows.ts';
import type { ColumnValue } from '../../protocol/schema.ts';
import { isStorableText } from '../../storage/storable-values.ts';
import type { StorageTx } from '../../storage/storage.ts';
import { StorageError } from '../../storage/storage-error.ts';
import { compareUtf8 } from '../../storage/utf8-order.ts';
import { CandidateRow, type Overlay } from './overlay.ts';
import type { PushPlan, TablePlan } from './push-plan.ts';
import { matchesScopes } from './scopes.ts';
import type { CandidateReader, NamedRow } from './sync-deps.ts';

const SCAN_ROWS_DEFAULT = 100;
const SCAN_ROWS_MAX = 1_000;

export interface ReaderDeps {
  readonly plan: PushPlan;
  readonly tx: StorageTx;
  readonly overlay: Overlay;
  /** Payload bytes that one read of the storage may bring. */
  readonly pageBytesMax: number;
}

export interface ScanRequest {
  readonly table: string;
  readonly scopeFilter: ScopeMap;
  readonly afterRowId?: string;
  readonly limit?: number;
}

/** A row's values by column name in objects of their own: what a host does to them reaches no stored byte (S-138, S-142). */
export function isolatedRow(plan: TablePlan, row: { readonly values: readonly ColumnValue[] }): NamedRow {
  const values = row.values.map((value) => (value instanceof Uint8Array ? Uint8Array.from(value) : value));
  return rowToObject(plan.table, values);
}

/** Bad arguments fail loudly and are the host's fault; a failure of the storage is kept in `failure` for the push. */
export class TxCandidateReader implements CandidateReader {
  readonly #deps: ReaderDeps;
  #isOpen = true;
  /** The first failure of the storage, whatever the validator made of it. */
  failure: unknown = null;

  constructor(deps: ReaderDeps) {
    this.#deps = deps;
  }

  /** The validator has settled: a reader that it leaked must not reach into a later transaction. */
  close(): void {
    this.#isOpen = false;
  }

  async getRow(
    table: string,
    rowId: string,
  ): Promise<{ readonly row: NamedRow; readonly serverVersion: number } | undefined> {
    const plan = this.#planOf(table);
    // No row can have such an id, and no storage can be asked for it.
    if (!isStorableText(rowId)) return undefined;
    const { overlay } = this.#deps;
    if (overlay.find(plan.table, rowId) === undefined) {
      await this.#guard(() => overlay.load(new Map([[plan, new Set([rowId])]])));
    }
    const row = overlay.cell(plan.table, rowId).current;
    return row === null ? undefined : { row: isolatedRow(plan, row), serverVersion: row.serverVersion };
  }

  async scanRows(
    request: ScanRequest,
  ): Promise<readonly { readonly rowId: string; readonly row: NamedRow; readonly serverVersion: number }[]> {
    const plan = this.#planOf(request.table);
    const { scopeFilter, afterRowId = null, limit = SCAN_ROWS_DEFAULT } = request;
    assertScan(plan, scopeFilter, limit);
    if (afterRowId !== null && !isStorableText(afterRowId)) {
      throw new RangeError('a candidate scan starts after a rowId that no row can have');
    }
    const scopes = storableFilter(scopeFilter);
    if (scopes === null) return [];
    const rows = await this.#guard(() => this.#scan({ plan, scopes, afterRowId, limit }));
    return rows.map((row) => ({
      rowId: row.rowId,
      row: isolatedRow(plan, row),
      serverVersion: row.serverVersion,
    }));
  }

  #planOf(table: string): TablePlan {
    if (!this.#isOpen) throw new Error('the candidate reader was used after its validator had settled');
    const plan = this.#deps.plan.tables.get(table);
    if (plan === undefined) throw new RangeError('the candidate reader was asked for an unknown table');
    return plan;
  }

  async #guard<T>(read: () => Promise<T>): Promise<T> {
    try {
      return await read();
    } catch (failure) {
      this.failure ??= failure;
      throw failure;
    }
  }

  /** Pages of the storage with the changed rows taken out, merged with those of them that match now. */
  async #scan(scan: Scan): Promise<CandidateRow[]> {
    const { tx, overlay, pageBytesMax } = this.#deps;
    const { plan, scopes, limit } = scan;
    const changed = overlay.changedCells(plan.table);
    const changedIds = new Set([...changed].map(({ rowId }) => rowId));
    const candidates = matchingCandidates(changed, scan);
    const merged: CandidateRow[] = [];
    let next = 0;
    let afterRowId = scan.afterRowId;
    for (;;) {
      const page = await tx.scanRows({
        table: plan.table,
        scopes,
        afterRowId,
        rowsMax: limit,
        bytesMax: pageBytesMax,
      });
      for (const row of page.rows) {
        for (; next < candidates.length && compareUtf8(candidates[next]!.rowId, row.rowId) < 0; next++) {
          merged.push(candidates[next]!);
        }
        if (!changedIds.has(row.rowId)) merged.push(new CandidateRow(row, plan));
        if (merged.length >= limit) return merged.slice(0, limit);
      }
      afterRowId = page.nextRowId;
      if (afterRowId === null) return [...merged, ...candidates.slice(next)].slice(0, limit);
    }
  }
}

interface Scan {
  readonly plan: TablePlan;
  readonly scopes: ScopeMap;
  readonly afterRowId: string | null;
  readonly limit: number;
}

function assertScan(plan: TablePlan, scopeFilter: unknown, limit: number): void {
  const isMap = typeof scopeFilter === 'object' && scopeFilter !== null;
  const variables = isMap ? Object.keys(scopeFilter) : [];
  if (variables.length === 0) {
    throw new StorageError('sync.storage.scan_requires_scope', 'a candidate scan needs a scope filter');
  }
  if (!variables.every((variable) => plan.table.scopeByVariable.has(variable))) {
    throw new RangeError('a candidate scan filters by a scope its table does not declare');
  }
  if (!Number.isInteger(limit) || limit < 1 || limit > SCAN_ROWS_MAX) {
    throw new RangeError(`the limit of a candidate scan is not a whole number from 1 to ${SCAN_ROWS_MAX}`);
  }
}

/** The values that a row can have; `null` when a key has none left, so that no row matches. */
function storableFilter(scopeFilter: ScopeMap): ScopeMap | null {
  const scopes: Record<string, readonly string[]> = {};
  for (const [variable, values] of Object.entries(scopeFilter)) {
    const storable = values.filter(isStorableText);
    if (storable.length === 0) return null;
    scopes[variable] = storable;
  }
  return scopes;
}

function matchingCandidates(
  changed: ReadonlySet<{ readonly current: CandidateRow | null }>,
  { scopes, afterRowId }: Scan,
): CandidateRow[] {
  const rows: CandidateRow[] = [];
  for (const { current } of changed) {
    if (current === null || !matchesScopes(scopes, current.scopes)) continue;
    if (afterRowId === null || compareUtf8(current.rowId, afterRowId) > 0) rows.push(current);
  }
  return rows.sort((a, b) => compareUtf8(a.rowId, b.rowId));
}
