/**
 * The storage's own tables (part 6), as steps of which each runs once, in order; a later version of this file only adds. Every
 * key starts with the partition. Texts compare by bytes: faster, the same everywhere, and independent of the system's locales.
 */
import { checkpointTables } from './checkpoint-tables.ts';
import type { Names } from './names.ts';

const KEY = 'text COLLATE "C" NOT NULL';

/** Rows that are updated all the time: room on their page lets an update stay there and leave the indexes alone. */
const HOT = 'WITH (fillfactor = 50)';

function log(names: Names): readonly string[] {
  return [
    `CREATE TABLE ${names.partitions} (
  partition ${KEY} PRIMARY KEY,
  max_commit_seq bigint NOT NULL DEFAULT 0,
  horizon_seq bigint NOT NULL DEFAULT 0
) ${HOT}`,
    `CREATE TABLE ${names.registry} (
  partition ${KEY} PRIMARY KEY,
  log_epoch text NOT NULL,
  epoch_required integer NOT NULL DEFAULT 0,
  last_authenticated_at_ms bigint NOT NULL
) ${HOT}`,
    `CREATE TABLE ${names.commits} (
  partition ${KEY},
  commit_seq bigint NOT NULL,
  client_id ${KEY},
  client_commit_id ${KEY},
  actor_id ${KEY},
  created_at_ms bigint NOT NULL,
  writer_version bigint,
  PRIMARY KEY (partition, commit_seq)
)`,
    `CREATE INDEX sync_commits_by_time ON ${names.commits} (partition, created_at_ms)`,
    `CREATE TABLE ${names.changes} (
  partition ${KEY},
  commit_seq bigint NOT NULL,
  idx bigint NOT NULL,
  tbl ${KEY},
  row_id ${KEY},
  op text NOT NULL,
  row_version bigint,
  scopes jsonb NOT NULL,
  payload bytea,
  PRIMARY KEY (partition, commit_seq, idx)
)`,
    `CREATE TABLE ${names.changeScopes} (
  partition ${KEY},
  tbl ${KEY},
  var ${KEY},
  value ${KEY},
  commit_seq bigint NOT NULL,
  PRIMARY KEY (partition, tbl, var, value, commit_seq)
)`,
  ];
}

function rowsAndResults(names: Names): readonly string[] {
  return [
    `CREATE TABLE ${names.rowScopes} (
  partition ${KEY},
  tbl ${KEY},
  var ${KEY},
  value ${KEY},
  row_id ${KEY},
  PRIMARY KEY (partition, tbl, var, value, row_id)
)`,
    `CREATE INDEX sync_row_scopes_by_row ON ${names.rowScopes} (partition, tbl, row_id)`,
    `CREATE TABLE ${names.results} (
  partition ${KEY},
  client_id ${KEY},
  client_commit_id ${KEY},
  content_hash text NOT NULL,
  schema_version bigint NOT NULL,
  recorded_at_ms bigint NOT NULL,
  result text NOT NULL,
  PRIMARY KEY (partition, client_id, client_commit_id)
)`,
    `CREATE TABLE ${names.tombstones} (
  partition ${KEY},
  tbl ${KEY},
  row_id ${KEY},
  commit_seq bigint NOT NULL,
  PRIMARY KEY (partition, tbl, row_id)
)`,
  ];
}

function records(names: Names): readonly string[] {
  return [
    `CREATE TABLE ${names.clients} (
  partition ${KEY},
  client_id ${KEY},
  actor_id ${KEY},
  wire_version integer NOT NULL DEFAULT 1,
  schema_version bigint NOT NULL,
  cursor bigint NOT NULL,
  updated_at_ms bigint NOT NULL,
  subscriptions json NOT NULL,
  PRIMARY KEY (partition, client_id)
) ${HOT}`,
    `CREATE TABLE ${names.bindings} (
  partition ${KEY},
  client_id ${KEY},
  actor_id ${KEY},
  PRIMARY KEY (partition, client_id)
)`,
    `CREATE TABLE ${names.schemaMeta} (
  id integer NOT NULL PRIMARY KEY CHECK (id = 1),
  schema_version bigint NOT NULL,
  layouts json NOT NULL
)`,
  ];
}

/**
 * Metadata per reuse key, bytes once per (partition, id). `has_cursor` tells a first page from an empty row id. UNLOGGED: a
 * segment that a crash of the server took is built again, and writing one costs no log. The bytes are packed tightly already.
 */
function segments(names: Names): readonly string[] {
  return [
    `CREATE UNLOGGED TABLE ${names.segments} (
  partition ${KEY},
  log_epoch ${KEY},
  tbl ${KEY},
  schema_version bigint NOT NULL,
  scope_digest ${KEY},
  params_digest ${KEY},
  as_of_commit_seq bigint NOT NULL,
  has_cursor integer NOT NULL,
  row_cursor ${KEY},
  rows_max bigint NOT NULL,
  segment_id ${KEY},
  byte_length bigint NOT NULL,
  row_count bigint NOT NULL,
  next_row_cursor text,
  created_at_ms bigint NOT NULL,
  expires_at_ms bigint NOT NULL,
  PRIMARY KEY (partition, log_epoch, tbl, schema_version, scope_digest, params_digest, as_of_commit_seq,
    has_cursor, row_cursor, rows_max, segment_id)
)`,
    `CREATE INDEX sync_segments_by_id ON ${names.segments} (partition, segment_id)`,
    `CREATE INDEX sync_segments_by_expiry ON ${names.segments} (expires_at_ms)`,
    `CREATE UNLOGGED TABLE ${names.segmentBytes} (
  partition ${KEY},
  segment_id ${KEY},
  bytes bytea NOT NULL,
  PRIMARY KEY (partition, segment_id)
)`,
    `ALTER TABLE ${names.segmentBytes} ALTER COLUMN bytes SET STORAGE EXTERNAL`,
  ];
}

/** Statements by step. */
export function ownTableSteps(names: Names): readonly (readonly string[])[] {
  return [
    [...log(names), ...rowsAndResults(names), ...records(names)],
    segments(names),
    checkpointTables(names),
  ];
}
