/** What the client needs of the platform, as small structural types, and how it is found in browsers and in Node. */
import { ClientError } from './client-error.ts';

/** The part of a WebSocket that is used. The browser's own and the one of `ws` both satisfy it. */
export interface WebSocketLike {
  binaryType: string;
  onopen: ((event: never) => void) | null;
  onmessage: ((event: never) => void) | null;
  onerror: ((event: never) => void) | null;
  onclose: ((event: never) => void) | null;
  send(data: string | Uint8Array): void;
  close(code?: number, reason?: string): void;
}

export type WebSocketConstructor = new (url: string) => WebSocketLike;

export interface FetchedResponse {
  readonly status: number;
  arrayBuffer(): Promise<ArrayBuffer>;
}

export interface FetchInit {
  readonly headers: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
  /** `omit` for signed URLs: no credential of the host may travel there (§5.4). */
  readonly credentials: 'omit' | 'same-origin';
}

export type FetchFunction = (url: string, init: FetchInit) => Promise<FetchedResponse>;

/** SHA-256 as 64 lower-case hex digits. */
export type Sha256Function = (bytes: Uint8Array) => Promise<string>;

export interface PlatformOptions {
  /** Required where there is no global `WebSocket` (Node 20): pass the one of the `ws` package. */
  readonly webSocket?: WebSocketConstructor;
  readonly fetch?: FetchFunction;
  readonly sha256?: Sha256Function;
}

export interface Platform {
  readonly webSocket: WebSocketConstructor;
  /** `null`: segments cannot be fetched or not be verified, so all of them have to come inline. */
  readonly download: { readonly fetch: FetchFunction; readonly sha256: Sha256Function } | null;
}

/** Throws `client.no_websocket`. */
export function resolvePlatform(options: PlatformOptions): Platform {
  const webSocket = options.webSocket ?? globalWebSocket();
  if (webSocket === undefined) {
    throw new ClientError(
      'client.no_websocket',
      'this platform has no WebSocket: pass one as the webSocket option, such as that of the ws package',
    );
  }
  const fetch = options.fetch ?? globalFetch();
  const sha256 = options.sha256 ?? webCryptoSha256();
  const download = fetch === undefined || sha256 === undefined ? null : { fetch, sha256 };
  return { webSocket, download };
}

function globalWebSocket(): WebSocketConstructor | undefined {
  const found: unknown = Reflect.get(globalThis, 'WebSocket');
  return typeof found === 'function' ? (found as WebSocketConstructor) : undefined;
}

function globalFetch(): FetchFunction | undefined {
  if (typeof globalThis.fetch !== 'function') return undefined;
  // Called on the global object: browsers refuse a detached `fetch`.
  return (url, init) => globalThis.fetch(url, { ...init, headers: { ...init.headers } });
}

/** Browsers offer it on secure origins only (https, localhost). */
function webCryptoSha256(): Sha256Function | undefined {
  const subtle = globalThis.crypto?.subtle;
  if (subtle === undefined) return undefined;
  return async (bytes) => {
    const digest = await subtle.digest('SHA-256', Uint8Array.from(bytes));
    return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, '0')).join('');
  };
}
