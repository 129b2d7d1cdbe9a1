/**
 * Applies one response while it arrives. A section becomes visible when its `SUB_END` was read, never before; commits of
 * all sections become visible together at `END`, so that a commit that matches several subscriptions is seen whole. When
 * the stream is cut, finished sections count and the open one leaves no trace (§1.4, part 1.9 row 5).
 */
import type { JsonObject } from '../protocol/errors.ts';
import type {
  CommitFrame,
  ErrorFrame,
  PushResultDetailsFrame,
  PushResultFrame,
  RespHeaderFrame,
  ResponseFrame,
  SegmentRefFrame,
  SubEndFrame,
  SubStartFrame,
} from '../protocol/frames.ts';
import { ClientError, protocolViolation } from './client-error.ts';
import type { LocalStore } from './local-store.ts';
import type { AskedSubscription, RoundPlan } from './round-plan.ts';
import type { SegmentSource } from './segment-source.ts';

export type RoundEnd =
  | {
      readonly kind: 'served';
      /** Some cursor moved or some page came. */
      readonly moved: boolean;
      /** A window was cut by the limit: pull again. */
      readonly cut: boolean;
      /** A commit was refused for a passing reason and waits for another round. */
      readonly retry: boolean;
      /** A referenced segment was not to be had: that subscription is as far as before. */
      readonly segmentFailure: ClientError | null;
    }
  /** Header-only: the epoch was asked for, or it is another one than the replica's. */
  | { readonly kind: 'epoch'; readonly logEpoch: string }
  | {
      readonly kind: 'schema-floor';
      readonly requiredSchemaVersion: number;
      readonly latestSchemaVersion: number | null;
    }
  | { readonly kind: 'error'; readonly error: ErrorFrame };

/** A section that is being read. `asked` is `null` for one that was not asked for, or was given up meanwhile. */
interface OpenSection {
  readonly asked: AskedSubscription | null;
  readonly start: SubStartFrame;
  readonly commits: CommitFrame[];
  readonly segments: Uint8Array[];
  changes: number;
  failure: ClientError | null;
}

interface FinishedSection {
  readonly asked: AskedSubscription;
  readonly commits: readonly CommitFrame[];
  readonly nextCursor: number;
  readonly token: string | null;
}

export interface ResponseApplierParts {
  readonly plan: RoundPlan;
  readonly store: LocalStore;
  readonly segments: SegmentSource;
  readonly pullChanges: number;
  readonly signal: AbortSignal;
}

export class ResponseApplier {
  readonly #parts: ResponseApplierParts;
  #section: OpenSection | null = null;
  /** Incremental sections, held until the response is complete. */
  #finished: FinishedSection[] = [];
  /** Its details, if any, come right behind it. */
  #rejected: PushResultFrame | null = null;
  #end: RoundEnd | null = null;
  #moved = false;
  #cut = false;
  #retries = 0;
  #segmentFailure: ClientError | null = null;

  constructor(parts: ResponseApplierParts) {
    this.#parts = parts;
  }

  /** Throws `SyncError` or `ClientError` for a response that is broken; what was finished before counts. */
  async apply(frames: AsyncIterable<ResponseFrame>): Promise<RoundEnd> {
    try {
      for await (const frame of frames) await this.#take(frame);
    } finally {
      this.#showFinished();
    }
    if (this.#end !== null) return this.#end;
    const { plan, store } = this.#parts;
    if (plan.logEpoch === null) throw protocolViolation('a request without a log epoch was served');
    const waiting = plan.commits.filter(({ frame }) => store.outbox.get(frame.clientCommitId) !== undefined);
    if (waiting.length > this.#retries) throw protocolViolation('a commit was not answered');
    return {
      kind: 'served',
      moved: this.#moved,
      cut: this.#cut,
      retry: this.#retries > 0,
      segmentFailure: this.#segmentFailure,
    };
  }

  #showFinished(): void {
    const { store } = this.#parts;
    try {
      this.#settleRejected(null);
      this.#applyFinished();
    } finally {
      store.retireApplied();
      store.changes.flush();
    }
  }

  async #take(frame: ResponseFrame): Promise<void> {
    if (frame.type === 'PUSH_RESULT_DETAILS') {
      this.#settleRejected(frame);
      return;
    }
    this.#settleRejected(null);
    switch (frame.type) {
      case 'RESP_HEADER':
        this.#takeHeader(frame);
        break;
      case 'PUSH_RESULT':
        this.#takeResult(frame);
        break;
      case 'SUB_START':
        this.#begin(frame);
        break;
      case 'COMMIT':
        this.#openSection().commits.push(frame);
        this.#openSection().changes += frame.changes.length;
        break;
      case 'SEGMENT_INLINE':
        this.#openSection().segments.push(frame.payload);
        break;
      case 'SEGMENT_REF':
        await this.#fetch(frame);
        break;
      case 'SUB_END':
        this.#finish(frame);
        break;
      case 'ERROR':
        this.#end = { kind: 'error', error: frame };
        break;
      default:
        // A lease binds the server only as long as it is out of reach of its authority; unknown frames are skipped.
        break;
    }
  }

