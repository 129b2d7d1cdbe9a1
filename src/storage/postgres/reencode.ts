/** Brings rows and log of a table into the layout of a new schema version (part 4, 4.2). */
import { rowCodecOf } from '../../protocol/row-codec.ts';
import type { CompiledTable } from '../../protocol/schema.ts';
import { type Convert, type LayoutChange, scopesUnder } from '../layout-change.ts';
import { parseScopes, scopesText } from '../scope-json.ts';
import type { RowUpsert } from '../storage.ts';
import type { Sql } from './connections.ts';
import type { Statement } from './driver.ts';
import { KnownRows } from './known-rows.ts';
import type { Names } from './names.ts';
import { moveRowScopes } from './row-scopes.ts';
import { writeRows } from './typed-table.ts';
import {
  arrayParam,
  integerArray,
  type Param,
  type ResultRow,
  textArray,
  toBytes,
  toInteger,
  toText,
} from './wire-values.ts';

/** Rows and changes held in memory at once. */
const BATCH = 256;

interface Target {
  readonly sql: Sql;
  readonly names: Names;
}

/** The typed columns are written anew too: one may have come back, or be materialized only now. */
export async function reencodeRows(
  { sql, names }: Target,
  table: CompiledTable,
  change: LayoutChange,
): Promise<void> {
  const from = `SELECT _sync_partition, _sync_row_id, _sync_server_version, _sync_scopes, _sync_payload
    FROM ${names.qualified(table.name)}`;
  const order = `ORDER BY _sync_partition, _sync_row_id LIMIT ${BATCH}`;
  let batch = await read(sql, { text: `${from} ${order}` });
  while (batch.length > 0) {
    await sql.run(...rewriteRows(names, { table, change }, batch));
    const last = batch.at(-1)!;
    const after = `WHERE (_sync_partition, _sync_row_id) > ($1, $2)`;
    batch = await read(sql, {
      text: `${from} ${after} ${order}`,
      params: [toText(last[0]), toText(last[1])],
    });
  }
}

/** Statements for rows of several partitions, in the order of the partitions. */
function rewriteRows(
  names: Names,
  { table, change }: { readonly table: CompiledTable; readonly change: LayoutChange },
  batch: readonly ResultRow[],
): readonly Statement[] {
  const codec = rowCodecOf(table);
  const partitions = new Map<string, { known: KnownRows; rows: RowUpsert[] }>();
  for (const row of batch) {
    const partition = toText(row[0]);
    const own = partitions.get(partition) ?? { known: new KnownRows(), rows: [] };
    partitions.set(partition, own);
    const stored = toBytes(row[4]);
    const payload = change.convert === null ? stored : change.convert(stored);
    const before = parseScopes(toText(row[3]));
    own.known.note(table, toText(row[1]), { kind: 'present', scopes: scopesText(before) });
    own.rows.push({
      rowId: toText(row[1]),
      serverVersion: toInteger(row[2]),
      scopes: change.scopesChanged ? scopesUnder(table, payload) : before,
      payload,
      values: codec.decode(payload),
    });
  }
  return [...partitions].flatMap(([partition, { known, rows }]) => {
    const target = { names, partition, table };
    const written = writeRows(target, { present: rows });
    return [...(written === null ? [] : [written]), ...moveRowScopes(target, rows, known)];
  });
}

/** One pass over the log for all tables whose bytes changed. Scopes of the past stay as they were delivered. */
export async function reencodeLog(
  { sql, names }: Target,
  converts: ReadonlyMap<string, Convert>,
): Promise<void> {
  const tables = textArray([...converts.keys()]);
  const select = (after: string, params: readonly Param[]): Statement => ({
    text: `SELECT partition, commit_seq, idx, tbl, payload FROM ${names.changes}
      WHERE payload IS NOT NULL AND tbl = ANY ($1::text[]) ${after}
      ORDER BY partition, commit_seq, idx LIMIT ${BATCH}`,
    params: [tables, ...params],
  });
  let batch = await read(sql, select('', []));
  while (batch.length > 0) {
    await sql.run(rewriteChanges(names, converts, batch));
    const last = batch.at(-1)!;
    const key = [toText(last[0]), toText(last[1]), toText(last[2])];
    batch = await read(sql, select('AND (partition, commit_seq, idx) > ($2, $3::int8, $4::int8)', key));
  }
}

function rewriteChanges(
  names: Names,
  converts: ReadonlyMap<string, Convert>,
  batch: readonly ResultRow[],
): Statement {
  return {
    text: `UPDATE ${names.changes} AS c SET payload = u.payload
      FROM unnest($1::text[], $2::int8[], $3::int8[], $4::bytea[]) AS u (partition, commit_seq, idx, payload)
      WHERE c.partition = u.partition AND c.commit_seq = u.commit_seq AND c.idx = u.idx`,
    params: [
      textArray(batch.map((row) => toText(row[0]))),
      integerArray(batch.map((row) => toInteger(row[1]))),
      integerArray(batch.map((row) => toInteger(row[2]))),
      arrayParam(
        'bytea',
        batch.map((row) => converts.get(toText(row[3]))!(toBytes(row[4]))),
      ),
    ],
  };
}

async function read(sql: Sql, statement: Statement): Promise<readonly ResultRow[]> {
  const [found] = await sql.run(statement);
  return found?.rows ?? [];
}
