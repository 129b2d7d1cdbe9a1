/**
 * One commit as named stages, in the order of part 2.24 decision 20: decode (`push-prepare.ts`) → read the stored row →
 * authorize → version check → strip scope columns → merge → blob check → row validator → write; then the commit validator.
 * Everything happens in memory over the overlay; nothing about a row is disclosed before it is authorized.
 */
import { parseBlobRef } from '../../protocol/blob-ref.ts';
import type { StoredScopes } from '../../protocol/frames.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { ColumnReplacement } from '../../protocol/row-codec.ts';
import { extractScopes } from '../../protocol/row-identity.ts';
import type { ColumnValue, CompiledTable } from '../../protocol/schema.ts';
import type { LogChange, StorageTx } from '../../storage/storage.ts';
import type { BlobReferences } from './blob-references.ts';
import { CandidateRow, type Overlay, type RowCell } from './overlay.ts';
import type { PushPlan, TablePlan } from './push-plan.ts';
import type { PreparedCommit, PreparedDelete, PreparedOperation, PreparedUpsert } from './push-prepare.ts';
import { conflictRejection, errorRejection, type Rejection } from './push-rejection.ts';
import { type StagedOperation, validateCommit, validateRow } from './push-validators.ts';
import { grantsWrite } from './scopes.ts';
import type { CommitValidator, PushRequest, SyncEvents } from './sync-deps.ts';

export interface PushServices {
  readonly plan: PushPlan;
  readonly commitValidator: CommitValidator | 'off';
  readonly blobs: BlobReferences;
  readonly events: SyncEvents;
  readonly limits: Limits;
}

/** One commit on its way through the stages. */
export interface CommitRun {
  readonly services: PushServices;
  readonly tx: StorageTx;
  /** Holds every row that the commit touches. */
  readonly overlay: Overlay;
  readonly request: PushRequest;
  readonly commit: PreparedCommit;
  /** What the commit gets if it is applied. */
  readonly commitSeq: number;
}

export type CommitVerdict =
  | { readonly kind: 'applied'; readonly changes: readonly LogChange[] }
  | { readonly kind: 'rejected'; readonly rejection: Rejection };

/** The first failure ends the commit; the caller then takes its writes back out of the overlay. */
export async function runCommit(run: CommitRun): Promise<CommitVerdict> {
  const { commit, services } = run;
  const changes: LogChange[] = [];
  const staged: StagedOperation[] | null = services.commitValidator === 'off' ? null : [];
  for (const operation of commit.operations) {
    const staging = operation.op === 'upsert' ? stageUpsert(run, operation) : stageDelete(run, operation);
    // Most tables have no host code to wait for; a turn of the microtask queue per operation would be their largest cost.
    const stage = staging instanceof Promise ? await staging : staging;
    if ('record' in stage) return { kind: 'rejected', rejection: stage };
    const change = write(run, stage);
    if (change !== null) changes.push(change);
    staged?.push(stage);
  }
  if (commit.fault !== null) return { kind: 'rejected', rejection: commit.fault };
  if (staged !== null && services.commitValidator !== 'off') {
    const rejection = await validateCommit(run, services.commitValidator, staged);
    if (rejection !== null) return { kind: 'rejected', rejection };
  }
  return { kind: 'applied', changes };
}

/** A row on its way from the pushed payload to what persists. */
interface Draft {
  readonly operation: PreparedUpsert;
  readonly stored: CandidateRow | null;
  values: readonly ColumnValue[];
  /** What differs from the payload. */
  readonly replacements: ColumnReplacement[];
}

type Stage = StagedOperation | Rejection;

