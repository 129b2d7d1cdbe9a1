/** Applies a delta, or says why it must not be (part 3, 3.5). */
import type { CommitFrame, ResponseFrame } from '../protocol/frames.ts';
import { decodeMessage } from '../protocol/message.ts';
import { protocolViolation } from './client-error.ts';
import type { LocalStore } from './local-store.ts';
import type { Subscription } from './subscriptions.ts';

export type DeltaEnd =
  /** Everything up to `cursor` is applied, now or before: ack it. */
  | { readonly kind: 'applied'; readonly cursor: number }
  /** Nothing in it is for a subscription that takes deltas; no ack, nothing missed. */
  | { readonly kind: 'skipped' }
  /** Of another log epoch: not applied, not acked, a pull has to tell what is going on. */
  | { readonly kind: 'foreign' };

interface DeltaSection {
  readonly id: string;
  readonly commits: readonly CommitFrame[];
  readonly nextCursor: number;
}

/** The newest log position that a delta speaks of; `null` for one without sections. */
export function deltaCursor(sections: readonly DeltaSection[]): number | null {
  let newest: number | null = null;
  for (const { nextCursor } of sections) newest = Math.max(newest ?? nextCursor, nextCursor);
  return newest;
}

export interface ReadDelta {
  readonly logEpoch: string | undefined;
  readonly sections: readonly DeltaSection[];
}

/** Throws `SyncError` or `client.protocol_violation` for a message that is no delta. */
export function readDelta(bytes: Uint8Array): ReadDelta {
  const { frames } = decodeMessage(bytes);
  const [header, ...rest] = frames;
  if (header?.type !== 'RESP_HEADER') throw protocolViolation('a delta is not a response');
  return { logEpoch: header.logEpoch, sections: readSections(rest as readonly ResponseFrame[]) };
}

function readSections(frames: readonly ResponseFrame[]): DeltaSection[] {
  const sections: DeltaSection[] = [];
  let id = '';
  let commits: CommitFrame[] = [];
  for (const frame of frames) {
    if (frame.type === 'SUB_START') {
      id = frame.id;
      commits = [];
    } else if (frame.type === 'COMMIT') {
      commits.push(frame);
    } else if (frame.type === 'SUB_END') {
      sections.push({ id, commits, nextCursor: frame.nextCursor });
    } else if (frame.type !== 'UNKNOWN') {
      throw protocolViolation('a delta holds more than commits');
    }
  }
  return sections;
}

/**
 * Sections for subscriptions that cannot take them (still bootstrapping, reset, or given up here) are skipped: their next
 * pull brings it all. A section at or below the cursor is a harmless duplicate (part 3, 3.5.2-2).
 */
export function applyDelta({ logEpoch, sections }: ReadDelta, store: LocalStore): DeltaEnd {
  const cursor = deltaCursor(sections);
  if (logEpoch !== store.logEpoch) return { kind: 'foreign' };
  const live = sections.flatMap((section) => {
    const subscription = store.subscriptions.get(section.id);
    return subscription?.state === 'live' ? [{ ...section, subscription }] : [];
  });
  if (cursor === null || live.length === 0) return { kind: 'skipped' };
  for (const section of live) advance(section, store);
  store.retireApplied();
  store.changes.flush();
  return { kind: 'applied', cursor };
}

interface LiveSection extends DeltaSection {
  readonly subscription: Subscription;
}

function advance({ subscription, commits, nextCursor }: LiveSection, store: LocalStore): void {
  if (nextCursor <= subscription.cursor) return;
  store.applyCommits(
    commits.filter(({ commitSeq }) => commitSeq > subscription.cursor),
    subscription,
  );
  subscription.advance(nextCursor, null);
}
