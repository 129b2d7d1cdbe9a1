/** Which columns a synced table has in a database (part 6 rules 2 and 5). */
import type { CompiledColumn, CompiledTable } from '../protocol/schema.ts';
import type { TableLayout } from '../protocol/schema-layout.ts';

/** Columns may be called like ours with another ending; ours all begin with `_sync`, which the compiler reserves. */
export const OWN_COLUMNS: readonly string[] = [
  '_sync_partition',
  '_sync_row_id',
  '_sync_server_version',
  '_sync_scopes',
  '_sync_payload',
];

export function isOwnColumn(name: string): boolean {
  return OWN_COLUMNS.includes(name);
}

/** The schema's columns that exist in the database. */
export function materializedColumns(table: CompiledTable): readonly CompiledColumn[] {
  return table.materialize ? table.columns : [];
}

/** True when the database column already holds this column's values. */
export function holdsColumn(
  from: TableLayout,
  { name, type }: { readonly name: string; readonly type: string },
): boolean {
  return from.materialize && from.columns.some((column) => column.name === name && column.type === type);
}
