/** The one file that knows the SQLite driver, so that another (`node:sqlite`) can take its place. */
import Database from 'better-sqlite3';

export type SqlValue = null | string | number | Uint8Array;
export type SqlRow = readonly SqlValue[];
export type SqlParams = readonly SqlValue[];

/** Hears `exec` and `run`, before they run. */
export type StatementObserver = (sql: string, params: SqlParams) => void;

type Statement = Database.Statement<unknown[], SqlRow>;

/**
 * One connection. Every call is synchronous. Statements are prepared once per text, so texts must come from a small set:
 * values are always bound, never part of the text. Rows are arrays in the order of the select list; integers are numbers
 * (all of ours are safe integers); blobs are plain `Uint8Array`s of their own.
 */
export class SqliteConnection {
  readonly #database: Database.Database;
  readonly #statements = new Map<string, Statement>();
  readonly #observe: StatementObserver | undefined;

  /** Lock waits are the caller's business: a locked database fails at once and never blocks the event loop. */
  constructor(path: string, observe?: StatementObserver) {
    this.#database = new Database(path, { timeout: 0 });
    this.#observe = observe;
  }

  get inTransaction(): boolean {
    return this.#database.inTransaction;
  }

  /** Runs statements without parameters; for DDL and pragmas. */
  exec(sql: string): void {
    this.#observe?.(sql, []);
    this.#database.exec(sql);
  }

  /** Returns the number of changed rows. */
  run(sql: string, params: SqlParams = []): number {
    this.#observe?.(sql, params);
    return this.#prepare(sql).run(...params).changes;
  }

  get(sql: string, params: SqlParams = []): SqlRow | undefined {
    const row = this.#prepare(sql).get(...params);
    return row === undefined ? undefined : plain(row);
  }

  all(sql: string, params: SqlParams = []): SqlRow[] {
    const rows = this.#prepare(sql).all(...params);
    for (const row of rows) plain(row);
    return rows;
  }

  /** The connection takes no other statement until the iteration has ended or was left. Never `await` inside it. */
  *iterate(sql: string, params: SqlParams = []): Generator<SqlRow, void, undefined> {
    for (const row of this.#prepare(sql).iterate(...params)) yield plain(row);
  }

  close(): void {
    this.#statements.clear();
    this.#database.close();
  }

  #prepare(sql: string): Statement {
    let statement = this.#statements.get(sql);
    if (statement === undefined) {
      statement = this.#database.prepare<unknown[], SqlRow>(sql);
      if (statement.reader) statement.raw(true);
      this.#statements.set(sql, statement);
    }
    return statement;
  }
}

/** Result code by name (`SQLITE_CONSTRAINT_UNIQUE`), or `null` for an error that is not the database's. */
export function resultCodeOf(error: unknown): string | null {
  return error instanceof Database.SqliteError ? error.code : null;
}

/** The driver gives Buffers, whose `slice` shares memory; nobody behind this file should have to know. */
function plain(row: SqlRow): SqlRow {
  for (let i = 0; i < row.length; i++) {
    const value = row[i];
    if (value instanceof Uint8Array) {
      (row as SqlValue[])[i] = new Uint8Array(value.buffer, value.byteOffset, value.length);
    }
  }
  return row;
}
