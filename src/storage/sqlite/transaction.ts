/** What a function inside `transaction` or `readSnapshot` works with. */
import type { CompiledTable } from '../../protocol/schema.ts';
import type { CheckpointAdvance, SourceRead, SourceWindow, TableScan } from '../checkpoints.ts';
import type {
  ClientRecord,
  CommitBatch,
  CommitWindow,
  LogCommit,
  LogRead,
  PartitionState,
  PushResultRecord,
  ResultKey,
  RowPage,
  RowScan,
  SnapshotReader,
  StorageTx,
  StoredRow,
  WindowQuery,
} from '../storage.ts';
import { StorageError } from '../storage-error.ts';
import { appendBatch } from './appends.ts';
import { readSourceChanges, scanTable } from './checkpoint-sources.ts';
import { advanceCheckpoint } from './checkpoints.ts';
import { readClient } from './clients.ts';
import { readRow, readRowPage, readRows } from './pages.ts';
import { readResults } from './results.ts';
import { guarded } from './sqlite-errors.ts';
import { type ReadPlace, readCommits, readWindow } from './windows.ts';

/** Ends with the function it was made for, or with its last append: a late call would read, or write into, someone else's transaction. */
class Lifetime {
  #over = false;

  end(): void {
    this.#over = true;
  }

  assertAlive(): void {
    if (this.#over) {
      throw new StorageError(
        'sync.storage.failed',
        'a reader or transaction was used after its function settled, or after its last append',
      );
    }
  }
}

export class SqliteSnapshotReader implements SnapshotReader {
  readonly #place: ReadPlace;
  readonly #state: PartitionState;
  readonly lifetime = new Lifetime();

  constructor(place: ReadPlace, state: PartitionState) {
    this.#place = place;
    this.#state = state;
  }

  async state(): Promise<PartitionState> {
    this.lifetime.assertAlive();
    return this.#state;
  }

  async readClient(clientId: string): Promise<ClientRecord | null> {
    this.lifetime.assertAlive();
    const { connection, partition } = this.#place;
    return guarded(() => readClient(connection, partition, clientId));
  }

  async readWindow(query: WindowQuery): Promise<CommitWindow> {
    this.lifetime.assertAlive();
    return readWindow(this.#place, query);
  }

  async readRowPage(scan: RowScan): Promise<RowPage> {
    this.lifetime.assertAlive();
    return readRowPage(this.#place, scan);
  }

  async readRow(table: CompiledTable, rowId: string): Promise<StoredRow | null> {
    this.lifetime.assertAlive();
    return guarded(() => readRow(this.#place, table, rowId));
  }

  async readCommits(range: LogRead): Promise<readonly LogCommit[]> {
    this.lifetime.assertAlive();
    return guarded(() => readCommits(this.#place, range));
  }
}

export class SqliteTx implements StorageTx {
  readonly #place: ReadPlace;
  #state: PartitionState;
  #savepoints = 0;
  readonly lifetime = new Lifetime();

  constructor(place: ReadPlace, state: PartitionState) {
    this.#place = place;
    this.#state = state;
  }

  get state(): PartitionState {
    return this.#state;
  }

  async readResults(keys: readonly ResultKey[]): Promise<readonly (PushResultRecord | null)[]> {
    this.lifetime.assertAlive();
    const { connection, partition } = this.#place;
    return guarded(() => readResults(connection, partition, keys));
  }

  async readRows(table: CompiledTable, rowIds: readonly string[]): Promise<ReadonlyMap<string, StoredRow>> {
    this.lifetime.assertAlive();
    return guarded(() => readRows(this.#place, table, rowIds));
  }

  async scanRows(scan: RowScan): Promise<RowPage> {
    this.lifetime.assertAlive();
    return readRowPage(this.#place, scan);
  }

  async advanceCheckpoint(advance: CheckpointAdvance): Promise<boolean> {
    this.lifetime.assertAlive();
    const { connection, partition } = this.#place;
    return guarded(() => advanceCheckpoint(connection, partition, advance));
  }

  async scanTable(scan: TableScan): Promise<RowPage> {
    this.lifetime.assertAlive();
    return guarded(() => scanTable(this.#place, scan));
  }

  async readSourceChanges(read: SourceRead): Promise<SourceWindow> {
    this.lifetime.assertAlive();
    return readSourceChanges(this.#place, read);
  }

  async append(batch: CommitBatch, place?: 'last'): Promise<void> {
    this.lifetime.assertAlive();
    let head = this.#state.head;
    for (const { commitSeq } of batch.commits) {
      if (commitSeq !== head + 1) throw new RangeError(`commit ${commitSeq} does not continue head ${head}`);
      head = commitSeq;
    }
    const { connection, partition } = this.#place;
    guarded(() => appendBatch(connection, partition, batch));
    this.#state = { ...this.#state, head };
    if (place === 'last') this.lifetime.end();
  }

  async savepoint<T>(fn: () => Promise<T>): Promise<T> {
    this.lifetime.assertAlive();
    const { connection } = this.#place;
    const before = this.#state;
    const name = `s${++this.#savepoints}`;
    guarded(() => connection.run(`SAVEPOINT ${name}`));
    try {
      const result = await fn();
      guarded(() => connection.run(`RELEASE ${name}`));
      return result;
    } catch (error) {
      // Some I/O failures end the whole transaction; `SqliteConnections.write` reports that.
      if (connection.inTransaction) {
        guarded(() => {
          connection.run(`ROLLBACK TO ${name}`);
          connection.run(`RELEASE ${name}`);
        });
      }
      this.#state = before;
      throw error;
    } finally {
      this.#savepoints--;
    }
  }
}
