/** Client records and the binding of a `clientId` to its actor (§8.1, S-009, part 2.24 decision 24). */
import type { WireVersion } from '../../protocol/frames.ts';
import type { ClientRecord, ClientUpdate, CursorUpdate, StoredSubscription } from '../storage.ts';
import type { Statement } from './driver.ts';
import type { Names } from './names.ts';
import { integerArray, type ResultRow, textArray, toInteger, toText } from './wire-values.ts';

/** A record in the order that `toClient` reads. */
export const CLIENT_COLUMNS =
  'c.client_id, c.actor_id, c.wire_version, c.schema_version, c.cursor, c.subscriptions, c.updated_at_ms';

export function selectClient(names: Names, partition: string, clientId: string): Statement {
  return {
    text: `SELECT ${CLIENT_COLUMNS} FROM ${names.clients} AS c WHERE c.partition = $1 AND c.client_id = $2`,
    params: [partition, clientId],
    isFrequent: true,
  };
}

/** Reads the columns from `at` on; `null` when there is no row, or an outer join found no record. */
export function toClient(row: ResultRow | undefined, at: number): ClientRecord | null {
  if (row === undefined || row[at] === null) return null;
  return {
    clientId: toText(row[at]),
    actorId: toText(row[at + 1]),
    wireVersion: toInteger(row[at + 2]) as WireVersion,
    schemaVersion: toInteger(row[at + 3]),
    cursor: toInteger(row[at + 4]),
    subscriptions: JSON.parse(toText(row[at + 5])) as StoredSubscription[],
    updatedAtMs: toInteger(row[at + 6]),
  };
}

/**
 * A round that a rotation overtook must not bring back a record of the old timeline: the lock makes one of the two wait for
 * the other, and who waited sees what the other left.
 */
function servedEpoch(names: Names): string {
  return `SELECT 1 FROM ${names.registry} AS registry
    WHERE registry.partition = $1 AND registry.log_epoch = $7 FOR SHARE`;
}

export function saveClient(names: Names, update: ClientUpdate): Statement {
  const { partition, clientId, logEpoch, actorId, wireVersion, schemaVersion, subscriptions, nowMs } = update;
  const versions = [String(wireVersion), String(schemaVersion)];
  const params = [partition, clientId, actorId, ...versions, String(nowMs), logEpoch];
  if (subscriptions === null) {
    return {
      text: `UPDATE ${names.clients} AS c SET actor_id = $3, wire_version = $4::int8, schema_version = $5::int8,
          updated_at_ms = $6::int8
        FROM (${servedEpoch(names)}) AS served WHERE c.partition = $1 AND c.client_id = $2`,
      params,
    };
  }
  return {
    text: `INSERT INTO ${names.clients} (partition, client_id, actor_id, wire_version, schema_version, cursor,
        updated_at_ms, subscriptions)
      SELECT $1, $2, $3, $4::int8, $5::int8, -1, $6::int8, $8::json FROM (${servedEpoch(names)}) AS served
      ON CONFLICT (partition, client_id) DO UPDATE SET actor_id = excluded.actor_id,
        wire_version = excluded.wire_version, schema_version = excluded.schema_version,
        updated_at_ms = excluded.updated_at_ms, subscriptions = excluded.subscriptions`,
    params: [...params, JSON.stringify(subscriptions)],
  };
}

/** What several updates of one client come to. */
interface CursorMove {
  readonly clientId: string;
  /** Replaces the stored cursor; `null` leaves it. */
  set: number | null;
  /** The least that the cursor is afterwards. */
  atLeast: number;
  seenAtMs: number;
}

/** One statement per partition, for records that exist (part 3, 3.5.3). */
export function saveCursors(names: Names, updates: readonly CursorUpdate[]): readonly Statement[] {
  const partitions = new Map<string, Map<string, CursorMove>>();
  for (const update of updates) {
    const moves = partitions.get(update.partition) ?? new Map<string, CursorMove>();
    partitions.set(update.partition, moves);
    moves.set(update.clientId, fold(moves.get(update.clientId), update));
  }
  return [...partitions.keys()]
    .sort()
    .map((partition) => moveCursors(names, partition, [...partitions.get(partition)!.values()]));
}

const LOWEST = Number.MIN_SAFE_INTEGER;

function fold(move: CursorMove | undefined, { clientId, mode, cursor, nowMs }: CursorUpdate): CursorMove {
  const before = move ?? { clientId, set: null, atLeast: LOWEST, seenAtMs: nowMs };
  const seenAtMs = Math.max(before.seenAtMs, nowMs);
  if (mode === 'set') return { clientId, set: cursor, atLeast: LOWEST, seenAtMs };
  return { clientId, set: before.set, atLeast: Math.max(before.atLeast, cursor), seenAtMs };
}

/** Rows are locked in the order of their key, so that two gateways cannot wait for each other. */
function moveCursors(names: Names, partition: string, moves: readonly CursorMove[]): Statement {
  return {
    text: `WITH moved AS (
        SELECT known.client_id, wanted.set_to, wanted.at_least, wanted.seen_at_ms
        FROM unnest($2::text[], $3::int8[], $4::int8[], $5::int8[])
          AS wanted (client_id, set_to, at_least, seen_at_ms)
        JOIN ${names.clients} AS known ON known.partition = $1 AND known.client_id = wanted.client_id
        ORDER BY known.client_id FOR UPDATE OF known)
      UPDATE ${names.clients} AS c
      SET cursor = greatest(coalesce(moved.set_to, c.cursor), moved.at_least),
        updated_at_ms = greatest(c.updated_at_ms, moved.seen_at_ms)
      FROM moved WHERE c.partition = $1 AND c.client_id = moved.client_id`,
    params: [
      partition,
      textArray(moves.map(({ clientId }) => clientId)),
      integerArray(moves.map(({ set }) => set)),
      integerArray(moves.map(({ atLeast }) => atLeast)),
      integerArray(moves.map(({ seenAtMs }) => seenAtMs)),
    ],
  };
}

export function selectBinding(
  names: Names,
  { partition, clientId }: { readonly partition: string; readonly clientId: string },
): Statement {
  return {
    text: `SELECT actor_id FROM ${names.bindings} WHERE partition = $1 AND client_id = $2`,
    params: [partition, clientId],
  };
}

/** The first binder wins; a second one waits for it. */
export function insertBinding(
  names: Names,
  binding: { readonly partition: string; readonly clientId: string; readonly actorId: string },
): Statement {
  return {
    text: `INSERT INTO ${names.bindings} (partition, client_id, actor_id) VALUES ($1, $2, $3)
      ON CONFLICT DO NOTHING`,
    params: [binding.partition, binding.clientId, binding.actorId],
  };
}
