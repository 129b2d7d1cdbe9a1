/**
 * The one file that knows the PostgreSQL driver. A *flight* is several statements that leave in one write and are answered
 * together, so a transaction costs as many round trips as it has decisions to make. No setting outlives its transaction and,
 * unless asked for, no statement has a name: a transaction pooler may stand between (PgBouncer and its like).
 */
import { createHash } from 'node:crypto';
import pg from 'pg';
import type { Clock, Timer } from '../../protocol/clock.ts';
import type { Param, ResultRow } from './wire-values.ts';

/** Who is at fault when the database refuses a statement: `row` for one that writes rows of a synced table (§6.4). */
export type Fault = 'row' | 'statement';

/** One statement of a flight. Texts come from a small set: values are always bound, never part of the text. */
export interface Statement {
  readonly text: string;
  readonly params?: readonly Param[];
  readonly fault?: Fault;
  /** Part of every commit or round: worth keeping on the server where `preparedStatements` allows it. */
  readonly isFrequent?: true;
  /** Answers at most so many rows and keeps the portal for `Fetch`; inside a transaction only. */
  readonly open?: { readonly portal: string; readonly rowsMax: number };
}

/** The next rows of a portal. */
export interface Fetch {
  readonly fetch: { readonly portal: string; readonly rowsMax: number };
}

export type Step = Statement | Fetch;

export interface StepResult {
  readonly rows: readonly ResultRow[];
  /** As `INSERT 0 3`; empty for a portal that has more rows. */
  readonly tag: string;
  readonly hasMore: boolean;
}

/**
 * Whether frequent statements get a name, under which the server keeps them parsed and planned: decided once for all
 * connections of a storage. A transaction pooler that hands out another server connection without their statements is found
 * out by the first flight that meets it, which the server then refuses as a whole.
 */
export class StatementNames {
  #areUsed: boolean;
  readonly #onGivenUp: (() => void) | null;

  /** `onGivenUp`: called once, when the server did not know a name; `null` keeps using names whatever happens. */
  constructor(areUsed: boolean, onGivenUp: (() => void) | null) {
    this.#areUsed = areUsed;
    this.#onGivenUp = onGivenUp;
  }

  get areUsed(): boolean {
    return this.#areUsed;
  }

  /** True where the flight may run again, without names. */
  giveUp(): boolean {
    if (this.#onGivenUp === null) return false;
    if (this.#areUsed) {
      this.#areUsed = false;
      this.#onGivenUp();
    }
    return true;
  }
}

/** No such statement, or one of that name already. */
const NAME_REFUSED = /^(26000|42P05)$/;

/** Why a flight failed: `lost` when the connection broke before the answer was complete. */
export class FlightError extends Error {
  override readonly name = 'FlightError';
  readonly isLost: boolean;
  readonly fault: Fault;

  constructor(cause: unknown, failed: { readonly isLost: boolean; readonly fault: Fault }) {
    super('a statement was not answered', { cause });
    this.isLost = failed.isLost;
    this.fault = failed.fault;
  }
}

/** The server refused the name of a statement, before it ran. */
export function isNameRefused(error: unknown): boolean {
  return error instanceof FlightError && NAME_REFUSED.test(sqlStateOf(error.cause) ?? '');
}

/** The five characters of an error of the server, else `null`. */
export function sqlStateOf(error: unknown): string | null {
  return error instanceof pg.DatabaseError ? (error.code ?? null) : null;
}

export interface ConnectionOptions {
  readonly client: pg.ClientConfig;
  readonly clock: Pick<Clock, 'after' | 'monotonicMs'>;
  /** A flight that is not answered in this time is given up, and the connection with it, in ms. */
  readonly answerTimeoutMs: number;
  readonly statementNames: StatementNames;
}

const GOODBYE_TIMEOUT_MS = 1_000;

/** Flights run one after another, in the order in which they were sent. */
export class PgConnection {
  readonly #client: pg.Client;
  readonly #options: ConnectionOptions;
  readonly openedAtMs: number;
  #tail: Promise<unknown> = Promise.resolve();
  #flight: Flight | null = null;
  #portals = 0;
  /** Portals and statements that the next flight closes. */
  #finished: Closing[] = [];
  /** Text → name. */
  readonly #prepared = new Map<string, string>();
  #hasServed = false;
  #brokenBy: Error | null = null;

