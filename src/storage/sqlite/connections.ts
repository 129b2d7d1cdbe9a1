/**
 * The connections to one database file: one that writes, a bounded pool for pinned snapshots, and one for reads that are
 * over before the event loop turns. Write-ahead logging lets readers and the writer go on side by side.
 */
import type { Clock } from '../../protocol/clock.ts';
import { StorageError } from '../storage-error.ts';
import { SqliteConnection, type StatementObserver } from './driver.ts';
import { FifoLock } from './fifo-lock.ts';
import { busyError, commitError, guarded, isBusy, toStorageError } from './sqlite-errors.ts';

export type Synchronous = 'FULL' | 'NORMAL' | 'OFF';
/** `relaxed`: atomic and in order, but a power loss may take the last ones back (guarantee 3). */
export type Durability = 'durable' | 'relaxed';

export interface ConnectionOptions {
  readonly path: string;
  /** What a durable write waits for. */
  readonly synchronous: Synchronous;
  /** Snapshots open at once. */
  readonly readersMax: number;
  /** How long a lock held by another process is waited for, in ms. */
  readonly busyTimeoutMs: number;
  readonly clock: Clock;
  /** Hears the statements of the writer. */
  readonly observe?: StatementObserver | undefined;
}

const BUSY_DELAY_FIRST_MS = 1;
const BUSY_DELAY_MAX_MS = 32;
/**
 * Small on purpose: ending a write transaction costs time in proportion to the pages that are cached (measured 30 µs at
 * 2 MiB, 250 µs at 64 MiB), and a reader's pages are void with every commit. The operating system caches the file.
 */
const WRITER_CACHE_KIB = 4 * 1024;
const READER_CACHE_KIB = 2 * 1024;
/**
 * Pages in the write-ahead log before a commit moves them into the file. A commit touches some dozen pages, many of them
 * again and again: four times SQLite's default moves fewer and syncs less often (measured: 1.2 to 2 times the commits/s).
 */
const WAL_PAGES_MAX = 4_000;
/** The log file is cut back to this size once it could be checkpointed whole. */
const WAL_BYTES_KEPT = 64 * 1024 * 1024;

export class SqliteConnections {
  readonly #options: ConnectionOptions;
  readonly #writer: SqliteConnection;
  readonly #instant: SqliteConnection;
  readonly #idleReaders: SqliteConnection[] = [];
  readonly #writeLock = new FifoLock(1);
  readonly #readLock: FifoLock;
  readonly #inFlight = new Set<Promise<unknown>>();
  #writerSynchronous: Synchronous;
  #closing: Promise<void> | null = null;

  private constructor(options: ConnectionOptions, writer: SqliteConnection, instant: SqliteConnection) {
    this.#options = options;
    this.#writer = writer;
    this.#instant = instant;
    this.#readLock = new FifoLock(options.readersMax);
    this.#writerSynchronous = options.synchronous;
  }

  static async open(options: ConnectionOptions): Promise<SqliteConnections> {
    const writer = guarded(() => new SqliteConnection(options.path, options.observe));
    try {
      // Switching a new file to write-ahead logging needs the whole file for a moment.
      await retryBusy(options, () => writer.exec('PRAGMA journal_mode = WAL'));
      writer.exec(`PRAGMA synchronous = ${options.synchronous}`);
      writer.exec(`PRAGMA wal_autocheckpoint = ${WAL_PAGES_MAX}`);
      writer.exec(`PRAGMA journal_size_limit = ${WAL_BYTES_KEPT}`);
      writer.exec(`PRAGMA cache_size = -${WRITER_CACHE_KIB}`);
      return new SqliteConnections(options, writer, openReader(options.path));
    } catch (error) {
      writer.close();
      throw toStorageError(error);
    }
  }

  /**
   * One write transaction, begun IMMEDIATE. Writers of this process wait for each other in order of arrival; another
   * process' lock is waited for with timers. Whatever `work` throws rolls back and is thrown on unchanged.
   */
  write<T>(durability: Durability, work: (connection: SqliteConnection) => T | Promise<T>): Promise<T> {
    return this.#track(() => this.#writeLock.run(() => this.#writeAlone(durability, work)));
  }

  /** As `write`, for work without an `await` of its own; every failure is a `StorageError`. */
  writeNow<T>(durability: Durability, work: (connection: SqliteConnection) => T): Promise<T> {
    return this.write(durability, (connection) => guarded(() => work(connection)));
  }

  /** A read that finishes within this turn of the event loop. */
  readNow<T>(work: (connection: SqliteConnection) => T): Promise<T> {
    return this.#track(() => retryBusy(this.#options, () => guarded(() => work(this.#instant))));
  }

