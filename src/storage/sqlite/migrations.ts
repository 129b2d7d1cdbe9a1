/** The storage's own tables (part 6). Each step runs once, in order; a later version of this file only adds steps. */
import { StorageError } from '../storage-error.ts';
import { CHECKPOINTS } from './checkpoint-tables.ts';
import type { SqliteConnections } from './connections.ts';
import type { SqliteConnection } from './driver.ts';

/**
 * Every key starts with the partition. WITHOUT ROWID keeps narrow tables in the order of their key, one b-tree each. Wide
 * rows stand in order of arrival beside an index of their keys: measured, that halves the cost of writing them and, from
 * 1 KB on, of reading them. Their widest column is the last, because reading the others then stops before it.
 */
const LOG_AND_RECORDS = `
CREATE TABLE sync_partitions (
  partition TEXT NOT NULL PRIMARY KEY,
  max_commit_seq INTEGER NOT NULL DEFAULT 0,
  horizon_seq INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE TABLE sync_partition_registry (
  partition TEXT NOT NULL PRIMARY KEY,
  log_epoch TEXT NOT NULL,
  epoch_required INTEGER NOT NULL DEFAULT 0,
  last_authenticated_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE sync_commits (
  partition TEXT NOT NULL,
  commit_seq INTEGER NOT NULL,
  client_id TEXT NOT NULL,
  client_commit_id TEXT NOT NULL,
  actor_id TEXT NOT NULL,
  created_at_ms INTEGER NOT NULL,
  writer_version INTEGER,
  PRIMARY KEY (partition, commit_seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX sync_commits_by_time ON sync_commits (partition, created_at_ms);
CREATE TABLE sync_changes (
  partition TEXT NOT NULL,
  commit_seq INTEGER NOT NULL,
  idx INTEGER NOT NULL,
  tbl TEXT NOT NULL,
  row_id TEXT NOT NULL,
  op TEXT NOT NULL,
  row_version INTEGER,
  scopes TEXT NOT NULL,
  payload BLOB,
  PRIMARY KEY (partition, commit_seq, idx)
) STRICT;
CREATE TABLE sync_change_scopes (
  partition TEXT NOT NULL,
  tbl TEXT NOT NULL,
  var TEXT NOT NULL,
  value TEXT NOT NULL,
  commit_seq INTEGER NOT NULL,
  PRIMARY KEY (partition, tbl, var, value, commit_seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE sync_row_scopes (
  partition TEXT NOT NULL,
  tbl TEXT NOT NULL,
  var TEXT NOT NULL,
  value TEXT NOT NULL,
  row_id TEXT NOT NULL,
  PRIMARY KEY (partition, tbl, var, value, row_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX sync_row_scopes_by_row ON sync_row_scopes (partition, tbl, row_id);
CREATE TABLE sync_push_results (
  partition TEXT NOT NULL,
  client_id TEXT NOT NULL,
  client_commit_id TEXT NOT NULL,
  content_hash TEXT NOT NULL,
  schema_version INTEGER NOT NULL,
  recorded_at_ms INTEGER NOT NULL,
  result TEXT NOT NULL,
  PRIMARY KEY (partition, client_id, client_commit_id)
) STRICT;
CREATE TABLE sync_clients (
  partition TEXT NOT NULL,
  client_id TEXT NOT NULL,
  actor_id TEXT NOT NULL,
  wire_version INTEGER NOT NULL DEFAULT 1,
  schema_version INTEGER NOT NULL,
  cursor INTEGER NOT NULL,
  updated_at_ms INTEGER NOT NULL,
  subscriptions TEXT NOT NULL,
  PRIMARY KEY (partition, client_id)
) STRICT;
CREATE TABLE sync_client_bindings (
  partition TEXT NOT NULL,
  client_id TEXT NOT NULL,
  actor_id TEXT NOT NULL,
  PRIMARY KEY (partition, client_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE sync_tombstones (
  partition TEXT NOT NULL,
  tbl TEXT NOT NULL,
  row_id TEXT NOT NULL,
  commit_seq INTEGER NOT NULL,
  PRIMARY KEY (partition, tbl, row_id)
) STRICT, WITHOUT ROWID;
CREATE TABLE sync_schema_meta (
  id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
  schema_version INTEGER NOT NULL,
  layouts TEXT NOT NULL
) STRICT;
`;

/** Metadata per reuse key, bytes once per (partition, id). `has_cursor` tells a first page from an empty row id. */
const SEGMENTS = `
CREATE TABLE sync_segments (
  partition TEXT NOT NULL,
  log_epoch TEXT NOT NULL,
  tbl TEXT NOT NULL,
  schema_version INTEGER NOT NULL,
  scope_digest TEXT NOT NULL,
  params_digest TEXT NOT NULL,
  as_of_commit_seq INTEGER NOT NULL,
  has_cursor INTEGER NOT NULL,
  row_cursor TEXT NOT NULL,
  rows_max INTEGER NOT NULL,
  segment_id TEXT NOT NULL,
  byte_length INTEGER NOT NULL,
  row_count INTEGER NOT NULL,
  next_row_cursor TEXT,
  created_at_ms INTEGER NOT NULL,
  expires_at_ms INTEGER NOT NULL,
  PRIMARY KEY (partition, log_epoch, tbl, schema_version, scope_digest, params_digest, as_of_commit_seq,
    has_cursor, row_cursor, rows_max, segment_id)
) STRICT;
CREATE INDEX sync_segments_by_id ON sync_segments (partition, segment_id);
CREATE INDEX sync_segments_by_expiry ON sync_segments (expires_at_ms);
CREATE TABLE sync_segment_bytes (
  partition TEXT NOT NULL,
  segment_id TEXT NOT NULL,
  bytes BLOB NOT NULL,
  PRIMARY KEY (partition, segment_id)
) STRICT;
`;

const STEPS: readonly string[] = [LOG_AND_RECORDS, SEGMENTS, CHECKPOINTS];

/** Idempotent, and safe when several processes start at once: the steps run under the write lock. */
export async function migrateStorage(connections: SqliteConnections): Promise<void> {
  if ((await connections.readNow(readStep)) === STEPS.length) return;
  await connections.writeNow('durable', (connection) => {
    const done = readStep(connection);
    if (done > STEPS.length) {
      throw new StorageError(
        'sync.storage.schema_newer',
        `the database's own tables are of version ${done}, this program knows ${STEPS.length}`,
      );
    }
    for (const step of STEPS.slice(done)) connection.exec(step);
    connection.exec(`CREATE TABLE IF NOT EXISTS sync_storage_version (
      id INTEGER NOT NULL PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL) STRICT`);
    connection.run(
      `INSERT INTO sync_storage_version (id, version) VALUES (1, ?)
       ON CONFLICT (id) DO UPDATE SET version = excluded.version`,
      [STEPS.length],
    );
  });
}

function readStep(connection: SqliteConnection): number {
  const known = connection.get(
    `SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'sync_storage_version'`,
  );
  if (known === undefined) return 0;
  const row = connection.get('SELECT version FROM sync_storage_version WHERE id = 1');
  return (row?.[0] ?? 0) as number;
}
