/** What the next batch of a backfill looks at: a page of a source table, or changes of the sources in the log. */
import type { StoredScopes } from '../../protocol/frames.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { BackfillScan } from '../../storage/checkpoints.ts';
import type { StorageTx } from '../../storage/storage.ts';
import type { BackfillPlan } from './backfill-plan.ts';
import type { BackfillInput, BackfillRequest, SourceRow } from './backfill-request.ts';
import { type DerivedRow, sameScopes } from './backfill-writes.ts';
import { isolatedRow, type TxCandidateReader } from './candidate-reader.ts';
import { CandidateRow, type Overlay } from './overlay.ts';
import type { TablePlan } from './push-plan.ts';

/** Where the worker stands; what is durable of it is in the checkpoint. */
export interface Position {
  readonly scan: BackfillScan | null;
  readonly watermark: number;
  readonly observedRows: number;
}

export interface OpenBatch {
  readonly tx: StorageTx;
  readonly overlay: Overlay;
  readonly reader: TxCandidateReader;
}

export interface BatchStep {
  /** Once the batch has landed. */
  readonly position: Position;
  /** Asks the host; `null` where there is nothing to ask. */
  readonly derive: (() => Promise<readonly DerivedRow[]>) | null;
  readonly rowsSeen: number;
  readonly isCaughtUp: boolean;
}

export class BackfillReader {
  readonly #request: BackfillRequest;
  readonly #plan: BackfillPlan;
  readonly #limits: Limits;

  constructor(request: BackfillRequest, plan: BackfillPlan, limits: Limits) {
    this.#request = request;
    this.#plan = plan;
    this.#limits = limits;
  }

  read(open: OpenBatch, position: Position): Promise<BatchStep> {
    const { scan } = position;
    return scan === null ? this.#follow(open, position) : this.#scan(open, { ...position, scan });
  }

  async #scan(
    { tx, reader }: OpenBatch,
    { scan, watermark, observedRows }: Position & { readonly scan: BackfillScan },
  ): Promise<BatchStep> {
    const limits = this.#limits;
    const at = this.#plan.order.findIndex(({ table }) => table.name === scan.table);
    const source = this.#plan.order[at]!;
    const { rows, nextRowId } = await tx.scanTable({
      table: source.table,
      afterRowId: scan.afterRowId,
      rowsMax: limits.backfillBatchRowsMax,
      bytesMax: limits.backfillBatchBytesMax,
    });
    const next = nextRowId === null ? this.#plan.order[at + 1] : source;
    const isClearing = this.#plan.derived.has(source.table.name);
    const seen = isClearing ? 0 : rows.length;
    const table = source.table.name;
    // What a derived table held before is not known to be right: it goes, and comes back if it is derived again.
    const clear = () => Promise.resolve(rows.map(({ rowId }) => ({ table, rowId, row: null })));
    const derive = () =>
      this.#ask({ kind: 'scan', table, rows: rows.map((row) => present(source, row)), reader });
    return {
      position: {
        scan: next === undefined ? null : { ...scan, table: next.table.name, afterRowId: nextRowId },
        watermark: next === undefined ? scan.headSeq : watermark,
        observedRows: observedRows + seen,
      },
      derive: rows.length === 0 ? null : isClearing ? clear : derive,
      rowsSeen: seen,
      isCaughtUp: false,
    };
  }

  async #follow(
    { tx, overlay, reader }: OpenBatch,
    { watermark, observedRows }: Position,
  ): Promise<BatchStep> {
    const { sources } = this.#request;
    const { head } = tx.state;
    const { changes, scannedThrough } = await tx.readSourceChanges({
      tables: sources,
      afterSeq: watermark,
      throughSeq: head,
      changesMax: this.#limits.backfillBatchRowsMax,
    });
    /** Each row with every place it was in. */
    const changed = new Map<TablePlan, Map<string, StoredScopes[]>>();
    for (const { table, rowId, scopes } of changes) {
      const plan = this.#plan.plan.tables.get(table)!;
      const rows = changed.get(plan) ?? new Map<string, StoredScopes[]>();
      const places = rows.get(rowId) ?? [];
      if (!places.some((place) => sameScopes(place, scopes))) places.push(scopes);
      changed.set(plan, rows.set(rowId, places));
    }
    const derive = async (): Promise<readonly DerivedRow[]> => {
      await overlay.load(new Map([...changed].map(([plan, rows]) => [plan, new Set(rows.keys())])));
      const derived = new Map<string, DerivedRow>();
      for (const [plan, rowIds] of changed) {
        const rows = [...rowIds].flatMap(([rowId, places]) => {
          const { current } = overlay.cell(plan.table, rowId);
          const left = places.filter((scopes) => current === null || !sameScopes(scopes, current.scopes));
          const gone = left.map((scopes) => ({ rowId, row: null, scopes }));
          return current === null ? gone : [...gone, present(plan, current)];
        });
        const table = plan.table.name;
        const own = await this.#ask({ kind: 'follow', table, rows, reader });
        // Two sources may have a part in one row, and say the same of it.
        for (const each of own) derived.set(JSON.stringify([each.table, each.rowId]), each);
      }
      return [...derived.values()];
    };
    return {
      position: { scan: null, watermark: Math.max(watermark, scannedThrough), observedRows },
      derive: changes.length === 0 ? null : derive,
      rowsSeen: changes.length,
      isCaughtUp: scannedThrough >= head,
    };
  }

  async #ask(input: Omit<BackfillInput, 'partition'>): Promise<readonly DerivedRow[]> {
    const { partition, batch } = this.#request;
    return batch({ partition, ...input });
  }
}

function present(plan: TablePlan, row: ConstructorParameters<typeof CandidateRow>[0]): SourceRow {
  const decoded = row instanceof CandidateRow ? row : new CandidateRow(row, plan);
  return { rowId: row.rowId, row: isolatedRow(plan, decoded), scopes: row.scopes };
}
