/** Who speaks: the host's `authenticate`, what it is told, and a ready-made one for fixed tokens (part 2.1 rule 4). */
import { createHash, timingSafeEqual } from 'node:crypto';
import type { Clock } from '../protocol/clock.ts';
import { type JsonObject, SyncError } from '../protocol/errors.ts';
import type { ScopeMap } from '../protocol/frames.ts';
import type { Identity } from '../session/sync/sync-deps.ts';
import { isStorableText } from '../storage/storable-values.ts';
import { type HttpRequest, parseTarget } from './http-message.ts';
import { isTicket, type Tickets } from './tickets.ts';

/** The facts of a request or of a WebSocket upgrade, unchanged. */
export interface AuthRequest {
  readonly kind: 'http' | 'upgrade';
  readonly method: string;
  /** Path and query as received. */
  readonly url: string;
  readonly headers: Headers;
  /** Address of the peer, a proxy's where there is one; empty when an embedding host does not say. */
  readonly remoteAddress: string;
}

/** What a host says about the actor. */
export interface AuthIdentity {
  readonly actorId: string;
  readonly partition: string;
  /** Epoch ms after which the grant is over. Absent or `null`: it does not end by itself. */
  readonly expiresAtMs?: number | null;
  /** Handed to `resolveScopes`; never sent to anybody. */
  readonly claims?: JsonObject;
}

/**
 * `null` refuses with `sync.auth_required` (HTTP 401). A thrown `SyncError` is answered as it is, for instance
 * `sync.forbidden` for a partition the actor may not enter; any other throw is a failure of the host (HTTP 500).
 */
export type Authenticate = (request: AuthRequest) => AuthIdentity | null | Promise<AuthIdentity | null>;

export type Identify = (request: HttpRequest, kind: AuthRequest['kind']) => Promise<Identity>;

const NO_TICKETS: Pick<Tickets, 'redeem'> = { redeem: async () => null };

/** `tickets` are taken at upgrades, before the host is asked. */
export function createIdentify(
  authenticate: Authenticate,
  clock: Clock,
  tickets: Pick<Tickets, 'redeem'> = NO_TICKETS,
): Identify {
  return async (request, kind) => {
    const { method, target, headers, remoteAddress } = request;
    const ticket = kind === 'upgrade' ? parseTarget(target)?.searchParams.get('ticket') : null;
    if (isTicket(ticket)) {
      const redeemed = await tickets.redeem(ticket);
      if (redeemed === null) throw authRequired('valid credentials are required');
      return redeemed;
    }
    // The host may be plain JavaScript, where a look-up that finds nothing is `undefined`.
    const said: AuthIdentity | null | undefined = await authenticate({
      kind,
      method,
      url: target,
      headers,
      remoteAddress,
    });
    if (said === null || said === undefined) throw authRequired('valid credentials are required');
    const who = toIdentity(said);
    if (who.expiresAtMs !== null && who.expiresAtMs <= clock.nowMs()) {
      throw authRequired('the credentials have expired');
    }
    return who;
  };
}

export function authRequired(message: string): SyncError {
  return new SyncError('sync.auth_required', message);
}

function toIdentity(said: AuthIdentity): Identity {
  if (!isNonEmptyText(said.actorId) || !isNonEmptyText(said.partition)) {
    throw new TypeError('authenticate must return a non-empty actorId and a non-empty partition');
  }
  // They become database keys: one lone surrogate would be stored like any other, and two tenants would be one.
  if (!isStorableText(said.actorId) || !isStorableText(said.partition)) {
    throw new TypeError('authenticate returned an actorId or a partition that no database can hold');
  }
  const expiresAtMs = said.expiresAtMs ?? null;
  if (expiresAtMs !== null && !Number.isFinite(expiresAtMs)) {
    throw new TypeError('authenticate returned an expiresAtMs that is not a number of milliseconds');
  }
  return { actorId: said.actorId, partition: said.partition, expiresAtMs, claims: said.claims ?? {} };
}

function isNonEmptyText(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

const TOKEN_PARAMETERS = ['access_token', 'token', 'ticket'] as const;

/**
 * The bearer token of a request. An upgrade may carry it in the URL instead, since browsers cannot set headers there
 * (part 3, 3.2-2); a plain request may not, its URL ends up in logs and histories.
 */
export function bearerToken(request: AuthRequest): string | null {
  const header = /^Bearer +(\S+)$/i.exec(request.headers.get('authorization') ?? '');
  if (header !== null) return header[1] ?? null;
  if (request.kind !== 'upgrade') return null;
  const query = parseTarget(request.url)?.searchParams;
  for (const name of TOKEN_PARAMETERS) {
    const token = query?.get(name);
    if (token !== null && token !== undefined && token !== '') return token;
  }
  return offeredToken(request.headers.get('sec-websocket-protocol'));
}

const OFFERED_TOKEN_PREFIX = 'bearer.';

/** A browser may offer its token beside a subprotocol, where it stands in no log (§5.1). */
function offeredToken(offers: string | null): string | null {
  for (const offer of (offers ?? '').split(',')) {
    const token = offer.trim();
    if (token.startsWith(OFFERED_TOKEN_PREFIX) && token.length > OFFERED_TOKEN_PREFIX.length) {
      return token.slice(OFFERED_TOKEN_PREFIX.length);
    }
  }
  return null;
}

export interface StaticGrant {
  readonly actorId: string;
  readonly partition: string;
  /** Variable → values; `'*'` = any. */
  readonly scopes: ScopeMap;
  readonly expiresAtMs: number | null;
}

export interface StaticTokens {
  readonly authenticate: Authenticate;
  readonly resolveScopes: (who: Identity) => ScopeMap;
}

/** Fixed tokens, for development, tests and machines. The scopes ride in the claims, so they are the token's own. */
export function createStaticTokens(grants: ReadonlyMap<string, StaticGrant>): StaticTokens {
  const entries = [...grants].map(([token, grant]) => ({ digest: digestOf(token), grant }));

  const find = (token: string): StaticGrant | null => {
    const presented = digestOf(token);
    let found: StaticGrant | null = null;
    // Every entry is compared, each in constant time: the duration tells nothing about a token.
    for (const { digest, grant } of entries) if (timingSafeEqual(digest, presented)) found = grant;
    return found;
  };

  return {
    authenticate: (request) => {
      const token = bearerToken(request);
      const grant = token === null ? null : find(token);
      if (grant === null) return null;
      const { actorId, partition, scopes, expiresAtMs } = grant;
      return { actorId, partition, expiresAtMs, claims: { scopes } };
    },
    resolveScopes: (who) => (isScopeMap(who.claims.scopes) ? who.claims.scopes : {}),
  };
}

export function isScopeMap(value: unknown): value is ScopeMap {
  return (
    typeof value === 'object' &&
    value !== null &&
    !Array.isArray(value) &&
    Object.values(value).every(
      (list) => Array.isArray(list) && list.every((item) => typeof item === 'string'),
    )
  );
}

function digestOf(token: string): Buffer {
  return createHash('sha256').update(token).digest();
}
