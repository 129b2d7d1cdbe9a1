/** The text of a wake-up, made once for all sessions that get the same (part 3, 3.7). */
import { encodeWakeUp, type WakeReason } from '../../protocol/control.ts';

export class WakeText {
  #cursor = -1;
  #timestampMs = -1;
  readonly #texts = new Map<WakeReason, string>();

  of(reason: WakeReason, cursor: number, timestampMs: number): string {
    if (cursor !== this.#cursor || timestampMs !== this.#timestampMs) {
      this.#cursor = cursor;
      this.#timestampMs = timestampMs;
      this.#texts.clear();
    }
    let text = this.#texts.get(reason);
    if (text === undefined) {
      text = encodeWakeUp({ cursor, reason, timestamp: timestampMs });
      this.#texts.set(reason, text);
    }
    return text;
  }
}
