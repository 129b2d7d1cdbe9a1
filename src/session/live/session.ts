/**
 * One connection from upgrade to close (part 3, 3.14; `docs/SESSION.md`). It routes what comes in, asks the state machine
 * what each event means, and does it. It knows no transport and no storage.
 */
import type { CloseCode } from '../../protocol/close-codes.ts';
import { encodeHello, type WakeReason } from '../../protocol/control.ts';
import { SyncError } from '../../protocol/errors.ts';
import type { ClientKey, Identity } from '../sync/sync-deps.ts';
import { closeReason } from './close-reason.ts';
import { closeSocket } from './close-socket.ts';
import type { Connection, SessionEndpoint } from './connection.ts';
import { type Dialect, SSP2 } from './dialect.ts';
import { Downlink, type HostSignals } from './downlink.ts';
import { Inbox, type InboxOwner } from './inbox.ts';
import { Outbox, type OutboxOwner } from './outbox.ts';
import type { PresenceMessage, PresencePeer } from './presence.ts';
import { finishRound, type RoundOwner } from './round-ending.ts';
import type { SessionContext } from './session-context.ts';
import { type DeadlineOwner, SessionDeadlines } from './session-deadlines.ts';
import { type LoadedSession, loadSession, reloadRegistrations, type Speaker } from './session-loader.ts';
import { type MachineOwner, SessionMachine } from './session-machine.ts';
import type { SessionEvent } from './session-state.ts';
import { type RoundHost, type RoundRequest, runSocketRound } from './socket-round.ts';

export interface SessionOptions extends Speaker {
  readonly connection: Connection;
  /** How to read what comes in; default SSP2. */
  readonly dialect?: Dialect | undefined;
}

/** Why a round in flight was given up. */
export class SessionEnded extends Error {
  override readonly name = 'SessionEnded';
}

type Roles = InboxOwner &
  SessionEndpoint &
  HostSignals &
  OutboxOwner &
  MachineOwner &
  DeadlineOwner &
  PresencePeer;

export class Session implements Roles, RoundHost, RoundOwner {
  readonly who: Identity;
  readonly clientId: string;
  /** Later connections of the process have a higher one. */
  readonly generation: number;
  readonly outbox: Outbox;
  readonly downlink: Downlink;
  readonly machine: SessionMachine;
  readonly #context: SessionContext;
  readonly #deadlines: SessionDeadlines;
  readonly #inbox: Inbox;
  readonly #openedMs: number;
  /** Ends the round in flight. */
  #abort: AbortController | null = null;
  /** Times that the host said the scopes have changed. */
  #scopeChanges = 0;
  #resyncAfterHello = false;
  #isGreeted = false;

  constructor({ connection, who, clientId, dialect = SSP2 }: SessionOptions, context: SessionContext) {
    const { limits, clock } = context;
    this.who = who;
    this.clientId = clientId;
    this.#context = context;
    this.#openedMs = clock.monotonicMs();
    this.machine = new SessionMachine(this);
    this.outbox = new Outbox(connection, this, context);
    this.#inbox = new Inbox(this, { limits, dialect });
    const expiresAtMs = who.expiresAtMs ?? Number.POSITIVE_INFINITY;
    this.#deadlines = new SessionDeadlines(this, expiresAtMs, context);
    this.downlink = new Downlink((member) => context.hub.join(who.partition, member), {
      limits,
      machine: this.machine,
      outbox: this.outbox,
      expiresAtMs,
      signals: this,
    });
    this.generation = context.sessions.add(this);
  }

  get connection(): Connection {
    return this.outbox.connection;
  }

  get partition(): string {
    return this.who.partition;
  }

  get actorId(): string {
    return this.who.actorId;
  }

  // Connecting.

