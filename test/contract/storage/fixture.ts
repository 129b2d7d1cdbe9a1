/** What the storage suite works with: a way to open the data, a schema, and a small writer in the manner of the sync core. */
import { compareUtf16 } from '../../../src/protocol/bytes.ts';
import type { StoredScopes } from '../../../src/protocol/frames.ts';
import { rowCodecOf } from '../../../src/protocol/row-codec.ts';
import { extractScopes, rowIdOf } from '../../../src/protocol/row-identity.ts';
import type { ColumnValue, CompiledTable } from '../../../src/protocol/schema.ts';
import { compileSchema } from '../../../src/protocol/schema-compiler.ts';
import type { SchemaDocument } from '../../../src/protocol/schema-document.ts';
import type { SegmentStore } from '../../../src/storage/segments.ts';
import type {
  CommitBatch,
  LogChange,
  NewCommit,
  PushResultRecord,
  RowUpsert,
  Storage,
  StorageTx,
  TableWrites,
} from '../../../src/storage/storage.ts';

export interface OpenStorage {
  readonly storage: Storage;
  readonly segments: SegmentStore;
}

/** One set of data, empty at first. */
export interface StorageHarness {
  /** Opens an instance on the data. Several may be open at once: they stand for several processes. */
  open(): Promise<OpenStorage>;
  /** Removes the data. Every instance was closed before. */
  dispose(): Promise<void>;
}

export type MakeStorage = () => Promise<StorageHarness>;

export const SCHEMA_DOCUMENT: SchemaDocument = {
  version: 3,
  tables: [
    {
      name: 'tasks',
      primaryKey: 'id',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'project_id', type: 'string' },
        { name: 'owner_id', type: 'string' },
        { name: 'title', type: 'string' },
        { name: 'slug', type: 'string', nullable: true },
        { name: 'rank', type: 'integer', nullable: true },
        { name: 'weight', type: 'float', nullable: true },
        { name: 'done', type: 'boolean', nullable: true },
        { name: 'meta', type: 'json', nullable: true },
        { name: 'body', type: 'bytes', nullable: true },
      ],
      scopes: [
        { pattern: 'project:{project}', column: 'project_id' },
        { pattern: 'owner:{owner}', column: 'owner_id' },
      ],
      indexes: [
        { name: 'tasks_by_rank', columns: ['rank'] },
        { name: 'tasks_by_slug', columns: ['slug'], unique: true },
      ],
    },
    {
      name: 'notes',
      primaryKey: 'id',
      columns: [
        { name: 'id', type: 'integer' },
        { name: 'project_id', type: 'string' },
        { name: 'text', type: 'string' },
      ],
      scopes: [{ pattern: 'project:{project}', column: 'project_id' }],
    },
    {
      name: 'sealed',
      primaryKey: 'id',
      materialize: false,
      columns: [
        { name: 'id', type: 'string' },
        { name: 'room', type: 'string' },
        { name: 'secret', type: 'bytes', encrypted: true, declaredType: 'string' },
      ],
      scopes: ['room:{room}'],
    },
  ],
};

export const SCHEMA = compileSchema(SCHEMA_DOCUMENT);
export const TASKS = SCHEMA.tableByName.get('tasks')!;
export const NOTES = SCHEMA.tableByName.get('notes')!;
export const SEALED = SCHEMA.tableByName.get('sealed')!;

export const NO_LIMITS = { changesMax: 1_000_000, bytesMax: 2 ** 40 };
export const WHOLE_PAGE = { afterRowId: null, rowsMax: 1_000_000, bytesMax: 2 ** 40 };
export const WHOLE_LOG = { afterSeq: 0, throughSeq: 2 ** 40, commitsMax: 1_000_000, bytesMax: 2 ** 40 };

let partitions = 0;

/** A partition nobody else uses, admitted. */
export async function newPartition(storage: Storage): Promise<string> {
  const partition = `partition-${String(++partitions).padStart(6, '0')}`;
  await admitTo(storage, partition);
  return partition;
}

export function admitTo(storage: Storage, partition: string, clientId = 'client-1') {
  return storage.admit({ partition, clientId, newLogEpoch: firstEpochOf(partition), nowMs: 1_000 });
}

/** Its epoch until it is rotated. */
export function firstEpochOf(partition: string): string {
  return `epoch-of-${partition}`;
}

export type Operation =
  | { readonly op: 'upsert'; readonly table: CompiledTable; readonly values: readonly ColumnValue[] }
  | { readonly op: 'delete'; readonly table: CompiledTable; readonly rowId: string };

/** Values of a task; what is not given is NULL, and the title defaults to the id. */
export function task(
  id: string,
  project: string,
  rest: Readonly<Record<string, ColumnValue>> = {},
): Extract<Operation, { op: 'upsert' }> {
  const named: Record<string, ColumnValue> = { id, project_id: project, owner_id: 'o1', title: id, ...rest };
  return { op: 'upsert', table: TASKS, values: TASKS.columns.map(({ name }) => named[name] ?? null) };
}

export function note(id: number, project: string, text = ''): Operation {
  return { op: 'upsert', table: NOTES, values: [id, project, text] };
}

export function remove(table: CompiledTable, rowId: string): Operation {
  return { op: 'delete', table, rowId };
}

/** Appends commits to the partition in one transaction and returns them. */
export function write(
  storage: Storage,
  partition: string,
  ...commits: readonly (readonly Operation[])[]
): Promise<readonly NewCommit[]> {
  return storage.transaction(partition, (tx) => writeIn(tx, ...commits));
}

