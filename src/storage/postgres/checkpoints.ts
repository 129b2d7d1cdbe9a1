/** Records of backfills and the writer fence (part 4), by statements that each keep their own promise. */
import type {
  Activation,
  Checkpoint,
  CheckpointAdvance,
  CheckpointDeclaration,
  CheckpointState,
  CheckpointStorage,
  ServeGate,
} from '../checkpoints.ts';
import { StorageQueryError } from '../storage-error.ts';
import { selectVerdict, toVerdict } from './checkpoint-sources.ts';
import { INDEX_PLANS_ONLY, type PgConnections, type Sql } from './connections.ts';
import type { Statement } from './driver.ts';
import type { Names } from './names.ts';
import { lockRow } from './partitions.ts';
import { type ResultRow, toInteger, toText } from './wire-values.ts';

type Declared = CheckpointDeclaration & { readonly nowMs: number };

function selectSql(names: Names): string {
  return `SELECT c.partition, c.name, c.schema_version, c.state, c.watermark, c.owner_epoch, c.observed_rows,
      c.updated_at_ms, scan.head_seq, scan.tbl, scan.after_row_id
    FROM ${names.checkpoints} AS c
    LEFT JOIN ${names.scans} AS scan ON scan.partition = c.partition AND scan.name = c.name`;
}

export function toCheckpoint(row: ResultRow): Checkpoint {
  const [headSeq = null, table, afterRowId = null] = row.slice(8);
  return {
    partition: toText(row[0]),
    name: toText(row[1]),
    schemaVersion: toInteger(row[2]),
    state: toText(row[3]) as CheckpointState,
    watermark: toInteger(row[4]),
    ownerEpoch: toInteger(row[5]),
    observedRows: toInteger(row[6]),
    updatedAtMs: toInteger(row[7]),
    scan: headSeq === null ? null : { headSeq: toInteger(headSeq), table: toText(table), afterRowId },
  };
}

/**
 * What exists is never declared again, and a fence never lowered. All checkpoints before all fences, each in the order of
 * their key: so two that declare at once cannot wait for each other.
 */
export function installCheckpoints(
  names: Names,
  declared: readonly CheckpointDeclaration[],
  nowMs: number,
): readonly Statement[] {
  const list = JSON.stringify(
    declared.map(({ partition, name, schemaVersion: version }) => ({ partition, name, version })),
  );
  const source = 'json_to_recordset($1::json) AS d (partition text, name text, version integer)';
  return [
    {
      text: `INSERT INTO ${names.checkpoints} (partition, name, schema_version, state, updated_at_ms)
        SELECT d.partition, d.name, d.version, 'declared', $2::int8 FROM ${source}
        ORDER BY d.partition COLLATE "C", d.name COLLATE "C" ON CONFLICT DO NOTHING`,
      params: [list, String(nowMs)],
    },
    {
      text: `INSERT INTO ${names.writerFence} AS fence (partition, required_writer_version)
        SELECT d.partition, max(d.version) FROM ${source}
        GROUP BY d.partition ORDER BY d.partition COLLATE "C"
        ON CONFLICT (partition) DO UPDATE SET required_writer_version =
          greatest(fence.required_writer_version, excluded.required_writer_version)`,
      params: [list],
    },
  ];
}

/** Of any partition. */
export function selectUnfinished(names: Names, schemaVersion: number): Statement {
  return {
    text: `SELECT c.partition, c.name FROM ${names.checkpoints} AS c
      WHERE c.schema_version = $1::int4 AND c.state <> 'activated' ORDER BY c.partition, c.name`,
    params: [String(schemaVersion)],
  };
}

export function toUnfinished(
  rows: readonly ResultRow[],
): readonly { readonly partition: string; readonly name: string }[] {
  return rows.map(([partition, name]) => ({ partition: toText(partition), name: toText(name) }));
}

