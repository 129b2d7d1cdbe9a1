/**
 * What a schema asks of a database, as a list that can be carried out or only shown (part 4, 4.2). Planning reads the catalog
 * and refuses; it changes nothing.
 */
import type { CompiledSchema, CompiledTable } from '../../protocol/schema.ts';
import { type Convert, impossibleChange, type LayoutChange, planLayoutChange } from '../layout-change.ts';
import {
  type DeclaredIndex,
  declaredIndexes,
  indexesMissingFrom,
  isCurrent,
  type StoredSchema,
} from '../stored-schema.ts';
import { createIndexSql, createTable, dropIndexSql, growTable } from './ddl.ts';
import type { Statement } from './driver.ts';
import type { Reader } from './migrations.ts';
import type { Names } from './names.ts';
import { writeStoredSchema } from './schema-meta.ts';

export type SchemaStep =
  | { readonly kind: 'statement'; readonly statement: Statement }
  /** May fail because of rows that exist. */
  | { readonly kind: 'index'; readonly statement: Statement; readonly index: DeclaredIndex }
  | { readonly kind: 'rows'; readonly table: CompiledTable; readonly change: LayoutChange }
  | { readonly kind: 'log'; readonly converts: ReadonlyMap<string, Convert> };

/** Empty where the schema is in place. Throws where the stored one must not be touched by this one. */
export async function planSchema(
  reader: Reader,
  names: Names,
  { schema, stored }: { readonly schema: CompiledSchema; readonly stored: StoredSchema | null },
): Promise<readonly SchemaStep[]> {
  if (stored !== null && isCurrent(stored, schema)) return [];
  const known = new Map(
    [...(stored?.retired ?? []), ...(stored?.layouts.tables ?? [])].map((t) => [t.name, t]),
  );
  const before = stored?.indexes ?? [];
  const after = declaredIndexes(schema);
  // Before the columns change: no index may stand on one that is set aside.
  const steps: SchemaStep[] = indexesMissingFrom(after, before).map((index) =>
    statementStep(dropIndexSql(names, index)),
  );
  const converts = new Map<string, Convert>();
  for (const table of schema.tables) {
    const from = known.get(table.name);
    known.delete(table.name);
    if (from === undefined) {
      steps.push(statementStep(await createTable(reader, names, table)));
      continue;
    }
    const change = planLayoutChange(table, from);
    await assertPossible(reader, names, { table, change });
    if (change.convert !== null) converts.set(table.name, change.convert);
    steps.push(...(await growTable(reader, names, { table, from })).map(statementStep));
    if (change.convert !== null || change.scopesChanged || change.refill) {
      steps.push({ kind: 'rows', table, change });
    }
  }
  if (converts.size > 0) steps.push({ kind: 'log', converts });
  for (const index of indexesMissingFrom(before, after)) {
    steps.push({ kind: 'index', index, statement: { text: createIndexSql(names, index) } });
  }
  const statement = writeStoredSchema(names, schema, [...known.values()]);
  return [...steps, { kind: 'statement', statement }];
}

function statementStep(text: string): SchemaStep {
  return { kind: 'statement', statement: { text } };
}

async function assertPossible(
  reader: Reader,
  names: Names,
  { table, change }: { readonly table: CompiledTable; readonly change: LayoutChange },
): Promise<void> {
  if (change.problems.length === 0 || !(await holdsData(reader, names, table.name))) return;
  throw impossibleChange(table, change);
}

async function holdsData(reader: Reader, names: Names, table: string): Promise<boolean> {
  const [rows, changes] = await reader.run(
    { text: `SELECT 1 FROM ${names.qualified(table)} LIMIT 1` },
    {
      text: `SELECT 1 FROM ${names.changes} WHERE tbl = $1 AND payload IS NOT NULL LIMIT 1`,
      params: [table],
    },
  );
  return rows?.rows.length === 1 || changes?.rows.length === 1;
}
