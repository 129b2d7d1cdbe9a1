/** Idempotency records (§2.3). */
import type { PushResultRecord, ResultKey } from '../storage.ts';
import type { SqliteConnection } from './driver.ts';

/** In the order of the keys; `null` where none is stored. One statement. */
export function readResults(
  connection: SqliteConnection,
  partition: string,
  keys: readonly ResultKey[],
): readonly (PushResultRecord | null)[] {
  const found = new Array<PushResultRecord | null>(keys.length).fill(null);
  const rows = connection.all(
    `SELECT wanted.key, r.client_id, r.client_commit_id, r.result, r.content_hash, r.schema_version,
       r.recorded_at_ms
     FROM json_each(?) AS wanted CROSS JOIN sync_push_results AS r
     WHERE r.partition = ? AND r.client_id = json_extract(wanted.value, '$[0]')
       AND r.client_commit_id = json_extract(wanted.value, '$[1]')`,
    [JSON.stringify(keys.map(({ clientId, clientCommitId }) => [clientId, clientCommitId])), partition],
  );
  for (const row of rows) {
    found[row[0] as number] = {
      clientId: row[1] as string,
      clientCommitId: row[2] as string,
      result: row[3] as string,
      contentHash: row[4] as string,
      schemaVersion: row[5] as number,
      recordedAtMs: row[6] as number,
    };
  }
  return found;
}