  #takeHeader(header: RespHeaderFrame): void {
    const { requiredSchemaVersion, latestSchemaVersion, logEpoch, resetRequired } = header;
    const { plan } = this.#parts;
    // The schema part comes first (part 2.3).
    if (requiredSchemaVersion !== undefined) {
      this.#end = {
        kind: 'schema-floor',
        requiredSchemaVersion,
        latestSchemaVersion: latestSchemaVersion ?? null,
      };
      return;
    }
    if (logEpoch === undefined || logEpoch === '') throw protocolViolation('a response without a log epoch');
    if (resetRequired) this.#end = { kind: 'epoch', logEpoch };
    if (!resetRequired && plan.logEpoch !== null && logEpoch !== plan.logEpoch) {
      throw protocolViolation('a response of another log epoch without a reset');
    }
  }

  #takeResult(result: PushResultFrame): void {
    if (result.status === 'rejected') this.#rejected = result;
    else this.#parts.store.settle(result, new Map());
  }

  #settleRejected(details: PushResultDetailsFrame | null): void {
    const result = this.#rejected;
    if (result === null) return;
    this.#rejected = null;
    const entries = (details?.entries ?? []).map(
      ({ opIndex, detailsJson }) => [opIndex, JSON.parse(detailsJson) as JsonObject] as const,
    );
    if (this.#parts.store.settle(result, new Map(entries)) === 'retry') this.#retries++;
  }

  #begin(start: SubStartFrame): void {
    const asked = this.#parts.plan.asked.get(start.id) ?? null;
    const current = asked !== null && this.#isCurrent(asked) ? asked : null;
    this.#section = {
      asked: current,
      start,
      commits: [],
      segments: [],
      changes: 0,
      failure: null,
    };
  }

  async #fetch(ref: SegmentRefFrame): Promise<void> {
    const section = this.#openSection();
    if (section.asked === null || section.failure !== null) return;
    const { segments, signal } = this.#parts;
    try {
      section.segments.push(await segments.load(ref, section.asked.subscription.spec.scopes, signal));
    } catch (failure) {
      if (!(failure instanceof ClientError)) throw failure;
      // The rest of the response is still good; this section leaves no trace and is asked for again.
      section.failure = failure;
    }
  }

  #finish(end: SubEndFrame): void {
    const section = this.#openSection();
    this.#section = null;
    const { asked, start, failure } = section;
    if (failure !== null) this.#segmentFailure = failure;
    if (asked === null || failure !== null || !this.#isCurrent(asked)) return;
    const { subscription } = asked;
    switch (start.status) {
      case 'revoked':
        this.#parts.store.release(subscription);
        subscription.revoke();
        break;
      case 'reset':
        subscription.restart();
        if (asked.cursor >= 0) this.#moved = true;
        break;
      case 'active':
        subscription.granted(start.effectiveScopes);
        if (section.changes >= this.#parts.pullChanges) this.#cut = true;
        if (section.commits.length > 0 && !asked.fresh) this.#hold(section.commits, asked, end);
        else this.#finishNow(section, asked, end);
        break;
    }
  }

  #hold(commits: readonly CommitFrame[], asked: AskedSubscription, end: SubEndFrame): void {
    const { nextCursor, bootstrapState } = end;
    this.#finished.push({ asked, commits, nextCursor, token: bootstrapState ?? null });
  }

  /** Pages, or a window in which nothing matched. */
  #finishNow(section: OpenSection, asked: AskedSubscription, end: SubEndFrame): void {
    const { store } = this.#parts;
    const { subscription, cursor, fresh } = asked;
    const { nextCursor, bootstrapState } = end;
    // Clearing and filling happen in one go: the application never sees the table empty in between.
    if (fresh) store.release(subscription);
    store.applySegments(section.segments, subscription, nextCursor);
    store.applyCommits(section.commits, subscription);
    // Told before whoever awaits `ready` goes on.
    store.changes.flush();
    subscription.advance(nextCursor, bootstrapState ?? null);
    if (nextCursor !== cursor || section.segments.length > 0) this.#moved = true;
  }

  #applyFinished(): void {
    const finished = this.#finished;
    this.#finished = [];
    for (const { asked, commits, nextCursor, token } of finished) {
      if (!this.#isCurrent(asked)) continue;
      this.#parts.store.applyCommits(commits, asked.subscription);
      asked.subscription.advance(nextCursor, token);
      this.#moved = true;
    }
  }

  /** False once the subscription was given up here. */
  #isCurrent({ subscription }: AskedSubscription): boolean {
    return this.#parts.store.subscriptions.get(subscription.spec.id) === subscription;
  }

  /** The grammar lets these frames stand only inside a section. */
  #openSection(): OpenSection {
    if (this.#section === null) throw protocolViolation('a frame outside of its section');
    return this.#section;
  }
}
