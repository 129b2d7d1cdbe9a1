/**
 * The pull half of a round, read in one pinned snapshot (part 2.7, part 4 4.3).
 *
 * The gate is asked inside the snapshot before anything is written, so whatever leaves is of one state that this process may
 * serve. The snapshot is held for as long as reading takes, never for a consumer: the response waits in memory, bounded by
 * `pullBytesMax` and one page or commit beyond it.
 */
import type { WireVersion } from '../../protocol/frames.ts';
import type { PartitionState } from '../../storage/storage.ts';
import { writeBootstrap } from './bootstrap.ts';
import { askGate } from './gate.ts';
import type { SharingPlan } from './page-sharing.ts';
import type { PullBounds } from './pull-bounds.ts';
import { PullMeter } from './pull-meter.ts';
import { type PullContext, writeRefusedSection } from './pull-sections.ts';
import { writeWindow } from './pull-window.ts';
import type { SectionOutcome } from './registrations.ts';
import { answerFor, type ResolvedSubscription } from './resolved-subscription.ts';
import type { ResponseStream } from './response-stream.ts';
import type { LogBounds, SubscriptionAnswer } from './subscription-answer.ts';
import type { PushOutcome, SyncDeps } from './sync-deps.ts';

export interface Pull {
  readonly partition: string;
  readonly wireVersion: WireVersion;
  /** Log epoch the request was admitted with. */
  readonly logEpoch: string;
  readonly bounds: PullBounds;
  readonly subscriptions: readonly ResolvedSubscription[];
  readonly pushes: readonly PushOutcome[];
  readonly sharing: SharingPlan;
}

export interface PulledSections {
  /** Head of the snapshot. */
  readonly head: number;
  /** In request order. */
  readonly sections: readonly SectionOutcome[];
}

interface PlannedSection {
  readonly subscription: ResolvedSubscription;
  readonly answer: SubscriptionAnswer;
}

/** Writes the response up to its `END`. Throws `sync.schema_not_ready` before anything was written. */
export async function producePull(
  pull: Pull,
  stream: ResponseStream,
  deps: SyncDeps,
): Promise<PulledSections> {
  try {
    return await deps.storage.readSnapshot(pull.partition, async (reader) => {
      const state = await reader.state();
      const refusal = askGate(state, pull, deps);
      if (refusal !== null) throw refusal;
      const { clock, limits } = deps;
      const meter = new PullMeter({ clock, limits, assertWanted: () => stream.assertOpen() });
      const context = { reader, state, stream, meter, bounds: pull.bounds, deps };
      const sections = await writeResponse(context, pull);
      // All was read: what is left to do for the snapshot holds nothing back.
      stream.finish();
      return { head: state.head, sections };
    });
  } finally {
    pull.sharing.release();
  }
}

async function writeResponse(context: PullContext, pull: Pull): Promise<SectionOutcome[]> {
  const { stream, meter, state } = context;
  const log = logBounds(state, pull.sharing);
  const planned = pull.subscriptions.map((subscription) => ({
    subscription,
    answer: answerFor(subscription, log),
  }));
  writeHead(stream, pull);
  if (pull.pushes.length > 0 && planned.some((section) => readsStorage(section, state))) {
    // The results of the pushes leave before the pull reads.
    stream.flush();
    await meter.nextTurn();
  }
  const sections: SectionOutcome[] = [];
  for (const section of planned) {
    await meter.breathe();
    sections.push(await writeSection(context, section, pull.sharing));
  }
  return sections;
}

/** Everything in front of the sections; also the whole of a push-only response. */
export function writeHead(
  stream: ResponseStream,
  { logEpoch, pushes }: Pick<Pull, 'logEpoch' | 'pushes'>,
): void {
  stream.frame({ type: 'RESP_HEADER', logEpoch, resetRequired: false });
  for (const { result, details } of pushes) {
    stream.frame(result);
    if (details !== null) stream.frame(details);
  }
}

/** A pin taken before the snapshot was opened is as good as its head, unless the log was pruned past it meanwhile. */
function logBounds({ head, horizon }: PartitionState, { freshPin }: SharingPlan): LogBounds {
  const isServed = freshPin !== null && freshPin >= horizon && freshPin <= head;
  return { head, horizon, freshPin: isServed ? freshPin : head };
}

function readsStorage({ subscription, answer }: PlannedSection, state: PartitionState): boolean {
  if (answer.kind === 'bootstrap') return true;
  return answer.kind === 'incremental' && subscription.frame.cursor < state.head;
}

async function writeSection(
  context: PullContext,
  { subscription, answer }: PlannedSection,
  sharing: SharingPlan,
): Promise<SectionOutcome> {
  const { effective } = subscription;
  if (effective.status === 'revoked') return writeRefusedSection(context, subscription, 'revoked');
  const { scopes } = effective;
  if (answer.kind === 'incremental') return writeWindow(context, subscription, scopes);
  if (answer.kind !== 'bootstrap') return writeRefusedSection(context, subscription, answer.kind);
  const shared = sharing.bySubscription.get(subscription) ?? null;
  return writeBootstrap(context, { subscription, scopes, answer, shared });
}
