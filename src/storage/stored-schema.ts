/** What `sync_schema_meta` says: the schema version the data is at, and in which layout every table's bytes are. */
import type { CompiledIndex, CompiledSchema } from '../protocol/schema.ts';
import {
  describeLayout,
  layoutsOf,
  parseLayouts,
  type SchemaLayouts,
  sameLayouts,
  type TableLayout,
} from '../protocol/schema-layout.ts';
import { StorageError } from './storage-error.ts';

export interface DeclaredIndex extends CompiledIndex {
  readonly table: string;
}

export interface StoredSchema {
  readonly layouts: SchemaLayouts;
  /** Tables of earlier versions that were kept, each in the layout that its bytes still have. */
  readonly retired: readonly TableLayout[];
  /** Indexes that this storage made, so that those of operators stay. */
  readonly indexes: readonly DeclaredIndex[];
}

/** Reads `storedSchemaText` back. */
export function parseStoredSchema(text: string): StoredSchema {
  const stored = JSON.parse(text);
  return {
    layouts: parseLayouts(stored),
    retired: parseLayouts({ ...stored, tables: stored.retired }).tables,
    indexes: stored.indexes as DeclaredIndex[],
  };
}

export function storedSchemaText(schema: CompiledSchema, retired: readonly TableLayout[]): string {
  return JSON.stringify({ ...describeLayout(schema), retired, indexes: declaredIndexes(schema) });
}

/** True where nothing has to be done for this schema. Throws where the stored one must not be touched by it. */
export function isCurrent(stored: StoredSchema, schema: CompiledSchema): boolean {
  const { version } = stored.layouts;
  if (version > schema.version) {
    throw new StorageError(
      'sync.storage.schema_newer',
      `the database is at schema version ${version}, this process runs ${schema.version}`,
    );
  }
  if (version < schema.version) return false;
  if (!sameLayouts(stored.layouts, layoutsOf(schema))) {
    throw new StorageError(
      'sync.storage.schema_changed',
      `the tables of schema version ${version} differ from those in the database; raise the version with every change`,
    );
  }
  const indexes = declaredIndexes(schema);
  return (
    indexesMissingFrom(stored.indexes, indexes).length +
      indexesMissingFrom(indexes, stored.indexes).length ===
    0
  );
}

export function declaredIndexes(schema: CompiledSchema): readonly DeclaredIndex[] {
  return schema.tables
    .filter(({ materialize }) => materialize)
    .flatMap(({ name: table, indexes }) =>
      indexes.map(({ name, columns, unique }) => ({ table, name, columns, unique })),
    );
}

/** Those of `indexes` that `others` does not have in exactly the same form. */
export function indexesMissingFrom(
  others: readonly DeclaredIndex[],
  indexes: readonly DeclaredIndex[],
): readonly DeclaredIndex[] {
  const known = new Set(others.map(indexText));
  return indexes.filter((index) => !known.has(indexText(index)));
}

function indexText({ table, name, columns, unique }: DeclaredIndex): string {
  return JSON.stringify([table, name, columns, unique]);
}
