/** Where credentials come from: nowhere, a fixed string, or a function that is asked again. */
import type { Clock } from '../protocol/clock.ts';
import { ClientError } from './client-error.ts';
import { Cancelled, within } from './waiting.ts';

export type TokenOption = string | (() => string | Promise<string>);

export class TokenSource {
  readonly #option: TokenOption | undefined;
  readonly #clock: Clock;
  readonly #timeoutMs: number;
  #latest: string | null;

  constructor(option: TokenOption | undefined, parts: { readonly clock: Clock; readonly timeoutMs: number }) {
    this.#option = option;
    this.#clock = parts.clock;
    this.#timeoutMs = parts.timeoutMs;
    this.#latest = typeof option === 'string' ? option : null;
  }

  /** False when another attempt could only present the same credentials. */
  get refreshable(): boolean {
    return typeof this.#option === 'function';
  }

  /** The token of the running connection. */
  get latest(): string | null {
    return this.#latest;
  }

  /** Asks for a token, once per connection and once after a refusal. Rejects with `client.token_failed`. */
  async fresh(signal: AbortSignal): Promise<string | null> {
    const option = this.#option;
    if (typeof option !== 'function') return this.#latest;
    try {
      this.#latest = await within(Promise.resolve().then(option), {
        clock: this.#clock,
        timeoutMs: this.#timeoutMs,
        signal,
        late: () => new ClientError('client.token_failed', 'the token function did not answer in time'),
      });
    } catch (cause) {
      if (cause instanceof Cancelled || cause instanceof ClientError) throw cause;
      throw new ClientError('client.token_failed', 'the token function failed', { cause });
    }
    return this.#latest;
  }
}
