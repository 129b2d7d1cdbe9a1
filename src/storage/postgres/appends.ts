/**
 * Writing one batch in one round trip (part 6 rules 1 and 2): one statement per kind, each column an array. Rows go first,
 * because only they can be refused.
 */

import { scopesText } from '../scope-json.ts';
import type { CommitBatch, NewCommit, RowUpsert, TableWrites } from '../storage.ts';
import type { Statement } from './driver.ts';
import type { KnownRows, Presence } from './known-rows.ts';
import type { Names } from './names.ts';
import { insertResults } from './results.ts';
import { moveRowScopes, removeRowScopes } from './row-scopes.ts';
import { type TypedTable, writeRows } from './typed-table.ts';
import { arrayParam, integerArray, textArray } from './wire-values.ts';

export interface AppendPlace {
  readonly names: Names;
  readonly partition: string;
  readonly known: KnownRows;
}

/** The caller has checked that the commits continue the head. */
export function appendStatements(place: AppendPlace, batch: CommitBatch): readonly Statement[] {
  const { names, partition } = place;
  const writes = batch.rows.map((table) => ({ ...table, target: { names, partition, table: table.table } }));
  const statements: Statement[] = [];
  // Deletes free unique values that an upsert of the batch may take; children, which come last, before their parents.
  for (const { target, deletes } of writes.toReversed()) {
    if (deletes.length > 0) statements.push(...deleteRows(target, deletes));
  }
  for (const { target, upserts } of writes) {
    statements.push(...writeUpserts(target, upserts, place.known));
  }
  // What the schema's owner declared deferrable is checked here, where it can be told whose fault it is.
  if (statements.length > 0) statements.push({ text: 'SET CONSTRAINTS ALL IMMEDIATE', fault: 'row' });
  if (batch.commits.length > 0) statements.push(...insertCommits(place, batch.commits));
  if (batch.results.length > 0) statements.push(insertResults(names, partition, batch.results));
  return statements;
}

/** After the statements were carried out. */
export function noteWrites(known: KnownRows, rows: readonly TableWrites[]): void {
  for (const { table, upserts, deletes } of rows) {
    for (const { rowId } of deletes) known.note(table, rowId, { kind: 'absent', buried: true });
    for (const { rowId, scopes } of upserts) {
      known.note(table, rowId, { kind: 'present', scopes: scopesText(scopes) });
    }
  }
}

function writeUpserts(
  target: TypedTable,
  upserts: readonly RowUpsert[],
  known: KnownRows,
): readonly Statement[] {
  const groups: Record<Presence, RowUpsert[]> = { present: [], unknown: [], absent: [] };
  for (const row of upserts) groups[known.presence(target.table, row.rowId)].push(row);
  const written = writeRows(target, groups);
  return [...(written === null ? [] : [written]), ...moveRowScopes(target, upserts, known)];
}

function deleteRows(target: TypedTable, deletes: TableWrites['deletes']): readonly Statement[] {
  const { names, partition, table } = target;
  return [
    {
      text: `DELETE FROM ${names.qualified(table.name)}
        WHERE _sync_partition = $1 AND _sync_row_id = ANY ($2::text[])`,
      params: [partition, textArray(deletes.map(({ rowId }) => rowId))],
      fault: 'row',
    },
    ...removeRowScopes(target, deletes),
  ];
}