export async function writeIn(
  tx: StorageTx,
  ...commits: readonly (readonly Operation[])[]
): Promise<readonly NewCommit[]> {
  const batch = await planBatch(tx, commits);
  await tx.append(batch);
  return batch.commits;
}

interface Planned {
  readonly table: CompiledTable;
  readonly existed: boolean;
  current: RowUpsert | null;
  deletedAt: number;
}

/** Reads the touched rows and runs the operations over them in memory, as group commit does. */
export async function planBatch(
  tx: StorageTx,
  commits: readonly (readonly Operation[])[],
): Promise<CommitBatch> {
  const overlay = await readOverlay(tx, commits.flat());
  const planned = commits.map((operations, nth): NewCommit => {
    const commitSeq = tx.state.head + 1 + nth;
    const changes = operations.flatMap((operation) => apply(overlay, operation, commitSeq));
    return {
      commitSeq,
      createdAtMs: 10_000 + commitSeq,
      actorId: `actor-${commitSeq % 3}`,
      clientId: 'client-1',
      clientCommitId: `commit-${commitSeq}`,
      writerVersion: 3,
      changes,
    };
  });
  return { commits: planned, rows: finalRows(overlay), results: planned.map(resultOf) };
}

export function resultOf({ clientId, clientCommitId, commitSeq }: NewCommit): PushResultRecord {
  return {
    clientId,
    clientCommitId,
    result: `{"status":"applied","commitSeq":${commitSeq}}`,
    contentHash: String(commitSeq).padStart(64, '0'),
    schemaVersion: 3,
    recordedAtMs: 10_000 + commitSeq,
  };
}

async function readOverlay(
  tx: StorageTx,
  operations: readonly Operation[],
): Promise<ReadonlyMap<string, Planned>> {
  const overlay = new Map<string, Planned>();
  for (const table of new Set(operations.map((operation) => operation.table))) {
    const rowIds = operations.filter((operation) => operation.table === table).map(rowIdOfOperation);
    const stored = await tx.readRows(table, [...new Set(rowIds)]);
    for (const rowId of rowIds) {
      const row = stored.get(rowId);
      overlay.set(keyOf(table, rowId), {
        table,
        existed: row !== undefined,
        current: row === undefined ? null : { ...row, values: rowCodecOf(table).decode(row.payload) },
        deletedAt: 0,
      });
    }
  }
  return overlay;
}

function apply(overlay: ReadonlyMap<string, Planned>, operation: Operation, commitSeq: number): LogChange[] {
  const rowId = rowIdOfOperation(operation);
  const row = overlay.get(keyOf(operation.table, rowId))!;
  const before = row.current;
  const table = operation.table.name;
  if (operation.op === 'delete') {
    row.current = null;
    row.deletedAt = commitSeq;
    return before === null ? [] : [{ table, rowId, op: 'delete', scopes: before.scopes }];
  }
  const payload = rowCodecOf(operation.table).encode(operation.values);
  const scopes = scopesOf(operation);
  const rowVersion = (before?.serverVersion ?? 0) + 1;
  row.current = { rowId, serverVersion: rowVersion, scopes, payload, values: operation.values };
  const upsert: LogChange = { table, rowId, op: 'upsert', rowVersion, payload, scopes };
  const moved = before !== null && !sameScopes(before.scopes, scopes);
  return moved ? [{ table, rowId, op: 'delete', scopes: before.scopes }, upsert] : [upsert];
}

function finalRows(overlay: ReadonlyMap<string, Planned>): TableWrites[] {
  const writes = new Map<
    CompiledTable,
    { upserts: RowUpsert[]; deletes: { rowId: string; commitSeq: number }[] }
  >();
  for (const [key, { table, existed, current, deletedAt }] of overlay) {
    const lists = writes.get(table) ?? { upserts: [], deletes: [] };
    writes.set(table, lists);
    if (current !== null) lists.upserts.push(current);
    else if (existed) lists.deletes.push({ rowId: key.slice(table.name.length + 1), commitSeq: deletedAt });
  }
  return [...writes].map(([table, lists]) => ({ table, ...lists }));
}

export function scopesOf({ table, values }: Extract<Operation, { op: 'upsert' }>): StoredScopes {
  const extracted = extractScopes(table, values);
  if (extracted.kind === 'missing') throw new Error(`a test row lacks its scope ${extracted.variable}`);
  return extracted.scopes;
}

function rowIdOfOperation(operation: Operation): string {
  return operation.op === 'delete' ? operation.rowId : rowIdOf(operation.table, operation.values);
}

function keyOf(table: CompiledTable, rowId: string): string {
  return `${table.name}/${rowId}`;
}

function sameScopes(a: StoredScopes, b: StoredScopes): boolean {
  const text = (scopes: StoredScopes): string =>
    JSON.stringify(Object.entries(scopes).sort(([left], [right]) => compareUtf16(left, right)));
  return text(a) === text(b);
}

/** The commits as a reader sees them: without what only the writer knows. */
export function asRead(commits: readonly NewCommit[]) {
  return commits.map(({ writerVersion: _, ...commit }) => commit);
}

/** A promise that a test settles by hand, to hold one transaction while another tries. */
export function gate(): { readonly opened: Promise<void>; readonly open: () => void } {
  let open = (): void => undefined;
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open: () => open() };
}

/** What the promise rejected with; fails when it did not. */
export async function failureOf(promise: Promise<unknown>): Promise<unknown> {
  return promise.then(
    (value) => {
      throw new Error(`expected a rejection, got ${JSON.stringify(value)}`);
    },
    (failure: unknown) => failure,
  );
}
