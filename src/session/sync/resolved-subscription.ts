/** A subscription of a pull with what this round's grant makes of it (§3.2). */
import { scopeDigest } from '../../protocol/canonical-json.ts';
import type { ClientRecord, StoredSubscription } from '../../storage/storage.ts';
import type { RequestedSubscription } from './request-checks.ts';
import { parseResumeToken, type ResumeToken } from './resume-token.ts';
import { type EffectiveScopes, intersectScopes, type ScopeGrant } from './scopes.ts';
import { isSameRequest, scopesGrew } from './stored-subscription.ts';
import { answerSubscription, type LogBounds, type SubscriptionAnswer } from './subscription-answer.ts';
import type { SyncDeps } from './sync-deps.ts';

export interface ResolvedSubscription extends RequestedSubscription {
  readonly effective: EffectiveScopes;
  readonly token: ResumeToken | 'absent' | 'unusable';
  /** What the client record has of it, if it is the same subscription and was narrowed. */
  readonly stored: StoredSubscription | null;
  /** Digest of the effective scopes (§3.5). Empty, like the next, where no bootstrap can be the answer. */
  readonly scopeDigest: string;
  /** Digest of `params`; empty without any (part 2.24 decision 7). */
  readonly paramsDigest: string;
}

const UTF8 = new TextEncoder();

const NONE: ReadonlyMap<string, StoredSubscription> = new Map();

/** The few, if any, whose last answer said less than was requested. */
export function narrowedById(client: ClientRecord | null): ReadonlyMap<string, StoredSubscription> {
  const narrowed = client?.subscriptions.filter((stored) => stored.narrowed !== undefined) ?? [];
  return narrowed.length === 0 ? NONE : new Map(narrowed.map((stored) => [stored.id, stored]));
}

interface Resolution {
  readonly grant: ScopeGrant;
  /** `narrowedById` of the client record. */
  readonly narrowed: ReadonlyMap<string, StoredSubscription>;
  readonly deps: Pick<SyncDeps, 'sha256' | 'limits'>;
}

export function resolveSubscription(
  requested: RequestedSubscription,
  { grant, narrowed, deps }: Resolution,
): ResolvedSubscription {
  const { frame, table } = requested;
  const effective = intersectScopes(frame.scopes, grant);
  const token = readToken(frame.bootstrapState, deps.limits.resumeTokenUnitsMax);
  const known = narrowed.get(frame.id);
  const stored = known !== undefined && isSameRequest(known, frame) ? known : null;
  const common = { frame, table, effective, token, stored };
  // The ordinary pull is incremental and hashes nothing.
  if (effective.status === 'revoked' || (token === 'absent' && frame.cursor >= 0)) {
    return { ...common, scopeDigest: '', paramsDigest: '' };
  }
  return {
    ...common,
    scopeDigest: scopeDigest(effective.scopes, deps.sha256),
    paramsDigest: frame.params === undefined ? '' : deps.sha256(UTF8.encode(frame.params)),
  };
}

/** How it is answered while the log is like this. */
export function answerFor(subscription: ResolvedSubscription, log: LogBounds): SubscriptionAnswer {
  const { frame, effective, token, stored, scopeDigest, paramsDigest } = subscription;
  const { table, cursor } = frame;
  const grew = effective.status === 'active' && stored !== null && scopesGrew(stored, effective.scopes);
  const scopes = grew ? 'grown' : 'known';
  return answerSubscription({ table, cursor, effective, scopes, token, scopeDigest, paramsDigest }, log);
}

function readToken(text: string | undefined, unitsMax: number): ResolvedSubscription['token'] {
  if (text === undefined) return 'absent';
  return parseResumeToken(text, unitsMax) ?? 'unusable';
}
