/** One HTTP exchange, whatever carries it: a Node server, `fetch`, or another transport. */

export interface HttpRequest {
  /** Correlates log entries and the `X-Request-Id` response header. */
  readonly id: string;
  readonly method: string;
  /** Path and query as received. */
  readonly target: string;
  readonly headers: Headers;
  /** Address of the peer; empty when the embedding host does not say. */
  readonly remoteAddress: string;
  /** Body bytes as they came, content coding still on. Read at most once. */
  readonly body: AsyncIterable<Uint8Array>;
  /** Aborted when the client went away. */
  readonly signal: AbortSignal;
}

export type HttpHeaders = Readonly<Record<string, string>>;
export type HttpBody = Uint8Array | AsyncIterable<Uint8Array> | null;

export interface HttpResponse {
  readonly status: number;
  /** Names in lower case. */
  readonly headers: HttpHeaders;
  /** A stream that throws means: cut the response, the client must see that it is incomplete. */
  readonly body: HttpBody;
  /** The adapter calls it exactly once: `delivered` after the last byte was handed to the transport. */
  readonly ended: (how: 'delivered' | 'cut') => void;
}

export const SSP2_CONTENT_TYPE = 'application/vnd.syncular.sync.v2';

/** Path and query of a request target in origin or absolute form; `null` when it is neither. */
export function parseTarget(target: string): URL | null {
  // Concatenated, not resolved: `//host/path` is a path here, not another authority.
  const absolute = target.startsWith('/') ? `http://gateway.invalid${target}` : target;
  return URL.canParse(absolute) ? new URL(absolute) : null;
}

/** The target without its query, which may hold a ticket. */
export function loggablePath(target: string): string {
  const end = target.search(/[?#]/);
  return end === -1 ? target : target.slice(0, end);
}
