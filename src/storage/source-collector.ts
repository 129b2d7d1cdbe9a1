/** Cuts changes of source tables at a commit boundary, whatever database they come from. */
import type { SourceChange, SourceRead, SourceWindow } from './checkpoints.ts';

export class SourceCollector {
  readonly #read: Pick<SourceRead, 'throughSeq' | 'changesMax'>;
  readonly #changes: SourceChange[] = [];
  /** Where the changes of the commit that is being collected begin. */
  #commitAt = 0;
  isCut = false;

  constructor(read: Pick<SourceRead, 'throughSeq' | 'changesMax'>) {
    this.#read = read;
  }

  /** In log order. False when the window is full. */
  add(change: SourceChange): boolean {
    const changes = this.#changes;
    if (changes.at(-1)?.commitSeq !== change.commitSeq) this.#commitAt = changes.length;
    // The commit that breaks the limit is left out whole, unless it is the first, which comes alone.
    if (this.#commitAt > 0 && changes.length >= this.#read.changesMax) {
      changes.length = this.#commitAt;
      this.isCut = true;
      return false;
    }
    changes.push(change);
    return true;
  }

  finish(): SourceWindow {
    const last = this.#changes.at(-1);
    const { throughSeq } = this.#read;
    return {
      changes: this.#changes,
      scannedThrough: this.isCut && last !== undefined ? last.commitSeq : throughSeq,
    };
  }
}
