/** What a host says about a backfill and hears of it (part 4, 4.4). */
import type { StoredScopes } from '../../protocol/frames.ts';
import type { DerivedRow } from './backfill-writes.ts';
import type { CandidateReader, NamedRow } from './sync-deps.ts';

/** A row of a source table. */
export interface SourceRow {
  readonly rowId: string;
  /** As it is now; `null` where it is gone, or gone from these scopes. */
  readonly row: NamedRow | null;
  /** Of the row. One that was deleted and made anew elsewhere is listed once for each place. */
  readonly scopes: StoredScopes;
}

export interface BackfillInput {
  readonly partition: string;
  /** `scan`: rows that are there; `follow`: rows that changed since. */
  readonly kind: 'scan' | 'follow';
  /** The source table. */
  readonly table: string;
  readonly rows: readonly SourceRow[];
  /** Of any table, as of this moment, inside the batch's transaction. */
  readonly reader: CandidateReader;
}

/**
 * The derived rows that these source rows have a part in, as they should be now. Computed from what is stored, never added to
 * it: a batch may run twice, and a row may come in a scan and again when its change is followed. Writers of the partition
 * wait meanwhile. A throw ends the backfill, and nothing of the batch lands.
 */
export type BackfillBatch = (input: BackfillInput) => readonly DerivedRow[] | Promise<readonly DerivedRow[]>;

export interface BackfillRequest {
  readonly partition: string;
  /** Of the checkpoint. */
  readonly name: string;
  /** Tables that the projection is derived from. */
  readonly sources: readonly string[];
  /** Tables that `batch` writes, and nobody else. Default: the table that is named like the checkpoint. */
  readonly derived?: readonly string[];
  readonly batch: BackfillBatch;
  /** Stops between two batches. */
  readonly signal?: AbortSignal;
  readonly onProgress?: (progress: BackfillProgress) => void;
}

export interface BackfillProgress {
  readonly partition: string;
  readonly name: string;
  readonly phase: 'scan' | 'follow' | 'activated';
  /** Source rows seen by this backfill, over all its workers. */
  readonly observedRows: number;
  /** `commitSeq` up to which every change of the sources is in. */
  readonly watermark: number;
  /** Head of the log. */
  readonly head: number;
  /** Source rows and changes per second, since this worker began. */
  readonly ratePerSecond: number;
}

/** `superseded`: another worker claimed it; that one goes on. `cancelled`: by the signal; run it again to go on. */
export interface BackfillResult {
  readonly status: 'activated' | 'superseded' | 'cancelled';
  readonly watermark: number;
  readonly observedRows: number;
  /** By this worker. */
  readonly batches: number;
  readonly rowsWritten: number;
}
