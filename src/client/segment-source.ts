/** Fetches referenced segments and verifies that they are what their id says (§5.4, §5.5). */
import { canonicalScopes } from '../protocol/canonical-json.ts';
import type { Clock } from '../protocol/clock.ts';
import type { ScopeMap, SegmentRefFrame } from '../protocol/frames.ts';
import { ClientError } from './client-error.ts';
import type { Endpoints } from './mount-url.ts';
import type { FetchedResponse, FetchInit, Platform } from './platform.ts';
import type { TokenSource } from './token-source.ts';
import { Cancelled, within } from './waiting.ts';

const SEGMENT_ID_PREFIX = 'sha256:';
const HTTP_OK = 200;
const HTTP_UNAUTHORIZED = 401;

export interface SegmentSourceParts {
  readonly endpoints: Endpoints;
  readonly download: Platform['download'];
  readonly tokens: TokenSource;
  readonly clock: Clock;
  readonly timeoutMs: number;
}

export class SegmentSource {
  readonly #parts: SegmentSourceParts;

  constructor(parts: SegmentSourceParts) {
    this.#parts = parts;
  }

  /** `PULL_HEADER.accept`: inline always; external and signed URLs where segments can be fetched and verified. */
  get accept(): number {
    return this.#parts.download === null ? 0b0001 : 0b1011;
  }

  /**
   * The segment's bytes. `scopes` are the *requested* ones of the subscription (§5.5). Rejects with
   * `client.segment_unavailable`: the descriptor is then dropped whole and another pull brings a new one.
   */
  async load(ref: SegmentRefFrame, scopes: ScopeMap, signal: AbortSignal): Promise<Uint8Array> {
    const { download } = this.#parts;
    if (download === null || ref.mediaType !== 'rows') {
      throw unavailable('the server sent a kind of segment that was not asked for');
    }
    try {
      const response = await this.#bounded(
        (bounded) =>
          ref.url === undefined ? this.#direct(ref, scopes, bounded) : this.#signed(ref, bounded),
        signal,
      );
      if (response.status !== HTTP_OK) throw unavailable('a segment was refused', response.status);
      const bytes = new Uint8Array(await this.#bounded(() => response.arrayBuffer(), signal));
      const digest = await download.sha256(bytes);
      if (bytes.length !== ref.byteLength || SEGMENT_ID_PREFIX + digest !== ref.segmentId) {
        throw unavailable('a segment does not hash to its id');
      }
      return bytes;
    } catch (cause) {
      if (cause instanceof Cancelled || cause instanceof ClientError) throw cause;
      throw new ClientError('client.segment_unavailable', 'a segment could not be fetched', { cause });
    }
  }

  async #direct(ref: SegmentRefFrame, scopes: ScopeMap, signal: AbortSignal): Promise<FetchedResponse> {
    const { endpoints, tokens } = this.#parts;
    const attempt = (token: string | null): Promise<FetchedResponse> => {
      const headers: Record<string, string> = { 'X-Syncular-Scopes': headerText(canonicalScopes(scopes)) };
      if (token !== null) headers.Authorization = `Bearer ${token}`;
      return this.#fetch(endpoints.segment(ref.segmentId), { headers, signal, credentials: 'same-origin' });
    };
    const response = await attempt(tokens.latest);
    if (response.status !== HTTP_UNAUTHORIZED || !tokens.refreshable) return response;
    return attempt(await tokens.fresh(signal));
  }

  /** From the signed URL only, without any credential of the host, never after its expiry (§5.4). */
  async #signed(ref: SegmentRefFrame, signal: AbortSignal): Promise<FetchedResponse> {
    const { endpoints, clock } = this.#parts;
    if ((ref.urlExpiresAtMs ?? 0) <= clock.nowMs()) throw unavailable('a segment URL has expired');
    return this.#fetch(endpoints.resolve(ref.url ?? ''), { headers: {}, signal, credentials: 'omit' });
  }

  #fetch(url: string, init: FetchInit): Promise<FetchedResponse> {
    const { download } = this.#parts;
    if (download === null) throw unavailable('segments cannot be fetched on this platform');
    return download.fetch(url, init);
  }

  /** Ends the request itself, not only the wait for it, when time is over or the client lets go. */
  async #bounded<T>(work: (signal: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
    const { clock, timeoutMs } = this.#parts;
    const own = new AbortController();
    const abort = (): void => own.abort();
    signal.addEventListener('abort', abort, { once: true });
    try {
      return await within(work(own.signal), {
        clock,
        timeoutMs,
        signal,
        late: () => {
          own.abort();
          return unavailable('a segment did not arrive in time');
        },
      });
    } finally {
      signal.removeEventListener('abort', abort);
    }
  }
}

/** Header values are Latin-1: everything beyond ASCII travels as a JSON escape, which reads as the same text. */
function headerText(json: string): string {
  return json.replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

function unavailable(message: string, status?: number): ClientError {
  return new ClientError('client.segment_unavailable', message, {
    details: status === undefined ? {} : { status },
  });
}
