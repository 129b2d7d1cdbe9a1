/** Everything about one session that is a matter of time, on the wheel that all sessions share. */
import type { Clock } from '../../protocol/clock.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { SessionEvent } from './session-state.ts';
import { OFF_WHEEL, type Ticking, type TickWheel } from './tick-wheel.ts';

export interface DeadlineOwner {
  /** A deadline passed; closes the session. */
  overdue(event: SessionEvent): void;
  /** Time to say something. `isQuiet`: nothing was heard since the last time. */
  heartbeatDue(peer: 'heard' | 'quiet'): void;
  /** The socket is above the high mark. */
  readonly isStalled: boolean;
}

export interface DeadlineDeps {
  readonly limits: Limits;
  readonly clock: Clock;
  readonly wheel: TickWheel;
}

const NEVER = Number.POSITIVE_INFINITY;

export class SessionDeadlines implements Ticking {
  wheelTick = OFF_WHEEL;
  readonly #owner: DeadlineOwner;
  readonly #deps: DeadlineDeps;
  readonly #expiresAtMs: number;
  #isStopped = false;
  /** When something last came in. */
  #heardMs: number;
  #heartbeatMs: number;
  #requestDueMs = NEVER;
  #drainDueMs = NEVER;
  #closeDueMs = NEVER;

  /** `expiresAtMs` in epoch ms; infinite for a grant without an end. */
  constructor(owner: DeadlineOwner, expiresAtMs: number, deps: DeadlineDeps) {
    this.#owner = owner;
    this.#deps = deps;
    this.#expiresAtMs = expiresAtMs;
    const nowMs = deps.clock.monotonicMs();
    this.#heardMs = nowMs;
    this.#heartbeatMs = nowMs + deps.limits.heartbeatMs;
    deps.wheel.schedule(this, this.#next(nowMs));
  }

  /** Any byte and any pong is a sign of life. */
  heard(): void {
    this.#heardMs = this.#deps.wheel.nowMs;
  }

  requestBegun(): void {
    if (this.#requestDueMs !== NEVER) return;
    this.#requestDueMs = this.#in(this.#deps.limits.requestTimeoutMs);
    this.#deps.wheel.schedule(this, this.#requestDueMs);
  }

  requestOver(): void {
    this.#requestDueMs = NEVER;
  }

  stalled(): void {
    this.#drainDueMs = this.#in(this.#deps.limits.drainTimeoutMs);
    this.#deps.wheel.schedule(this, this.#drainDueMs);
  }

  flowing(): void {
    this.#drainDueMs = NEVER;
  }

  closeIn(delayMs: number): void {
    this.#closeDueMs = this.#in(delayMs);
    this.#deps.wheel.schedule(this, this.#closeDueMs);
  }

  stop(): void {
    this.#isStopped = true;
    this.#deps.wheel.cancel(this);
  }

  onTick(nowMs: number): number {
    const event = this.#overdue(nowMs);
    if (event !== null) this.#owner.overdue(event);
    if (this.#isStopped) return NEVER;
    if (nowMs >= this.#heartbeatMs) this.#beat(nowMs);
    return this.#next(nowMs);
  }

  #overdue(nowMs: number): SessionEvent | null {
    const { limits, clock } = this.#deps;
    if (nowMs >= this.#closeDueMs) return 'drain-due';
    if (clock.nowMs() >= this.#expiresAtMs) return 'identity-ended';
    if (nowMs >= this.#requestDueMs) return 'request-late';
    if (nowMs - this.#heardMs >= limits.livenessTimeoutMs) return 'silent';
    if (nowMs < this.#drainDueMs) return null;
    if (this.#owner.isStalled) return 'undrained';
    // It moved, though not yet down to the low mark.
    this.#drainDueMs = nowMs + limits.drainTimeoutMs;
    return null;
  }

  #beat(nowMs: number): void {
    const { heartbeatMs } = this.#deps.limits;
    const sinceMs = this.#heartbeatMs - heartbeatMs;
    this.#heartbeatMs = Math.max(this.#heartbeatMs + heartbeatMs, nowMs);
    this.#owner.heartbeatDue(this.#heardMs > sinceMs ? 'heard' : 'quiet');
  }

  #next(nowMs: number): number {
    const { limits, clock } = this.#deps;
    const expiryMs = this.#expiresAtMs === NEVER ? NEVER : nowMs + this.#expiresAtMs - clock.nowMs();
    return Math.min(
      this.#heartbeatMs,
      this.#heardMs + limits.livenessTimeoutMs,
      this.#requestDueMs,
      this.#drainDueMs,
      this.#closeDueMs,
      expiryMs,
    );
  }

  #in(delayMs: number): number {
    return this.#deps.clock.monotonicMs() + delayMs;
  }
}
