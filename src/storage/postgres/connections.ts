/**
 * Transactions on two pools. Snapshots have one of their own, so that many slow readers never keep a writer waiting, and a
 * write may be made from inside a snapshot. Every statement runs in an explicit transaction with timeouts that end with it.
 */
import type { ClientConfig } from 'pg';
import type { Clock } from '../../protocol/clock.ts';
import { StorageError } from '../storage-error.ts';
import { ConnectionPool } from './connection-pool.ts';
import {
  FlightError,
  isNameRefused,
  type PgConnection,
  StatementNames,
  type Step,
  type StepResult,
} from './driver.ts';
import { busyError, isFailover, toStorageError, toWriteError } from './postgres-errors.ts';

/** `relaxed`: atomic and in order, but a crash of the server may take the last ones back (guarantee 3). */
export type Durability = 'durable' | 'relaxed';

export interface PgConnectionsOptions {
  readonly client: ClientConfig;
  readonly clock: Clock;
  readonly preparedStatements: 'auto' | 'named' | 'unnamed';
  /** `auto` goes on without names. */
  readonly onUnnamed: () => void;
  readonly writersMax: number;
  readonly readersMax: number;
  readonly acquireTimeoutMs: number;
  readonly idleTimeoutMs: number;
  readonly lifetimeMs: number;
  readonly statementTimeoutMs: number;
  readonly lockTimeoutMs: number;
  /** What a migration waits for each lock, in ms; its statements take as long as they need. */
  readonly migrationLockTimeoutMs: number;
  /** A transaction that does nothing for so long is ended by the server, in ms. */
  readonly idleInTransactionTimeoutMs: number;
}

/** What runs inside one transaction. */
export interface Sql {
  /** One round trip, one result per step. Throws `StorageError`. */
  run(...steps: readonly Step[]): Promise<readonly StepResult[]>;
  /** Leaves together with COMMIT, whose failure it may be. Of no use in a snapshot, which does not commit. */
  runAtCommit(...steps: readonly Step[]): void;
  newPortal(): string;
  /** Costs nothing: the next round trip takes it along. */
  closePortal(portal: string): void;
}

/** What is waited for beyond the server's own timeout before a connection counts as cut, in ms. */
const ANSWER_GRACE_MS = 5_000;

/** For work that touches few rows of a table of any size, which the planner may misjudge. */
const INDEX_PLANS = { enable_seqscan: 'off', enable_hashjoin: 'off', enable_mergejoin: 'off' } as const;

export const INDEX_PLANS_ONLY: readonly Step[] = [settingsStep(INDEX_PLANS)];

/** The planner would plan anew for each number of values, and never keep a plan that is as good. */
const KEPT_PLANS = { plan_cache_mode: 'force_generic_plan' } as const;

/** A plan that is kept was made when its tables were small, and would still be used when they are large. */
const FRESH_PLANS = { plan_cache_mode: 'force_custom_plan' } as const;

const READ_COMMITTED: Step = { text: 'BEGIN ISOLATION LEVEL READ COMMITTED', isFrequent: true };
const COMMIT: Step = { text: 'COMMIT' };
const ROLLBACK: Step = { text: 'ROLLBACK' };

/** Runs inside a transaction; `opened` are the results of its opening steps. */
type Work<T> = (sql: Sql, opened: readonly StepResult[]) => Promise<T>;

interface FirstFlight {
  readonly steps: readonly Step[];
  readonly convert: (error: unknown) => StorageError;
  readonly answerTimeoutMs?: number | undefined;
}

interface OpenConnection {
  readonly connection: PgConnection;
  readonly answerTimeoutMs?: number | undefined;
  /** What leaves together with COMMIT. */
  readonly atCommit: Step[];
}

interface Single extends FirstFlight {
  readonly begin: readonly Step[];
}

interface Transaction<T> {
  readonly begin: readonly Step[];
  readonly opening: readonly Step[];
  readonly work: Work<T>;
  readonly answerTimeoutMs?: number;
}

export class PgConnections {
  readonly #writers: ConnectionPool;
  readonly #statementNames: StatementNames;
  readonly #readers: ConnectionPool;
  readonly #beginWrite: readonly Step[];
  readonly #beginRelaxed: readonly Step[];
  readonly #beginSnapshot: readonly Step[];
  readonly #beginMigration: readonly Step[];
  readonly #inFlight = new Set<Promise<unknown>>();
  #closing: Promise<void> | null = null;

