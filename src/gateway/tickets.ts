/**
 * Tickets: what a browser puts into the URL of its WebSocket instead of its token (part 3, 3.2-2). Sealed, so that nobody reads or makes
 * one, short-lived, and good for one upgrade at each node. With a secret that the nodes share, any of them takes it.
 */
import { createHash, randomBytes } from 'node:crypto';
import { EncryptJWT, errors, type JWTPayload, jwtDecrypt } from 'jose';
import type { Clock } from '../protocol/clock.ts';
import { type JsonObject, SyncError } from '../protocol/errors.ts';
import type { Limits } from '../protocol/limits.ts';
import type { Identity } from '../session/sync/sync-deps.ts';

export interface TicketDeps {
  /** Shared by the nodes; `null` makes one that lives as long as the process. */
  readonly secret: string | null;
  readonly limits: Pick<Limits, 'ticketLifetimeMs' | 'ticketsKeptMax' | 'ticketsPerActorMax'>;
  readonly clock: Clock;
}

/** A token of the host's own never begins so. */
const PREFIX = 'tgt_';
const SECRET_BYTES_MIN = 32;
const SEALING = { alg: 'dir', enc: 'A256GCM' } as const;

export class Tickets {
  readonly #deps: TicketDeps;
  readonly #key: Uint8Array;
  /** Used ones until they expire, oldest first. */
  readonly #used = new Map<string, number>();
  /** By actor: how many were issued since, oldest first. */
  readonly #issued = new Map<string, { readonly sinceMs: number; count: number }>();
  /** By actor: tickets issued up to then are void. */
  readonly #voidUntilMs = new Map<string, number>();

  /** Throws `RangeError` for a secret that is too short. */
  constructor(deps: TicketDeps) {
    this.#deps = deps;
    if (deps.secret !== null && Buffer.byteLength(deps.secret) < SECRET_BYTES_MIN) {
      throw new RangeError(`ticketSecret needs at least ${SECRET_BYTES_MIN} bytes`);
    }
    const secret = deps.secret ?? randomBytes(SECRET_BYTES_MIN);
    this.#key = createHash('sha256').update('tidegate ticket').update(secret).digest();
  }

  /**
   * For an actor that has authenticated; never outlives its grant. `askedMs`: before anybody was asked who it is, so that a revocation
   * meanwhile voids the ticket.
   */
  async issue(
    { actorId, partition, expiresAtMs, claims }: Identity,
    askedMs: number,
  ): Promise<{ ticket: string; expiresInMs: number }> {
    const { clock, limits } = this.#deps;
    const nowMs = clock.nowMs();
    this.#count(actorKey({ partition, actorId }), nowMs);
    const expiresInMs = Math.min(limits.ticketLifetimeMs, (expiresAtMs ?? Number.POSITIVE_INFINITY) - nowMs);
    const sealed = await new EncryptJWT({
      actorId,
      partition,
      expiresAtMs,
      claims,
      issuedMs: askedMs,
      untilMs: nowMs + expiresInMs,
    })
      .setProtectedHeader(SEALING)
      .setJti(randomBytes(16).toString('base64url'))
      .encrypt(this.#key);
    return { ticket: `${PREFIX}${sealed}`, expiresInMs };
  }

  /** Whose it is, once; `null` for one that is forged, expired, used or void. */
  async redeem(ticket: string): Promise<Identity | null> {
    const content = await this.#open(ticket.slice(PREFIX.length));
    const { clock } = this.#deps;
    if (content === null || content.untilMs <= clock.nowMs()) return null;
    const { jti, actorId, partition, expiresAtMs, claims, issuedMs, untilMs } = content;
    const voidUntilMs = this.#voidUntilMs.get(actorKey({ partition, actorId })) ?? Number.NEGATIVE_INFINITY;
    if (issuedMs <= voidUntilMs || this.#used.has(jti)) return null;
    this.#keep(jti, untilMs);
    return { actorId, partition, expiresAtMs, claims };
  }

  /** Tickets that the actor holds already are good for nothing. */
  revoke(actor: { readonly partition: string; readonly actorId: string }): void {
    const nowMs = this.#deps.clock.nowMs();
    for (const [key, atMs] of this.#voidUntilMs) {
      if (atMs + this.#deps.limits.ticketLifetimeMs < nowMs) this.#voidUntilMs.delete(key);
    }
    this.#voidUntilMs.set(actorKey(actor), nowMs);
  }

  /** One actor must not use up what a process remembers for all. */
  #count(actor: string, nowMs: number): void {
    const { ticketLifetimeMs, ticketsPerActorMax } = this.#deps.limits;
    for (const [key, { sinceMs }] of this.#issued) {
      if (sinceMs + ticketLifetimeMs > nowMs) break;
      this.#issued.delete(key);
    }
    const issued = this.#issued.get(actor) ?? { sinceMs: nowMs, count: 0 };
    if (issued.count >= ticketsPerActorMax) {
      throw new SyncError('sync.rate_limited', 'too many tickets were asked for, try again later', {
        details: { retryAfterMs: Math.max(0, issued.sinceMs + ticketLifetimeMs - nowMs) },
      });
    }
    issued.count++;
    this.#issued.set(actor, issued);
  }

  async #open(sealed: string): Promise<TicketContent | null> {
    try {
      const { payload } = await jwtDecrypt(sealed, this.#key, {
        keyManagementAlgorithms: [SEALING.alg],
        contentEncryptionAlgorithms: [SEALING.enc],
      });
      return contentOf(payload);
    } catch (failure) {
      if (failure instanceof errors.JOSEError) return null;
      throw failure;
    }
  }

  #keep(jti: string, untilMs: number): void {
    const nowMs = this.#deps.clock.nowMs();
    for (const [used, atMs] of this.#used) {
      if (atMs > nowMs) break;
      this.#used.delete(used);
    }
    if (this.#used.size >= this.#deps.limits.ticketsKeptMax) {
      throw new SyncError('sync.rate_limited', 'too many tickets were used at once, try again later', {
        httpStatus: 503,
      });
    }
    this.#used.set(jti, untilMs);
  }
}

interface TicketContent extends Identity {
  readonly jti: string;
  readonly claims: JsonObject;
  readonly issuedMs: number;
  readonly untilMs: number;
}

/** Sealed here or by a node with the same secret, maybe of another version. */
function contentOf(payload: JWTPayload): TicketContent | null {
  const { jti, actorId, partition, expiresAtMs, claims, issuedMs, untilMs } = payload;
  if (typeof jti !== 'string' || typeof actorId !== 'string' || typeof partition !== 'string') return null;
  if (typeof issuedMs !== 'number' || typeof untilMs !== 'number' || !isObject(claims)) return null;
  if (expiresAtMs !== null && typeof expiresAtMs !== 'number') return null;
  return { jti, actorId, partition, expiresAtMs, claims, issuedMs, untilMs };
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

export function isTicket(text: string | null | undefined): text is string {
  return text?.startsWith(PREFIX) === true;
}

function actorKey({ partition, actorId }: { readonly partition: string; readonly actorId: string }): string {
  return `${partition.length}:${partition}${actorId}`;
}
