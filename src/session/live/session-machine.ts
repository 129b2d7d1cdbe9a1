/** The one place where a session's state changes. */
import type { CloseCode } from '../../protocol/close-codes.ts';
import {
  nextState,
  type SessionEffect,
  type SessionEvent,
  type SessionState,
  TRANSITIONS,
} from './session-state.ts';

export interface MachineOwner {
  /** The state became `closed`. `code` is what to close with; `null` when the socket is gone already. Called once. */
  ended(code: CloseCode | null, event: SessionEvent): void;
}

export class SessionMachine {
  readonly #owner: MachineOwner;
  #state: SessionState = 'connecting';
  #isSuppressed = false;

  constructor(owner: MachineOwner) {
    this.#owner = owner;
  }

  get state(): SessionState {
    return this.#state;
  }

  /** Deltas are withheld, matching commits become wake-ups. */
  get isSuppressed(): boolean {
    return this.#isSuppressed;
  }

  /** What the event would do. Costs nothing, for the fanout. */
  peek(event: SessionEvent): SessionEffect {
    return TRANSITIONS[this.#state][event].effect;
  }

  /** Takes the transition and returns what is left to do; a close is done already. */
  step(event: SessionEvent): SessionEffect {
    const outcome = TRANSITIONS[this.#state][event];
    if (outcome.suppressed !== 'keep') this.#isSuppressed = outcome.suppressed === 'set';
    const next = nextState(this.#state, outcome, this.#isSuppressed);
    if (next !== this.#state) {
      this.#state = next;
      if (next === 'closed') this.#owner.ended(outcome.close, event);
    }
    return outcome.effect;
  }
}