function insertCommits(
  { names, partition }: AppendPlace,
  commits: readonly NewCommit[],
): readonly Statement[] {
  const head = commits.at(-1)!.commitSeq;
  const heads: Statement = {
    text: `INSERT INTO ${names.commits} (partition, commit_seq, client_id, client_commit_id, actor_id,
        created_at_ms, writer_version)
      SELECT $1, c.commit_seq, c.client_id, c.client_commit_id, c.actor_id, c.created_at_ms, c.writer_version
      FROM unnest($2::int8[], $3::text[], $4::text[], $5::text[], $6::int8[], $7::int8[])
        AS c (commit_seq, client_id, client_commit_id, actor_id, created_at_ms, writer_version)`,
    params: [
      partition,
      integerArray(commits.map(({ commitSeq }) => commitSeq)),
      textArray(commits.map(({ clientId }) => clientId)),
      textArray(commits.map(({ clientCommitId }) => clientCommitId)),
      textArray(commits.map(({ actorId }) => actorId)),
      integerArray(commits.map(({ createdAtMs }) => createdAtMs)),
      integerArray(commits.map(({ writerVersion }) => writerVersion)),
    ],
    isFrequent: true,
  };
  const raised: Statement = {
    text: `UPDATE ${names.partitions} SET max_commit_seq = $2::int8 WHERE partition = $1`,
    params: [partition, String(head)],
    isFrequent: true,
  };
  return [heads, ...insertChanges(names, partition, commits), raised];
}

function insertChanges(names: Names, partition: string, commits: readonly NewCommit[]): readonly Statement[] {
  const changes = commits.flatMap(({ commitSeq, changes: own }) =>
    own.map((change, idx) => ({ ...change, commitSeq, idx, scopesText: scopesText(change.scopes) })),
  );
  if (changes.length === 0) return [];
  return [
    {
      text: `INSERT INTO ${names.changes} (partition, commit_seq, idx, tbl, row_id, op, row_version, scopes, payload)
        SELECT $1, c.commit_seq, c.idx, c.tbl, c.row_id, c.op, c.row_version, c.scopes, c.payload
        FROM unnest($2::int8[], $3::int8[], $4::text[], $5::text[], $6::text[], $7::int8[], $8::jsonb[],
          $9::bytea[]) AS c (commit_seq, idx, tbl, row_id, op, row_version, scopes, payload)`,
      params: [
        partition,
        integerArray(changes.map(({ commitSeq }) => commitSeq)),
        integerArray(changes.map(({ idx }) => idx)),
        textArray(changes.map(({ table }) => table)),
        textArray(changes.map(({ rowId }) => rowId)),
        textArray(changes.map(({ op }) => op)),
        integerArray(changes.map(({ rowVersion }) => rowVersion ?? null)),
        arrayParam(
          'jsonb',
          changes.map((change) => change.scopesText),
        ),
        arrayParam(
          'bytea',
          changes.map(({ payload }) => payload ?? null),
        ),
      ],
      isFrequent: true,
    },
    insertChangeScopes(names, partition, changes),
  ];
}

interface IndexedChange {
  readonly commitSeq: number;
  readonly table: string;
  readonly scopes: Readonly<Record<string, string>>;
}

/** Each (table, variable, value) once per commit. */
function insertChangeScopes(names: Names, partition: string, changes: readonly IndexedChange[]): Statement {
  const entries: { commitSeq: number; table: string; variable: string; value: string }[] = [];
  const seen = new Set<string>();
  for (const { commitSeq, table, scopes } of changes) {
    for (const [variable, value] of Object.entries(scopes)) {
      const key = JSON.stringify([commitSeq, table, variable, value]);
      if (seen.has(key)) continue;
      seen.add(key);
      entries.push({ commitSeq, table, variable, value });
    }
  }
  return {
    text: `INSERT INTO ${names.changeScopes} (partition, tbl, var, value, commit_seq)
      SELECT $1, entry.tbl, entry.var, entry.value, entry.commit_seq
      FROM unnest($2::text[], $3::text[], $4::text[], $5::int8[]) AS entry (tbl, var, value, commit_seq)`,
    params: [
      partition,
      textArray(entries.map(({ table }) => table)),
      textArray(entries.map(({ variable }) => variable)),
      textArray(entries.map(({ value }) => value)),
      integerArray(entries.map(({ commitSeq }) => commitSeq)),
    ],
    isFrequent: true,
  };
}
