/** Idempotency records (§2.3). */
import type { PushResultRecord, ResultKey } from '../storage.ts';
import type { Statement } from './driver.ts';
import type { Names } from './names.ts';
import { integerArray, type ResultRow, textArray, toInteger, toText } from './wire-values.ts';

/** LIMIT keeps the planner at one look into the index per key, whatever it believes about the table. */
export function selectResults(names: Names, partition: string, keys: readonly ResultKey[]): Statement {
  return {
    text: `SELECT wanted.nth - 1, found.client_id, found.client_commit_id, found.result, found.content_hash,
        found.schema_version, found.recorded_at_ms
      FROM unnest($2::text[], $3::text[]) WITH ORDINALITY AS wanted (client_id, client_commit_id, nth)
      CROSS JOIN LATERAL (
        SELECT r.client_id, r.client_commit_id, r.result, r.content_hash, r.schema_version, r.recorded_at_ms
        FROM ${names.results} AS r
        WHERE r.partition = $1 AND r.client_id = wanted.client_id
          AND r.client_commit_id = wanted.client_commit_id
        LIMIT 1) AS found`,
    params: [
      partition,
      textArray(keys.map(({ clientId }) => clientId)),
      textArray(keys.map(({ clientCommitId }) => clientCommitId)),
    ],
    isFrequent: true,
  };
}

/** In the order of the keys; `null` where none is stored. */
export function toResults(
  keys: readonly ResultKey[],
  rows: readonly ResultRow[],
): readonly (PushResultRecord | null)[] {
  const found = new Array<PushResultRecord | null>(keys.length).fill(null);
  for (const row of rows) {
    found[toInteger(row[0])] = {
      clientId: toText(row[1]),
      clientCommitId: toText(row[2]),
      result: toText(row[3]),
      contentHash: toText(row[4]),
      schemaVersion: toInteger(row[5]),
      recordedAtMs: toInteger(row[6]),
    };
  }
  return found;
}

export function insertResults(
  names: Names,
  partition: string,
  records: readonly PushResultRecord[],
): Statement {
  return {
    text: `INSERT INTO ${names.results} (partition, client_id, client_commit_id, content_hash, schema_version,
        recorded_at_ms, result)
      SELECT $1, r.client_id, r.client_commit_id, r.content_hash, r.schema_version, r.recorded_at_ms, r.result
      FROM unnest($2::text[], $3::text[], $4::text[], $5::int8[], $6::int8[], $7::text[])
        AS r (client_id, client_commit_id, content_hash, schema_version, recorded_at_ms, result)`,
    params: [
      partition,
      textArray(records.map(({ clientId }) => clientId)),
      textArray(records.map(({ clientCommitId }) => clientCommitId)),
      textArray(records.map(({ contentHash }) => contentHash)),
      integerArray(records.map(({ schemaVersion }) => schemaVersion)),
      integerArray(records.map(({ recordedAtMs }) => recordedAtMs)),
      textArray(records.map(({ result }) => result)),
    ],
    isFrequent: true,
  };
}
