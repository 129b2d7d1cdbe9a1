/** Tables of backfill checkpoints and the fence that the database itself keeps (part 4, 4.1): one step of the migration. */
import { GATE_PENDING_MAX } from '../pending-checkpoints.ts';
import { WRITER_FENCE_REJECTED } from '../storage-error.ts';
import type { Names } from './names.ts';

const KEY = 'text COLLATE "C" NOT NULL';
/** Rows that are updated all the time: room on their page lets an update stay there and leave the indexes alone. */
const HOT = 'WITH (fillfactor = 50)';

/**
 * Positions of scans stand apart, because the two tables of part 4 are known to other programs. The partial index holds what
 * is unfinished: nothing, most of the time.
 */
export function checkpointTables(names: Names): readonly string[] {
  return [
    `CREATE TABLE ${names.checkpoints} (
  partition ${KEY},
  name ${KEY},
  schema_version integer NOT NULL,
  state text NOT NULL CHECK (state IN ('declared', 'backfilling', 'activated')),
  watermark bigint NOT NULL DEFAULT 0,
  owner_epoch bigint NOT NULL DEFAULT 0,
  observed_rows bigint NOT NULL DEFAULT 0,
  updated_at_ms bigint NOT NULL,
  PRIMARY KEY (partition, name)
) ${HOT}`,
    `CREATE INDEX sync_backfill_checkpoints_unfinished
  ON ${names.checkpoints} (schema_version DESC, partition, name) WHERE state <> 'activated'`,
    `CREATE TABLE ${names.scans} (
  partition ${KEY},
  name ${KEY},
  head_seq bigint NOT NULL,
  tbl ${KEY},
  after_row_id text COLLATE "C",
  PRIMARY KEY (partition, name)
) ${HOT}`,
    `CREATE TABLE ${names.writerFence} (
  partition ${KEY} PRIMARY KEY,
  required_writer_version integer NOT NULL
)`,
    ...writerFence(names),
    checkpointsOf(names),
  ];
}

/**
 * Settings of a function whose statements are planned once per connection, whatever the caller prefers, for tables that
 * are empty then and may be large later.
 */
const PLANNED_ONCE = `SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
SET enable_seqscan = off`;

/**
 * Runs with the rights of its owner: a writer from before this feature may lack the right to read the fence, and must neither
 * fail for that nor get around it. Measured: 9 µs per commit, and as much again in 100 commits as their INSERT alone.
 */
function writerFence(names: Names): readonly string[] {
  const check = names.qualified('sync_writer_fence_check');
  return [
    `CREATE OR REPLACE FUNCTION ${check}() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER ${PLANNED_ONCE} AS $body$
BEGIN
  IF EXISTS (SELECT 1 FROM ${names.writerFence} AS fence WHERE fence.partition = NEW.partition
      AND (NEW.writer_version IS NULL OR NEW.writer_version < fence.required_writer_version)) THEN
    RAISE EXCEPTION '${WRITER_FENCE_REJECTED}';
  END IF;
  RETURN NEW;
END
$body$`,
    // Keeps out writers for a moment; to drop one first would keep out readers too.
    `CREATE OR REPLACE TRIGGER sync_commits_writer_fence BEFORE INSERT ON ${names.commits}
  FOR EACH ROW EXECUTE FUNCTION ${check}()`,
  ];
}

/**
 * What every read of a partition's state takes along: a list of two lists, or NULL in a database without checkpoints. A
 * function, because planning the same as part of each such read costs more than the read itself (measured: 160 µs against 30).
 */
function checkpointsOf(names: Names): string {
  return `CREATE OR REPLACE FUNCTION ${names.checkpointsOf}(wanted text) RETURNS json
LANGUAGE plpgsql STABLE ${PLANNED_ONCE} AS $body$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM ${names.checkpoints}) THEN RETURN NULL; END IF;
  RETURN json_build_array(
    (SELECT json_agg(json_build_array(own.name, own.schema_version, own.state) ORDER BY own.name)
      FROM ${names.checkpoints} AS own WHERE own.partition = wanted),
    (SELECT json_agg(json_build_array(u.partition, u.name, u.schema_version)) FROM (
      SELECT c.partition, c.name, c.schema_version FROM ${names.checkpoints} AS c WHERE c.state <> 'activated'
      ORDER BY c.schema_version DESC, c.partition, c.name LIMIT ${GATE_PENDING_MAX}) AS u));
END
$body$`;
}
