/** Whether a request is let in: who it comes from, and whether its versions and epoch are served (§1.5, §1.6, §2.1). */
import { SyncError } from '../../protocol/errors.ts';
import type { RespHeaderFrame } from '../../protocol/frames.ts';
import type { Limits } from '../../protocol/limits.ts';
import type { DecodedRequest } from '../../protocol/message.ts';
import type { Admission, ClientRecord, PartitionState, Storage } from '../../storage/storage.ts';
import { assertId } from './request-checks.ts';
import type { Identity, SyncDeps } from './sync-deps.ts';

/** Client ids of registered commands begin like this; no client may have one (S-009). */
const RESERVED_CLIENT_ID_PREFIX = '["remote-command",';

export type RequestDecoder = (request: Uint8Array) => DecodedRequest;

export interface RoundContext {
  readonly who: Identity;
  /** The one a socket was opened with; `null` on HTTP. */
  readonly clientId: string | null;
  /** Ends the round early: the peer is gone, or the grant ended. */
  readonly signal: AbortSignal;
  /** Reads a request of another dialect, throwing as `decodeRequest` does; absent for SSP2. */
  readonly decode?: RequestDecoder | undefined;
}

export type AdmittedRound =
  | {
      readonly kind: 'admitted';
      readonly state: PartitionState;
      readonly client: ClientRecord | null;
      readonly boundActorId: string | null;
    }
  /** Schema floor or epoch reset: this frame and `END` are the answer. */
  | { readonly kind: 'header-only'; readonly header: RespHeaderFrame };

/**
 * Reads the partition once and writes nothing but a partition seen for the first time. Throws the request-level
 * `SyncError`s `sync.auth_required`, `sync.invalid_client_id`, `sync.client_wire_unsupported`, `sync.invalid_request`.
 */
export async function admitRound(
  request: DecodedRequest,
  { who, clientId }: RoundContext,
  deps: SyncDeps,
): Promise<AdmittedRound> {
  const nowMs = deps.clock.nowMs();
  if (who.expiresAtMs !== null && who.expiresAtMs <= nowMs) {
    throw new SyncError('sync.auth_required', 'the credentials have expired');
  }
  const claimed = request.header.clientId;
  assertClientId(claimed, deps.limits);
  if (clientId !== null && claimed !== clientId) {
    throw new SyncError(
      'sync.invalid_client_id',
      'the clientId is not the one this connection was opened with',
    );
  }
  const admission = await deps.storage.admit({
    partition: who.partition,
    clientId: claimed,
    newLogEpoch: deps.random.id(),
    nowMs,
  });
  assertBinding(admission.boundActorId, who);
  return judge(request, admission, deps);
}

/** Throws `sync.invalid_client_id` for a reserved id, `sync.invalid_request` for one that no database key can be. */
export function assertClientId(clientId: string, limits: Pick<Limits, 'idUnitsMax'>): void {
  if (clientId.startsWith(RESERVED_CLIENT_ID_PREFIX)) {
    throw new SyncError('sync.invalid_client_id', 'the clientId begins with a reserved prefix');
  }
  assertId(clientId, 'the clientId', limits);
}

/** Throws `sync.invalid_client_id` when the id belongs to another actor of the partition. */
export function assertBinding(boundActorId: string | null, who: Identity): void {
  if (boundActorId !== null && boundActorId !== who.actorId) {
    throw new SyncError('sync.invalid_client_id', 'the clientId belongs to another actor');
  }
}

/**
 * Binds the id to the actor at the first request that gets to work. Requests that were refused or answered by a header
 * alone leave no trace (S-029). `admit` reads the binding each time, so nothing needs to remember it.
 */
export async function bindClientId(
  { who, clientId, boundActorId }: { who: Identity; clientId: string; boundActorId: string | null },
  storage: Storage,
): Promise<void> {
  if (boundActorId !== null) return;
  const { partition, actorId } = who;
  assertBinding(await storage.bindClient({ partition, clientId, actorId }), who);
}

/** In the order that the protocol fixes: wire version, schema floor, epoch (part 2.3, 2.4). */
function judge(request: DecodedRequest, admission: Admission, deps: SyncDeps): AdmittedRound {
  const { wireVersion, header } = request;
  const { state, client, boundActorId } = admission;
  if (wireVersion === 1 && state.epochRequired) {
    throw new SyncError('sync.client_wire_unsupported', 'the partition needs wire version 2');
  }
  const { logEpoch } = state;
  const resetRequired = wireVersion >= 2 && header.logEpoch !== logEpoch;
  const { version } = deps.schema;
  if (header.schemaVersion !== version) {
    const versions = { requiredSchemaVersion: version, latestSchemaVersion: version };
    return { kind: 'header-only', header: { type: 'RESP_HEADER', ...versions, logEpoch, resetRequired } };
  }
  if (!resetRequired) return { kind: 'admitted', state, client, boundActorId };
  if (header.logEpoch === undefined && request.pushes.length > 0) {
    throw new SyncError('sync.invalid_request', 'a request without a log epoch carries commits');
  }
  return { kind: 'header-only', header: { type: 'RESP_HEADER', logEpoch, resetRequired } };
}
