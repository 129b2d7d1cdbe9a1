/** From what the application writes to a commit that can be sent, byte for byte the same each time. */
import { isWellFormed } from '../protocol/bytes.ts';
import type { Random } from '../protocol/clock.ts';
import type { PushOperation } from '../protocol/frames.ts';
import type { ColumnValue } from '../protocol/schema.ts';
import { ClientError } from './client-error.ts';
import type { ClientLimits } from './client-limits.ts';
import type { LocalStore } from './local-store.ts';
import { type LocalOperation, type PendingCommit, pendingCommit } from './outbox.ts';
import { encodeRow } from './rows.ts';

/** Values by column name; a member that is missing is NULL. */
export type RowInput = Readonly<Record<string, ColumnValue | undefined>>;

/**
 * One write. An upsert carries the whole row. `baseVersion` is the version that the writer saw: the commit is rejected with
 * `sync.version_conflict` when the server's is another one; 0 means "must not exist"; absent means last write wins.
 */
export type Mutation<Upsert extends object = RowInput> =
  | {
      readonly table: string;
      readonly op: 'upsert';
      readonly row: Upsert;
      readonly baseVersion?: number;
    }
  | { readonly table: string; readonly op: 'delete'; readonly rowId: string };

interface EncodedMutation {
  readonly wire: PushOperation;
  readonly local: LocalOperation;
}

/** What an operation takes beside its row: two lengths, table, row id, op, base version, payload length. */
const OPERATION_BYTES = 32;
const UTF8_BYTES_PER_UNIT_MAX = 3;

export interface MutationParts {
  readonly store: LocalStore;
  readonly random: Random;
  readonly limits: Pick<ClientLimits, 'commitOperationsMax' | 'commitBytesMax'>;
}

/** Throws `client.invalid_mutation`, `client.unknown_table` or `client.commit_too_large`; nothing is changed then. */
export function encodeCommit(
  mutations: readonly Mutation[],
  { store, random, limits }: MutationParts,
): PendingCommit {
  if (mutations.length === 0) throw invalid('a commit needs at least one operation');
  const { commitOperationsMax, commitBytesMax } = limits;
  if (mutations.length > commitOperationsMax) {
    throw tooLarge('commitOperationsMax', commitOperationsMax);
  }
  const encoded = mutations.map((mutation) => encodeMutation(mutation, store));
  const operations = encoded.map(({ wire }) => wire);
  const bytes = operations.reduce((sum, operation) => sum + bytesOf(operation), 0);
  if (bytes > commitBytesMax) throw tooLarge('commitBytesMax', commitBytesMax);
  return pendingCommit(
    { type: 'PUSH_COMMIT', clientCommitId: random.id(), operations },
    encoded.map(({ local }) => local),
    bytes,
  );
}

function encodeMutation(mutation: Mutation, store: LocalStore): EncodedMutation {
  const table = store.table(mutation.table);
  if (mutation.op === 'delete') {
    const { rowId } = mutation;
    if (typeof rowId !== 'string' || rowId === '' || !isWellFormed(rowId)) {
      throw invalid('a delete needs a row id, as text without lone surrogates');
    }
    const operation = { table: table.name, rowId, op: 'delete' } as const;
    return { wire: operation, local: { ...operation, row: null } };
  }
  if (mutation.op !== 'upsert') throw invalid('op is neither upsert nor delete');
  const { baseVersion } = mutation;
  if (baseVersion !== undefined && (!Number.isSafeInteger(baseVersion) || baseVersion < 0)) {
    throw invalid('baseVersion is not a whole number of at least 0');
  }
  const { rowId, row, payload } = encodeRow(table, mutation.row);
  const operation = { table: table.name, rowId, op: 'upsert' } as const;
  const base = baseVersion === undefined ? {} : { baseVersion };
  return { wire: { ...operation, ...base, payload }, local: { ...operation, row } };
}

/** An upper bound, so that a batch never exceeds what it is allowed to. */
function bytesOf({ table, rowId, payload }: PushOperation): number {
  const textBytes = (table.length + rowId.length) * UTF8_BYTES_PER_UNIT_MAX;
  return OPERATION_BYTES + textBytes + (payload?.length ?? 0);
}

function invalid(message: string): ClientError {
  return new ClientError('client.invalid_mutation', message);
}

function tooLarge(limit: string, max: number): ClientError {
  return new ClientError('client.commit_too_large', `a commit exceeds ${limit}: split it`, {
    details: { limit, max },
  });
}
