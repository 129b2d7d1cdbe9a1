/** What the push path asks about a table at every operation, worked out once. */
import { type RowCodec, rowCodecOf } from '../../protocol/row-codec.ts';
import type { CompiledColumn, CompiledSchema, CompiledTable } from '../../protocol/schema.ts';
import type { CrdtMerger, HostHooks, RowValidator } from './sync-deps.ts';

export interface CrdtColumn {
  readonly index: number;
  /** `null`: the host registered none for this type. */
  readonly merge: CrdtMerger | null;
}

export interface TablePlan {
  readonly table: CompiledTable;
  /** Position in the schema: parents before children. */
  readonly position: number;
  readonly codec: RowCodec;
  readonly crdtColumns: readonly CrdtColumn[];
  /** Positions of `blob_ref` columns. */
  readonly blobColumns: readonly number[];
  /** Columns of each unique index that the database enforces. */
  readonly uniqueIndexes: readonly (readonly number[])[];
  readonly validator: RowValidator | null;
}

export interface PushPlan {
  readonly tables: ReadonlyMap<string, TablePlan>;
  readonly hasUniqueIndexes: boolean;
}

export function compilePushPlan(schema: CompiledSchema, hooks: HostHooks): PushPlan {
  const plans = schema.tables.map((table, position) => planTable({ table, position }, hooks));
  return {
    tables: new Map(plans.map((plan) => [plan.table.name, plan])),
    hasUniqueIndexes: plans.some(({ uniqueIndexes }) => uniqueIndexes.length > 0),
  };
}

function planTable(
  place: { readonly table: CompiledTable; readonly position: number },
  hooks: HostHooks,
): TablePlan {
  const { table, position } = place;
  const unique = table.materialize ? table.indexes.filter((index) => index.unique) : [];
  return {
    table,
    position,
    codec: rowCodecOf(table),
    crdtColumns: positionsOf(table, 'crdt').map((index) => ({
      index,
      merge: hooks.crdtMergers.get(table.columns[index]!.crdtType ?? '') ?? null,
    })),
    blobColumns: positionsOf(table, 'blob_ref'),
    uniqueIndexes: unique.map(({ columns }) => columns.map((name) => table.columnIndex.get(name)!)),
    validator: hooks.rowValidators.get(table.name) ?? null,
  };
}

function positionsOf(table: CompiledTable, type: CompiledColumn['type']): number[] {
  return table.columns.flatMap((column, index) => (column.type === type ? [index] : []));
}