  /** Loads and greets. Never rejects. */
  async connect(): Promise<void> {
    try {
      let changes: number;
      let loaded: LoadedSession;
      do {
        changes = this.#scopeChanges;
        loaded = await loadSession(this, this.#context);
      } while (changes !== this.#scopeChanges && this.machine.state === 'connecting');
      if (this.machine.state === 'connecting') this.#greet(loaded);
    } catch (error) {
      // The only failures of a load with a code: the clientId is missing, reserved, or of another actor.
      if (SyncError.from(error) === null) this.#fail(error, 'load-failed');
      else this.machine.step('client-refused');
    }
  }

  #greet(loaded: LoadedSession): void {
    const { sessions, presence, events, deps } = this.#context;
    const { state, cursor, requiresSync, identity } = loaded;
    if (!this.downlink.feed.open(state)) {
      this.machine.step('epoch-rotated');
      return;
    }
    if (sessions.isReplaced(this)) {
      this.machine.step('replaced');
      return;
    }
    if (!this.mayLeave()) return;
    const timestamp = deps.clock.nowMs();
    const { actorId, clientId, partition } = this;
    const sessionId = deps.random.id();
    const latestCursor = state.head;
    this.machine.step(requiresSync ? 'loaded-behind' : 'loaded-live');
    this.outbox.send(
      encodeHello({ sessionId, actorId, clientId, cursor, latestCursor, requiresSync, timestamp }),
    );
    this.#isGreeted = true;
    this.downlink.start(identity, latestCursor, timestamp);
    if (this.machine.state === 'closed') return;
    sessions.greeted(this);
    presence.registered(this, this.downlink.registrations);
    const connectMs = deps.clock.monotonicMs() - this.#openedMs;
    events.emit({ type: 'session.opened', partition, actorId, connectMs, requiresSync });
    if (this.#resyncAfterHello) this.#requirePull('reset-required');
    this.#inbox.release();
  }

  // What comes in.

  onText(text: string): void {
    this.#deadlines.heard();
    this.#inbox.receive(text);
  }

  onBinary(bytes: Uint8Array): void {
    this.#deadlines.heard();
    this.#inbox.receive(bytes);
  }

  onPong(): void {
    this.#deadlines.heard();
  }

  onClosed(): void {
    this.machine.step('socket-gone');
  }

  acked(cursor: number): void {
    const seq = this.downlink.ack(cursor);
    if (seq !== null) this.#context.deps.cursors.acked(this.#key(), seq);
  }

  presenceReceived(message: PresenceMessage): void {
    this.#context.presence.received(this, message);
  }

  requestBegun(): void {
    this.#deadlines.requestBegun();
  }

  requestOver(): void {
    this.#deadlines.requestOver();
  }

  serve(request: RoundRequest): void {
    void this.#serve(request);
  }

  // Rounds.

  async #serve(request: RoundRequest): Promise<void> {
    const { clock } = this.#context;
    const startedMs = clock.monotonicMs();
    this.#abort = new AbortController();
    const scopeChanges = this.#scopeChanges;
    const { ending, sentBytes } = await runSocketRound(request, this);
    this.#abort = null;
    const isCurrent = scopeChanges === this.#scopeChanges;
    const report = finishRound(ending, { owner: this, scopes: isCurrent ? 'current' : 'changed' });
    this.#context.events.emit({
      type: 'round.finished',
      partition: this.partition,
      outcome: report.outcome,
      durationMs: clock.monotonicMs() - startedMs,
      responseBytes: sentBytes + report.lastBytes,
    });
  }

  begin({ bytes, decode }: RoundRequest): ReturnType<SessionContext['runRound']> {
    const { runRound, deps } = this.#context;
    const { who, clientId } = this;
    const signal = this.#abort?.signal ?? AbortSignal.abort();
    return runRound(bytes, { who, clientId, signal, decode }, deps);
  }

  get logEpoch(): string {
    return this.downlink.feed.logEpoch ?? '';
  }

  /** Nothing leaves for a grant that ended, not even on the way to the next tick. */
  mayLeave(): boolean {
    const { expiresAtMs } = this.who;
    if (expiresAtMs !== null && this.#context.clock.nowMs() >= expiresAtMs) {
      this.machine.step('identity-ended');
    }
    return this.machine.state !== 'closed';
  }

  roundInstalled(): void {
    // A resolution that began before the round's own is out of date.
    this.#scopeChanges++;
    if (this.machine.state !== 'closed') {
      this.#context.presence.registered(this, this.downlink.registrations);
    }
  }

  roundBroke(error: unknown): void {
    this.#fail(error, 'round-broke');
  }

  // Signals of the host.

  scopesChanged(): void {
    const effect = this.machine.step('scopes-changed');
    this.#scopeChanges++;
    if (effect !== 're-register') return;
    // Nothing leaves for the old scopes while the new ones are found out.
    this.downlink.replaceRegistrations([]);
    this.#context.presence.suspended(this);
    void this.#reRegister(this.#scopeChanges);
  }

  async #reRegister(change: number): Promise<void> {
    let registrations: Awaited<ReturnType<typeof reloadRegistrations>> = [];
    try {
      registrations = await reloadRegistrations(this, this.#context.deps);
    } catch (error) {
      this.#context.events.emit({ type: 'session.failed', partition: this.partition, error });
    }
    if (change !== this.#scopeChanges || this.machine.state === 'closed') return;
    this.downlink.replaceRegistrations(registrations);
    this.#context.presence.registered(this, this.downlink.registrations);
    this.#requirePull('catchup-required');
  }

  resync(): void {
    const effect = this.machine.peek('resync');
    if (effect === 'wake-after-hello') this.#resyncAfterHello = true;
    else if (effect === 'wake') this.#requirePull('reset-required');
  }

  replaced(): void {
    this.machine.step('replaced');
  }

  /** Over the connection cap. */
  overloaded(): void {
    this.machine.step('overloaded');
  }

  /** An idle connection closes after `spreadMs`, one with a round in flight at its end, `roundsMs` from now at the latest. */
  drain({ spreadMs, roundsMs }: { readonly spreadMs: number; readonly roundsMs: number }): void {
    const effect = this.machine.step('drain');
    if (effect === 'close-soon') this.#deadlines.closeIn(spreadMs);
    else if (effect === 'finish-round') this.#deadlines.closeIn(roundsMs);
  }

  #requirePull(reason: WakeReason): void {
    if (this.machine.step('resync') === 'wake') this.downlink.wake(reason);
  }

  // Time and the socket's pace.

  overdue(event: SessionEvent): void {
    this.machine.step(event);
  }

  heartbeatDue(peer: 'heard' | 'quiet'): void {
    if (this.machine.step('heartbeat-due') === 'send-heartbeat') {
      this.outbox.send(this.#context.sessions.heartbeatText(this.#context.clock.nowMs()));
    }
    if (peer === 'quiet') this.connection.ping();
  }

  get isStalled(): boolean {
    return this.outbox.isHigh;
  }

  wakeText(reason: WakeReason): string {
    const cursor = this.downlink.woken();
    return this.downlink.feed.wakeText.of(reason, cursor, this.#context.clock.nowMs());
  }

  bufferHigh(): void {
    this.#deadlines.stalled();
  }

  bufferLow(): void {
    this.#deadlines.flowing();
    this.#context.presence.drained(this);
  }

  awaitRoom(): void {
    void this.outbox.drained();
  }

  forwardPresence(text: string): void {
    if (this.machine.step('presence-from-peer') === 'forward') this.outbox.send(text);
  }

  // The end.

  ended(code: CloseCode | null, event: SessionEvent): void {
    const { hub, sessions, presence, events, deps } = this.#context;
    const { partition, actorId } = this;
    this.#deadlines.stop();
    this.#abort?.abort(new SessionEnded('the connection is gone'));
    hub.leave(this.downlink.feed, this.downlink);
    sessions.remove(this);
    if (this.#isGreeted) presence.closed(this);
    this.#inbox.clear();
    // A write that fails is reported and kept by the writer.
    deps.cursors.flush(this.#key()).catch(() => undefined);
    const reason = code === null ? '' : closeReason(event, code);
    if (code !== null) closeSocket(this.connection, { code, reason }, events);
    const openMs = deps.clock.monotonicMs() - this.#openedMs;
    events.emit({ type: 'session.closed', partition, actorId, code, reason, openMs });
  }

  #key(): ClientKey {
    return { partition: this.partition, clientId: this.clientId };
  }

  #fail(error: unknown, event: 'load-failed' | 'round-broke'): void {
    this.#context.events.emit({ type: 'session.failed', partition: this.partition, error });
    this.machine.step(event);
  }
}
