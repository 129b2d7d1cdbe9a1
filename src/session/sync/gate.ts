/**
 * The serve gate (part 4, 4.3): may this process answer this partition now? Pure, asked on the connection that reads or
 * writes: under the partition lock for a push, inside the pinned snapshot for a pull.
 */
import { type JsonObject, SyncError } from '../../protocol/errors.ts';
import type { PartitionState } from '../../storage/storage.ts';

/** What the gate looks at; `PartitionState` has it. */
export type GateState = Pick<PartitionState, 'storedSchemaVersion' | 'logEpoch'>;

export interface GateExpectation {
  /** Version of the schema this process was started with. */
  readonly schemaVersion: number;
  /** Log epoch the request was admitted with. */
  readonly admittedEpoch: string;
}

export type GateRefusal = { readonly kind: 'schema' | 'epoch'; readonly details: JsonObject };

/** The first refusal in the table's order, or `null`. */
export function gateRefusal(state: GateState, expected: GateExpectation): GateRefusal | null {
  if (state.storedSchemaVersion !== expected.schemaVersion) {
    const details = {
      storedSchemaVersion: state.storedSchemaVersion,
      runningSchemaVersion: expected.schemaVersion,
    };
    return { kind: 'schema', details };
  }
  if (state.logEpoch !== expected.admittedEpoch) {
    return { kind: 'epoch', details: { logEpochChanged: true } };
  }
  return null;
}

/** The refusal as the request-level error that a client gets: one fixed text, names and numbers in `details` only. */
export function serveGateRefusal(state: GateState, running: GateExpectation): SyncError | null {
  const refusal = gateRefusal(state, running);
  if (refusal === null) return null;
  return new SyncError('sync.schema_not_ready', 'the server is not ready to serve this partition', {
    details: refusal.details,
  });
}
