/** `sync_schema_meta`: which schema version the data is at, and in which layout every table's bytes are. */

import type { CompiledIndex, CompiledSchema } from '../../protocol/schema.ts';
import {
  describeLayout,
  parseLayouts,
  type SchemaLayouts,
  type TableLayout,
} from '../../protocol/schema-layout.ts';
import type { SqliteConnection } from './driver.ts';

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

/** `null` before the first `ensureSchema`. */
export function readStoredSchema(connection: SqliteConnection): StoredSchema | null {
  const row = connection.get('SELECT layouts FROM sync_schema_meta WHERE id = 1');
  if (row === undefined) return null;
  const stored = JSON.parse(row[0] as string);
  const layouts = parseLayouts(stored);
  return {
    layouts,
    retired: parseLayouts({ ...stored, tables: stored.retired }).tables,
    indexes: stored.indexes as DeclaredIndex[],
  };
}

export function writeStoredSchema(
  connection: SqliteConnection,
  schema: CompiledSchema,
  retired: readonly TableLayout[],
): void {
  const layouts = { ...describeLayout(schema), retired, indexes: declaredIndexes(schema) };
  connection.run(
    `INSERT INTO sync_schema_meta (id, schema_version, layouts) VALUES (1, ?, ?)
     ON CONFLICT (id) DO UPDATE SET schema_version = excluded.schema_version, layouts = excluded.layouts`,
    [schema.version, JSON.stringify(layouts)],
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