  constructor(options: PgConnectionsOptions) {
    const { clock, acquireTimeoutMs, idleTimeoutMs, lifetimeMs, client, preparedStatements } = options;
    const onGivenUp = preparedStatements === 'auto' ? options.onUnnamed : null;
    const statementNames = new StatementNames(preparedStatements !== 'unnamed', onGivenUp);
    this.#statementNames = statementNames;
    const answerTimeoutMs = options.statementTimeoutMs + ANSWER_GRACE_MS;
    const shared = {
      connection: { client, clock, answerTimeoutMs, statementNames },
      clock,
      acquireTimeoutMs,
      idleTimeoutMs,
      lifetimeMs,
    };
    this.#writers = new ConnectionPool({ ...shared, connectionsMax: options.writersMax });
    this.#readers = new ConnectionPool({ ...shared, connectionsMax: options.readersMax });
    const { statementTimeoutMs, lockTimeoutMs, idleInTransactionTimeoutMs, migrationLockTimeoutMs } = options;
    const timeouts = timeoutSettings({ statementTimeoutMs, lockTimeoutMs, idleInTransactionTimeoutMs });
    // Whatever writers run finds its few rows by an index, so that a plan that is kept is right for tables of any size.
    const forWriters = { ...timeouts, ...INDEX_PLANS, ...KEPT_PLANS };
    this.#beginWrite = [READ_COMMITTED, settingsStep(forWriters)];
    this.#beginRelaxed = [READ_COMMITTED, settingsStep({ ...forWriters, synchronous_commit: 'off' })];
    this.#beginSnapshot = [
      { text: 'BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY', isFrequent: true },
      settingsStep({ ...timeouts, ...FRESH_PLANS }),
    ];
    const patience = { statementTimeoutMs: 0, lockTimeoutMs: migrationLockTimeoutMs };
    this.#beginMigration = [
      READ_COMMITTED,
      settingsStep(timeoutSettings({ ...patience, idleInTransactionTimeoutMs })),
    ];
  }

  /**
   * A transaction that is one round trip, with the results of `steps`. They must be such that running them again does no
   * harm: on a connection that turns out to be dead they are, on another.
   */
  write(durability: Durability, ...steps: readonly Step[]): Promise<readonly StepResult[]> {
    const begin = durability === 'durable' ? this.#beginWrite : this.#beginRelaxed;
    return this.#track(() => this.#single({ begin, steps, convert: toWriteError }));
  }

  /** As `write`, for reading. */
  read(...steps: readonly Step[]): Promise<readonly StepResult[]> {
    return this.#track(() => this.#single({ begin: this.#beginWrite, steps, convert: toStorageError }));
  }

  /** `opening` leaves with BEGIN. What `work` throws rolls back and is thrown on unchanged. */
  transaction<T>(opening: readonly Step[], work: Work<T>): Promise<T> {
    return this.#track(() => this.#transact({ begin: this.#beginWrite, opening, work }));
  }

  /** As `transaction`, for statements that take as long as they need. */
  migration<T>(opening: readonly Step[], work: Work<T>): Promise<T> {
    const answerTimeoutMs = Number.POSITIVE_INFINITY;
    return this.#track(() => this.#transact({ begin: this.#beginMigration, opening, work, answerTimeoutMs }));
  }

  /** Everything `opening` and `work` read is of one state. */
  snapshot<T>(opening: readonly Step[], work: Work<T>): Promise<T> {
    const begin = this.#beginSnapshot;
    return this.#track(async () => {
      const steps = [...begin, ...opening];
      const { connection, results } = await this.#open(this.#readers, { steps, convert: toStorageError });
      try {
        const sql = this.#sqlOn(this.#readers, { connection, atCommit: [] });
        return await work(sql, results.slice(begin.length));
      } finally {
        // Nobody waits for the end of a transaction that only read.
        this.#note(rollBack(connection).finally(() => this.#readers.release(connection)));
      }
    });
  }

  /** Refuses what comes from now on, waits for what was taken before. */
  close(): Promise<void> {
    this.#closing ??= this.#drainAndClose();
    return this.#closing;
  }

  async #drainAndClose(): Promise<void> {
    while (this.#inFlight.size > 0) await Promise.allSettled(this.#inFlight);
    await Promise.all([this.#writers.close(), this.#readers.close()]);
  }

  #track<T>(work: () => Promise<T>): Promise<T> {
    if (this.#closing !== null) {
      return Promise.reject(new StorageError('sync.storage.closed', 'the storage is closed'));
    }
    const running = work();
    this.#note(running);
    return running;
  }

  #note(running: Promise<unknown>): void {
    this.#inFlight.add(running);
    const settled = (): void => {
      this.#inFlight.delete(running);
    };
    running.then(settled, settled);
  }

  async #single({ begin, steps, convert }: Single): Promise<readonly StepResult[]> {
    const all = [...begin, ...steps, COMMIT];
    const { connection, results } = await this.#open(this.#writers, { steps: all, convert });
    this.#writers.release(connection);
    return results.slice(begin.length, -1);
  }

  async #transact<T>({ begin, opening, work, answerTimeoutMs }: Transaction<T>): Promise<T> {
    const steps = [...begin, ...opening];
    const first = { steps, convert: toStorageError, answerTimeoutMs };
    const { connection, results } = await this.#open(this.#writers, first);
    try {
      const open = { connection, answerTimeoutMs, atCommit: [] };
      const result = await work(this.#sqlOn(this.#writers, open), results.slice(begin.length));
      await this.#commit(open);
      return result;
    } catch (error) {
      await rollBack(connection);
      throw error;
    } finally {
      this.#writers.release(connection);
    }
  }

  /**
   * The first flight on a connection. One that had served before may have died in the pool without a sign, so its failure
   * says nothing about the database: another one is tried, until one that was made for this has failed.
   */
  async #open(
    pool: ConnectionPool,
    { steps, convert, answerTimeoutMs }: FirstFlight,
  ): Promise<{ readonly connection: PgConnection; readonly results: readonly StepResult[] }> {
    for (;;) {
      const connection = await pool.acquire();
      const { hasServed } = connection;
      try {
        return { connection, results: await connection.send(steps, answerTimeoutMs) };
      } catch (error) {
        await rollBack(connection);
        pool.release(connection);
        if (hasServed && error instanceof FlightError && error.isLost) continue;
        // Nothing of the flight ran, so it may run again.
        if (isNameRefused(error) && this.#statementNames.giveUp()) continue;
        throw this.#failed(pool, convert(error));
      }
    }
  }

  #sqlOn(pool: ConnectionPool, { connection, answerTimeoutMs, atCommit }: OpenConnection): Sql {
    return {
      run: async (...steps) => {
        try {
          return await connection.send(steps, answerTimeoutMs);
        } catch (error) {
          throw this.#failed(pool, this.#inTransaction(error));
        }
      },
      runAtCommit: (...steps) => void atCommit.push(...steps),
      newPortal: () => connection.newPortal(),
      closePortal: (portal) => connection.closePortal(portal),
    };
  }

  async #commit({ connection, answerTimeoutMs, atCommit }: OpenConnection): Promise<void> {
    let committed: StepResult | undefined;
    try {
      committed = (await connection.send([...atCommit, COMMIT], answerTimeoutMs)).at(-1);
    } catch (error) {
      throw this.#failed(
        this.#writers,
        isNameRefused(error) ? this.#inTransaction(error) : toWriteError(error),
      );
    }
    // A transaction that met an error which somebody caught can only be rolled back, and COMMIT does so.
    if (committed?.tag !== 'COMMIT') {
      throw new StorageError('sync.storage.failed', 'the transaction had failed before its commit');
    }
  }

  /** A transaction whose flight was refused for a name alone may be run again, without names. */
  #inTransaction(error: unknown): StorageError {
    if (!isNameRefused(error) || !this.#statementNames.giveUp()) return toStorageError(error);
    return busyError('the database is reached through a pooler that does not keep statements', error);
  }

  #failed(pool: ConnectionPool, error: StorageError): StorageError {
    if (isFailover(error)) pool.retireAll();
    return error;
  }
}

