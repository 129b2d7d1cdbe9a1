/** What `/readyz` answers: whether to send anybody here, and what is missing. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { Clock } from '../protocol/clock.ts';
import type { Limits } from '../protocol/limits.ts';
import type { Declarations } from '../session/sync/declarations.ts';
import type { Storage } from '../storage/storage.ts';
import { bearerToken } from './auth.ts';
import type { ReadinessPhase } from './ensure-ready.ts';
import { jsonResponse } from './http-errors.ts';
import type { HttpRequest, HttpResponse } from './http-message.ts';
import type { GatewayLogger } from './logger.ts';

/** `storage`: the database did not answer in time, or cannot be written to. */
export type UnreadyPhase = ReadinessPhase | 'storage';

export type Readiness =
  | { readonly status: 'ready' | 'draining' }
  | {
      readonly status: 'unavailable';
      readonly phase: UnreadyPhase;
      /** Checkpoints that this process declared and that are not activated yet: their partitions are refused (part 4, 4.3). */
      readonly pending: readonly { readonly partition: string; readonly projection: string }[];
    };

export interface ReadinessDeps {
  readonly storage: Storage;
  readonly schemaVersion: number;
  readonly declarations: Declarations;
  readonly limits: Pick<Limits, 'readinessTimeoutMs'>;
  readonly clock: Clock;
  readonly logger: GatewayLogger;
}

const READY: Readiness = { status: 'ready' };

function unavailable(phase: UnreadyPhase): Readiness {
  return { status: 'unavailable', phase, pending: [] };
}

/** The route is open to everybody: however many ask, the storage is asked once at a time, and each gets its answer in time. */
export class ReadinessProbe {
  readonly #deps: ReadinessDeps;
  #running: Promise<Readiness> | null = null;
  /** As it was last logged. */
  #isStorageUp = true;
  /** The question under way has taken too long for somebody. */
  #isLate = false;

  constructor(deps: ReadinessDeps) {
    this.#deps = deps;
  }

  ask(): Promise<Readiness> {
    this.#running ??= this.#askStorage().finally(() => {
      this.#running = null;
      this.#isLate = false;
    });
    return this.#inTime(this.#running);
  }

  #inTime(answer: Promise<Readiness>): Promise<Readiness> {
    const { clock, limits } = this.#deps;
    return new Promise((resolve) => {
      const timer = clock.after(limits.readinessTimeoutMs, () => {
        this.#isLate = true;
        this.#noteStorage('down', new Error('the storage took too long to answer'));
        resolve(unavailable('storage'));
      });
      void answer.then((readiness) => {
        timer.cancel();
        resolve(readiness);
      });
    });
  }

  /** Never rejects. */
  async #askStorage(): Promise<Readiness> {
    try {
      await this.#deps.storage.ping();
      const readiness = await this.#askGate();
      // A storage that is always late is down for everybody who asks.
      if (!this.#isLate) this.#noteStorage('up');
      return readiness;
    } catch (failure) {
      this.#noteStorage('down', failure);
      return unavailable('storage');
    }
  }

  async #askGate(): Promise<Readiness> {
    const { storage, schemaVersion, declarations } = this.#deps;
    const gate = await storage.readServeGate(declarations.list[0]?.partition ?? '', schemaVersion);
    // Another process has migrated since this one started: it is refused everywhere (4.3).
    if (gate.storedSchemaVersion !== schemaVersion) return unavailable('storage_migration');
    const pending = gate.pending
      .filter(({ partition, name }) => declarations.has(partition, name))
      .map(({ partition, name }) => ({ partition, projection: name }));
    if (pending.length === 0) return READY;
    return { status: 'unavailable', phase: 'backfill_checkpoint', pending };
  }

  /** A line when it changes, not one per probe. */
  #noteStorage(now: 'up' | 'down', failure?: unknown): void {
    const { logger } = this.#deps;
    const isUp = now === 'up';
    if (isUp === this.#isStorageUp) return;
    this.#isStorageUp = isUp;
    if (isUp) logger.info({}, 'the storage answers again');
    else logger.error({ err: failure }, 'the storage does not answer');
  }
}

export type IsOperator = (request: HttpRequest) => boolean;

/** Compares digests, so that the time it takes tells nothing of the token. */
export function createIsOperator(operatorToken: string | undefined): IsOperator {
  if (operatorToken === undefined) return () => false;
  const expected = digest(operatorToken);
  return (request) => {
    const { method, headers, remoteAddress, target: url } = request;
    const token = bearerToken({ kind: 'http', method, url, headers, remoteAddress });
    return token !== null && timingSafeEqual(digest(token), expected);
  };
}

function digest(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}

const RETRY_SOON = { 'retry-after': '1' };

/** Names only for an operator: everybody may ask, and a projection's or partition's name is nobody else's business. */
export function describeReadiness(readiness: Readiness, asker: 'operator' | 'anybody'): HttpResponse {
  const { status } = readiness;
  if (readiness.status !== 'unavailable') {
    return status === 'ready' ? jsonResponse(200, { status }) : jsonResponse(503, { status }, RETRY_SOON);
  }
  const { phase, pending } = readiness;
  const named = asker === 'operator' && pending.length > 0 ? { status, phase, pending } : { status, phase };
  return jsonResponse(503, named, RETRY_SOON);
}
