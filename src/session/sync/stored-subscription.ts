/**
 * What the client record remembers of a subscription, compared with what it is now (§8.1).
 *
 * A grant that shrinks narrows a subscription: it stays active and the client keeps the rows it no longer gets changes of.
 * When the grant grows again, continuing at the cursor would leave those rows stale, and rows of values it never had
 * missing, for good. The protocol has no rule for it; such a subscription is answered `reset` (part 2.24 decisions 1 and 3:
 * changed scopes need a fresh pin), which every client follows by a bootstrap from -1.
 */
import type { ScopeMap } from '../../protocol/frames.ts';
import type { StoredSubscription } from '../../storage/storage.ts';

/** The same subscription by the client's own rule: one (table, scopes) per id (§4.3). */
export function isSameRequest(
  stored: StoredSubscription,
  asked: Pick<StoredSubscription, 'id' | 'table' | 'scopes'>,
): boolean {
  return stored.id === asked.id && stored.table === asked.table && sameScopes(stored.scopes, asked.scopes);
}

export function sameSubscription(a: StoredSubscription, b: StoredSubscription): boolean {
  if (!isSameRequest(a, b) || a.state !== b.state) return false;
  if (a.narrowed === undefined || b.narrowed === undefined) return a.narrowed === b.narrowed;
  return sameScopes(a.narrowed, b.narrowed);
}

/** True when `effective` has a value that the client was not given the last time. */
export function scopesGrew(stored: StoredSubscription, effective: ScopeMap): boolean {
  return stored.narrowed !== undefined && !coversScopes(stored.narrowed, effective);
}

/** `effective` where it is less than `requested`, else nothing. */
export function narrowedScopes(requested: ScopeMap, effective: ScopeMap): ScopeMap | undefined {
  return coversScopes(effective, requested) ? undefined : effective;
}

function coversScopes(outer: ScopeMap, inner: ScopeMap): boolean {
  return Object.keys(inner).every((variable) => {
    const values = Object.hasOwn(outer, variable) ? outer[variable]! : [];
    return coversValues(values, inner[variable]!);
  });
}

function coversValues(outer: readonly string[], inner: readonly string[]): boolean {
  const held = new Set(outer);
  return inner.every((value) => held.has(value));
}

function sameScopes(a: ScopeMap, b: ScopeMap): boolean {
  const variables = Object.keys(a);
  if (variables.length !== Object.keys(b).length) return false;
  return variables.every((variable) => Object.hasOwn(b, variable) && sameValues(a[variable]!, b[variable]!));
}

function sameValues(a: readonly string[], b: readonly string[]): boolean {
  return a.length === b.length && a.every((value, i) => value === b[i]);
}