/** By name; values are ours, never a caller's. */
type Settings = Readonly<Record<string, string>>;

type Timeouts = Pick<
  PgConnectionsOptions,
  'statementTimeoutMs' | 'lockTimeoutMs' | 'idleInTransactionTimeoutMs'
>;

/** 0 means none. */
function timeoutSettings(options: Timeouts): Settings {
  return {
    statement_timeout: String(Math.trunc(options.statementTimeoutMs)),
    lock_timeout: String(Math.trunc(options.lockTimeoutMs)),
    idle_in_transaction_session_timeout: String(Math.trunc(options.idleInTransactionTimeoutMs)),
  };
}

/** One statement for all of them, as SET LOCAL for each: they end with the transaction. */
function settingsStep(settings: Settings): Step {
  const calls = Object.entries(settings).map(([name, value]) => `set_config('${name}', '${value}', true)`);
  return { text: `SELECT ${calls.join(', ')}`, isFrequent: true };
}

/** Leaves the connection between transactions, or broken. */
async function rollBack(connection: PgConnection): Promise<void> {
  if (connection.isIdle || connection.isBroken) return;
  try {
    await connection.send([ROLLBACK]);
  } catch (error) {
    if (!(error instanceof FlightError)) throw error;
    connection.destroy();
  }
}