  /** `pin` makes the first read, which fixes the state that `work` sees. */
  snapshot<S, T>(
    pin: (connection: SqliteConnection) => S,
    work: (connection: SqliteConnection, pinned: S) => Promise<T>,
  ): Promise<T> {
    return this.#track(() =>
      this.#readLock.run(async () => {
        const reader = this.#idleReaders.pop() ?? guarded(() => openReader(this.#options.path));
        try {
          const pinned = await retryBusy(this.#options, () => beginRead(reader, pin));
          return await work(reader, pinned);
        } finally {
          this.#giveBack(reader);
        }
      }),
    );
  }

  /** Refuses what comes from now on, waits for what was taken before. */
  close(): Promise<void> {
    this.#closing ??= this.#drainAndClose();
    return this.#closing;
  }

  #giveBack(reader: SqliteConnection): void {
    try {
      rollback(reader);
      this.#idleReaders.push(reader);
    } catch (error) {
      // A reader that cannot end its snapshot would pin the write-ahead log for good.
      reader.close();
      throw error;
    }
  }

  async #drainAndClose(): Promise<void> {
    await Promise.allSettled([...this.#inFlight]);
    for (const reader of this.#idleReaders) reader.close();
    this.#instant.close();
    // Last, so that closing it can move the write-ahead log into the database file.
    this.#writer.close();
  }

  #track<T>(work: () => Promise<T>): Promise<T> {
    if (this.#closing !== null) {
      return Promise.reject(new StorageError('sync.storage.closed', 'the storage is closed'));
    }
    const running = work();
    this.#inFlight.add(running);
    const settled = (): void => {
      this.#inFlight.delete(running);
    };
    running.then(settled, settled);
    return running;
  }

  async #writeAlone<T>(
    durability: Durability,
    work: (connection: SqliteConnection) => T | Promise<T>,
  ): Promise<T> {
    const writer = this.#writer;
    this.#setSynchronous(durability);
    await retryBusy(this.#options, () => guarded(() => writer.run('BEGIN IMMEDIATE')));
    let result: T;
    try {
      result = await work(writer);
      // SQLite ends a transaction by itself on some I/O failures; nothing must then be reported as written.
      if (!writer.inTransaction) {
        throw new StorageError('sync.storage.unavailable', 'the database broke the transaction off', {
          retryable: true,
        });
      }
    } catch (error) {
      rollback(writer);
      throw error;
    }
    try {
      writer.run('COMMIT');
    } catch (error) {
      rollback(writer);
      throw commitError(error);
    }
    return result;
  }

  /** Allowed between transactions only, hence under the write lock. */
  #setSynchronous(durability: Durability): void {
    const { synchronous } = this.#options;
    const wanted = durability === 'relaxed' && synchronous === 'FULL' ? 'NORMAL' : synchronous;
    if (wanted === this.#writerSynchronous) return;
    guarded(() => this.#writer.exec(`PRAGMA synchronous = ${wanted}`));
    this.#writerSynchronous = wanted;
  }
}

function openReader(path: string): SqliteConnection {
  const reader = new SqliteConnection(path);
  reader.exec('PRAGMA query_only = ON');
  reader.exec(`PRAGMA cache_size = -${READER_CACHE_KIB}`);
  return reader;
}

function beginRead<S>(reader: SqliteConnection, pin: (connection: SqliteConnection) => S): S {
  rollback(reader);
  return guarded(() => {
    reader.run('BEGIN');
    return pin(reader);
  });
}

function rollback(connection: SqliteConnection): void {
  if (connection.inTransaction) guarded(() => connection.run('ROLLBACK'));
}

/** Runs `attempt` until it meets no lock of another process, or the time is up (`sync.storage.busy`). */
async function retryBusy<T>(
  { clock, busyTimeoutMs }: Pick<ConnectionOptions, 'clock' | 'busyTimeoutMs'>,
  attempt: () => T,
): Promise<T> {
  const startedAtMs = clock.monotonicMs();
  for (let delayMs = BUSY_DELAY_FIRST_MS; ; delayMs = Math.min(delayMs * 2, BUSY_DELAY_MAX_MS)) {
    try {
      return attempt();
    } catch (error) {
      const cause = error instanceof StorageError ? error.cause : error;
      if (!isBusy(cause)) throw error;
      if (clock.monotonicMs() - startedAtMs >= busyTimeoutMs) throw busyError(cause);
    }
    await new Promise<void>((resolve) => {
      clock.after(delayMs, resolve);
    });
  }
}
