/** Which pages may connect: browsers do not ask before they open a socket, so the server must look (cross-site hijacking). */

/** Any page, for hosts whose credential is a ticket in the URL and never a cookie. */
export const ANY_ORIGIN = '*';
/** Pages served from this machine, on whatever port: for development. */
export const LOCAL_ORIGINS = 'localhost';

const LOCAL_HOSTS: readonly string[] = ['localhost', '127.0.0.1', '[::1]'];

/** Whether the host's list names the origin of a page. */
export function createOriginList(allowedOrigins: readonly string[]): (origin: string) => boolean {
  const allowed = new Set(allowedOrigins.map((origin) => origin.toLowerCase()));
  return (origin) => {
    if (allowed.has(ANY_ORIGIN) || allowed.has(origin.toLowerCase())) return true;
    return (
      allowed.has(LOCAL_ORIGINS) && URL.canParse(origin) && LOCAL_HOSTS.includes(new URL(origin).hostname)
    );
  };
}

export interface OriginPolicy {
  allows(headers: Headers): boolean;
}

/** For upgrades. No `Origin` header means that no browser sent the request; a page of the same host always may connect. */
export function createOriginPolicy(allowedOrigins: readonly string[]): OriginPolicy {
  const isListed = createOriginList(allowedOrigins);
  return {
    allows: (headers) => {
      const origin = headers.get('origin');
      return origin === null || isListed(origin) || isSameHost(origin, headers.get('host'));
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
