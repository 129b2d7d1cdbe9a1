/**
 * Looks, before the pull opens its snapshot, for pages that need not be built: in the store, and with rounds that are
 * building them now (§5.1). What is missing is claimed, so that others wait for this round instead of building as well.
 */
import type { SegmentKey } from '../../storage/segments.ts';
import type { PartitionState } from '../../storage/storage.ts';
import type { PullBounds } from './pull-bounds.ts';
import { answerFor, type ResolvedSubscription } from './resolved-subscription.ts';
import type { BuildClaim, SegmentBuilds } from './segment-builds.ts';
import { type SegmentPage, storedPage } from './segment-page.ts';
import type { SyncDeps } from './sync-deps.ts';

/** A stored segment is reused while this share of its life is left: the client needs time to fetch it. */
const REUSE_LIFE_SHARE = 1 / 8;

export interface SharedPages {
  readonly pin: number;
  /** Consecutive, from the position the subscription asks for. */
  readonly pages: readonly SegmentPage[];
  /** For the page behind them; `null` when there is none or somebody else has it. */
  readonly claim: BuildClaim | null;
}

export interface SharingPlan {
  /** Pin of bootstraps that start in this round; `null`: the snapshot's head. */
  readonly freshPin: number | null;
  readonly bySubscription: ReadonlyMap<ResolvedSubscription, SharedPages>;
  /** Gives back what was claimed and not built. */
  release(): void;
}

export const NOTHING_SHARED: SharingPlan = {
  freshPin: null,
  bySubscription: new Map(),
  release: () => undefined,
};

/** Key of a subscription's pages at one pin; `rowCursor` chooses the page. */
export function pageKey(
  { frame, scopeDigest, paramsDigest }: ResolvedSubscription,
  at: {
    readonly state: PartitionState;
    readonly pin: number;
    readonly rowCursor: string | null;
    readonly rowsMax: number;
    readonly schemaVersion: number;
  },
): SegmentKey {
  const { partition, logEpoch } = at.state;
  const { schemaVersion, pin: asOfCommitSeq, rowCursor, rowsMax } = at;
  return {
    partition,
    logEpoch,
    table: frame.table,
    schemaVersion,
    scopeDigest,
    paramsDigest,
    asOfCommitSeq,
    rowCursor,
    rowsMax,
  };
}

interface Sharing {
  readonly state: PartitionState;
  readonly bounds: PullBounds;
  readonly builds: SegmentBuilds;
  readonly deps: SyncDeps;
}

/**
 * Fresh bootstraps of the round get the admitted head as their pin, since a key must be known before the snapshot is. A
 * round that pushed shares nothing: its results must not wait for another round, and its head is its own.
 */
export async function planSharing(
  subscriptions: readonly ResolvedSubscription[],
  { state, bounds, deps }: { state: PartitionState; bounds: PullBounds; deps: SyncDeps },
): Promise<SharingPlan> {
  const candidates = subscriptions.filter(({ scopeDigest }) => scopeDigest !== '');
  if (candidates.length === 0) return NOTHING_SHARED;
  const bySubscription = new Map<ResolvedSubscription, SharedPages>();
  const claims: BuildClaim[] = [];
  const release = (): void => {
    for (const claim of claims) claim.abandon();
  };
  const sharing = { state, bounds, builds: deps.segmentBuilds, deps };
  try {
    for (const subscription of candidates) {
      const whenBusy = claims.length > 0 ? 'skip' : 'wait';
      const shared = await shareOne(subscription, sharing, whenBusy);
      if (shared === null) continue;
      bySubscription.set(subscription, shared);
      if (shared.claim !== null) claims.push(shared.claim);
    }
  } catch (error) {
    release();
    throw error;
  }
  return bySubscription.size === 0 ? NOTHING_SHARED : { freshPin: state.head, bySubscription, release };
}

async function shareOne(
  subscription: ResolvedSubscription,
  sharing: Sharing,
  whenBusy: 'wait' | 'skip',
): Promise<SharedPages | null> {
  const { state, bounds, builds, deps } = sharing;
  const { head, horizon } = state;
  const answer = answerFor(subscription, { head, horizon, freshPin: head });
  if (answer.kind !== 'bootstrap') return null;
  const { pin } = answer;
  const pages: SegmentPage[] = [];
  let heldBytes = 0;
  let rowCursor = answer.rowCursor;
  while (pages.length < bounds.pagesMax && heldBytes < deps.limits.pullBytesMax) {
    const at = { state, pin, rowCursor, rowsMax: bounds.pageRowsMax, schemaVersion: deps.schema.version };
    const key = pageKey(subscription, at);
    const build = await builds.lookup({ key, find: () => findStored(key, sharing), whenBusy });
    if (build.kind !== 'page') return { pin, pages, claim: build.kind === 'claimed' ? build.claim : null };
    pages.push(build.page);
    heldBytes += build.page.bytes?.length ?? 0;
    rowCursor = build.page.nextRowCursor;
    if (rowCursor === null) break;
  }
  return { pin, pages, claim: null };
}

/** A stored page counts only if it may leave as a reference; a small one is built again and goes inline. */
async function findStored(key: SegmentKey, { bounds, deps }: Sharing): Promise<SegmentPage | null> {
  if (bounds.delivery === 'inline') return null;
  const { limits, clock, segments } = deps;
  const entry = await segments.find(key, clock.nowMs() + limits.segmentTtlMs * REUSE_LIFE_SHARE);
  if (entry === null) return null;
  const isInline = bounds.delivery === 'by-size' && entry.byteLength < limits.segmentInlineBytesMax;
  return isInline ? null : storedPage(entry);
}