  private constructor(client: pg.Client, options: ConnectionOptions) {
    this.#client = client;
    this.#options = options;
    this.openedAtMs = options.clock.monotonicMs();
    // For the whole life of the client: an error event that nobody listens to would end the process.
    client.on('error', (error) => this.#break(error));
    client.on('end', () => this.#break(new Error('the connection ended')));
    client.connection.on('readyForQuery', () => this.#land());
  }

  static async open(options: ConnectionOptions): Promise<PgConnection> {
    const client = new pg.Client(options.client);
    const connection = new PgConnection(client, options);
    try {
      await client.connect();
    } catch (error) {
      connection.destroy();
      throw error;
    }
    return connection;
  }

  /** True once nothing more can be sent. */
  get isBroken(): boolean {
    return this.#brokenBy !== null;
  }

  /** True between transactions. */
  get isIdle(): boolean {
    return !this.isBroken && this.#flight === null && this.#client.getTransactionStatus() === 'I';
  }

  /** True once it answered: a failure of a connection that served before may be due to its age. */
  get hasServed(): boolean {
    return this.#hasServed;
  }

  /** One result per step. Rejects with a `FlightError`; the steps behind a refused one did not run. */
  send(
    steps: readonly Step[],
    answerTimeoutMs = this.#options.answerTimeoutMs,
  ): Promise<readonly StepResult[]> {
    const answered = this.#tail.then(() => this.#fly(steps, answerTimeoutMs));
    this.#tail = answered.catch(() => undefined);
    return answered;
  }

  /** A name for `Statement.open`. */
  newPortal(): string {
    return `p${++this.#portals}`;
  }

  /** The portal is closed by the next flight, at no cost of its own. */
  closePortal(portal: string): void {
    this.#finished.push({ type: 'P', name: portal });
  }

  /** Says goodbye to the server; one that does not hear it is not waited for. */
  async end(): Promise<void> {
    const timer = this.#options.clock.after(GOODBYE_TIMEOUT_MS, () => this.destroy());
    await this.#client.end();
    timer.cancel();
  }

  /** Ends at once; a flight on its way is lost. */
  destroy(): void {
    this.#client.connection.stream.destroy(new Error('the connection was given up'));
  }

  #fly(steps: readonly Step[], answerTimeoutMs: number): Promise<readonly StepResult[]> {
    const finished = this.#finished;
    this.#finished = [];
    return new Promise((resolve, reject) => {
      const flight = new Flight({ steps: this.#named(steps), finished, resolve, reject });
      if (this.#brokenBy !== null) {
        flight.lose(this.#brokenBy);
        return;
      }
      if (Number.isFinite(answerTimeoutMs)) {
        flight.timer = this.#options.clock.after(answerTimeoutMs, () => this.destroy());
      }
      this.#flight = flight;
      this.#client.query(flight);
    });
  }

  #land(): void {
    const flight = this.#flight;
    if (flight === null) return;
    this.#flight = null;
    this.#hasServed = true;
    if (flight.isRefused) this.#forget(flight.steps);
    flight.land();
  }

  /**
   * A name is a digest of its text: should a pooler hand this connection the statements of another one after all, a name is
   * unknown there or means the same, never something else.
   */
  #named(steps: readonly Step[]): readonly NamedStep[] {
    if (!this.#options.statementNames.areUsed) return steps;
    return steps.map((step) => {
      if (!('text' in step) || step.isFrequent !== true) return step;
      const known = this.#prepared.get(step.text);
      if (known !== undefined) return { ...step, name: known, isParsed: true };
      const name = `tg_${createHash('sha256').update(step.text).digest('base64url').slice(0, 32)}`;
      this.#prepared.set(step.text, name);
      return { ...step, name, isParsed: false };
    });
  }

  /** How many of the new statements the server had parsed before it refused one, nobody knows. */
  #forget(steps: readonly NamedStep[]): void {
    for (const step of steps) {
      if (!('text' in step) || step.name === undefined || step.isParsed) continue;
      this.#prepared.delete(step.text);
      this.#finished.push({ type: 'S', name: step.name });
    }
  }

  #break(error: Error): void {
    this.#brokenBy ??= error;
    const flight = this.#flight;
    this.#flight = null;
    flight?.lose(error);
  }
}

/** `P` for a portal, `S` for a statement. */
interface Closing {
  readonly type: 'P' | 'S';
  readonly name: string;
}

type NamedStep =
  | Fetch
  | (Statement & {
      readonly name?: string;
      /** The server has it already. */
      readonly isParsed?: boolean;
    });

interface FlightPlan {
  readonly steps: readonly NamedStep[];
  readonly finished: readonly Closing[];
  readonly resolve: (results: readonly StepResult[]) => void;
  readonly reject: (failure: FlightError) => void;
}

/**
 * A `Submittable` of the driver, like its cursors. It settles when the server is ready for the next flight or the connection
 * is gone, never in between: whoever goes on then knows what state the connection is in.
 */
class Flight implements pg.Submittable {
  readonly #plan: FlightPlan;
  readonly #results: StepResult[] = [];
  #rows: ResultRow[] = [];
  #refusal: Error | null = null;
  #isSettled = false;
  timer: Timer | null = null;

  constructor(plan: FlightPlan) {
    this.#plan = plan;
  }

  get steps(): readonly NamedStep[] {
    return this.#plan.steps;
  }

  get isRefused(): boolean {
    return this.#refusal !== null;
  }

  submit(connection: pg.Connection): void {
    const { stream } = connection;
    stream.cork();
    for (const closing of this.#plan.finished) connection.close({ ...closing }, true);
    for (const step of this.#plan.steps) {
      if ('fetch' in step) {
        connection.execute(execution(step.fetch), true);
        continue;
      }
      const { text, params = [], open, name = '', isParsed = false } = step;
      if (!isParsed) connection.parse({ name, text, types: [] }, true);
      connection.bind({ statement: name, portal: open?.portal ?? '', values: [...params] }, true);
      connection.execute(open === undefined ? null : execution(open), true);
    }
    connection.sync();
    stream.uncork();
  }

  handleDataRow(message: { readonly fields: ResultRow }): void {
    this.#rows.push(message.fields);
  }

  handleCommandComplete(message: { readonly text: string }): void {
    this.#complete({ tag: message.text, hasMore: false });
  }

  handlePortalSuspended(): void {
    this.#complete({ tag: '', hasMore: true });
  }

  handleReadyForQuery(): void {
    // `PgConnection` hears of it too, also after a refusal, of which the driver tells only once.
  }

  /** A refusal of the server, which goes on to say that it is ready; anything else is the driver's, and the end. */
  handleError(error: Error): void {
    if (error instanceof pg.DatabaseError) this.#refusal ??= error;
    else this.lose(error);
  }

  land(): void {
    if (this.#refusal !== null) this.#fail(this.#refusal, 'refused');
    else this.#settle(() => this.#plan.resolve(this.#results));
  }

  lose(error: Error): void {
    this.#fail(this.#refusal ?? error, 'lost');
  }

  #complete(end: Pick<StepResult, 'tag' | 'hasMore'>): void {
    this.#results.push({ rows: this.#rows, ...end });
    this.#rows = [];
  }

  #fail(cause: Error, how: 'refused' | 'lost'): void {
    const step = this.#plan.steps[this.#results.length];
    const fault = (step !== undefined && 'text' in step ? step.fault : undefined) ?? 'statement';
    this.#settle(() => this.#plan.reject(new FlightError(cause, { isLost: how === 'lost', fault })));
  }

  #settle(answer: () => void): void {
    if (this.#isSettled) return;
    this.#isSettled = true;
    this.timer?.cancel();
    answer();
  }
}

function execution({ portal, rowsMax }: { readonly portal: string; readonly rowsMax: number }) {
  return { portal, rows: String(rowsMax) };
}
