/** The incremental section: the log's window after a cursor, oldest first, in whole commits (§4.5). */
import type { CommitFrame, ScopeMap } from '../../protocol/frames.ts';
import type { CommitWindow, LogCommit } from '../../storage/storage.ts';
import { emit, emitActiveStart, emitData, type PullContext, sectionOutcome } from './pull-sections.ts';
import type { SectionOutcome } from './registrations.ts';
import type { ResolvedSubscription } from './resolved-subscription.ts';

/**
 * Ends at the head, at `limitCommits` changes, or where the pull's bytes are used up; `nextCursor` is then the last commit
 * delivered whole (S-058, S-062). With no bytes left the section is empty and its cursor stands: an earlier section of
 * this response delivered data, so the client comes back.
 */
export async function writeWindow(
  context: PullContext,
  subscription: ResolvedSubscription,
  scopes: ScopeMap,
): Promise<SectionOutcome> {
  const { meter, state } = context;
  const { id, table, cursor } = subscription.frame;
  const progress = { nextCursor: cursor, changes: 0 };
  // Read first: what is written before a wait leaves as a chunk of its own.
  let window = isDone(context, progress) ? null : await readSlice(context, subscription, scopes, progress);
  emitActiveStart(context, { id, scopes, bootstrap: false });
  while (window !== null) {
    const isCut = writeCommits(context, { table, window, progress });
    if (isCut || isDone(context, progress)) break;
    await meter.breathe();
    window = await readSlice(context, subscription, scopes, progress);
  }
  emit(context, { type: 'SUB_END', nextCursor: progress.nextCursor });
  if (progress.nextCursor > state.head) throw new RangeError('a window went past the head of its snapshot');
  return sectionOutcome(subscription, { state: 'live', nextCursor: progress.nextCursor });
}

interface WindowProgress {
  nextCursor: number;
  changes: number;
}

function isDone({ state, bounds, meter }: PullContext, { nextCursor, changes }: WindowProgress): boolean {
  return nextCursor >= state.head || changes >= bounds.changesMax || meter.exhausted;
}

async function readSlice(
  { reader, state, bounds, meter, deps }: PullContext,
  { table }: ResolvedSubscription,
  scopes: ScopeMap,
  { nextCursor, changes }: WindowProgress,
): Promise<CommitWindow> {
  const window = await reader.readWindow({
    table,
    scopes,
    afterSeq: nextCursor,
    throughSeq: state.head,
    changesMax: bounds.changesMax - changes,
    bytesMax: Math.min(deps.limits.windowSliceBytes, meter.leftBytes),
  });
  if (window.scannedThrough <= nextCursor) throw new RangeError('a window read made no progress');
  meter.read(0);
  return window;
}

/** True when the window ends before its slice: a commit would have passed `limitCommits`, which only a first one may. */
function writeCommits(
  context: PullContext,
  { table, window, progress }: { table: string; window: CommitWindow; progress: WindowProgress },
): boolean {
  for (const commit of window.commits) {
    const changes = progress.changes + commit.changes.length;
    if (progress.changes > 0 && changes > context.bounds.changesMax) return true;
    emitData(context, commitFrame(commit, table));
    progress.changes = changes;
    progress.nextCursor = commit.commitSeq;
  }
  progress.nextCursor = window.scannedThrough;
  return false;
}

/** All changes of a window are of its one table (part 2.24 decision 6). */
function commitFrame({ commitSeq, createdAtMs, actorId, changes }: LogCommit, table: string): CommitFrame {
  return {
    type: 'COMMIT',
    commitSeq,
    createdAtMs,
    actorId,
    tables: [table],
    changes: changes.map(({ rowId, op, rowVersion, scopes, payload }) => ({
      tableIndex: 0,
      rowId,
      op,
      rowVersion,
      scopes,
      row: payload,
    })),
  };
}
