/** Tables of backfill checkpoints and the fence that the database itself keeps (part 4, 4.1): one step of the migration. */
import { WRITER_FENCE_REJECTED } from '../storage-error.ts';

/**
 * Positions of scans stand apart, because the two tables of part 4 are known to other programs. The partial index holds what
 * is unfinished: nothing, most of the time. RAISE(ABORT) is not weakened by an `INSERT OR IGNORE` of the writer it stops.
 */
export const CHECKPOINTS = `
CREATE TABLE sync_backfill_checkpoints (
  partition TEXT NOT NULL,
  name TEXT NOT NULL,
  schema_version INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('declared', 'backfilling', 'activated')),
  watermark INTEGER NOT NULL DEFAULT 0,
  owner_epoch INTEGER NOT NULL DEFAULT 0,
  observed_rows INTEGER NOT NULL DEFAULT 0,
  updated_at_ms INTEGER NOT NULL,
  PRIMARY KEY (partition, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX sync_backfill_checkpoints_unfinished
  ON sync_backfill_checkpoints (schema_version DESC, partition, name) WHERE state <> 'activated';
CREATE TABLE sync_backfill_scans (
  partition TEXT NOT NULL,
  name TEXT NOT NULL,
  head_seq INTEGER NOT NULL,
  tbl TEXT NOT NULL,
  after_row_id TEXT,
  PRIMARY KEY (partition, name)
) STRICT, WITHOUT ROWID;
CREATE TABLE sync_writer_fence (
  partition TEXT NOT NULL PRIMARY KEY,
  required_writer_version INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TRIGGER sync_commits_writer_fence BEFORE INSERT ON sync_commits
WHEN EXISTS (
  SELECT 1 FROM sync_writer_fence AS fence WHERE fence.partition = NEW.partition
    AND (NEW.writer_version IS NULL OR NEW.writer_version < fence.required_writer_version))
BEGIN
  SELECT RAISE(ABORT, '${WRITER_FENCE_REJECTED}');
END;
`;
