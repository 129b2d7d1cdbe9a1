/** What a row says about itself: its id and its stored scopes (§2.4, §3.1, part 2.24 decision 28). */
import type { StoredScopes } from './frames.ts';
import { rowCodecOf } from './row-codec.ts';
import type { ColumnValue, CompiledScope, CompiledTable, RowValues } from './schema.ts';

/** The text by which realtime and presence name a scope: `project:p1`. */
export function scopeKey(scope: CompiledScope, value: string): string {
  return `${scope.prefix}:${value}`;
}

export type ScopeExtraction =
  | { readonly kind: 'complete'; readonly scopes: StoredScopes }
  /** The first declared variable whose column is NULL or empty: such a write is denied (§3.4 rule 3). */
  | { readonly kind: 'missing'; readonly variable: string };

/** One value per declared variable: strings as they are, integers in decimal. */
export function extractScopes(table: CompiledTable, values: RowValues): ScopeExtraction {
  const scopes: Record<string, string> = {};
  for (const { variable, columnIndex } of table.scopes) {
    const text = keyText(values[columnIndex]!);
    if (text === '') return { kind: 'missing', variable };
    scopes[variable] = text;
  }
  return { kind: 'complete', scopes };
}

/** As `extractScopes`, straight from row-codec bytes; the other columns are not decoded. */
export function extractScopesFromRow(table: CompiledTable, row: Uint8Array): ScopeExtraction {
  const codec = rowCodecOf(table);
  const scopes: Record<string, string> = {};
  for (const { variable, columnIndex } of table.scopes) {
    const text = keyText(codec.readColumn(row, columnIndex));
    if (text === '') return { kind: 'missing', variable };
    scopes[variable] = text;
  }
  return { kind: 'complete', scopes };
}

/** `rowId` text of a row: a string key as it is, an integer key in decimal. */
export function rowIdOf(table: CompiledTable, values: RowValues): string {
  return keyText(values[table.primaryKeyIndex]!);
}

/** The compiler lets only string and integer columns be keys; safe integers print without an exponent. */
function keyText(value: ColumnValue): string {
  if (typeof value === 'string') return value;
  return typeof value === 'number' ? String(value) : '';
}
