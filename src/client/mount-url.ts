/** The addresses under the mount (part 2.1). */
import { ClientError } from './client-error.ts';

export interface Endpoints {
  /** WebSocket URL for one attempt. The token rides in the URL: browsers cannot set headers there (part 3, 3.2-2). */
  realtime(clientId: string, token: string | null): string;
  segment(segmentId: string): string;
  /** A signed URL may be relative to the mount's origin. */
  resolve(url: string): string;
}

const SOCKET_PROTOCOL: Readonly<Record<string, string>> = {
  'http:': 'ws:',
  'https:': 'wss:',
  'ws:': 'ws:',
  'wss:': 'wss:',
};
const HTTP_PROTOCOL: Readonly<Record<string, string>> = { 'ws:': 'http:', 'wss:': 'https:' };

/** `mount`: `https://host/prefix`, or the same with `ws:`. Throws `client.invalid_options`. */
export function endpointsOf(mount: string): Endpoints {
  if (!URL.canParse(mount)) throw invalid('url is not an absolute URL');
  const base = new URL(mount);
  const socketProtocol = SOCKET_PROTOCOL[base.protocol];
  if (socketProtocol === undefined) throw invalid('url must begin with http:, https:, ws: or wss:');
  if (base.search !== '' || base.hash !== '') throw invalid('url must have neither a query nor a fragment');
  const prefix = `${base.host}${base.pathname.replace(/\/+$/, '')}`;
  const httpBase = `${HTTP_PROTOCOL[base.protocol] ?? base.protocol}//${prefix}`;
  return {
    realtime(clientId, token) {
      const query = new URLSearchParams({ clientId });
      if (token !== null) query.set('token', token);
      return `${socketProtocol}//${prefix}/realtime?${query}`;
    },
    segment: (segmentId) => `${httpBase}/segments/${encodeURIComponent(segmentId)}`,
    resolve: (url) => new URL(url, `${httpBase}/`).href,
  };
}

function invalid(message: string): ClientError {
  return new ClientError('client.invalid_options', message);
}
