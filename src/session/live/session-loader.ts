/** What a connection starts from: the partition's state, the client's record, and what its grant makes of the stored list (part 3, 3.2). */
import { SyncError } from '../../protocol/errors.ts';
import type { Limits } from '../../protocol/limits.ts';
import { CURRENT_WIRE_VERSION } from '../../protocol/version.ts';
import type { Admission, ClientRecord, PartitionState } from '../../storage/storage.ts';
import { assertBinding, assertClientId } from '../sync/admission.ts';
import { resolveGrantOrDeny } from '../sync/grant.ts';
import { loadRegistrations } from '../sync/registrations.ts';
import type { Registration } from '../sync/round-outcome.ts';
import type { Identity, SyncDeps } from '../sync/sync-deps.ts';
import type { CohortIdentity } from './cohort.ts';
import type { LastSeen } from './last-seen.ts';

export interface Speaker {
  readonly who: Identity;
  readonly clientId: string;
}

export interface LoadedSession {
  readonly state: PartitionState;
  /** −1 without a record. */
  readonly cursor: number;
  readonly requiresSync: boolean;
  readonly identity: CohortIdentity;
}

type LoadDeps = { readonly deps: SyncDeps; readonly lastSeen: LastSeen };

const NO_REGISTRATIONS: readonly Registration[] = [];

/** Throws `sync.invalid_request` for a missing id and `sync.invalid_client_id` for a reserved one (rules 5 and 7 of 3.2). */
export function assertConnectable(clientId: string | null, limits: Pick<Limits, 'idUnitsMax'>): string {
  if (clientId === null || clientId === '') {
    throw new SyncError('sync.invalid_request', 'the clientId is missing');
  }
  assertClientId(clientId, limits);
  return clientId;
}

/** First contact creates the partition's epoch (S-027). Throws `sync.invalid_client_id` when another actor holds the id. */
export async function admitClient(
  { who, clientId }: Speaker,
  { deps, lastSeen }: LoadDeps,
): Promise<Admission> {
  const admission = await deps.storage.admit({
    partition: who.partition,
    clientId,
    newLogEpoch: deps.random.id(),
    nowMs: deps.clock.nowMs(),
  });
  lastSeen.touch(who.partition);
  assertBinding(admission.boundActorId, who);
  return admission;
}

/** Everything that a connect reads. The caller has joined the partition's fanout before (3.2.2-10). */
export async function loadSession(speaker: Speaker, context: LoadDeps): Promise<LoadedSession> {
  const { who, clientId } = speaker;
  const { deps } = context;
  assertConnectable(clientId, deps.limits);
  // An ack of the connection before may still wait to be written.
  await deps.cursors.flush({ partition: who.partition, clientId });
  const { state, client: record } = await admitClient(speaker, context);
  if (record === null) {
    const identity = {
      wireVersion: CURRENT_WIRE_VERSION,
      schemaVersion: deps.schema.version,
      registrations: NO_REGISTRATIONS,
    };
    return { state, cursor: -1, requiresSync: true, identity };
  }
  const registrations = await resolveRegistrations(who, record, deps);
  const { wireVersion, schemaVersion, cursor } = record;
  // A cursor above the head means that the log went backwards: behind as well.
  const requiresSync = cursor !== state.head;
  return { state, cursor, requiresSync, identity: { wireVersion, schemaVersion, registrations } };
}

/** Effective scopes as the host's resolver says now; a resolver that throws registers nothing. */
export async function resolveRegistrations(
  who: Identity,
  record: ClientRecord,
  deps: SyncDeps,
): Promise<readonly Registration[]> {
  if (record.subscriptions.length === 0) return NO_REGISTRATIONS;
  const grant = await resolveGrantOrDeny(who, deps);
  return loadRegistrations({ record, grant, schema: deps.schema });
}

/** The stored list under the grant of this moment, for a connection whose scopes changed. */
export async function reloadRegistrations(
  { who, clientId }: Speaker,
  deps: SyncDeps,
): Promise<readonly Registration[]> {
  const record = await deps.storage.readSnapshot(who.partition, (reader) => reader.readClient(clientId));
  return record === null ? NO_REGISTRATIONS : resolveRegistrations(who, record, deps);
}