/** One statement, hence of one moment. */
export function selectServeGate(names: Names, partition: string, runningVersion: number): Statement {
  return {
    text: `SELECT coalesce((SELECT meta.schema_version FROM ${names.schemaMeta} AS meta WHERE meta.id = 1), 0),
      (SELECT registry.log_epoch FROM ${names.registry} AS registry WHERE registry.partition = $1),
      (SELECT json_agg(json_build_array(u.partition, u.name)) FROM (
        SELECT c.partition, c.name FROM ${names.checkpoints} AS c
        WHERE c.schema_version = $2::int4 AND c.state <> 'activated' ORDER BY c.partition, c.name) AS u)`,
    params: [partition, String(runningVersion)],
  };
}

export function toServeGate(row: ResultRow | undefined): ServeGate {
  const [version, logEpoch = null, unfinished = null] = row ?? [];
  const pending = unfinished === null ? [] : (JSON.parse(unfinished) as readonly [string, string][]);
  return {
    storedSchemaVersion: toInteger(version),
    ...(logEpoch === null ? {} : { logEpoch }),
    pending: pending.map(([partition, name]) => ({ partition, name })),
  };
}

export function selectCheckpoints(names: Names, partition: string): Statement {
  return {
    text: `${selectSql(names)} WHERE c.partition = $1 ORDER BY c.name`,
    params: [partition],
  };
}

export function selectCheckpointsAfter(
  names: Names,
  { after, max }: Parameters<CheckpointStorage['listCheckpoints']>[0],
): Statement {
  const condition = after === null ? '' : 'WHERE (c.partition, c.name) > ($2, $3)';
  return {
    text: `${selectSql(names)} ${condition} ORDER BY c.partition, c.name LIMIT $1::int8`,
    params: [String(max), ...(after === null ? [] : [after.partition, after.name])],
  };
}

/** UPDATE and record in one transaction: whoever comes second waits at the row, and finds the epoch of the first. */
export async function claimCheckpoint(
  connections: PgConnections,
  names: Names,
  { partition, name, schemaVersion, nowMs }: Declared,
): Promise<Checkpoint> {
  const key = [partition, name, String(schemaVersion)];
  const claim: Statement = {
    text: `UPDATE ${names.checkpoints} AS c
      SET owner_epoch = c.owner_epoch + 1, state = 'backfilling', updated_at_ms = $4::int8
      WHERE c.partition = $1 AND c.name = $2 AND c.schema_version = $3::int4 AND c.state <> 'activated'
      RETURNING 1`,
    params: [...key, String(nowMs)],
  };
  const record: Statement = {
    text: `${selectSql(names)} WHERE c.partition = $1 AND c.name = $2 AND c.schema_version = $3::int4`,
    params: key,
  };
  const [claimed, found] = await connections.write('durable', claim, record);
  const row = found?.rows[0];
  const checkpoint = row === undefined ? null : toCheckpoint(row);
  // One that was declared between the two statements is there, and was not claimed.
  if (checkpoint === null || (claimed?.rows.length !== 1 && checkpoint.state !== 'activated')) {
    throw new StorageQueryError(
      'sync.storage.checkpoint_not_declared',
      `partition ${partition} has no checkpoint ${name} of schema version ${schemaVersion}`,
    );
  }
  return checkpoint;
}

