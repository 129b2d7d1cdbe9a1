/** The host's word on what an actor may see and write, taken once per request (§3.2, S-044). */
import { SyncError } from '../../protocol/errors.ts';
import type { ScopeMap } from '../../protocol/frames.ts';
import { assertAllowedScopes, type ScopeGrant } from './scopes.ts';
import type { Identity, SyncDeps } from './sync-deps.ts';

type GrantDeps = Pick<SyncDeps, 'hooks' | 'schema' | 'events'>;

/**
 * A resolver that throws, or answers with something that is no scope map, denies everything (S-046). Throws
 * `sync.invalid_subscription` for a variable that no table declares (S-045). The operator hears of both.
 */
export async function resolveGrant(who: Identity, deps: GrantDeps): Promise<ScopeGrant> {
  const allowed = await resolve(who, deps);
  if (allowed === null) return { kind: 'denied' };
  try {
    assertAllowedScopes(deps.schema, allowed);
  } catch (error) {
    report(who, deps, error);
    throw error;
  }
  return { kind: 'granted', allowed };
}

async function resolve(who: Identity, deps: GrantDeps): Promise<ScopeMap | null> {
  try {
    const allowed: unknown = await deps.hooks.resolveScopes(who);
    if (isScopeMap(allowed)) return allowed;
    report(who, deps, new TypeError('resolveScopes must answer with lists of strings by variable'));
  } catch (error) {
    report(who, deps, error);
  }
  return null;
}

function report(who: Identity, deps: GrantDeps, error: unknown): void {
  deps.events.emit({ type: 'host.failed', hook: 'resolveScopes', partition: who.partition, error });
}

/** The host is not bound by our types: it may be plain JavaScript. */
function isScopeMap(value: unknown): value is ScopeMap {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false;
  return Object.values(value).every(
    (values) => Array.isArray(values) && values.every((entry) => typeof entry === 'string'),
  );
}

/** For a caller to whom a faulty resolver is a refusal like any other (§5.5). */
export async function resolveGrantOrDeny(who: Identity, deps: GrantDeps): Promise<ScopeGrant> {
  try {
    return await resolveGrant(who, deps);
  } catch (error) {
    if (error instanceof SyncError) return { kind: 'denied' };
    throw error;
  }
}
