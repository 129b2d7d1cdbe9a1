/** Runs the host's validators inside the push transaction (§6.7, §6.8). */
import { isolatedRow, TxCandidateReader } from './candidate-reader.ts';
import type { CandidateRow } from './overlay.ts';
import type { CommitRun } from './push.ts';
import type { PreparedOperation } from './push-prepare.ts';
import { errorRejection, hostRejection, type Rejection } from './push-rejection.ts';
import type { CommitOperation, CommitValidator, RowValidator } from './sync-deps.ts';
import { CommitValidationRejection, ValidationRejection } from './validation.ts';

/** An operation with the row before and after it, both candidate state; `null`: absent. */
export interface StagedOperation {
  readonly operation: PreparedOperation;
  readonly before: CandidateRow | null;
  readonly after: CandidateRow | null;
}

/** Right before the write: the row as it would persist (part 2.17). */
export async function validateRow(
  run: CommitRun,
  validator: RowValidator,
  { operation, before, after }: StagedOperation,
): Promise<Rejection | null> {
  const { op, opIndex, plan, rowId } = operation;
  const { actorId, partition } = run.request.who;
  try {
    await validator({
      op,
      table: plan.table.name,
      rowId,
      actorId,
      partition,
      row: after === null ? undefined : isolatedRow(plan, after),
      stored: before === null ? undefined : isolatedRow(plan, before),
    });
    return null;
  } catch (failure) {
    if (failure instanceof ValidationRejection) return hostRejection(opIndex, failure);
    return unexpected(run, { hook: 'rowValidator', opIndex, failure });
  }
}

/** After the last staged operation, once (S-143). A failure of the storage under the reader fails the push, not the commit. */
export async function validateCommit(
  run: CommitRun,
  validator: CommitValidator,
  staged: readonly StagedOperation[],
): Promise<Rejection | null> {
  const { services, tx, overlay, request, commit } = run;
  const reader = new TxCandidateReader({
    plan: services.plan,
    tx,
    overlay,
    pageBytesMax: services.limits.segmentBytesMax,
  });
  const verdict = await judge(async () => {
    await validator({
      clientId: request.clientId,
      clientCommitId: commit.clientCommitId,
      actorId: request.who.actorId,
      partition: request.who.partition,
      operations: staged.map(describe),
      reader,
    });
  });
  reader.close();
  if (reader.failure !== null) throw reader.failure;
  if (verdict === null) return null;
  const { failure } = verdict;
  if (!(failure instanceof ValidationRejection)) {
    return unexpected(run, { hook: 'commitValidator', opIndex: 0, failure });
  }
  const opIndex = failure instanceof CommitValidationRejection ? failure.opIndex : 0;
  if (!Number.isInteger(opIndex) || opIndex < 0 || opIndex >= commit.operationCount) {
    return unexpected(run, { hook: 'commitValidator', opIndex: 0, failure });
  }
  return hostRejection(opIndex, failure);
}

async function judge(run: () => Promise<void>): Promise<{ readonly failure: unknown } | null> {
  try {
    await run();
    return null;
  } catch (failure) {
    return { failure };
  }
}

function describe({ operation, before, after }: StagedOperation): CommitOperation {
  const { opIndex, op, plan, rowId } = operation;
  return {
    opIndex,
    op,
    table: plan.table.name,
    rowId,
    row: after === null ? undefined : isolatedRow(plan, after),
    stored: before === null ? undefined : isolatedRow(plan, before),
    storedServerVersion: before?.serverVersion,
    nextServerVersion: after?.serverVersion,
  };
}

/** The thrown text stays with the operator; the client gets the generic code (S-140). */
function unexpected(
  run: CommitRun,
  { hook, opIndex, failure }: { readonly hook: string; readonly opIndex: number; readonly failure: unknown },
): Rejection {
  run.services.events.emit({
    type: 'host.failed',
    hook,
    partition: run.request.who.partition,
    error: failure,
  });
  return errorRejection(opIndex, 'sync.constraint_violation');
}
