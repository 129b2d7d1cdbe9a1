/** The compiled schema: what every layer asks about tables, columns and scopes (§2.4, §3.1). */

export type ColumnType = 'string' | 'integer' | 'float' | 'boolean' | 'json' | 'bytes' | 'blob_ref' | 'crdt';

export interface CompiledColumn {
  readonly name: string;
  /** Wire type. An encrypted column is `bytes` here, whatever its declared type. */
  readonly type: ColumnType;
  readonly nullable: boolean;
  readonly crdtType?: string;
  readonly encrypted: boolean;
  readonly declaredType?: string;
}

/** One scope pattern `prefix:{variable}` over a column. Scope key text is `prefix + ':' + value`. */
export interface CompiledScope {
  readonly variable: string;
  readonly prefix: string;
  readonly column: string;
  readonly columnIndex: number;
}

export interface CompiledIndex {
  readonly name: string;
  readonly columns: readonly string[];
  readonly unique: boolean;
}

export interface CompiledTable {
  readonly name: string;
  readonly columns: readonly CompiledColumn[];
  /** Column name → position. */
  readonly columnIndex: ReadonlyMap<string, number>;
  readonly primaryKey: string;
  readonly primaryKeyIndex: number;
  readonly scopes: readonly CompiledScope[];
  readonly scopeByVariable: ReadonlyMap<string, CompiledScope>;
  /** Variables that every subscription must request (part 2.24 decision 8). */
  readonly requiredScopes: readonly string[];
  readonly indexes: readonly CompiledIndex[];
  /** False: only the `_sync_*` columns exist in the database (part 6 rule 5). */
  readonly materialize: boolean;
  readonly hasEncrypted: boolean;
}

export interface CompiledSchema {
  readonly version: number;
  /** In declared order, parents before children. */
  readonly tables: readonly CompiledTable[];
  readonly tableByName: ReadonlyMap<string, CompiledTable>;
  /** Every variable that some table declares. */
  readonly variables: ReadonlySet<string>;
}

/** One column's value. `json` and `blob_ref` are their verbatim text; `integer` is a safe integer. */
export type ColumnValue = null | string | number | boolean | Uint8Array;
/** Values in the table's column order. */
export type RowValues = readonly ColumnValue[];
