/** What a connection is registered for: by the sections of a pull, at a connect by the stored list (part 3, 3.2.1). */
import type { ScopeMap } from '../../protocol/frames.ts';
import type { CompiledSchema } from '../../protocol/schema.ts';
import type { ClientRecord, StoredSubscription, SubscriptionState } from '../../storage/storage.ts';
import type { Registration } from './round-outcome.ts';
import { intersectScopes, type ScopeGrant } from './scopes.ts';
import { scopesGrew } from './stored-subscription.ts';

/** How one subscription of a pull was answered. */
export interface SectionOutcome {
  readonly id: string;
  readonly table: string;
  readonly requested: ScopeMap;
  /** Empty for `revoked`. */
  readonly effective: ScopeMap;
  /** As in `StoredSubscription`. */
  readonly narrowed: ScopeMap | undefined;
  readonly state: SubscriptionState;
  readonly nextCursor: number;
}

/** Revoked ones do not register. */
export function registrationsOf(sections: readonly SectionOutcome[], snapshotHead: number): Registration[] {
  const registrations: Registration[] = [];
  for (const { id, table, effective, state, nextCursor } of sections) {
    if (state === 'revoked') continue;
    const caughtUp = state === 'live' && nextCursor >= snapshotHead;
    registrations.push({ id, table, effective, state, nextCursor, caughtUp });
  }
  return registrations;
}

export function storedListOf(sections: readonly SectionOutcome[]): StoredSubscription[] {
  return sections.map(({ id, table, requested: scopes, state, narrowed }) => {
    const stored = { id, table, scopes, state };
    return narrowed === undefined ? stored : { ...stored, narrowed };
  });
}

/**
 * The cursor that the pull leaves in the client record: the lowest `nextCursor` of its active subscriptions, those still
 * bootstrapping included, since their pin must stay above the horizon (§4.5). `null` without any: the stored one stays
 * (part 2.24 decision 29).
 */
export function recordedCursorOf(sections: readonly SectionOutcome[]): number | null {
  let lowest: number | null = null;
  for (const { state, nextCursor } of sections) {
    if (state !== 'live' && state !== 'bootstrapping') continue;
    if (lowest === null || nextCursor < lowest) lowest = nextCursor;
  }
  return lowest;
}

/**
 * Registrations of a connect, with effective scopes as the grant says now. What no longer fits the schema is skipped: an
 * unknown table or variable, a missing variable that its table has come to require. What was last answered `revoked` stays
 * unregistered even if the scope is back: that client has purged its rows and must pull first. Where the scopes grew, the
 * next pull will reset the subscription, so it stands as `reset` and takes no delta. The record's cursor is at or below
 * each subscription's own; whether the client is behind it is for the connect to judge on the whole partition (3.2.2).
 */
export function loadRegistrations({
  record,
  grant,
  schema,
}: {
  readonly record: ClientRecord;
  readonly grant: ScopeGrant;
  readonly schema: CompiledSchema;
}): Registration[] {
  const registrations: Registration[] = [];
  for (const stored of record.subscriptions) {
    const { id, table, scopes } = stored;
    if (stored.state === 'revoked' || !isDeclared(schema, table, scopes)) continue;
    const effective = intersectScopes(scopes, grant);
    if (effective.status === 'revoked') continue;
    const state = scopesGrew(stored, effective.scopes) ? 'reset' : stored.state;
    registrations.push({
      id,
      table,
      effective: effective.scopes,
      state,
      nextCursor: record.cursor,
      caughtUp: state === 'live',
    });
  }
  return registrations;
}

function isDeclared(schema: CompiledSchema, table: string, scopes: ScopeMap): boolean {
  const compiled = schema.tableByName.get(table);
  if (compiled === undefined) return false;
  return (
    Object.keys(scopes).every((variable) => compiled.scopeByVariable.has(variable)) &&
    compiled.requiredScopes.every((variable) => Object.hasOwn(scopes, variable))
  );
}