function stageUpsert(run: CommitRun, operation: PreparedUpsert): Stage | Promise<Stage> {
  const { plan } = operation;
  const stored = cellOf(run, operation).current;
  const authorized = stored === null ? payloadScopes(operation) : stored.scopes;
  const refusal = authorize(run, operation, authorized) ?? checkVersion(operation, stored);
  if (refusal !== null) return refusal;
  const draft: Draft = { operation, stored, values: operation.values, replacements: [] };
  stripScopes(draft);
  const unmerged = plan.crdtColumns.length === 0 ? null : mergeCrdts(run, draft);
  if (unmerged !== null) return unmerged;
  const asksHost = plan.blobColumns.length > 0 || plan.validator !== null;
  return asksHost ? stageWithHost(run, draft) : finishRow(draft);
}

async function stageWithHost(run: CommitRun, draft: Draft): Promise<Stage> {
  const dangling = await checkBlobs(run, draft);
  if (dangling !== null) return dangling;
  const stage = finishRow(draft);
  return 'record' in stage ? stage : validated(run, stage);
}

async function validated(run: CommitRun, stage: StagedOperation): Promise<Stage> {
  const { validator } = stage.operation.plan;
  const rejection = validator === null ? null : await validateRow(run, validator, stage);
  return rejection ?? stage;
}

/** No version check; a row that is not there takes no authorization and leaves no change (part 2.15). */
function stageDelete(run: CommitRun, operation: PreparedDelete): Stage | Promise<Stage> {
  const stored = cellOf(run, operation).current;
  const stage = { operation, before: stored, after: null };
  // A resolver that threw rejects every operation, or absence would be told from presence.
  if (stored === null && run.request.grant.kind === 'granted') return stage;
  const refusal = authorize(run, operation, stored === null ? null : stored.scopes);
  if (refusal !== null) return refusal;
  return operation.plan.validator === null ? stage : validated(run, stage);
}

function cellOf(run: CommitRun, { plan, rowId }: PreparedOperation): RowCell {
  return run.overlay.cell(plan.table, rowId);
}

/** `null` when a declared variable has no value: such an insert is denied (S-051). */
function payloadScopes({ plan, values }: PreparedUpsert): StoredScopes | null {
  const extraction = extractScopes(plan.table, values);
  return extraction.kind === 'complete' ? extraction.scopes : null;
}

/** §3.4. A throwing resolver says nothing about the actor, so that denial is not kept (decision 13). */
function authorize(
  run: CommitRun,
  { plan, opIndex }: PreparedOperation,
  scopes: StoredScopes | null,
): Rejection | null {
  const { grant } = run.request;
  if (grant.kind === 'denied') return errorRejection(opIndex, 'sync.forbidden', 'passing');
  if (scopes !== null && grantsWrite(grant, plan.table, scopes)) return null;
  return errorRejection(opIndex, 'sync.forbidden');
}

/** The table of part 2.15. Rows have versions from 1 on, so `baseVersion` 0 against any row is the lost insert race (S-123). */
function checkVersion(
  { baseVersion, opIndex }: PreparedUpsert,
  stored: CandidateRow | null,
): Rejection | null {
  if (stored === null) {
    if (baseVersion === undefined || baseVersion === 0) return null;
    return errorRejection(opIndex, 'sync.row_missing');
  }
  if (baseVersion === undefined || baseVersion === stored.serverVersion) return null;
  return conflictRejection(opIndex, stored);
}

/** An update keeps the stored row's scope values, whatever was pushed (S-053). */
function stripScopes(draft: Draft): void {
  const { stored, operation } = draft;
  if (stored === null || carriesScopes(operation.plan.table, operation.values, stored.scopes)) return;
  for (const { columnIndex } of operation.plan.table.scopes) {
    replace(draft, columnIndex, stored.values[columnIndex]!);
  }
}

/** True when the values' scopes are exactly `scopes`; integer columns stand there in decimal. */
function carriesScopes(table: CompiledTable, values: readonly ColumnValue[], scopes: StoredScopes): boolean {
  for (const { variable, columnIndex } of table.scopes) {
    const value = values[columnIndex]!;
    if ((typeof value === 'number' ? String(value) : value) !== scopes[variable]) return false;
  }
  return true;
}

