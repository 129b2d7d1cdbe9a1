/** What a new schema version asks of the rows and changes that a table has (part 4, 4.2); the databases carry it out. */
import type { StoredScopes } from '../protocol/frames.ts';
import { planRowConversion } from '../protocol/row-conversion.ts';
import { extractScopesFromRow } from '../protocol/row-identity.ts';
import type { CompiledTable } from '../protocol/schema.ts';
import type { TableLayout } from '../protocol/schema-layout.ts';
import { StorageError } from './storage-error.ts';
import { holdsColumn, materializedColumns } from './synced-columns.ts';

export type Convert = (payload: Uint8Array) => Uint8Array;

export interface LayoutChange {
  /** `null`: the bytes can stay. */
  readonly convert: Convert | null;
  readonly scopesChanged: boolean;
  /** A typed column came back, or is materialized only now: rows have to be written anew to fill it. */
  readonly refill: boolean;
  /** Why rows and changes that exist cannot follow; without any, the table may change as it likes. */
  readonly problems: readonly string[];
}

export function planLayoutChange(table: CompiledTable, from: TableLayout): LayoutChange {
  const plan = planRowConversion({ from: from.columns, to: table.columns });
  const problems = plan.kind === 'impossible' ? [...plan.problems] : [];
  if (from.primaryKey !== table.primaryKey) {
    problems.push(`the primary key cannot change from ${from.primaryKey} to ${table.primaryKey}`);
  }
  return {
    convert: plan.kind === 'convert' ? plan.convert : null,
    scopesChanged: scopeColumns(from.scopes) !== scopeColumns(table.scopes),
    refill: materializedColumns(table).some(
      (column) => !holdsColumn(from, column) && from.columns.some(({ name }) => name === column.name),
    ),
    problems,
  };
}

export function impossibleChange(table: CompiledTable, { problems }: LayoutChange): StorageError {
  return new StorageError(
    'sync.storage.schema_changed',
    `table ${table.name} holds rows that cannot follow the new schema: ${problems.join('; ')}. Keep the column as ` +
      'it was, or add the new one under another name as nullable',
  );
}

/** Scopes of a row whose scope columns changed: a variable whose column is NULL in an old row is left out. */
export function scopesUnder(table: CompiledTable, payload: Uint8Array): StoredScopes {
  const parts = table.scopes.map((scope) => extractScopesFromRow({ ...table, scopes: [scope] }, payload));
  return Object.assign({}, ...parts.map((part) => (part.kind === 'complete' ? part.scopes : {})));
}

function scopeColumns(scopes: TableLayout['scopes']): string {
  return JSON.stringify(scopes.map(({ variable, column }) => JSON.stringify([variable, column])).sort());
}
