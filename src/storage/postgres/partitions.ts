/** The partition row that a push locks, and the registry beside it (§2.1). */
import { checkpointsOfState, type StateCheckpoints } from '../pending-checkpoints.ts';
import type { Admission, PartitionState } from '../storage.ts';
import { StorageError } from '../storage-error.ts';
import { CLIENT_COLUMNS, toClient } from './clients.ts';
import type { Statement, StepResult } from './driver.ts';
import type { Names } from './names.ts';
import { integerArray, type ResultRow, textArray, toInteger, toText } from './wire-values.ts';

const STATE_COLUMNS = 7;

const PARTITION_COLUMNS = 'p.partition, p.max_commit_seq, p.horizon_seq';

function registryColumns(names: Names): string {
  return `registry.log_epoch, registry.epoch_required,
    coalesce((SELECT meta.schema_version FROM ${names.schemaMeta} AS meta WHERE meta.id = 1), 0),
    ${names.checkpointsOf}(registry.partition)`;
}

function stateColumns(names: Names): string {
  return `${PARTITION_COLUMNS}, ${registryColumns(names)}`;
}

function stateSource(names: Names): string {
  return `${names.partitions} AS p JOIN ${names.registry} AS registry ON registry.partition = p.partition`;
}

function toState(row: ResultRow): PartitionState {
  const partition = toText(row[0]);
  return {
    partition,
    head: toInteger(row[1]),
    horizon: toInteger(row[2]),
    logEpoch: toText(row[3]),
    epochRequired: toInteger(row[4]) !== 0,
    storedSchemaVersion: toInteger(row[5]),
    ...checkpointsOfState(partition, toStateCheckpoints(row[6])),
  };
}

function toStateCheckpoints(json: ResultRow[number] | undefined): StateCheckpoints {
  if (json === undefined || json === null) return { own: null, unfinished: null };
  const [own, unfinished] = JSON.parse(json) as [StateCheckpoints['own'], StateCheckpoints['unfinished']];
  return { own, unfinished };
}

/** The lock that a push takes. Columns: partition, head, horizon; no row for a partition that nobody was admitted to. */
export function lockRow(names: Names, partition: string): Statement {
  const lock = `SELECT ${PARTITION_COLUMNS} FROM ${names.partitions} AS p WHERE p.partition = $1 FOR UPDATE`;
  return { text: lock, params: [partition], isFrequent: true };
}

/**
 * What a writer does first. The row that was waited for comes as its last holder left it, but what stands elsewhere only the
 * next statement sees: one that joined would take it from before the wait.
 */
export function lockPartition(names: Names, partition: string): readonly Statement[] {
  const registry = `SELECT ${registryColumns(names)} FROM ${names.registry} AS registry
    WHERE registry.partition = $1`;
  return [lockRow(names, partition), { text: registry, params: [partition], isFrequent: true }];
}

/** From the results of `lockPartition`. Throws `sync.storage.unknown_partition`. */
export function readLockedState(results: readonly StepResult[]): PartitionState {
  const [locked, registered] = results.map(({ rows }) => rows[0]);
  if (locked === undefined || registered === undefined) throw unknownPartition();
  return toState([...locked, ...registered]);
}

export function selectState(names: Names, partition: string): Statement {
  return {
    text: `SELECT ${stateColumns(names)} FROM ${stateSource(names)} WHERE p.partition = $1`,
    params: [partition],
    isFrequent: true,
  };
}

/** Throws `sync.storage.unknown_partition`. */
export function readStateRow(rows: readonly ResultRow[] | undefined): PartitionState {
  const row = rows?.[0];
  if (row === undefined) throw unknownPartition();
  return toState(row);
}

export function unknownPartition(): StorageError {
  return new StorageError('sync.storage.unknown_partition', 'the partition was never admitted');
}

