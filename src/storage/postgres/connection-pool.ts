/** A bounded number of connections; who comes when all are in use waits in line, for a bounded time. */
import type { Clock, Timer } from '../../protocol/clock.ts';
import { type ConnectionOptions, PgConnection } from './driver.ts';
import { busyError, unavailableError } from './postgres-errors.ts';

export interface PoolOptions {
  readonly connection: ConnectionOptions;
  readonly clock: Clock;
  readonly connectionsMax: number;
  /** In line for a connection, in ms; over it `sync.storage.busy`. */
  readonly acquireTimeoutMs: number;
  /** A connection that nobody used for so long is closed, in ms. */
  readonly idleTimeoutMs: number;
  /** A connection of this age is not used again, so that all move to a new server in time, in ms. */
  readonly lifetimeMs: number;
}

interface IdleConnection {
  readonly connection: PgConnection;
  readonly sinceMs: number;
}

/** Somebody in line. `admit` hands a slot over, with which a connection may be opened or taken. */
interface Waiter {
  readonly admit: () => void;
  readonly timer: Timer;
}

export class ConnectionPool {
  readonly #options: PoolOptions;
  /** The one used last is last, and is used first. */
  #idle: IdleConnection[] = [];
  readonly #waiting = new Set<Waiter>();
  #slotsFree: number;
  /** Connections opened before are not used again. */
  #retiredBeforeMs = Number.NEGATIVE_INFINITY;
  #sweep: Timer | null = null;

  constructor(options: PoolOptions) {
    this.#options = options;
    this.#slotsFree = options.connectionsMax;
  }

  /** Every connection comes back through `release`. Throws `sync.storage.busy` and `sync.storage.unavailable`. */
  async acquire(): Promise<PgConnection> {
    await this.#takeSlot();
    for (let entry = this.#idle.pop(); entry !== undefined; entry = this.#idle.pop()) {
      if (this.#isUsable(entry.connection)) return entry.connection;
      this.#discard(entry.connection);
    }
    try {
      return await PgConnection.open(this.#options.connection);
    } catch (error) {
      this.#freeSlot();
      throw unavailableError(error);
    }
  }

  /** One that is broken, or still in a transaction, is ended. */
  release(connection: PgConnection): void {
    if (connection.isIdle && this.#isUsable(connection)) {
      this.#idle.push({ connection, sinceMs: this.#options.clock.monotonicMs() });
      this.#scheduleSweep();
    } else this.#discard(connection);
    this.#freeSlot();
  }

  /** None of the connections that exist now is used again. */
  retireAll(): void {
    this.#retiredBeforeMs = this.#options.clock.monotonicMs();
    this.#closeIdle(() => true);
  }

  /** Nothing may be in use or in line. */
  async close(): Promise<void> {
    this.#sweep?.cancel();
    const idle = this.#idle;
    this.#idle = [];
    await Promise.all(idle.map(({ connection }) => connection.end()));
  }

  #isUsable(connection: PgConnection): boolean {
    const { clock, lifetimeMs } = this.#options;
    const { openedAtMs } = connection;
    const isYoung = clock.monotonicMs() - openedAtMs < lifetimeMs;
    return !connection.isBroken && isYoung && openedAtMs > this.#retiredBeforeMs;
  }

  #takeSlot(): Promise<void> {
    if (this.#slotsFree > 0) {
      this.#slotsFree--;
      return Promise.resolve();
    }
    return new Promise((resolve, reject) => {
      const { clock, acquireTimeoutMs } = this.#options;
      const timer = clock.after(acquireTimeoutMs, () => {
        this.#waiting.delete(waiter);
        reject(busyError('no connection to the database became free in time'));
      });
      const waiter: Waiter = { admit: resolve, timer };
      this.#waiting.add(waiter);
    });
  }

  /** The slot goes straight to the first in line, so that a newcomer cannot overtake. */
  #freeSlot(): void {
    const [first] = this.#waiting;
    if (first === undefined) {
      this.#slotsFree++;
      return;
    }
    this.#waiting.delete(first);
    first.timer.cancel();
    first.admit();
  }

  #discard(connection: PgConnection): void {
    if (connection.isIdle) void connection.end();
    else connection.destroy();
  }

  #scheduleSweep(): void {
    const { clock, idleTimeoutMs } = this.#options;
    this.#sweep ??= clock.after(idleTimeoutMs, () => {
      this.#sweep = null;
      const usedBeforeMs = clock.monotonicMs() - idleTimeoutMs;
      this.#closeIdle(({ sinceMs }) => sinceMs <= usedBeforeMs);
      if (this.#idle.length > 0) this.#scheduleSweep();
    });
  }

  #closeIdle(isDone: (entry: IdleConnection) => boolean): void {
    const done = this.#idle.filter(isDone);
    this.#idle = this.#idle.filter((entry) => !isDone(entry));
    for (const { connection } of done) this.#discard(connection);
  }
}
