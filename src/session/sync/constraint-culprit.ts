/** Which operation of a commit the database refused: it names the row at best, and a result names an operation (§6.3). */
import type { NewCommit, StorageTx } from '../../storage/storage.ts';
import { StorageConstraintError } from '../../storage/storage-error.ts';
import type { JournalEntry, Overlay } from './overlay.ts';

export interface RefusedCommit {
  readonly tx: StorageTx;
  /** Its journal holds the commit's writes and nothing else; they are taken back. */
  readonly overlay: Overlay;
  /** Its changes are parallel to the journal. */
  readonly commit: NewCommit;
}

/** Ends the savepoint of a trial that the database took. */
class TrialPassed extends Error {}

/**
 * The operation at which the commit turns from accepted to refused: halves the commit and tries its first operations under
 * savepoints that are always undone, so a commit of 500 operations costs nine trials.
 */
export async function findCulprit({ tx, overlay, commit }: RefusedCommit): Promise<number> {
  const entries = overlay.undoTo(0);
  let accepted = 0;
  let refused = entries.length;
  while (refused - accepted > 1) {
    const middle = (accepted + refused) >> 1;
    const trial = { ...commit, changes: commit.changes.slice(0, middle) };
    if (await passes({ tx, overlay, commit: trial }, entries.slice(0, middle))) accepted = middle;
    else refused = middle;
  }
  return entries[refused - 1]?.opIndex ?? 0;
}

async function passes(
  { tx, overlay, commit }: RefusedCommit,
  entries: readonly JournalEntry[],
): Promise<boolean> {
  overlay.redo(entries);
  try {
    await tx.savepoint(async () => {
      await tx.append({ commits: [commit], rows: overlay.writes(), results: [] });
      throw new TrialPassed();
    });
  } catch (failure) {
    if (failure instanceof TrialPassed) return true;
    if (failure instanceof StorageConstraintError) return false;
    throw failure;
  } finally {
    overlay.undoTo(0);
  }
  return false;
}