/** One row where it advanced; none, and nothing written, for a worker that was superseded. */
export function advanceStatement(names: Names, partition: string, advance: CheckpointAdvance): Statement {
  const { name, ownerEpoch, watermark, observedRows, scan, nowMs } = advance;
  // Back to 0 only where the scan starts again.
  const raised = watermark === 0 && scan !== null ? '$4::int8' : 'greatest(c.watermark, $4::int8)';
  const position =
    scan === null
      ? `DELETE FROM ${names.scans} AS scan USING advanced AS a
        WHERE scan.partition = a.partition AND scan.name = a.name`
      : `INSERT INTO ${names.scans} (partition, name, head_seq, tbl, after_row_id)
        SELECT a.partition, a.name, $7::int8, $8::text, $9::text FROM advanced AS a
        ON CONFLICT (partition, name) DO UPDATE
        SET head_seq = excluded.head_seq, tbl = excluded.tbl, after_row_id = excluded.after_row_id`;
  return {
    text: `WITH advanced AS (
        UPDATE ${names.checkpoints} AS c
        SET watermark = ${raised}, observed_rows = $5::int8, updated_at_ms = $6::int8
        WHERE c.partition = $1 AND c.name = $2 AND c.owner_epoch = $3::int8 AND c.state = 'backfilling'
        RETURNING c.partition, c.name),
      moved AS (${position})
      SELECT 1 FROM advanced`,
    params: [
      ...[partition, name, String(ownerEpoch), String(watermark), String(observedRows), String(nowMs)],
      ...(scan === null ? [] : [String(scan.headSeq), scan.table, scan.afterRowId]),
    ],
  };
}

type ActivationRequest = Parameters<CheckpointStorage['activateCheckpoint']>[0];

/** Under the lock that a push takes: none lands between the look at the sources and the new state. */
export function activateCheckpoint(
  connections: PgConnections,
  names: Names,
  request: ActivationRequest,
): Promise<Activation> {
  const { partition, sources, watermark } = request;
  const opening = [...INDEX_PLANS_ONLY, lockRow(names, partition)];
  return connections.transaction(opening, async (sql, opened) => {
    await assertFenced(sql, names, request);
    if (opened.at(-1)?.rows.length === 0) await lockFirst(sql, names, partition);
    const [verdict] = await sql.run(selectVerdict(names, { partition, tables: sources, seq: watermark }));
    const sourcesAre = toVerdict(verdict?.rows[0], watermark);
    if (sourcesAre !== 'clean') return sourcesAre === 'changed' ? 'stale' : 'unverifiable';
    const [activated] = await sql.run(activateStatement(names, request));
    return activated?.rows.length === 1 ? 'activated' : 'stale';
  });
}

async function assertFenced(sql: Sql, names: Names, { partition, name }: ActivationRequest): Promise<void> {
  const [fenced] = await sql.run({
    text: `SELECT 1 FROM ${names.checkpoints} AS c
      JOIN ${names.writerFence} AS fence ON fence.partition = c.partition
      WHERE c.partition = $1 AND c.name = $2 AND fence.required_writer_version >= c.schema_version`,
    params: [partition, name],
  });
  if (fenced?.rows.length === 1) return;
  throw new StorageQueryError(
    'sync.storage.checkpoint_fence_missing',
    `partition ${partition} has no checkpoint ${name} behind a writer fence of its schema version`,
  );
}

/** Of a partition that nobody was admitted to there is no row to lock yet; the first contact finds the one made here. */
async function lockFirst(sql: Sql, names: Names, partition: string): Promise<void> {
  await sql.run(
    {
      text: `INSERT INTO ${names.partitions} (partition) VALUES ($1) ON CONFLICT DO NOTHING`,
      params: [partition],
    },
    lockRow(names, partition),
  );
}

function activateStatement(names: Names, request: ActivationRequest): Statement {
  const { partition, name, ownerEpoch, watermark, nowMs } = request;
  return {
    text: `WITH activated AS (
        UPDATE ${names.checkpoints} AS c
        SET state = 'activated', watermark = greatest(c.watermark, $4::int8), updated_at_ms = $5::int8
        WHERE c.partition = $1 AND c.name = $2 AND c.owner_epoch = $3::int8 AND c.state <> 'activated'
        RETURNING c.partition, c.name),
      ended AS (
        DELETE FROM ${names.scans} AS scan USING activated AS a
        WHERE scan.partition = a.partition AND scan.name = a.name)
      SELECT 1 FROM activated`,
    params: [partition, name, String(ownerEpoch), String(watermark), String(nowMs)],
  };
}
