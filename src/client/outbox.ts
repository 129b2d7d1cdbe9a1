/** Commits that were written here and have no outcome yet, oldest first, under a bound. */
import type { JsonObject } from '../protocol/errors.ts';
import type { OpName, PushCommitFrame } from '../protocol/frames.ts';
import { ClientError } from './client-error.ts';
import type { ClientLimits } from './client-limits.ts';
import type { Row } from './replica.ts';
import { type Deferred, deferred } from './waiting.ts';

/** One operation as the overlay shows it. */
export interface LocalOperation {
  readonly table: string;
  readonly rowId: string;
  readonly op: OpName;
  /** The whole row; `null` for a delete. */
  readonly row: Row | null;
}

export interface Conflict {
  readonly table: string;
  readonly rowId: string;
  /** Name it as `baseVersion` to write over the server's row on purpose. */
  readonly serverVersion: number;
  readonly serverRow: Row;
}

/** What became of a commit. It applies as a whole or not at all (§6.4). */
export type CommitOutcome =
  | {
      readonly status: 'applied';
      readonly commitSeq: number;
      /** The server had applied it before and answered from its record: the first answer was lost. */
      readonly replayed: boolean;
    }
  | {
      readonly status: 'rejected';
      /** Catalogue code, or one of the host's validators. */
      readonly code: string;
      readonly message: string;
      /** The operation that ended the commit. */
      readonly opIndex: number;
      readonly conflict: Conflict | null;
      /** The host's recovery metadata (§6.3.1). */
      readonly details: JsonObject | null;
    }
  /** The client was closed first: the server may or may not have the commit. */
  | { readonly status: 'unknown'; readonly reason: 'closed' };

export interface PendingCommit {
  /** Encoded once: every retry carries the same bytes. */
  readonly frame: PushCommitFrame;
  readonly operations: readonly LocalOperation[];
  readonly bytes: number;
  /** Retryable refusals so far. */
  retries: number;
  /** Set once the server applied it. */
  commitSeq: number | null;
  readonly outcome: Deferred<CommitOutcome>;
}

export function pendingCommit(
  frame: PushCommitFrame,
  operations: readonly LocalOperation[],
  bytes: number,
): PendingCommit {
  return { frame, operations, bytes, retries: 0, commitSeq: null, outcome: deferred() };
}

type OutboxLimits = Pick<
  ClientLimits,
  'outboxCommitsMax' | 'outboxBytesMax' | 'roundOperationsMax' | 'roundBytesMax'
>;

export class Outbox {
  readonly #limits: OutboxLimits;
  readonly #commits = new Map<string, PendingCommit>();
  #bytes = 0;
  /** Lowered when the server says that a request had too many operations (§6.1), never raised again. */
  #roundOperationsMax: number;
  readonly #sizeChanged: (size: number) => void;

  constructor(limits: OutboxLimits, sizeChanged: (size: number) => void) {
    this.#limits = limits;
    this.#sizeChanged = sizeChanged;
    this.#roundOperationsMax = limits.roundOperationsMax;
  }

  get size(): number {
    return this.#commits.size;
  }

  /** Throws `client.outbox_full` and changes nothing. */
  add(commit: PendingCommit): void {
    const { outboxCommitsMax, outboxBytesMax } = this.#limits;
    if (this.#commits.size >= outboxCommitsMax || this.#bytes + commit.bytes > outboxBytesMax) {
      throw new ClientError('client.outbox_full', 'too many commits wait for the server', {
        details: {
          commits: this.#commits.size,
          commitsMax: outboxCommitsMax,
          bytes: this.#bytes,
          bytesMax: outboxBytesMax,
        },
      });
    }
    this.#commits.set(commit.frame.clientCommitId, commit);
    this.#bytes += commit.bytes;
    this.#sizeChanged(this.#commits.size);
  }

  get(clientCommitId: string): PendingCommit | undefined {
    return this.#commits.get(clientCommitId);
  }

  /** The oldest commits that fit one round; at least one if any waits. */
  batch(): readonly PendingCommit[] {
    const batch: PendingCommit[] = [];
    let operations = 0;
    let bytes = 0;
    for (const commit of this.#commits.values()) {
      operations += commit.operations.length;
      bytes += commit.bytes;
      const over = operations > this.#roundOperationsMax || bytes > this.#limits.roundBytesMax;
      if (over && batch.length > 0) break;
      batch.push(commit);
    }
    return batch;
  }

  /** After `sync.too_many_operations`: false when a batch of one commit cannot be split further. */
  shrinkBatch(refused: readonly PendingCommit[]): boolean {
    if (refused.length < 2) return false;
    const operations = refused.reduce((sum, commit) => sum + commit.operations.length, 0);
    this.#roundOperationsMax = Math.max(1, Math.floor(operations / 2));
    return true;
  }

  /** Takes the commit out and tells its writer. */
  settle(commit: PendingCommit, outcome: CommitOutcome): void {
    if (!this.#commits.delete(commit.frame.clientCommitId)) return;
    this.#bytes -= commit.bytes;
    commit.outcome.resolve(outcome);
    this.#sizeChanged(this.#commits.size);
  }

  settleAll(outcome: CommitOutcome): void {
    for (const commit of [...this.#commits.values()]) this.settle(commit, outcome);
  }
}
