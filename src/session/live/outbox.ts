/** What leaves on one socket: order, the high mark, and wake-ups that wait for room (part 3, 3.7-3 and 3.11.6). */
import type { WakeReason } from '../../protocol/control.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { Connection } from './connection.ts';
import type { LiveEvent, LiveEvents } from './live-events.ts';

export interface OutboxOwner {
  /** Text of a wake-up as of now. */
  wakeText(reason: WakeReason): string;
  /** The buffer fell to the low mark again. */
  bufferLow(): void;
  /** The buffer is above the high mark since now. */
  bufferHigh(): void;
}

export interface OutboxDeps {
  readonly limits: Limits;
  readonly events: LiveEvents;
}

const GRAVITY: Readonly<Record<WakeReason, number>> = {
  'catchup-required': 0,
  'delta-too-large': 1,
  'reset-required': 2,
};

/** Many sessions may be woken in one turn: nothing is made for each. */
const WOKEN: Readonly<Record<WakeReason, LiveEvent>> = {
  'catchup-required': Object.freeze({ type: 'session.woken', reason: 'catchup-required' }),
  'delta-too-large': Object.freeze({ type: 'session.woken', reason: 'delta-too-large' }),
  'reset-required': Object.freeze({ type: 'session.woken', reason: 'reset-required' }),
};

export class Outbox {
  readonly connection: Connection;
  readonly #owner: OutboxOwner;
  readonly #deps: OutboxDeps;
  /** Not written yet: it absorbs what comes, a written one does not. */
  #heldWake: WakeReason | null = null;
  #draining: Promise<'open' | 'closed'> | null = null;

  constructor(connection: Connection, owner: OutboxOwner, deps: OutboxDeps) {
    this.connection = connection;
    this.#owner = owner;
    this.#deps = deps;
  }

  get isHigh(): boolean {
    return this.connection.bufferedBytes > this.#deps.limits.outboxBytesHigh;
  }

  /** Waits for the low mark. */
  get isDraining(): boolean {
    return this.#draining !== null;
  }

  send(message: string | Uint8Array): 'sent' | 'buffered' | 'closed' {
    return this.connection.send(message);
  }

  wake(reason: WakeReason): void {
    if (this.#heldWake === null && !this.isHigh) {
      this.send(this.#owner.wakeText(reason));
      this.#deps.events.emit(WOKEN[reason]);
      return;
    }
    if (this.#heldWake === null || GRAVITY[reason] > GRAVITY[this.#heldWake]) this.#heldWake = reason;
    void this.drained();
  }

  /** Resolves at the low mark, or when the socket is gone. Waits that overlap are one. */
  drained(): Promise<'open' | 'closed'> {
    if (this.#draining === null) {
      this.#owner.bufferHigh();
      this.#draining = this.#drain();
    }
    return this.#draining;
  }

  async #drain(): Promise<'open' | 'closed'> {
    const state = await this.#connectionDrained();
    this.#draining = null;
    if (state === 'open') {
      this.#flushWake();
      this.#owner.bufferLow();
    }
    return state;
  }

  async #connectionDrained(): Promise<'open' | 'closed'> {
    try {
      return await this.connection.drained();
    } catch (error) {
      this.#deps.events.emit({ type: 'socket.failed', error });
      return 'closed';
    }
  }

  #flushWake(): void {
    const reason = this.#heldWake;
    this.#heldWake = null;
    if (reason !== null) this.wake(reason);
  }
}
