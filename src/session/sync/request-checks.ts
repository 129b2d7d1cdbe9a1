/**
 * Everything that can refuse a whole request without looking at data, checked before the first commit is tried (§1.7,
 * part 2.24 decision 25). What is wrong with one commit only is not looked at here.
 */
import { SyncError } from '../../protocol/errors.ts';
import type { SubscriptionFrame } from '../../protocol/frames.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { DecodedRequest } from '../../protocol/message.ts';
import type { CompiledSchema, CompiledTable } from '../../protocol/schema.ts';
import { isStorableText } from '../../storage/storable-values.ts';
import { acceptsRows } from './pull-bounds.ts';
import { assertRequestedScopes } from './scopes.ts';

export interface RequestedSubscription {
  readonly frame: SubscriptionFrame;
  readonly table: CompiledTable;
}

interface RequestRules {
  readonly schema: CompiledSchema;
  readonly limits: Limits;
}

/** Names the first fault as the request-level `SyncError` of the table in part 2.3. */
export function checkRequest(
  request: DecodedRequest,
  { schema, limits }: RequestRules,
): readonly RequestedSubscription[] {
  checkPushes(request, limits);
  if (request.pull !== null && !acceptsRows(request.pull.accept)) {
    throw invalidRequest('the pull accepts neither inline nor external rows segments');
  }
  checkSubscriptionCounts(request.subscriptions, limits);
  const ids = new Set<string>();
  return request.subscriptions.map((frame) => {
    if (ids.has(frame.id)) {
      throw new SyncError('sync.invalid_subscription', 'two subscriptions have the same id');
    }
    ids.add(frame.id);
    return checkSubscription(frame, { schema, limits });
  });
}

function checkPushes({ pushes }: DecodedRequest, limits: Limits): void {
  let operations = 0;
  for (const commit of pushes) {
    assertId(commit.clientCommitId, 'a clientCommitId', limits);
    operations += commit.operations.length;
  }
  if (operations > limits.operationsMax) {
    throw new SyncError('sync.too_many_operations', 'the request holds too many operations', {
      details: { operations, operationsMax: limits.operationsMax },
    });
  }
}

function checkSubscriptionCounts(subscriptions: readonly SubscriptionFrame[], limits: Limits): void {
  if (subscriptions.length > limits.subscriptionsMax) {
    throw invalidRequest('the pull holds too many subscriptions');
  }
  let values = 0;
  for (const { scopes } of subscriptions) {
    for (const variable in scopes) values += scopes[variable]!.length;
  }
  if (values > limits.scopeValuesMax) throw invalidRequest('the pull holds too many scope values');
}

function checkSubscription(
  frame: SubscriptionFrame,
  { schema, limits }: RequestRules,
): RequestedSubscription {
  assertId(frame.id, 'a subscription id', limits);
  const table = schema.tableByName.get(frame.table);
  if (table === undefined) {
    throw new SyncError('sync.unknown_table', 'a subscription names a table the schema does not have');
  }
  assertRequestedScopes(table, frame.scopes);
  for (const variable in frame.scopes) {
    if (frame.scopes[variable]!.some((value) => !isStorableText(value))) {
      throw invalidRequest('a scope value holds a NUL character');
    }
  }
  return { frame, table };
}

/** Ids become database keys: of bounded length, and without NUL. `what` begins the message. */
export function assertId(id: string, what: string, limits: Pick<Limits, 'idUnitsMax'>): void {
  if (id.length > limits.idUnitsMax) throw invalidRequest(`${what} is too long`);
  if (!isStorableText(id)) throw invalidRequest(`${what} holds a NUL character`);
}

function invalidRequest(message: string): SyncError {
  return new SyncError('sync.invalid_request', message);
}
