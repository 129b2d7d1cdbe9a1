/** What a client sends before it was greeted: kept in order, within bounds. */
import type { Limits } from '../../protocol/limits.ts';

/** What a message costs beside its bytes, roughly: a flood of empty ones is bounded as well. */
const MESSAGE_OVERHEAD_BYTES = 128;

export class HeldMessages {
  readonly #limits: Limits;
  #messages: (string | Uint8Array)[] = [];
  #bytes = 0;

  constructor(limits: Limits) {
    this.#limits = limits;
  }

  /** False when it does not fit. */
  add(message: string | Uint8Array): boolean {
    const { heldMessagesMax, heldBytesMax } = this.#limits;
    this.#bytes += message.length + MESSAGE_OVERHEAD_BYTES;
    if (this.#messages.length >= heldMessagesMax || this.#bytes > heldBytesMax) return false;
    this.#messages.push(message);
    return true;
  }

  /** Time to stop reading from the socket: what is on its way still fits. */
  get isHalfFull(): boolean {
    const { heldMessagesMax, heldBytesMax } = this.#limits;
    return this.#messages.length * 2 >= heldMessagesMax || this.#bytes * 2 >= heldBytesMax;
  }

  /** Hands them out, once. */
  take(): readonly (string | Uint8Array)[] {
    const messages = this.#messages;
    this.#messages = [];
    return messages;
  }
}
