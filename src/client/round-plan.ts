/** What one round asks, fixed at the moment it starts: what changes here meanwhile belongs to the next one. */
import type { RequestFrame } from '../protocol/frames.ts';
import { encodeMessage } from '../protocol/message.ts';
import { CURRENT_WIRE_VERSION } from '../protocol/version.ts';
import type { ClientLimits } from './client-limits.ts';
import type { LocalStore } from './local-store.ts';
import type { PendingCommit } from './outbox.ts';
import type { Subscription } from './subscriptions.ts';

/** A subscription as it was asked for. */
export interface AskedSubscription {
  readonly subscription: Subscription;
  readonly cursor: number;
  /** Asked with −1 and without a token: the first page clears what was held (§5.6). */
  readonly fresh: boolean;
}

export interface RoundPlan {
  /** `null`: the round only asks which log epoch this is; pushes may not ride along (§2.1). */
  readonly logEpoch: string | null;
  readonly commits: readonly PendingCommit[];
  /** In request order. */
  readonly asked: ReadonlyMap<string, AskedSubscription>;
  /** Of the subscription list that the server knows after the round. */
  readonly revision: number;
  readonly request: Uint8Array;
}

export interface RoundPlanParts {
  readonly store: LocalStore;
  readonly clientId: string;
  readonly accept: number;
  readonly limits: Pick<ClientLimits, 'pullChanges' | 'snapshotRows' | 'snapshotPages'>;
}

/** Pushes and pull travel in one request. Every pull lists all subscriptions: leaving one out unregisters it (§4.1). */
export function planRound({ store, clientId, accept, limits }: RoundPlanParts): RoundPlan {
  const { logEpoch, subscriptions } = store;
  const commits = logEpoch === null ? [] : store.outbox.batch();
  const listed = logEpoch === null ? [] : [...subscriptions.all()];
  const asked = new Map(
    listed.map((subscription) => {
      const { spec, cursor, fresh } = subscription;
      return [spec.id, { subscription, cursor, fresh }];
    }),
  );
  const frames: RequestFrame[] = [
    {
      type: 'REQ_HEADER',
      clientId,
      schemaVersion: store.schema.version,
      ...(logEpoch === null ? {} : { logEpoch }),
    },
    ...commits.map(({ frame }) => frame),
    {
      type: 'PULL_HEADER',
      limitCommits: limits.pullChanges,
      limitSnapshotRows: limits.snapshotRows,
      maxSnapshotPages: limits.snapshotPages,
      accept,
    },
    ...listed.map(subscriptionFrame),
  ];
  const request = encodeMessage({ kind: 'request', wireVersion: CURRENT_WIRE_VERSION, frames });
  return { logEpoch, commits, asked, revision: subscriptions.revision, request };
}

function subscriptionFrame({ spec, cursor, token }: Subscription): RequestFrame {
  const { id, table, scopes, params } = spec;
  return {
    type: 'SUBSCRIPTION',
    id,
    table,
    scopes,
    cursor,
    ...(params === null ? {} : { params }),
    ...(token === null ? {} : { bootstrapState: token }),
  };
}
