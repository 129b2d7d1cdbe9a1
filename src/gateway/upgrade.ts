/** May this upgrade become a session? The same for every transport (part 3, 3.2). */
import { SyncError } from '../protocol/errors.ts';
import type { Identity } from '../session/sync/sync-deps.ts';
import type { Identify } from './auth.ts';
import { type DialectName, dialectOffered, SUBPROTOCOLS } from './dialect-name.ts';
import { restarting } from './http.ts';
import { type HttpRequest, parseTarget } from './http-message.ts';
import type { OriginPolicy } from './origins.ts';
import { matchRoute } from './routes.ts';

export interface UpgradeDeps {
  readonly mount: string;
  readonly identify: Identify;
  readonly origins: OriginPolicy;
  /** Why this client gets no session at the moment, or `null` (3.2-5, 3.2-6). */
  readonly refusal: (
    request: Pick<Admitted, 'who' | 'clientId'>,
  ) => SyncError | null | Promise<SyncError | null>;
  readonly isDraining: () => boolean;
}

export interface Admitted {
  readonly who: Identity;
  readonly clientId: string;
  /** Of the connection, for as long as it lives. */
  readonly dialect: DialectName;
}

/** Throws the `SyncError` to refuse with; anything else thrown is a failure nobody foresaw. */
export async function admitUpgrade(request: HttpRequest, deps: UpgradeDeps): Promise<Admitted> {
  const target = parseTarget(request.target);
  const match = matchRoute(deps.mount, request.method, target?.pathname ?? '');
  if (target === null || match.kind === 'unknown' || match.name !== 'realtime') {
    throw new SyncError('sync.not_found', 'there is no WebSocket at this path');
  }
  if (match.kind === 'wrong-method') {
    throw new SyncError('sync.invalid_request', 'only GET can be upgraded here', { httpStatus: 405 });
  }
  assertNotDraining(deps);
  const who = await deps.identify(request, 'upgrade');
  if (!deps.origins.allows(request.headers)) {
    throw new SyncError('sync.forbidden', 'pages of this origin may not connect');
  }
  const clientId = target.searchParams.get('clientId') ?? '';
  if (clientId === '') throw new SyncError('sync.invalid_request', 'the clientId parameter is missing');
  const dialect = spokenDialect(request.headers.get('sec-websocket-protocol'));
  const admitted = { who, clientId, dialect };
  const refusal = await deps.refusal(admitted);
  if (refusal !== null) throw refusal;
  // A drain may have begun while the host authenticated.
  assertNotDraining(deps);
  return admitted;
}

function assertNotDraining(deps: UpgradeDeps): void {
  if (deps.isDraining()) throw restarting();
}

function spokenDialect(header: string | null): DialectName {
  const dialect = dialectOffered(header);
  if (dialect !== null) return dialect;
  throw new SyncError('sync.invalid_request', 'none of the offered subprotocols is spoken here', {
    details: { supported: SUBPROTOCOLS },
  });
}
