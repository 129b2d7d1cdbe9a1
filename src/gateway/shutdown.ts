/** Drain, then close, in the one order that loses nothing (architecture §6). */
import type { Server } from 'node:http';
import type { Clock } from '../protocol/clock.ts';
import type { GatewayBackfills } from './backfills.ts';
import type { Core } from './core.ts';
import type { InFlight } from './in-flight.ts';
import type { WsTransport } from './ws-transport.ts';

export interface ShutdownParts {
  readonly core: Core;
  readonly backfills: GatewayBackfills;
  readonly rounds: InFlight;
  /** Requests that came in over Node's HTTP and are not answered yet; rounds among them. */
  readonly exchanges: InFlight;
  readonly transport: WsTransport;
}

export class Shutdown {
  readonly #parts: ShutdownParts;
  readonly #servers: Server[] = [];
  readonly #detachers: (() => void)[] = [];
  #state: 'running' | 'draining' | 'closed' = 'running';
  #running: Promise<void> | null = null;

  constructor(parts: ShutdownParts) {
    this.#parts = parts;
  }

  get state(): 'running' | 'draining' | 'closed' {
    return this.#state;
  }

  assertRunning(): void {
    if (this.#state !== 'running') throw new Error('the gateway is closed');
  }

  /** A server that was started here is closed here. */
  ownServer(server: Server): void {
    this.#servers.push(server);
  }

  onClosed(detach: () => void): void {
    this.#detachers.push(detach);
  }

  run(): Promise<void> {
    this.#running ??= this.#run();
    return this.#running;
  }

  /**
   * Readiness fails first while the port still answers, new work is refused, what runs may finish within its limit; then the
   * ports close, then what was noted is written, then the storage closes.
   */
  async #run(): Promise<void> {
    const { core, backfills, rounds, exchanges, transport } = this.#parts;
    const { live, sync, limits, clock } = core;
    const endMs = clock.monotonicMs() + limits.shutdownRoundsMs;
    this.#state = 'draining';
    await Promise.all([live.drain(), settledWithin(rounds.idle(), limits.shutdownRoundsMs, clock)]);
    live.close();
    for (const detach of this.#detachers) detach();
    transport.terminateAll();
    const closed = this.#servers.map(stopAccepting);
    // A request that is half received, or whose refusal is half sent, is not cut off while there is time.
    await settledWithin(exchanges.idle(), endMs - clock.monotonicMs(), clock);
    for (const server of this.#servers) server.closeAllConnections();
    await Promise.all(closed);
    await backfills.close();
    await sync.commits.close();
    await this.#flush();
    await core.segmentSweep.stop();
    core.hub.close();
    try {
      await core.bus.close();
    } finally {
      await core.releaseStorage();
    }
    this.#state = 'closed';
  }

  /** A cursor that is not written costs its client one pull; it must not keep the rest from closing. */
  async #flush(): Promise<void> {
    const { sync, lastSeen, logger } = this.#parts.core;
    for (const outcome of await Promise.allSettled([sync.cursors.flushAll(), lastSeen.flush()])) {
      if (outcome.status === 'rejected') logger.error({ err: outcome.reason }, 'a last write failed');
    }
  }
}

/** Resolves when the last connection has ended. */
function stopAccepting(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()));
}

function settledWithin(work: Promise<void>, timeoutMs: number, clock: Clock): Promise<void> {
  return new Promise((resolve) => {
    const timer = clock.after(Math.max(0, timeoutMs), resolve);
    void work.then(() => {
      timer.cancel();
      resolve();
    });
  });
}
