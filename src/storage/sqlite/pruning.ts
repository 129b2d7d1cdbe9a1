/** Removing old commits in bounded batches (part 6 rule 6). */

import { parseScopes } from '../scope-json.ts';
import type { SqliteConnection } from './driver.ts';
import { unknownPartition } from './partitions.ts';

export interface PruneRequest {
  readonly partition: string;
  readonly horizon: number;
  readonly commitsMax: number;
}

/** The horizon never goes down, and never above the head: a client that is up to date must not be reset. */
export function pruneLog(
  connection: SqliteConnection,
  { partition, horizon, commitsMax }: PruneRequest,
): { readonly removed: number; readonly more: boolean } {
  const row = connection.get(
    `UPDATE sync_partitions SET horizon_seq = max(horizon_seq, min(?, max_commit_seq)) WHERE partition = ?
     RETURNING horizon_seq`,
    [horizon, partition],
  );
  if (row === undefined) throw unknownPartition();
  const seqs = connection
    .all(
      'SELECT commit_seq FROM sync_commits WHERE partition = ? AND commit_seq <= ? ORDER BY commit_seq LIMIT ?',
      [partition, row[0]!, commitsMax + 1],
    )
    .map(([seq]) => seq as number);
  const removed = seqs.slice(0, commitsMax);
  if (removed.length > 0)
    removeCommits(connection, partition, { from: removed[0]!, through: removed.at(-1)! });
  return { removed: removed.length, more: seqs.length > removed.length };
}

function removeCommits(
  connection: SqliteConnection,
  partition: string,
  { from, through }: { readonly from: number; readonly through: number },
): void {
  const bounds = [partition, from, through];
  // The changes name the entries of the scope index, which is not ordered by commit.
  const scopes = connection.all(
    'SELECT DISTINCT tbl, scopes FROM sync_changes WHERE partition = ? AND commit_seq BETWEEN ? AND ?',
    bounds,
  );
  for (const [table, text] of scopes) {
    for (const [variable, value] of Object.entries(parseScopes(text as string))) {
      connection.run(
        `DELETE FROM sync_change_scopes
         WHERE partition = ? AND tbl = ? AND var = ? AND value = ? AND commit_seq BETWEEN ? AND ?`,
        [partition, table!, variable, value, from, through],
      );
    }
  }
  connection.run('DELETE FROM sync_changes WHERE partition = ? AND commit_seq BETWEEN ? AND ?', bounds);
  connection.run('DELETE FROM sync_commits WHERE partition = ? AND commit_seq BETWEEN ? AND ?', bounds);
}
