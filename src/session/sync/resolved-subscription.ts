/** A subscription of a pull with what this round's grant makes of it (§3.2). */
import { scopeDigest } from '../../protocol/canonical-json.ts';
import type { RequestedSubscription } from './request-checks.ts';
import { parseResumeToken, type ResumeToken } from './resume-token.ts';
import { type EffectiveScopes, intersectScopes, type ScopeGrant } from './scopes.ts';
import type { SyncDeps } from './sync-deps.ts';

export interface ResolvedSubscription extends RequestedSubscription {
  readonly effective: EffectiveScopes;
  readonly token: ResumeToken | 'absent' | 'unusable';
  /** Digest of the effective scopes (§3.5). Empty, like the next, where no bootstrap can be the answer. */
  readonly scopeDigest: string;
  /** Digest of `params`; empty without any (part 2.24 decision 7). */
  readonly paramsDigest: string;
}

const UTF8 = new TextEncoder();

export function resolveSubscription(
  requested: RequestedSubscription,
  grant: ScopeGrant,
  deps: Pick<SyncDeps, 'sha256' | 'limits'>,
): ResolvedSubscription {
  const { frame, table } = requested;
  const effective = intersectScopes(frame.scopes, grant);
  const token = readToken(frame.bootstrapState, deps.limits.resumeTokenUnitsMax);
  // The ordinary pull is incremental and hashes nothing.
  if (effective.status === 'revoked' || (token === 'absent' && frame.cursor >= 0)) {
    return { frame, table, effective, token, scopeDigest: '', paramsDigest: '' };
  }
  return {
    frame,
    table,
    effective,
    token,
    scopeDigest: scopeDigest(effective.scopes, deps.sha256),
    paramsDigest: frame.params === undefined ? '' : deps.sha256(UTF8.encode(frame.params)),
  };
}

function readToken(text: string | undefined, unitsMax: number): ResolvedSubscription['token'] {
  if (text === undefined) return 'absent';
  return parseResumeToken(text, unitsMax) ?? 'unusable';
}
