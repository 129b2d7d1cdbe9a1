/** What a round leaves in the client record before its END (§8.1): list and versions, written only when they changed. */
import type { WireVersion } from '../../protocol/frames.ts';
import type { ClientRecord, StoredSubscription } from '../../storage/storage.ts';
import { sameSubscription } from './stored-subscription.ts';
import type { Identity, SyncDeps } from './sync-deps.ts';

/** A cursor below every commit: a connect that finds it is behind and takes no delta (part 3, 3.2.2). */
const BEHIND_EVERYTHING = -1;

export interface RecordUpdate {
  readonly who: Identity;
  readonly clientId: string;
  /** Of the round. */
  readonly logEpoch: string;
  readonly wireVersion: WireVersion;
  readonly schemaVersion: number;
  /** `null` for a push-only round. */
  readonly subscriptions: readonly StoredSubscription[] | null;
}

type RecordDeps = Pick<SyncDeps, 'storage' | 'cursors' | 'clock'>;

/** `before`: the record as it was read at admission. */
export async function saveClientRecord(
  before: ClientRecord | null,
  update: RecordUpdate,
  deps: RecordDeps,
): Promise<void> {
  if (isRecorded(before, update)) return;
  const { who, clientId, logEpoch, wireVersion, schemaVersion, subscriptions } = update;
  const { partition, actorId } = who;
  if (before !== null && before.cursor >= 0 && hasNewlyLive(before, subscriptions)) {
    await lowerCursor({ partition, clientId }, deps);
  }
  const nowMs = deps.clock.nowMs();
  await deps.storage.saveClient({
    partition,
    clientId,
    logEpoch,
    actorId,
    wireVersion,
    schemaVersion,
    subscriptions,
    nowMs,
  });
}

/**
 * The list is stored before the response has left, and it may get lost. A connect must then not take the client for one that
 * has what it was never given: a delta would carry a subscription that is still at −1 past its bootstrap. So the stored
 * cursor steps back until END is handed over and the round's own cursor counts (part 3, 3.11.8).
 */
async function lowerCursor(key: { partition: string; clientId: string }, deps: RecordDeps): Promise<void> {
  deps.cursors.pulled(key, BEHIND_EVERYTHING);
  await deps.cursors.flush(key);
}

function hasNewlyLive(before: ClientRecord, after: readonly StoredSubscription[] | null): boolean {
  if (after === null) return false;
  const liveBefore = new Map(before.subscriptions.filter(isLive).map((stored) => [stored.id, stored]));
  return after.some((stored) => {
    if (!isLive(stored)) return false;
    const known = liveBefore.get(stored.id);
    return known === undefined || !sameSubscription(known, stored);
  });
}

function isLive({ state }: StoredSubscription): boolean {
  return state === 'live';
}

function isRecorded(before: ClientRecord | null, update: RecordUpdate): boolean {
  // A push-only round never creates a record.
  if (before === null) return update.subscriptions === null;
  return (
    before.wireVersion === update.wireVersion &&
    before.schemaVersion === update.schemaVersion &&
    before.actorId === update.who.actorId &&
    (update.subscriptions === null || sameList(before.subscriptions, update.subscriptions))
  );
}

function sameList(a: readonly StoredSubscription[], b: readonly StoredSubscription[]): boolean {
  return a.length === b.length && a.every((stored, i) => sameSubscription(stored, b[i]!));
}
