/**
 * The serve gate (part 4, 4.3): may this process answer this partition now? Pure, asked on the connection that reads or
 * writes: under the partition lock for a push, inside the pinned snapshot for a pull.
 */
import { type JsonObject, SyncError } from '../../protocol/errors.ts';
import type { PendingCheckpoint, ServeGate } from '../../storage/checkpoints.ts';
import type { PartitionState } from '../../storage/storage.ts';
import type { Declarations } from './declarations.ts';
import type { SyncEvents } from './sync-deps.ts';

/** What a request that asks the gate was admitted with. */
export interface GateExpectation {
  readonly partition: string;
  /** Log epoch the request was admitted with. */
  readonly logEpoch: string;
}

export interface GateRefusal {
  readonly kind: 'schema' | 'epoch' | 'checkpoint';
  /** Of the client's error. */
  readonly details: JsonObject;
}

/** The first refusal in the table's order, or `null`. */
export function serveGateRefusal(
  gate: ServeGate,
  runningVersion: number,
  declarations: Declarations,
  expect: GateExpectation,
): GateRefusal | null {
  const { storedSchemaVersion, logEpoch, pending } = gate;
  if (storedSchemaVersion !== runningVersion) {
    return { kind: 'schema', details: { storedSchemaVersion, runningSchemaVersion: runningVersion } };
  }
  if (logEpoch !== expect.logEpoch) return { kind: 'epoch', details: { logEpochChanged: true } };
  if (pending.length === 0) return null;
  const { partition } = expect;
  const own = pending.find((checkpoint) => checkpoint.partition === partition);
  if (own !== undefined) return { kind: 'checkpoint', details: { partition, projection: own.name } };
  // Not part of this process's roll-out. No tenant learns the name of another.
  const foreign = pending.find((checkpoint) => !declarations.has(checkpoint.partition, checkpoint.name));
  return foreign === undefined ? null : { kind: 'checkpoint', details: { projection: foreign.name } };
}

/** The gate as part of a state that was read anyway. */
export function gateOf(state: PartitionState, runningVersion: number): ServeGate {
  if (state.pending.length === 0) return state;
  const isOfRunning = ({ schemaVersion }: PendingCheckpoint): boolean => schemaVersion === runningVersion;
  return { ...state, pending: state.pending.filter(isOfRunning) };
}

/** The refusal becomes the request-level error that a client gets: one fixed text, names and numbers in `details` only. */
export interface GateDeps {
  /** The schema this process was started with. */
  readonly schema: { readonly version: number };
  readonly declarations: Declarations;
  readonly events: SyncEvents;
}

/** Asks for one request. The error to answer with, or `null`. */
export function askGate(
  state: PartitionState,
  expect: GateExpectation,
  { schema: { version }, declarations, events }: GateDeps,
): SyncError | null {
  const refusal = serveGateRefusal(gateOf(state, version), version, declarations, expect);
  if (refusal === null) return null;
  const { kind, details } = refusal;
  events.emit({ type: 'gate.refused', partition: expect.partition, kind, details });
  return schemaNotReady(details);
}

function schemaNotReady(details: JsonObject): SyncError {
  return new SyncError('sync.schema_not_ready', 'the server is not ready to serve this partition', {
    details,
  });
}

/** For the pushes of a process that the database itself refused: another one, of the newer version, can take them. */
export function writerFenced(): SyncError {
  return schemaNotReady({ writerFenced: true });
}
