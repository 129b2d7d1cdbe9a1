/** Puts changes to their commits and cuts whole commits at a limit of bytes, whatever database they come from. */
import type { LogChange } from './storage.ts';
import { StorageError } from './storage-error.ts';

interface CollectedCommit {
  readonly changes: LogChange[];
  bytes: number;
}

export class CommitsCollector {
  readonly #bytesMax: number;
  readonly #commits: ReadonlyMap<number, CollectedCommit>;
  readonly #firstSeq: number | undefined;
  bytesLeft: number;

  /** `seqs`: the commits to collect, ascending; also those without a change. */
  constructor(seqs: readonly number[], bytesMax: number) {
    this.#bytesMax = bytesMax;
    this.#commits = new Map(seqs.map((seq) => [seq, { changes: [], bytes: 0 }]));
    this.#firstSeq = seqs[0];
    this.bytesLeft = bytesMax;
  }

  /** In log order. False when what follows is cut off anyway. */
  add(commitSeq: number, change: LogChange): boolean {
    const commit = this.#commits.get(commitSeq);
    if (commit === undefined) {
      throw new StorageError('sync.storage.failed', 'the log holds changes of a commit that is missing');
    }
    const bytes = change.payload?.length ?? 0;
    commit.bytes += bytes;
    this.bytesLeft -= bytes;
    if (this.bytesLeft < 0 && commitSeq !== this.#firstSeq) return false;
    commit.changes.push(change);
    return true;
  }

  /** Commits that fit, and the first one whatever its size, each with its changes. */
  finish(): ReadonlyMap<number, readonly LogChange[]> {
    const fitting = new Map<number, readonly LogChange[]>();
    let bytes = 0;
    for (const [commitSeq, commit] of this.#commits) {
      bytes += commit.bytes;
      if (fitting.size > 0 && bytes > this.#bytesMax) break;
      fitting.set(commitSeq, commit.changes);
    }
    return fitting;
  }
}
