/**
 * One connection's work: decides when a round is due, runs rounds one at a time, applies deltas in between, and acks. Lives
 * from `hello` to the end of the socket.
 */
import type { Clock, Random } from '../protocol/clock.ts';
import type { HelloData, PresenceData, PresenceRefusalData, WakeUpData } from '../protocol/control.ts';
import type { ErrorFrame } from '../protocol/frames.ts';
import type { Backoff } from './backoff.ts';
import { ClientError, protocolViolation } from './client-error.ts';
import type { ClientLimits } from './client-limits.ts';
import type { Connection, Inbound } from './connection.ts';
import { applyDelta, deltaCursor, type ReadDelta, readDelta } from './delta.ts';
import { policyOf, retryAfterMs } from './error-policy.ts';
import type { LocalStore } from './local-store.ts';
import type { PresenceRooms } from './presence.ts';
import { ResponseApplier, type RoundEnd } from './response-applier.ts';
import { RoundChannel } from './round-channel.ts';
import { planRound, type RoundPlan } from './round-plan.ts';
import type { SegmentSource } from './segment-source.ts';
import type { StatusBoard, StopReason } from './status.ts';
import { Bell, Cancelled } from './waiting.ts';

/** Why the loop gave its connection up. */
export type LoopEnd =
  | { readonly kind: 'stop'; readonly reason: StopReason }
  | { readonly kind: 'reauthenticate'; readonly error: { readonly code: string; readonly message: string } };

export interface SyncLoopParts {
  readonly clientId: string;
  readonly store: LocalStore;
  readonly status: StatusBoard;
  readonly segments: SegmentSource;
  /** Shared by all connections: only a served round resets it. */
  readonly backoff: Backoff;
  readonly clock: Clock;
  readonly random: Random;
  readonly limits: ClientLimits;
  readonly presence: PresenceRooms;
  readonly socket: Pick<Connection, 'sendRound' | 'sendAck' | 'sendPresence'>;
}

/** Whether somebody asked for this connection just now, or it is one of many that return by themselves. */
export type Entry = 'asked' | 'automatic';

/** Deltas that came between a response's `END` and the end of its application; over it, a pull replaces them. */
const HELD_DELTAS_MAX = 64;
/** Epoch answers in a row that are taken as progress. */
const EPOCH_ANSWERS_MAX = 3;

export class SyncLoop implements Inbound {
  readonly #parts: SyncLoopParts;
  readonly #rounds: RoundChannel;
  readonly #bell: Bell;
  /** The server's state of this connection's beginning has been reached. */
  #isCaughtUp: boolean;
  /** Monotonic ms at which a pull is due; `null`: none is. */
  #pullDueMs: number | null = null;
  /** No round before this, monotonic ms: backoff. */
  #holdUntilMs = 0;
  /** When the latest round was served, monotonic ms. */
  #servedAtMs = Number.NEGATIVE_INFINITY;
  /** The newest log position heard of. */
  #knownHead: number;
  /** A delta was not applied: none may be until a pull closed the hole. */
  #hasGap = false;
  #heldDeltas: ReadDelta[] = [];
  #hasDroppedHeld = false;
  #epochAnswers = 0;

