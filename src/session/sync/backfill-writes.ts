/** What a backfill batch derives, as commits: encoded, compared with what is stored, appended in one go (part 4, 4.4). */
import type { StoredScopes } from '../../protocol/frames.ts';
import { rowFromObject } from '../../protocol/named-rows.ts';
import { extractScopes, rowIdOf } from '../../protocol/row-identity.ts';
import type { CompiledTable } from '../../protocol/schema.ts';
import { findUnstorable, isStorableText } from '../../storage/storable-values.ts';
import type { LogChange, NewCommit, StorageTx } from '../../storage/storage.ts';
import { CandidateRow, type Overlay, type RowCell } from './overlay.ts';
import type { PushPlan, TablePlan } from './push-plan.ts';
import type { NamedRow } from './sync-deps.ts';

/** One row of a derived table as it should be; `row: null` for one that should not exist. */
export interface DerivedRow {
  readonly table: string;
  readonly rowId: string;
  readonly row: NamedRow | null;
}

/** The batch function, or what it was configured with, does not fit. Nothing of its batch landed. */
export class BackfillError extends Error {
  override readonly name = 'BackfillError';
}

export interface WritePlace {
  readonly tx: StorageTx;
  readonly overlay: Overlay;
  readonly plan: PushPlan;
  readonly derived: ReadonlySet<string>;
  /** A commit carries at most so many changes. */
  readonly changesPerCommit: number;
}

/** What every commit of a backfill says of itself. */
export interface Signature {
  readonly actorId: string;
  readonly clientId: string;
  /** The commit's own id follows. */
  readonly commitIdPrefix: string;
  readonly writerVersion: number;
  readonly nowMs: number;
}

/** Rows that are stored already just so cost nothing. The commits are staged in the overlay, not appended yet. */
export async function stageDerived(
  place: WritePlace,
  derived: readonly DerivedRow[],
  signature: Signature,
): Promise<readonly NewCommit[]> {
  const targets = derived.map((each) => targetOf(place, each));
  await load(place.overlay, targets);
  const commits: NewCommit[] = [];
  let changes: LogChange[] = [];
  const close = (): void => {
    if (changes.length === 0) return;
    commits.push(commitOf(signature, place.tx.state.head + commits.length + 1, changes));
    changes = [];
  };
  for (const target of targets) {
    const change = stage(place, target, place.tx.state.head + commits.length + 1);
    if (change === null) continue;
    changes.push(change);
    if (changes.length === place.changesPerCommit) close();
  }
  close();
  return commits;
}

interface Target {
  readonly plan: TablePlan;
  readonly rowId: string;
  readonly row: NamedRow | null;
}

function targetOf({ plan: pushPlan, derived }: WritePlace, { table, rowId, row }: DerivedRow): Target {
  const plan = pushPlan.tables.get(table);
  if (plan === undefined || !derived.has(table)) {
    throw new BackfillError(`the batch wrote to ${table}, which is not among the derived tables`);
  }
  if (!isStorableText(rowId)) throw new BackfillError(`a rowId for ${table} cannot be stored`);
  return { plan, rowId, row };
}

async function load(overlay: Overlay, targets: readonly Target[]): Promise<void> {
  const wanted = new Map<TablePlan, Set<string>>();
  for (const { plan, rowId } of targets) {
    const rowIds = wanted.get(plan) ?? new Set<string>();
    if (rowIds.has(rowId)) throw new BackfillError(`the batch wrote one row of ${plan.table.name} twice`);
    wanted.set(plan, rowIds.add(rowId));
  }
  await overlay.load(wanted);
}

/** `null` where nothing changes. */
function stage({ overlay }: WritePlace, { plan, rowId, row }: Target, commitSeq: number): LogChange | null {
  const cell = overlay.cell(plan.table, rowId);
  const before = cell.current;
  const table = plan.table.name;
  if (row === null) {
    if (before === null) return null;
    overlay.write({ plan, cell, opIndex: 0, row: null, commitSeq });
    return { table, rowId, op: 'delete', scopes: before.scopes };
  }
  const after = encode(plan, cell, row);
  if (before !== null && sameBytes(before.payload, after.payload)) return null;
  overlay.write({ plan, cell, opIndex: 0, row: after, commitSeq });
  const { serverVersion, payload, scopes } = after;
  return { table, rowId, op: 'upsert', rowVersion: serverVersion, payload, scopes };
}

function encode(plan: TablePlan, { rowId, current }: RowCell, row: NamedRow): CandidateRow {
  const { table, codec } = plan;
  const values = rowFromObject(table, row);
  const payload = codec.encode(values);
  const unstorable = findUnstorable(table, values);
  if (unstorable !== null) {
    const { column, reason } = unstorable;
    throw new BackfillError(`column ${column} of a row for ${table.name} cannot be stored: ${reason}`);
  }
  if (rowIdOf(table, values) !== rowId) {
    throw new BackfillError(`a rowId for ${table.name} is not the primary key of its row`);
  }
  const scopes = scopesOf(table, values);
  // A subscriber of the old scope would keep the row for ever (S-053).
  if (current !== null && !sameScopes(current.scopes, scopes)) {
    throw new BackfillError(
      `a row of ${table.name} would change its scopes; delete it and give it another id`,
    );
  }
  const serverVersion = current === null ? 1 : current.serverVersion + 1;
  return new CandidateRow({ rowId, serverVersion, scopes, payload }, plan, values);
}

function scopesOf(table: CompiledTable, values: Parameters<typeof extractScopes>[1]) {
  const extraction = extractScopes(table, values);
  if (extraction.kind === 'complete') return extraction.scopes;
  throw new BackfillError(`a row for ${table.name} has no value for its scope ${extraction.variable}`);
}

export function sameScopes(a: StoredScopes, b: StoredScopes): boolean {
  const names = Object.keys(a);
  return names.length === Object.keys(b).length && names.every((name) => a[name] === b[name]);
}

function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return a.length === b.length && a.every((byte, index) => byte === b[index]);
}

function commitOf(signature: Signature, commitSeq: number, changes: readonly LogChange[]): NewCommit {
  const { actorId, clientId, commitIdPrefix, writerVersion, nowMs } = signature;
  return {
    commitSeq,
    createdAtMs: nowMs,
    actorId,
    clientId,
    clientCommitId: `${commitIdPrefix}${commitSeq}`,
    changes,
    writerVersion,
  };
}
