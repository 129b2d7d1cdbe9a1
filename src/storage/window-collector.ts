/** Cuts a window of the log at a commit boundary (S-058, S-062), whatever database the changes come from. */
import type { LogChange, WindowQuery } from './storage.ts';

export interface CollectedCommit {
  readonly commitSeq: number;
  readonly changes: LogChange[];
}

/** Takes matching changes in log order and stops where one more commit would break a limit. */
export class WindowCollector {
  readonly #query: WindowQuery;
  readonly commits: CollectedCommit[] = [];
  #changes = 0;
  #bytes = 0;
  isCut = false;

  constructor(query: WindowQuery) {
    this.#query = query;
  }

  /** False when the window is full. */
  add(commitSeq: number, change: LogChange): boolean {
    let open = this.commits.at(-1);
    if (open?.commitSeq !== commitSeq) {
      open = { commitSeq, changes: [] };
      this.commits.push(open);
    }
    this.#changes++;
    this.#bytes += change.payload?.length ?? 0;
    // Never split: the commit that breaks a limit leaves whole, unless it is the first, which comes alone.
    const { changesMax, bytesMax } = this.#query;
    if (this.commits.length > 1 && (this.#changes > changesMax || this.#bytes > bytesMax)) {
      this.commits.pop();
      this.isCut = true;
      return false;
    }
    open.changes.push(change);
    return true;
  }

  /** Payload bytes that still fit. */
  get bytesLeft(): number {
    return this.#query.bytesMax - this.#bytes;
  }

  get scannedThrough(): number {
    const last = this.commits.at(-1);
    return this.isCut && last !== undefined ? last.commitSeq : this.#query.throughSeq;
  }
}