/** §5.10. NULL replaces; everything else is merged, on an insert too (decision 18). */
function mergeCrdts(run: CommitRun, draft: Draft): Rejection | null {
  const { operation, stored } = draft;
  const { plan, opIndex } = operation;
  for (const { index, merge } of plan.crdtColumns) {
    const incoming = operation.values[index];
    if (!(incoming instanceof Uint8Array)) continue;
    if (merge === null) return errorRejection(opIndex, 'sync.crdt_merge_failed', 'passing');
    const known = stored === null ? null : stored.values[index];
    try {
      const merged = merge(known instanceof Uint8Array ? known : null, incoming);
      if (!(merged instanceof Uint8Array)) throw new TypeError('a crdt merger returned no bytes');
      replace(draft, index, merged);
    } catch (error) {
      const { partition } = run.request.who;
      run.services.events.emit({ type: 'host.failed', hook: 'crdtMerger', partition, error });
      return errorRejection(opIndex, 'sync.crdt_merge_failed', 'passing');
    }
  }
  return null;
}

/** Only references that the stored row does not hold yet are looked up (§6.6). */
async function checkBlobs(run: CommitRun, { operation, stored, values }: Draft): Promise<Rejection | null> {
  const { plan, opIndex } = operation;
  const { partition, actorId } = run.request.who;
  const held = new Set(stored === null ? [] : blobIds(plan, stored.values));
  for (const blobId of new Set(blobIds(plan, values))) {
    if (held.has(blobId)) continue;
    const exists = await run.services.blobs.exists({ partition, actorId, blobId });
    if (!exists) return errorRejection(opIndex, 'blob.not_found', 'passing');
  }
  return null;
}

function blobIds(plan: TablePlan, values: readonly ColumnValue[]): string[] {
  const ids: string[] = [];
  for (const index of plan.blobColumns) {
    const text = values[index];
    if (typeof text === 'string') ids.push(parseBlobRef(text).blobId);
  }
  return ids;
}

function replace(draft: Draft, index: number, value: ColumnValue): void {
  if (sameValue(draft.values[index]!, value)) return;
  draft.values = draft.values.with(index, value);
  draft.replacements.push({ index, value });
}

function sameValue(a: ColumnValue, b: ColumnValue): boolean {
  if (!(a instanceof Uint8Array) || !(b instanceof Uint8Array)) return a === b;
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}

/** A row that would persist without the scopes it was authorized by shows a defect of the server (S-041). */
function finishRow({ operation, stored, values, replacements }: Draft): Stage {
  const { plan, opIndex, rowId, payload } = operation;
  const scopes = stored === null ? payloadScopes(operation) : stored.scopes;
  if (scopes === null || !carriesScopes(plan.table, values, scopes)) {
    return errorRejection(opIndex, 'sync.missing_scopes');
  }
  const row = {
    rowId,
    serverVersion: stored === null ? 1 : stored.serverVersion + 1,
    scopes,
    // Pushed bytes are kept verbatim, in a buffer of their own: a view in the log would keep the whole request in memory.
    payload:
      replacements.length === 0 ? new Uint8Array(payload) : plan.codec.withColumns(payload, replacements),
  };
  return { operation, before: stored, after: new CandidateRow(row, plan, values) };
}

/** The change carries the scopes of the row after an upsert and before a delete (S-042). */
function write(run: CommitRun, { operation, before, after }: StagedOperation): LogChange | null {
  const { plan, opIndex, rowId } = operation;
  if (before === null && after === null) return null;
  const { commitSeq, overlay } = run;
  overlay.write({ plan, cell: overlay.cell(plan.table, rowId), opIndex, row: after, commitSeq });
  const table = plan.table.name;
  if (after === null) return { table, rowId, op: 'delete', scopes: before!.scopes };
  const { serverVersion, payload, scopes } = after;
  return { table, rowId, op: 'upsert', rowVersion: serverVersion, payload, scopes };
}
