/** What a function inside `transaction` or `readSnapshot` works with. */
import type { CompiledTable } from '../../protocol/schema.ts';
import type { CheckpointAdvance, SourceRead, SourceWindow, TableScan } from '../checkpoints.ts';
import { ScopesParser } from '../scope-json.ts';
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
import { appendStatements, noteWrites } from './appends.ts';
import { readSourceChanges, scanTable } from './checkpoint-sources.ts';
import { advanceStatement } from './checkpoints.ts';
import { selectClient, toClient } from './clients.ts';
import type { Step, StepResult } from './driver.ts';
import { KnownRows } from './known-rows.ts';
import { readRowPage, selectKnownRows, selectRow, toKnownRows, toRow } from './pages.ts';
import { selectResults, toResults } from './results.ts';
import { type ReadPlace, readCommits, readWindow } from './windows.ts';
import type { ResultRow } from './wire-values.ts';

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

export class PgSnapshotReader implements SnapshotReader {
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
    const { sql, names, partition } = this.#place;
    const [found] = await sql.run(selectClient(names, partition, clientId));
    return toClient(found?.rows[0], 0);
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
    const { sql, names, partition } = this.#place;
    const [found] = await sql.run(selectRow({ names, partition, table }, rowId));
    const row = found?.rows[0];
    return row === undefined ? null : toRow(row, new ScopesParser());
  }

  async readCommits(range: LogRead): Promise<readonly LogCommit[]> {
    this.lifetime.assertAlive();
    return readCommits(this.#place, range);
  }
}

/** Statements that are asked for before the first of them has left share its round trip. */
class SharedFlight {
  readonly #send: (steps: readonly Step[]) => Promise<readonly StepResult[]>;
  #steps: Step[] = [];
  #landed: Promise<readonly StepResult[]> | null = null;

  constructor(send: (steps: readonly Step[]) => Promise<readonly StepResult[]>) {
    this.#send = send;
  }

  async run(step: Step): Promise<readonly ResultRow[]> {
    const nth = this.#steps.push(step) - 1;
    this.#landed ??= Promise.resolve().then(() => this.#leave());
    const results = await this.#landed;
    return results[nth]?.rows ?? [];
  }

  #leave(): Promise<readonly StepResult[]> {
    const steps = this.#steps;
    this.#steps = [];
    this.#landed = null;
    return this.#send(steps);
  }
}

export class PgTx implements StorageTx {
  readonly #place: ReadPlace;
  readonly #reads: SharedFlight;
  readonly #known = new KnownRows();
  #state: PartitionState;
  #savepoints = 0;
  readonly lifetime = new Lifetime();

  constructor(place: ReadPlace, state: PartitionState) {
    this.#place = place;
    this.#state = state;
    this.#reads = new SharedFlight((steps) => {
      this.lifetime.assertAlive();
      return place.sql.run(...steps);
    });
  }

  get state(): PartitionState {
    return this.#state;
  }

  async readResults(keys: readonly ResultKey[]): Promise<readonly (PushResultRecord | null)[]> {
    this.lifetime.assertAlive();
    if (keys.length === 0) return [];
    const { names, partition } = this.#place;
    return toResults(keys, await this.#reads.run(selectResults(names, partition, keys)));
  }

  async readRows(table: CompiledTable, rowIds: readonly string[]): Promise<ReadonlyMap<string, StoredRow>> {
    this.lifetime.assertAlive();
    if (rowIds.length === 0) return new Map();
    const { names, partition } = this.#place;
    const found = await this.#reads.run(selectKnownRows({ names, partition, table }, rowIds));
    return toKnownRows(table, found, this.#known);
  }

  async scanRows(scan: RowScan): Promise<RowPage> {
    this.lifetime.assertAlive();
    return readRowPage(this.#place, scan);
  }

  async advanceCheckpoint(advance: CheckpointAdvance): Promise<boolean> {
    this.lifetime.assertAlive();
    const { sql, names, partition } = this.#place;
    const [advanced] = await sql.run(advanceStatement(names, partition, advance));
    return advanced?.rows.length === 1;
  }

  async scanTable(scan: TableScan): Promise<RowPage> {
    this.lifetime.assertAlive();
    return scanTable(this.#place, scan);
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
    const { sql, names, partition } = this.#place;
    const statements = appendStatements({ names, partition, known: this.#known }, batch);
    if (place === 'last') {
      sql.runAtCommit(...statements);
      this.lifetime.end();
    } else if (statements.length > 0) {
      await sql.run(...statements);
    }
    noteWrites(this.#known, batch.rows);
    this.#state = { ...this.#state, head };
  }

  async savepoint<T>(fn: () => Promise<T>): Promise<T> {
    this.lifetime.assertAlive();
    const { sql } = this.#place;
    const before = this.#state;
    const name = `s${++this.#savepoints}`;
    await sql.run({ text: `SAVEPOINT ${name}` });
    try {
      const result = await fn();
      await sql.run({ text: `RELEASE SAVEPOINT ${name}` });
      return result;
    } catch (error) {
      this.#known.forget();
      this.#state = before;
      await this.#undo(name);
      throw error;
    } finally {
      this.#savepoints--;
    }
  }

  /** A connection that broke has undone everything already, and what broke it is what the caller should hear of. */
  async #undo(savepoint: string): Promise<void> {
    try {
      await this.#place.sql.run(
        { text: `ROLLBACK TO SAVEPOINT ${savepoint}` },
        { text: `RELEASE SAVEPOINT ${savepoint}` },
      );
    } catch (error) {
      if (!(error instanceof StorageError)) throw error;
    }
  }
}
