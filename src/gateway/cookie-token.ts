/** A token in a cookie, which a browser sends wherever a page makes it: taken from pages of the same site alone. */
import type { AuthRequest } from './auth.ts';

export function cookieToken({ headers }: Pick<AuthRequest, 'headers'>, name: string): string | null {
  if (!isOfSameSite(headers)) return null;
  for (const part of (headers.get('cookie') ?? '').split(';')) {
    const at = part.indexOf('=');
    if (at === -1 || part.slice(0, at).trim() !== name) continue;
    const value = part.slice(at + 1).trim();
    return value === '' ? null : value;
  }
  return null;
}

/** Browsers say where a request comes from; whoever says nothing is none, and holds its cookies itself. */
function isOfSameSite(headers: Headers): boolean {
  const site = headers.get('sec-fetch-site');
  if (site !== null) return site !== 'cross-site';
  const origin = headers.get('origin');
  if (origin === null) return true;
  const url = URL.canParse(origin) ? new URL(origin) : null;
  return url !== null && url.host === headers.get('host');
}