/** State, records and bindings in one statement, hence of one moment; a row per client, in the order of `clientIds`. */
export function selectAdmissions(names: Names, partition: string, clientIds: readonly string[]): Statement {
  return {
    text: `WITH state AS MATERIALIZED (
        SELECT ${stateColumns(names)} FROM ${stateSource(names)} WHERE p.partition = $1)
      SELECT state.*, binding.actor_id, ${CLIENT_COLUMNS}
      FROM state CROSS JOIN unnest($2::text[]) WITH ORDINALITY AS wanted (client_id, nth)
      LEFT JOIN ${names.bindings} AS binding ON binding.partition = $1 AND binding.client_id = wanted.client_id
      LEFT JOIN ${names.clients} AS c ON c.partition = $1 AND c.client_id = wanted.client_id
      ORDER BY wanted.nth`,
    params: [partition, textArray(clientIds)],
    isFrequent: true,
  };
}

/** Empty for a partition that is not known yet. */
export function toAdmissions(rows: readonly ResultRow[]): readonly Admission[] {
  const [first] = rows;
  if (first === undefined) return [];
  const state = toState(first);
  return rows.map((row) => ({
    state,
    boundActorId: row[STATE_COLUMNS] ?? null,
    client: toClient(row, STATE_COLUMNS + 1),
  }));
}

/** First contact creates the epoch; a second creator waits for the first and finds its epoch (S-027). */
export function insertPartition(
  names: Names,
  first: { readonly partition: string; readonly newLogEpoch: string; readonly nowMs: number },
): readonly Statement[] {
  const { partition, newLogEpoch, nowMs } = first;
  return [
    {
      text: `INSERT INTO ${names.partitions} (partition) VALUES ($1) ON CONFLICT DO NOTHING`,
      params: [partition],
    },
    {
      text: `INSERT INTO ${names.registry} (partition, log_epoch, last_authenticated_at_ms)
        VALUES ($1, $2, $3::int8) ON CONFLICT DO NOTHING`,
      params: [partition, newLogEpoch, String(nowMs)],
    },
  ];
}

/** Rows are locked in the order of their key, so that two gateways cannot wait for each other. */
export function touchPartitions(names: Names, seen: ReadonlyMap<string, number>): Statement {
  return {
    text: `WITH seen AS (
        SELECT known.partition, wanted.at_ms
        FROM unnest($1::text[], $2::int8[]) AS wanted (partition, at_ms)
        JOIN ${names.registry} AS known ON known.partition = wanted.partition
        ORDER BY known.partition FOR UPDATE OF known)
      UPDATE ${names.registry} AS registry
      SET last_authenticated_at_ms = greatest(registry.last_authenticated_at_ms, seen.at_ms)
      FROM seen WHERE registry.partition = seen.partition`,
    params: [textArray([...seen.keys()]), integerArray([...seen.values()])],
  };
}

/**
 * S-032; the binding of clients to actors stays (part 2.24 decision 24). Under the partition's lock: what was admitted with
 * the old epoch has committed before, or will see the new one.
 */
export function rotateEpoch(
  names: Names,
  { partition, logEpoch }: { readonly partition: string; readonly logEpoch: string },
): readonly Statement[] {
  return [
    ...lockPartition(names, partition),
    {
      text: `UPDATE ${names.registry} SET log_epoch = $2, epoch_required = 1 WHERE partition = $1`,
      params: [partition, logEpoch],
    },
    { text: `DELETE FROM ${names.clients} WHERE partition = $1`, params: [partition] },
  ];
}

export function selectPartitions(
  names: Names,
  { afterPartition, max }: { readonly afterPartition: string | null; readonly max: number },
): Statement {
  return {
    text: `SELECT ${stateColumns(names)} FROM ${stateSource(names)}
      WHERE $1::text IS NULL OR p.partition > $1 ORDER BY p.partition LIMIT $2::int8`,
    params: [afterPartition, String(max)],
  };
}

export function toStates(rows: readonly ResultRow[]): readonly PartitionState[] {
  return rows.map(toState);
}