  constructor(parts: SyncLoopParts, hello: HelloData, entry: Entry) {
    this.#parts = parts;
    const { clock, limits, socket, store } = parts;
    this.#bell = new Bell(clock);
    this.#rounds = new RoundChannel({
      send: (request) => socket.sendRound(request),
      clock,
      timeoutMs: limits.roundTimeoutMs,
    });
    this.#knownHead = hello.latestCursor;
    const { liveCursor, unfinished } = store.subscriptions;
    const isBehind = unfinished || (liveCursor !== null && liveCursor < hello.latestCursor);
    this.#isCaughtUp = store.logEpoch !== null && !hello.requiresSync && !isBehind;
    if (!this.#isCaughtUp) this.#needPull(entry === 'asked' ? 0 : limits.herdSpreadMs);
    parts.presence.connected((scopeKey, doc) => socket.sendPresence(scopeKey, doc));
  }

  /** Something was written or subscribed here. */
  nudge(): void {
    if (this.#parts.store.subscriptions.unfinished) this.#showProgress();
    this.#bell.ring();
  }

  onWake({ cursor, reason }: WakeUpData): void {
    const { herdSpreadMs } = this.#parts.limits;
    this.#knownHead = Math.max(this.#knownHead, cursor);
    if (reason === 'reset-required') {
      this.#knownHead = cursor;
      this.#needPull(herdSpreadMs);
    } else if (!this.#rounds.busy) {
      this.#needPull(reason === 'delta-too-large' ? herdSpreadMs : this.#wakeSpreadMs());
    }
    // During a round the head alone decides: the response may well cover what the wake-up announces.
  }

  /** A commit that lands before the server has read the ack of a round wakes the client of that round alone. */
  #wakeSpreadMs(): number {
    const { clock, limits } = this.#parts;
    const sinceRoundMs = clock.monotonicMs() - this.#servedAtMs;
    return sinceRoundMs <= limits.ownRoundWindowMs ? 0 : limits.wakeSpreadMs;
  }

  onDelta(bytes: Uint8Array): void {
    let delta: ReadDelta;
    try {
      delta = readDelta(bytes);
    } catch (failure) {
      this.#passOver(null);
      this.#report(failure);
      return;
    }
    if (!this.#rounds.busy) {
      this.#apply(delta);
    } else if (this.#rounds.answered) {
      this.#holdBack(delta);
    } else {
      // Sent before the server began to answer, so the answer covers it.
      this.#passOver(deltaCursor(delta.sections));
    }
  }

  #holdBack(delta: ReadDelta): void {
    if (this.#heldDeltas.length < HELD_DELTAS_MAX && !this.#hasDroppedHeld) {
      this.#heldDeltas.push(delta);
      return;
    }
    this.#heldDeltas = [];
    this.#hasDroppedHeld = true;
  }

  onPresence(presence: PresenceData): void {
    this.#parts.presence.received(presence);
  }

  onPresenceRefused(refusal: PresenceRefusalData): void {
    this.#parts.presence.refused(refusal);
  }

  onRoundChunk(bytes: Uint8Array): void {
    this.#rounds.receive(bytes);
  }

  /** Ends by itself only for good; rejects when the socket must go, `Cancelled` when it went. */
  async run(signal: AbortSignal): Promise<LoopEnd> {
    for (;;) {
      if (signal.aborted) throw new Cancelled('cancelled');
      this.#showProgress();
      await this.#untilDue(signal);
      const end = await this.#round(signal);
      if (end !== null) return end;
    }
  }

  async #untilDue(signal: AbortSignal): Promise<void> {
    for (;;) {
      const delayMs = this.#delayMs();
      if (delayMs !== null && delayMs <= 0) return;
      await this.#bell.wait(delayMs, signal);
    }
  }

  /** `null`: nothing to do. */
  #delayMs(): number | null {
    const { store, clock } = this.#parts;
    const nowMs = clock.monotonicMs();
    const isDue = store.outbox.size > 0 || !store.subscriptions.isTold;
    const dueMs = isDue ? nowMs : this.#pullDueMs;
    return dueMs === null ? null : Math.max(dueMs, this.#holdUntilMs) - nowMs;
  }

  #needPull(spreadMs: number): void {
    const { clock, random } = this.#parts;
    const dueMs = clock.monotonicMs() + spreadMs * random.unit();
    this.#pullDueMs = Math.min(this.#pullDueMs ?? dueMs, dueMs);
    this.#bell.ring();
  }

  #hold(delayMs: number): void {
    this.#holdUntilMs = this.#parts.clock.monotonicMs() + delayMs;
  }

  /** `null` to go on. */
  async #round(signal: AbortSignal): Promise<LoopEnd | null> {
    const { store, segments, limits, clientId } = this.#parts;
    this.#pullDueMs = null;
    const plan = planRound({ store, clientId, accept: segments.accept, limits });
    const applier = new ResponseApplier({
      plan,
      store,
      segments,
      pullChanges: limits.pullChanges,
      signal,
    });
    const end = await applier.apply(this.#rounds.run(plan.request, signal));
    const loopEnd = this.#judge(end, plan);
    this.#applyHeld();
    return loopEnd;
  }

  #judge(end: RoundEnd, plan: RoundPlan): LoopEnd | null {
    switch (end.kind) {
      case 'served':
        this.#served(end, plan);
        return null;
      case 'epoch':
        this.#acceptEpoch(end.logEpoch);
        return null;
      case 'schema-floor':
        return { kind: 'stop', reason: end };
      case 'error':
        return this.#refused(end.error, plan);
    }
  }

  #served(end: Extract<RoundEnd, { kind: 'served' }>, plan: RoundPlan): void {
    const { store, socket, backoff, status } = this.#parts;
    store.subscriptions.markTold(plan.revision);
    this.#parts.presence.registered();
    this.#isCaughtUp = true;
    this.#servedAtMs = this.#parts.clock.monotonicMs();
    this.#epochAnswers = 0;
    this.#hasGap = end.segmentFailure !== null;
    const { liveCursor, unfinished } = store.subscriptions;
    if (liveCursor !== null) socket.sendAck(liveCursor);
    const isBehind = liveCursor !== null && liveCursor < this.#knownHead;
    // A head that a pull without progress did not reach is none (the log went back, or it was a wild guess).
    if (isBehind && !end.moved) this.#knownHead = liveCursor;
    if (unfinished || end.cut || end.segmentFailure !== null || (isBehind && end.moved)) this.#needPull(0);
    if (end.retry || end.segmentFailure !== null || (unfinished && !end.moved)) {
      this.#hold(backoff.nextMs());
    } else {
      backoff.reset();
    }
    const failure = end.segmentFailure;
    status.update({ lastError: failure === null ? null : { code: failure.code, message: failure.message } });
  }

  #acceptEpoch(logEpoch: string): void {
    const { store, backoff } = this.#parts;
    if (logEpoch === store.logEpoch) throw protocolViolation('a reset to the log epoch that was presented');
    store.acceptEpoch(logEpoch);
    // What was heard of the former timeline says nothing about this one.
    this.#knownHead = 0;
    this.#hasGap = false;
    this.#needPull(0);
    if (++this.#epochAnswers > EPOCH_ANSWERS_MAX) this.#hold(backoff.nextMs());
  }

  #refused(error: ErrorFrame, plan: RoundPlan): LoopEnd | null {
    const { status, backoff } = this.#parts;
    const { code, message } = error;
    status.update({ lastError: { code, message } });
    this.#needPull(0);
    switch (policyOf(error)) {
      case 'reauthenticate':
        return { kind: 'reauthenticate', error: { code, message } };
      case 'stop':
        return { kind: 'stop', reason: { kind: 'refused', code, message } };
      case 'split':
        this.#split(error, plan);
        return null;
      case 'upgrade-wait':
        status.enter('server-upgrading');
        this.#hold(Math.max(backoff.nextMs(), retryAfterMs(error)));
        return null;
      case 'retry':
        this.#hold(Math.max(backoff.nextMs(), retryAfterMs(error)));
        return null;
    }
  }

  /** A commit that alone is over the server's cap can never be taken. */
  #split({ code, message }: ErrorFrame, plan: RoundPlan): void {
    const { store } = this.#parts;
    const [only] = plan.commits;
    if (store.outbox.shrinkBatch(plan.commits) || only === undefined) return;
    store.reject(only, { status: 'rejected', code, message, opIndex: 0, conflict: null, details: null });
    store.changes.flush();
  }

  #applyHeld(): void {
    const held = this.#heldDeltas;
    this.#heldDeltas = [];
    if (this.#hasDroppedHeld) this.#passOver(null);
    this.#hasDroppedHeld = false;
    for (const delta of held) this.#apply(delta);
  }

  #apply(delta: ReadDelta): void {
    const { store, socket } = this.#parts;
    const cursor = deltaCursor(delta.sections);
    if (this.#hasGap) {
      this.#passOver(cursor);
      return;
    }
    try {
      const end = applyDelta(delta, store);
      if (end.kind === 'applied') socket.sendAck(end.cursor);
      else if (end.kind === 'foreign') this.#passOver(cursor);
    } catch (failure) {
      this.#passOver(cursor);
      this.#report(failure);
    }
  }

  /** Not applied, not acked: nothing later may be either until a pull has closed the hole (part 3, 3.5.2). */
  #passOver(cursor: number | null): void {
    this.#hasGap = true;
    if (cursor !== null) this.#knownHead = Math.max(this.#knownHead, cursor);
    if (!this.#rounds.busy) this.#needPull(0);
  }

  #report(failure: unknown): void {
    const error =
      failure instanceof ClientError ? failure : protocolViolation('a delta could not be read', failure);
    this.#parts.status.update({ lastError: { code: error.code, message: error.message } });
  }

  #showProgress(): void {
    const { status, store } = this.#parts;
    if (status.current.state === 'server-upgrading' && status.current.lastError !== null) return;
    const isLive = this.#isCaughtUp && !store.subscriptions.unfinished;
    status.enter(isLive ? 'live' : 'catching-up');
  }
}
