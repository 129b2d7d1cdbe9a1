/** The one route table of every transport (part 2.1). */

export type RouteName = 'sync' | 'ticket' | 'metrics' | 'segment' | 'realtime' | 'live' | 'ready';

interface Route {
  readonly name: RouteName;
  /** Under the mount, or at the root of the host. */
  readonly base: 'mount' | 'root';
  readonly path: string;
  /** `path` is followed by one more, non-empty, percent-encoded segment. */
  readonly parameter: 'none' | 'last-segment';
  readonly methods: readonly string[];
}

const ROUTES: readonly Route[] = [
  { name: 'sync', base: 'mount', path: '/sync', parameter: 'none', methods: ['POST'] },
  { name: 'ticket', base: 'mount', path: '/ticket', parameter: 'none', methods: ['POST'] },
  { name: 'segment', base: 'mount', path: '/segments/', parameter: 'last-segment', methods: ['GET'] },
  { name: 'realtime', base: 'mount', path: '/realtime', parameter: 'none', methods: ['GET'] },
  { name: 'live', base: 'root', path: '/healthz', parameter: 'none', methods: ['GET', 'HEAD'] },
  { name: 'metrics', base: 'root', path: '/metrics', parameter: 'none', methods: ['GET'] },
  { name: 'ready', base: 'root', path: '/readyz', parameter: 'none', methods: ['GET', 'HEAD'] },
];

export type RouteMatch =
  | { readonly kind: 'match'; readonly name: RouteName; readonly parameter: string }
  | { readonly kind: 'wrong-method'; readonly name: RouteName; readonly allow: readonly string[] }
  | { readonly kind: 'unknown' };

/** `''` for the root, else `/prefix` without a slash at the end. Throws a `RangeError` on anything that is not a path. */
export function normalizeMount(mount: string): string {
  const trimmed = mount.replace(/\/+$/, '');
  if (trimmed === '') return '';
  if (!/^(\/[A-Za-z0-9._~-]+)+$/.test(trimmed)) {
    throw new RangeError('mount must be a path prefix such as /sync-api, of letters, digits and . _ ~ -');
  }
  return trimmed;
}

export function matchRoute(mount: string, method: string, path: string): RouteMatch {
  for (const route of ROUTES) {
    const parameter = matchPath(route, mount, path);
    if (parameter === null) continue;
    return route.methods.includes(method)
      ? { kind: 'match', name: route.name, parameter }
      : { kind: 'wrong-method', name: route.name, allow: route.methods };
  }
  return { kind: 'unknown' };
}

function matchPath(route: Route, mount: string, path: string): string | null {
  const expected = route.base === 'mount' ? mount + route.path : route.path;
  if (route.parameter === 'none') return path === expected ? '' : null;
  if (!path.startsWith(expected)) return null;
  const encoded = path.slice(expected.length);
  return encoded === '' || encoded.includes('/') ? null : decodeSegment(encoded);
}

function decodeSegment(encoded: string): string | null {
  try {
    return decodeURIComponent(encoded);
  } catch (failure) {
    // Malformed percent-encoding names no resource.
    if (failure instanceof URIError) return null;
    throw failure;
  }
}
