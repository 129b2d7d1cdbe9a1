/** A host's own read of the rows, gated as a pull is: inside the pinned snapshot of the query itself (part 4, 4.3). */
import { rowToObject } from '../../protocol/named-rows.ts';
import { rowCodecOf } from '../../protocol/row-codec.ts';
import type { CompiledSchema, CompiledTable } from '../../protocol/schema.ts';
import { isStorableText } from '../../storage/storable-values.ts';
import type { SnapshotReader, Storage, StoredRow } from '../../storage/storage.ts';
import { StorageError } from '../../storage/storage-error.ts';
import { askGate } from './gate.ts';
import type { CandidateReader, NamedRow, SyncDeps } from './sync-deps.ts';

export interface QueryRequest {
  readonly partition: string;
  /** Log epoch that the caller began with; a rotation since then refuses. Default: whatever it is. */
  readonly logEpoch?: string;
}

type QueryDeps = Pick<SyncDeps, 'schema' | 'declarations' | 'events' | 'limits'> & {
  readonly storage: Storage;
};

/**
 * Everything that `read` sees is of one moment, and of a partition that is served: never of a projection that is half built. Throws
 * `sync.schema_not_ready` before anything is read, `StorageError`, and what `read` throws. The reader ends with it.
 */
export function runQuery<T>(
  { partition, logEpoch }: QueryRequest,
  read: (reader: CandidateReader) => Promise<T>,
  deps: QueryDeps,
): Promise<T> {
  return deps.storage.readSnapshot(partition, async (snapshot) => {
    const state = await snapshot.state();
    const refusal = askGate(state, { partition, logEpoch: logEpoch ?? state.logEpoch }, deps);
    if (refusal !== null) throw refusal;
    return read(new QueryReader(snapshot, deps));
  });
}

const SCAN_ROWS_DEFAULT = 100;
const SCAN_ROWS_MAX = 1_000;

/** The storage refuses a read after the snapshot has ended. */
class QueryReader implements CandidateReader {
  readonly #snapshot: SnapshotReader;
  readonly #schema: CompiledSchema;
  readonly #pageBytesMax: number;

  constructor(snapshot: SnapshotReader, { schema, limits }: QueryDeps) {
    this.#snapshot = snapshot;
    this.#schema = schema;
    this.#pageBytesMax = limits.segmentBytesMax;
  }

  async getRow(
    table: string,
    rowId: string,
  ): Promise<{ readonly row: NamedRow; readonly serverVersion: number } | undefined> {
    const compiled = this.#table(table);
    if (!isStorableText(rowId)) return undefined;
    const stored = await this.#snapshot.readRow(compiled, rowId);
    return stored === null ? undefined : named(compiled, stored);
  }

  async scanRows({
    table,
    scopeFilter,
    afterRowId,
    limit = SCAN_ROWS_DEFAULT,
  }: Parameters<CandidateReader['scanRows']>[0]) {
    const compiled = this.#table(table);
    if (Object.keys(scopeFilter).length === 0) {
      throw new StorageError('sync.storage.scan_requires_scope', 'a scan needs a scope filter');
    }
    if (!Number.isInteger(limit) || limit < 1 || limit > SCAN_ROWS_MAX) {
      throw new RangeError(`the limit of a scan is not a whole number from 1 to ${SCAN_ROWS_MAX}`);
    }
    const rows: StoredRow[] = [];
    for (let after: string | null = afterRowId ?? null; rows.length < limit; ) {
      const page = await this.#snapshot.readRowPage({
        table: compiled,
        scopes: scopeFilter,
        afterRowId: after,
        rowsMax: limit - rows.length,
        bytesMax: this.#pageBytesMax,
      });
      rows.push(...page.rows);
      after = page.nextRowId;
      if (after === null) break;
    }
    return rows.map((row) => ({ rowId: row.rowId, ...named(compiled, row) }));
  }

  #table(name: string): CompiledTable {
    const table = this.#schema.tableByName.get(name);
    if (table === undefined)
      throw new RangeError(`a query names the table ${name}, which the schema does not have`);
    return table;
  }
}

function named(table: CompiledTable, { payload, serverVersion }: StoredRow) {
  return { row: rowToObject(table, rowCodecOf(table).decode(payload)), serverVersion };
}
