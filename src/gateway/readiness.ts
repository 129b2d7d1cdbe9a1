/** What `/readyz` answers: whether to send anybody here, and what is missing. */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { Declarations } from '../session/sync/declarations.ts';
import type { Storage } from '../storage/storage.ts';
import { bearerToken } from './auth.ts';
import type { ReadinessPhase } from './ensure-ready.ts';
import { jsonResponse } from './http-errors.ts';
import type { HttpRequest, HttpResponse } from './http-message.ts';
import type { GatewayLogger } from './logger.ts';

export type Readiness =
  | { readonly status: 'ready' | 'draining' | 'unavailable' }
  /** Checkpoints that this process declared are not activated yet: their partitions are refused (part 4, 4.3). */
  | {
      readonly status: 'unavailable';
      readonly phase: ReadinessPhase;
      readonly pending: readonly { readonly partition: string; readonly projection: string }[];
    };

export interface ReadinessDeps {
  readonly storage: Storage;
  readonly schemaVersion: number;
  readonly declarations: Declarations;
  readonly logger: GatewayLogger;
}

/** The route is open to everybody: however many ask, the storage is asked once at a time. */
export class ReadinessProbe {
  readonly #deps: ReadinessDeps;
  #running: Promise<Readiness> | null = null;

  constructor(deps: ReadinessDeps) {
    this.#deps = deps;
  }

  ask(): Promise<Readiness> {
    this.#running ??= this.#askStorage().finally(() => {
      this.#running = null;
    });
    return this.#running;
  }

  async #askStorage(): Promise<Readiness> {
    const { storage, logger } = this.#deps;
    try {
      await storage.ping();
      return await this.#askCheckpoints();
    } catch (failure) {
      logger.error({ err: failure }, 'the storage does not answer');
      return { status: 'unavailable' };
    }
  }

  async #askCheckpoints(): Promise<Readiness> {
    const { storage, schemaVersion, declarations } = this.#deps;
    const [first] = declarations.list;
    if (first === undefined) return { status: 'ready' };
    const gate = await storage.readServeGate(first.partition, schemaVersion);
    const pending = gate.pending
      .filter(({ partition, name }) => declarations.has(partition, name))
      .map(({ partition, name }) => ({ partition, projection: name }));
    if (pending.length === 0) return { status: 'ready' };
    return { status: 'unavailable', phase: 'backfill_checkpoint', pending };
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

/** Names only for an operator: everybody may ask, and a projection's or partition's name is nobody else's business. */
export function describeReadiness(readiness: Readiness, asker: 'operator' | 'anybody'): HttpResponse {
  const { status } = readiness;
  const code = status === 'ready' ? 200 : 503;
  if (!('phase' in readiness)) return jsonResponse(code, { status });
  const { phase, pending } = readiness;
  return jsonResponse(code, asker === 'operator' ? { status, phase, pending } : { status, phase });
}
