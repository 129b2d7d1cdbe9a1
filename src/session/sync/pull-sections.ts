/** What all sections of a pull share, and the two that carry no data. */
import type {
  CommitFrame,
  ResponseFrame,
  ScopeMap,
  SegmentInlineFrame,
  SegmentRefFrame,
} from '../../protocol/frames.ts';
import type { PartitionState, SnapshotReader } from '../../storage/storage.ts';
import type { PullBounds } from './pull-bounds.ts';
import type { PullMeter } from './pull-meter.ts';
import type { SectionOutcome } from './registrations.ts';
import type { ResolvedSubscription } from './resolved-subscription.ts';
import type { ResponseStream } from './response-stream.ts';
import { narrowedScopes } from './stored-subscription.ts';
import type { SyncDeps } from './sync-deps.ts';

/** One pull inside its pinned snapshot. */
export interface PullContext {
  readonly reader: SnapshotReader;
  readonly state: PartitionState;
  readonly stream: ResponseStream;
  readonly meter: PullMeter;
  readonly bounds: PullBounds;
  readonly deps: SyncDeps;
}

type SegmentFrame = SegmentInlineFrame | SegmentRefFrame;

export const NO_SCOPES: ScopeMap = {};

/**
 * Appends a frame that every section has. Such frames do not count against `pullBytesMax`: else sections that have nothing
 * to say could starve one that has.
 */
export function emit({ stream, meter }: PullContext, frame: ResponseFrame): void {
  meter.worked(stream.frame(frame));
}

/** Appends rows or changes. */
export function emitData({ stream, meter }: PullContext, frame: CommitFrame | SegmentFrame): void {
  meter.produced(stream.frame(frame));
}

export function sectionOutcome(
  { frame, effective, stored }: ResolvedSubscription,
  { state, nextCursor }: Pick<SectionOutcome, 'state' | 'nextCursor'>,
): SectionOutcome {
  const { id, table, scopes: requested } = frame;
  const scopes = effective.status === 'active' ? effective.scopes : NO_SCOPES;
  // Only an active answer tells the client other scopes than before.
  const isTold = state === 'live' || state === 'bootstrapping';
  const narrowed = isTold ? narrowedScopes(requested, scopes) : stored?.narrowed;
  return { id, table, requested, effective: scopes, narrowed, state, nextCursor };
}

export function emitActiveStart(
  context: PullContext,
  { id, scopes, bootstrap }: { id: string; scopes: ScopeMap; bootstrap: boolean },
): void {
  emit(context, {
    type: 'SUB_START',
    id,
    status: 'active',
    reasonCode: '',
    effectiveScopes: scopes,
    bootstrap,
  });
}

const REASONS = { revoked: 'sync.scope_revoked', reset: 'sync.cursor_expired' } as const;

/** No data, no scopes, the request's cursor unchanged (§3.3, §4.6; S-049, S-066). */
export function writeRefusedSection(
  context: PullContext,
  subscription: ResolvedSubscription,
  status: keyof typeof REASONS,
): SectionOutcome {
  const { id, cursor } = subscription.frame;
  const reasonCode = REASONS[status];
  emit(context, {
    type: 'SUB_START',
    id,
    status,
    reasonCode,
    effectiveScopes: NO_SCOPES,
    bootstrap: false,
  });
  emit(context, { type: 'SUB_END', nextCursor: cursor });
  return sectionOutcome(subscription, { state: status, nextCursor: cursor });
}
