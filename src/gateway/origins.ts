/** Which pages may open a socket: browsers do not ask first, so the server must look (cross-site WebSocket hijacking). */

/** `same-host`: the page's host and port are those the request was sent to. */
export interface OriginPolicy {
  allows(headers: Headers): boolean;
}

/**
 * No `Origin` header means that no browser sent the request, which is allowed. `'*'` in the list allows every page: for hosts
 * whose credential is a ticket in the URL and never a cookie.
 */
export function createOriginPolicy(allowedOrigins: readonly string[]): OriginPolicy {
  const allowed = new Set(allowedOrigins.map((origin) => origin.toLowerCase()));
  return {
    allows: (headers) => {
      const origin = headers.get('origin')?.toLowerCase();
      if (origin === undefined || allowed.has('*') || allowed.has(origin)) return true;
      return isSameHost(origin, headers.get('host'));
    },
  };
}

function isSameHost(origin: string, host: string | null): boolean {
  if (host === null || !URL.canParse(origin)) return false;
  const { protocol, host: originHost } = new URL(origin);
  // Parsed under the page's scheme, so that `example.com` and `example.com:443` are the same for https.
  const target = `${protocol}//${host}`;
  return URL.canParse(target) && new URL(target).host === originHost;
}
