/**
 * The schema as its author or generator writes it: plain JSON data. `compileSchema` takes `unknown` and checks
 * everything; these types help whoever writes one in TypeScript. Members not named here are ignored, whatever they are
 * (`ftsIndexes`, `references`, `extensions`, ...): they create nothing on the server (S-038).
 */
import type { ColumnType } from './schema.ts';

export interface SchemaDocument {
  /** The application's schema version, 1 to 2^31 - 1. Generated documents may call it `schemaVersion`. */
  readonly version: number;
  /** Parents before children. */
  readonly tables: readonly TableDocument[];
}

export interface TableDocument {
  readonly name: string;
  /** The order is the row codec's order (§2.4). */
  readonly columns: readonly ColumnDocument[];
  /** One string or integer column, not nullable. */
  readonly primaryKey: string;
  /** At least one (§3.1). A string is short for `{ pattern }`. */
  readonly scopes: readonly (string | ScopeDocument)[];
  readonly indexes?: readonly IndexDocument[];
  /** Default true. False keeps the columns out of the database; for encrypted-only tables (part 6 rule 5). */
  readonly materialize?: boolean;
  /**
   * Variables that every subscription must request (part 2.24 decision 8). Without it a subscription may leave out the
   * variable that was meant to fence a `'*'` of another one.
   */
  readonly requiredScopes?: readonly string[];
}

export interface ColumnDocument {
  readonly name: string;
  /** Of an encrypted column either the declared type or already the wire type `bytes`. */
  readonly type: ColumnType;
  /** Default false. */
  readonly nullable?: boolean;
  /** Required for `crdt` columns, refused for others. */
  readonly crdtType?: string;
  readonly encrypted?: boolean;
  /** The type that the clients see behind an encrypted column. */
  readonly declaredType?: ColumnType;
}

export interface ScopeDocument {
  /** `prefix:{variable}`. */
  readonly pattern: string;
  /** Default: the column named like the variable (part 2.24 decision 28). */
  readonly column?: string;
}

export interface IndexDocument {
  readonly name: string;
  readonly columns: readonly string[];
  readonly unique?: boolean;
}
