/**
 * Keys that the values of one scope variable lead to, ascending and without duplicates: commits through
 * `sync_change_scopes`, rows through `sync_row_scopes`. Each value is one range of the index and gives at most as many keys
 * as are wanted, so the cost follows the keys taken and the number of values, never the number of keys there are (guarantee 7).
 */
import type { ScopeMap } from '../../protocol/frames.ts';
import type { Sql } from './connections.ts';
import type { Names } from './names.ts';
import { type Param, textArray, toInteger } from './wire-values.ts';

/** An ordered range of one scope index. */
export interface ScopeRange {
  /** What the keys are: commits of the change index, rows of the row index. */
  readonly source: 'commits' | 'rows';
  readonly partition: string;
  readonly table: string;
  /** Exclusive; `null` is before everything. */
  readonly after: number | string | null;
  /** Inclusive; commits only. */
  readonly through: number | null;
}

interface ScopeIndex {
  readonly table: string;
  readonly key: string;
  readonly keyType: string;
}

function indexOf(names: Names, source: ScopeRange['source']): ScopeIndex {
  return source === 'commits'
    ? { table: names.changeScopes, key: 'commit_seq', keyType: 'int8' }
    : { table: names.rowScopes, key: 'row_id', keyType: 'text' };
}

/** Collects the parameters of one statement. */
export class Params {
  readonly values: Param[] = [];

  /** Binds the value and returns how the text refers to it. */
  add(value: Param, type: string): string {
    this.values.push(value);
    return `$${this.values.length}::${type}`;
  }
}

export interface CandidateQuery extends ScopeRange {
  readonly variable: string;
  /** Without duplicates. */
  readonly values: readonly string[];
  readonly max: number;
}

/** A query with the one column `key`. */
export function candidatesSql(names: Names, params: Params, query: CandidateQuery): string {
  const { table, key } = indexOf(names, query.source);
  const limit = params.add(String(query.max), 'int8');
  const only = query.values.length === 1 ? query.values[0]! : null;
  const value = only === null ? 'wanted.value' : params.add(only, 'text');
  const range = `SELECT entry.${key} AS key FROM ${table} AS entry
    WHERE ${rangeCondition(names, params, query)} AND entry.value = ${value}
    ORDER BY entry.${key} LIMIT ${limit}`;
  if (only !== null) return range;
  return `SELECT DISTINCT merged.key
    FROM unnest(${params.add(textArray(query.values), 'text[]')}) AS wanted (value)
    CROSS JOIN LATERAL (${range}) AS merged ORDER BY merged.key LIMIT ${limit}`;
}

function rangeCondition(
  names: Names,
  params: Params,
  range: ScopeRange & { readonly variable: string },
): string {
  const { key, keyType } = indexOf(names, range.source);
  const conditions = [
    `entry.partition = ${params.add(range.partition, 'text')}`,
    `entry.tbl = ${params.add(range.table, 'text')}`,
    `entry.var = ${params.add(range.variable, 'text')}`,
  ];
  if (range.after !== null) conditions.push(`entry.${key} > ${params.add(String(range.after), keyType)}`);
  if (range.through !== null)
    conditions.push(`entry.${key} <= ${params.add(String(range.through), keyType)}`);
  return conditions.join(' AND ');
}

/** Index entries over all values of a query at most, roughly. */
const ENTRIES_MAX = 65_536;
const KEYS_MIN = 64;

/** How many keys one query may ask for: with one value they come straight from the index, otherwise they are sorted. */
export function boundedMax(wanted: number, values: readonly string[]): number {
  if (values.length <= 1) return wanted;
  return Math.min(wanted, Math.max(Math.floor(ENTRIES_MAX / values.length), KEYS_MIN));
}

/** Entries counted per variable before one of them is chosen. */
const PROBE_MAX = 256;

/**
 * Of several variables the one whose index ranges are shortest, as far as a bounded count can tell, then the one with the
 * fewest values. A row or change must match all of them, so any one leads to every match.
 */
export async function cheapestVariable(
  sql: Sql,
  names: Names,
  { range, scopes }: { readonly range: ScopeRange; readonly scopes: ScopeMap },
): Promise<string> {
  const variables = Object.keys(scopes);
  if (variables.length === 1) return variables[0]!;
  const { table } = indexOf(names, range.source);
  const params = new Params();
  const counts = variables.map((variable) => {
    const values = params.add(textArray([...new Set(scopes[variable]!)]), 'text[]');
    // The inner limit makes every value one look into the index, as above.
    return `(SELECT count(*) FROM (SELECT 1 FROM unnest(${values}) AS wanted (value) CROSS JOIN LATERAL (
      SELECT 1 FROM ${table} AS entry WHERE ${rangeCondition(names, params, { ...range, variable })}
        AND entry.value = wanted.value LIMIT ${PROBE_MAX}) AS entries LIMIT ${PROBE_MAX}) AS counted)`;
  });
  const [result] = await sql.run({ text: `SELECT ${counts.join(', ')}`, params: params.values });
  const costs = variables.map((variable, index) => ({
    variable,
    entries: toInteger(result?.rows[0]?.[index]),
    values: scopes[variable]!.length,
  }));
  costs.sort((a, b) => a.entries - b.entries || a.values - b.values);
  return costs[0]!.variable;
}

/** A condition on the one value that a JSON scope column holds for each variable: it lies in the list. */
export function scopeConditions(
  params: Params,
  { column, scopes }: { readonly column: string; readonly scopes: ScopeMap },
): string {
  return Object.entries(scopes)
    .map(([variable, values]) => {
      const name = params.add(variable, 'text');
      return ` AND ${column} ->> ${name} = ANY (${params.add(textArray(values), 'text[]')})`;
    })
    .join('');
}
