/**
 * The decode stage of a push (part 2.24 decision 20). It needs nothing but the commit and the schema, so it runs before the
 * partition is locked, once however often the batch is tried.
 */
import { SyncError } from '../../protocol/errors.ts';
import type { PushCommitFrame, PushOperation } from '../../protocol/frames.ts';
import { rowIdOf } from '../../protocol/row-identity.ts';
import type { ColumnValue } from '../../protocol/schema.ts';
import { findUnstorable, isStorableText } from '../../storage/storable-values.ts';
import { contentHash } from './content-hash.ts';
import type { PushPlan, TablePlan } from './push-plan.ts';
import { errorRejection, invalidRejection, type Rejection } from './push-rejection.ts';

export interface PreparedUpsert {
  readonly op: 'upsert';
  readonly opIndex: number;
  readonly plan: TablePlan;
  readonly rowId: string;
  readonly baseVersion: number | undefined;
  /** As pushed: a view of the request's bytes. */
  readonly payload: Uint8Array;
  /** `bytes` and `crdt` values are views of `payload`. */
  readonly values: readonly ColumnValue[];
}

export interface PreparedDelete {
  readonly op: 'delete';
  readonly opIndex: number;
  readonly plan: TablePlan;
  readonly rowId: string;
}

export type PreparedOperation = PreparedUpsert | PreparedDelete;

export interface PreparedCommit {
  readonly clientCommitId: string;
  readonly operationCount: number;
  /** In order, up to the first that could not be decoded. */
  readonly operations: readonly PreparedOperation[];
  /** Why the operation behind the last of `operations` ends the commit, unless one before it does. */
  readonly fault: Rejection | null;
  readonly contentHash: string;
}

export function prepareCommit(
  commit: PushCommitFrame,
  deps: { readonly plan: PushPlan; readonly sha256: (bytes: Uint8Array) => string },
): PreparedCommit {
  const { clientCommitId } = commit;
  const operations: PreparedOperation[] = [];
  let fault: Rejection | null = null;
  for (const [opIndex, operation] of commit.operations.entries()) {
    const prepared = prepareOperation(operation, opIndex, deps.plan);
    if ('record' in prepared) {
      fault = prepared;
      break;
    }
    operations.push(prepared);
  }
  return {
    clientCommitId,
    operationCount: commit.operations.length,
    operations,
    fault,
    contentHash: contentHash(commit.operations, deps.sha256),
  };
}

function prepareOperation(
  operation: PushOperation,
  opIndex: number,
  pushPlan: PushPlan,
): PreparedOperation | Rejection {
  const plan = pushPlan.tables.get(operation.table);
  if (plan === undefined) return errorRejection(opIndex, 'sync.unknown_table');
  const { rowId, baseVersion, payload } = operation;
  if (!isStorableText(rowId)) return invalidRejection(opIndex, 'the rowId cannot be stored');
  if (operation.op === 'delete') return { op: 'delete', opIndex, plan, rowId };
  // The tie between `op` and `payload` is a decode rule; a dialect that broke it must not reach the log.
  if (payload === undefined) return invalidRejection(opIndex, 'an upsert has no payload');
  const { payloadFault } = operation;
  if (payloadFault !== undefined)
    return invalidRejection(opIndex, `the row cannot be encoded: ${payloadFault}`);
  const values = decodeRow(plan, payload);
  if (typeof values === 'string') return invalidRejection(opIndex, values);
  const unstorable = findUnstorable(plan.table, values);
  if (unstorable !== null) {
    const { column, reason } = unstorable;
    return invalidRejection(opIndex, `column ${column} cannot be stored: ${reason}`);
  }
  if (rowIdOf(plan.table, values) !== rowId) {
    return invalidRejection(opIndex, "the rowId is not the payload's primary key");
  }
  return { op: 'upsert', opIndex, plan, rowId, baseVersion, payload, values };
}

/** The values, or what is wrong with the bytes. */
function decodeRow(plan: TablePlan, payload: Uint8Array): ColumnValue[] | string {
  try {
    return plan.codec.decode(payload);
  } catch (failure) {
    if (failure instanceof SyncError && failure.code === 'sync.invalid_request') {
      return `the payload cannot be decoded: ${failure.message}`;
    }
    throw failure;
  }
}
