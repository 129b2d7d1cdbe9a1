/** Removing old commits in bounded batches (part 6 rule 6). */
import { INDEX_PLANS_ONLY, type PgConnections } from './connections.ts';
import type { Names } from './names.ts';
import { unknownPartition } from './partitions.ts';
import { type Param, toInteger } from './wire-values.ts';

export interface PruneRequest {
  readonly partition: string;
  readonly horizon: number;
  readonly commitsMax: number;
}

/**
 * The horizon never goes down, and never above the head: a client that is up to date must not be reset. It is durable before
 * anything is removed, so the removal holds no lock that a push waits for.
 */
export async function pruneLog(
  connections: PgConnections,
  names: Names,
  { partition, horizon, commitsMax }: PruneRequest,
): Promise<{ readonly removed: number; readonly more: boolean }> {
  const [raised] = await connections.write('durable', {
    text: `UPDATE ${names.partitions} SET horizon_seq = greatest(horizon_seq, least($2::int8, max_commit_seq))
      WHERE partition = $1 RETURNING horizon_seq`,
    params: [partition, String(horizon)],
  });
  const row = raised?.rows[0];
  if (row === undefined) throw unknownPartition();
  const oldest = {
    text: `SELECT commit_seq FROM ${names.commits} WHERE partition = $1 AND commit_seq <= $2::int8
      ORDER BY commit_seq LIMIT $3::int8`,
    params: [partition, String(toInteger(row[0])), String(commitsMax + 1)],
  };
  return connections.transaction([...INDEX_PLANS_ONLY, oldest], async (sql, opened) => {
    const seqs = (opened.at(-1)?.rows ?? []).map(([seq]) => toInteger(seq));
    const batch = seqs.slice(0, commitsMax);
    if (batch.length === 0) return { removed: 0, more: false };
    const results = await sql.run(
      ...removeCommits(names, [partition, String(batch[0]), String(batch.at(-1))]),
    );
    // Another process may prune as well: what counts is who removed the commit.
    return { removed: results.at(-1)?.rows.length ?? 0, more: seqs.length > batch.length };
  });
}

/** `bounds`: partition, first and last commit. The changes name the entries of the scope index, which has another order. */
function removeCommits(names: Names, bounds: readonly Param[]) {
  const range = 'partition = $1 AND commit_seq BETWEEN $2::int8 AND $3::int8';
  return [
    {
      text: `DELETE FROM ${names.changeScopes} AS entry USING (
          SELECT DISTINCT c.tbl, scope.key AS var, scope.value, c.commit_seq
          FROM ${names.changes} AS c CROSS JOIN LATERAL jsonb_each_text(c.scopes) AS scope
          WHERE c.partition = $1 AND c.commit_seq BETWEEN $2::int8 AND $3::int8) AS gone
        WHERE entry.partition = $1 AND entry.tbl = gone.tbl AND entry.var = gone.var
          AND entry.value = gone.value AND entry.commit_seq = gone.commit_seq`,
      params: bounds,
    },
    { text: `DELETE FROM ${names.changes} WHERE ${range}`, params: bounds },
    { text: `DELETE FROM ${names.commits} WHERE ${range} RETURNING 1`, params: bounds },
  ];
}
