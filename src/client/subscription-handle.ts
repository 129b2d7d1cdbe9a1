/** What the application asks for, checked before it travels, and the handle it gets. */
import { isWellFormed } from '../protocol/bytes.ts';
import type { ScopeMap } from '../protocol/frames.ts';
import { isJsonText } from '../protocol/json-text.ts';
import type { CompiledTable } from '../protocol/schema.ts';
import { ClientError } from './client-error.ts';
import type { SubscriptionSpec, SubscriptionState } from './subscriptions.ts';

export interface SubscribeRequest<Name extends string = string> {
  /** Default: a random one. One (table, scopes, params) per id. */
  readonly id?: string;
  readonly table: Name;
  /** Variable → the values wanted. Every variable narrows; at least one is needed. */
  readonly scopes: Readonly<Record<string, string | readonly string[]>>;
  /** JSON text for the host's snapshot function. */
  readonly params?: string;
}

export interface SubscriptionHandle {
  readonly id: string;
  readonly table: string;
  readonly state: SubscriptionState;
  /** What the server granted last; `null` before the first answer and after a revocation. */
  readonly effectiveScopes: ScopeMap | null;
  /**
   * Resolves when the first bootstrap is complete. Rejects with `sync.scope_revoked`, `client.unsubscribed` or
   * `client.closed` if it never will be.
   */
  readonly ready: Promise<void>;
  /** Returns the function that removes the listener. */
  onState(listener: (state: SubscriptionState) => void): () => void;
  /** Rows that no other subscription holds leave at once. Harmless when repeated. */
  unsubscribe(): void;
}

const ANY = '*';

/** Throws `client.invalid_subscription` for what the server would refuse the whole request for (§3.2). */
export function subscriptionSpec(
  request: SubscribeRequest,
  table: CompiledTable,
  defaultId: string,
): SubscriptionSpec {
  const scopes: Record<string, readonly string[]> = {};
  for (const [variable, wanted] of Object.entries(request.scopes)) {
    const values = typeof wanted === 'string' ? [wanted] : [...wanted];
    if (!table.scopeByVariable.has(variable)) {
      throw invalid(`table ${table.name} declares no scope ${variable}`);
    }
    if (values.length === 0) throw invalid(`scope ${variable} has no values`);
    if (values.includes(ANY)) throw invalid(`scope ${variable}: '*' cannot be requested`);
    if (!values.every(isWellFormed)) throw invalid(`scope ${variable} has a value with a lone surrogate`);
    scopes[variable] = values;
  }
  if (Object.keys(scopes).length === 0) throw invalid('a subscription needs at least one scope');
  const missing = table.requiredScopes.find((variable) => scopes[variable] === undefined);
  if (missing !== undefined) throw invalid(`table ${table.name} requires the scope ${missing}`);
  const { id = defaultId, params = null } = request;
  if (id === '' || !isWellFormed(id)) throw invalid('the id is empty or holds a lone surrogate');
  if (params !== null && !(isWellFormed(params) && isJsonText(params)))
    throw invalid('params is not JSON text');
  return { id, table: table.name, scopes, params };
}

function invalid(message: string): ClientError {
  return new ClientError('client.invalid_subscription', message);
}
