/** The bootstrap section: pages of current rows at a pin, suspended and resumed by a token (§4.7, part 2.10). */
import type { ScopeMap } from '../../protocol/frames.ts';
import type { SegmentKey } from '../../storage/segments.ts';
import { pageKey, type SharedPages } from './page-sharing.ts';
import type { SegmentDelivery } from './pull-bounds.ts';
import { emit, emitActiveStart, emitData, type PullContext, sectionOutcome } from './pull-sections.ts';
import type { SectionOutcome } from './registrations.ts';
import type { ResolvedSubscription } from './resolved-subscription.ts';
import { encodeResumeToken } from './resume-token.ts';
import { buildPage, emptyPage } from './segment-build.ts';
import type { BuildClaim } from './segment-builds.ts';
import { refFrame, type SegmentPage } from './segment-page.ts';
import type { SubscriptionAnswer } from './subscription-answer.ts';

export interface BootstrapSection {
  readonly subscription: ResolvedSubscription;
  readonly scopes: ScopeMap;
  readonly answer: Extract<SubscriptionAnswer, { readonly kind: 'bootstrap' }>;
  readonly shared: SharedPages | null;
}

/** Where the section stands between two pages. */
interface Position {
  /** The next page starts after it. */
  rowCursor: string | null;
  pages: number;
  /** The table is exhausted. */
  done: boolean;
  /** For the next page, if it is this round's to build. */
  claim: BuildClaim | null;
}

/**
 * At most `maxSnapshotPages` pages, fewer when the pull's bytes are used up; the last page may pass them, so that a page
 * never depends on what else is in the response and can be shared.
 *
 * A first page that is due is always sent, an empty one if need be: at it the client clears its rows, and once it holds a
 * token it would never do so (§5.6, part 2.24 decision 4).
 */
export async function writeBootstrap(
  context: PullContext,
  section: BootstrapSection,
): Promise<SectionOutcome> {
  const { answer, shared } = section;
  const usable = shared !== null && shared.pin === answer.pin ? shared : null;
  const position = { rowCursor: answer.rowCursor, pages: 0, done: false, claim: usable?.claim ?? null };
  try {
    await writePages(context, section, { position, found: usable?.pages ?? [] });
  } finally {
    position.claim?.abandon();
  }
  if (position.pages === 0) writeWithoutRows(context, section);
  return end(context, section, position);
}

async function writePages(
  context: PullContext,
  section: BootstrapSection,
  { position, found }: { position: Position; found: readonly SegmentPage[] },
): Promise<void> {
  const { subscription, scopes, answer } = section;
  const { id } = subscription.frame;
  while (wantsPage(context, position)) {
    await context.meter.breathe();
    const page = found[position.pages] ?? (await buildNext(context, section, position));
    const isFirst = position.pages === 0;
    if (page.rowCount > 0 || (isFirst && answer.firstPage === 'due')) {
      if (isFirst) emitActiveStart(context, { id, scopes, bootstrap: true });
      emitPage(context, page);
      position.pages++;
    }
    position.rowCursor = page.nextRowCursor;
    position.done = page.nextRowCursor === null;
  }
}

function wantsPage({ bounds, meter }: PullContext, { pages, done }: Position): boolean {
  return !done && pages < bounds.pagesMax && !meter.exhausted;
}

/** Nothing was delivered: the bytes are used up, or no row is left behind the token. */
function writeWithoutRows(context: PullContext, { subscription, scopes, answer }: BootstrapSection): void {
  const { state, deps } = context;
  const { id } = subscription.frame;
  const isDue = answer.firstPage === 'due';
  emitActiveStart(context, { id, scopes, bootstrap: isDue });
  if (!isDue) return;
  const schemaVersion = deps.schema.version;
  const at = { state, pin: answer.pin, rowCursor: null, rowsMax: 0, schemaVersion };
  emitPage(context, emptyPage(pageKey(subscription, at), subscription.table, deps));
}

/** The pin is the cursor of every bootstrap answer; the token alone says that it is not over (S-068). */
function end(
  context: PullContext,
  { subscription, answer }: BootstrapSection,
  { rowCursor, done }: Position,
): SectionOutcome {
  const { frame, scopeDigest, paramsDigest } = subscription;
  const { pin } = answer;
  if (done) {
    emit(context, { type: 'SUB_END', nextCursor: pin });
    return sectionOutcome(subscription, { state: 'live', nextCursor: pin });
  }
  const bootstrapState = encodeResumeToken({
    asOfCommitSeq: pin,
    tables: [frame.table],
    tableIndex: 0,
    rowCursor,
    scopeDigest,
    paramsDigest,
  });
  emit(context, { type: 'SUB_END', nextCursor: pin, bootstrapState });
  return sectionOutcome(subscription, { state: 'bootstrapping', nextCursor: pin });
}

function emitPage(context: PullContext, page: SegmentPage): void {
  const { stream, meter, bounds, deps } = context;
  const { bytes } = page;
  if (bytes !== null && !isExternal(bounds.delivery, bytes.length, deps.limits.segmentInlineBytesMax)) {
    emitData(context, { type: 'SEGMENT_INLINE', payload: bytes });
    return;
  }
  stream.holdFor(page.stored());
  emitData(context, refFrame(page));
  // Until it is stored, the process holds it on behalf of this response.
  meter.produced(bytes?.length ?? 0);
}

/** §5.7: below the bound inline, if the client takes both. */
function isExternal(delivery: SegmentDelivery, byteLength: number, inlineBytesMax: number): boolean {
  return delivery === 'external' || (delivery === 'by-size' && byteLength >= inlineBytesMax);
}

/**
 * The page behind it is claimed before the built one is handed to those who wait: else one of them would take it, and
 * build what this round is about to.
 */
async function buildNext(
  context: PullContext,
  section: BootstrapSection,
  position: Position,
): Promise<SegmentPage> {
  const { bounds, deps, reader, meter } = context;
  const { subscription, scopes } = section;
  const { table } = subscription;
  const key = keyAt(context, section, position.rowCursor);
  const held =
    position.claim?.key.rowCursor === key.rowCursor ? position.claim : deps.segmentBuilds.begin(key);
  position.claim = null;
  try {
    const page = await buildPage({ key, table, scopes, reader, meter }, deps);
    const { nextRowCursor } = page;
    if (nextRowCursor !== null && position.pages + 1 < bounds.pagesMax) {
      position.claim = deps.segmentBuilds.begin(keyAt(context, section, nextRowCursor));
    }
    const external = isExternal(bounds.delivery, page.byteLength, deps.limits.segmentInlineBytesMax);
    held?.built(page, external ? 'external' : 'inline');
    return page;
  } catch (error) {
    held?.abandon();
    throw error;
  }
}

function keyAt(
  { state, bounds, deps }: PullContext,
  { subscription, answer }: BootstrapSection,
  rowCursor: string | null,
): SegmentKey {
  const { pin } = answer;
  const schemaVersion = deps.schema.version;
  return pageKey(subscription, { state, pin, rowCursor, rowsMax: bounds.pageRowsMax, schemaVersion });
}
