/** Pure scope algebra (§3.2, §3.4): requested ∩ allowed = effective, and what a grant lets an actor write. */
import { SyncError } from '../../protocol/errors.ts';
import type { ScopeMap, StoredScopes } from '../../protocol/frames.ts';
import type { CompiledSchema, CompiledTable } from '../../protocol/schema.ts';

/** What the host's resolver said for this request. `denied`: it threw, so everything is revoked or forbidden. */
export type ScopeGrant =
  | { readonly kind: 'granted'; readonly allowed: ScopeMap }
  | { readonly kind: 'denied' };

export type EffectiveScopes =
  | { readonly status: 'active'; readonly scopes: ScopeMap }
  | { readonly status: 'revoked' };

const ANY = '*';

/** Refuses `'*'`, keys the table does not declare, and missing required variables (S-020, 2.24 decision 8). */
export function assertRequestedScopes(table: CompiledTable, requested: ScopeMap): void {
  for (const [variable, values] of Object.entries(requested)) {
    if (!table.scopeByVariable.has(variable)) {
      throw new SyncError(
        'sync.invalid_subscription',
        'a subscription names a scope its table does not declare',
      );
    }
    if (values.includes(ANY)) {
      throw new SyncError('sync.invalid_subscription', "a subscription requests the scope value '*'");
    }
  }
  for (const variable of table.requiredScopes) {
    if (!Object.hasOwn(requested, variable)) {
      throw new SyncError(
        'sync.invalid_subscription',
        'a subscription leaves out a scope its table requires',
      );
    }
  }
}

/** A key that no table declares is a defect of the host's resolver (S-045). */
export function assertAllowedScopes(schema: CompiledSchema, allowed: ScopeMap): void {
  for (const variable of Object.keys(allowed)) {
    if (!schema.variables.has(variable)) {
      throw new SyncError(
        'sync.invalid_subscription',
        'the resolved scopes name a variable no table declares',
      );
    }
  }
}

/** §3.2: any lost key revokes; a key that keeps some of its values is only narrowed. */
export function intersectScopes(requested: ScopeMap, grant: ScopeGrant): EffectiveScopes {
  if (grant.kind === 'denied') return { status: 'revoked' };
  const variables = Object.keys(requested);
  if (variables.length === 0) return { status: 'revoked' };
  const scopes: Record<string, readonly string[]> = Object.create(null);
  for (const variable of variables) {
    const kept = allowedValues(requested[variable]!, grant.allowed, variable);
    if (kept.length === 0) return { status: 'revoked' };
    scopes[variable] = kept;
  }
  return { status: 'active', scopes };
}

function allowedValues(requested: readonly string[], allowed: ScopeMap, variable: string): readonly string[] {
  if (!Object.hasOwn(allowed, variable)) return [];
  const values = allowed[variable]!;
  const unique = [...new Set(requested)];
  if (values.includes(ANY)) return unique;
  const held = new Set(values);
  return unique.filter((value) => held.has(value));
}

/** True when the stored value lies in the effective list for every effective key. */
export function matchesScopes(effective: ScopeMap, stored: StoredScopes): boolean {
  for (const variable in effective) {
    const value = stored[variable];
    if (value === undefined || !effective[variable]!.includes(value)) return false;
  }
  return true;
}

/** Write rule 3 of §3.4: every declared variable must have a value, and each value must be held. */
export function grantsWrite(grant: ScopeGrant, table: CompiledTable, stored: StoredScopes): boolean {
  if (grant.kind === 'denied') return false;
  for (const { variable } of table.scopes) {
    const value = stored[variable];
    if (value === undefined || value === '' || !Object.hasOwn(grant.allowed, variable)) return false;
    const held = grant.allowed[variable]!;
    if (!held.includes(value) && !held.includes(ANY)) return false;
  }
  return true;
}
