/** The layout of every table as stored beside the data (`sync_schema_meta.layouts`), for a later version to decode by. */
import type { JsonObject } from './errors.ts';
import { COLUMN_TAGS, type CodecColumn } from './row-codec.ts';
import type { ColumnType, CompiledSchema } from './schema.ts';
import { isRecord, SchemaError } from './schema-problems.ts';

export interface TableLayout {
  readonly name: string;
  readonly primaryKey: string;
  readonly materialize: boolean;
  /** In row-codec order. */
  readonly columns: readonly CodecColumn[];
  readonly scopes: readonly { readonly variable: string; readonly column: string }[];
}

export interface SchemaLayouts {
  readonly version: number;
  readonly tables: readonly TableLayout[];
}

const FORMAT = 1;

/** What stored rows and scopes depend on; indexes, CRDT types and encryption metadata are not part of it. */
export function layoutsOf(schema: CompiledSchema): SchemaLayouts {
  return {
    version: schema.version,
    tables: schema.tables.map(({ name, primaryKey, materialize, columns, scopes }) => ({
      name,
      primaryKey,
      materialize,
      columns: columns.map((column) => ({
        name: column.name,
        type: column.type,
        nullable: column.nullable,
      })),
      scopes: scopes.map(({ variable, column }) => ({ variable, column })),
    })),
  };
}

export function describeLayout(schema: CompiledSchema): JsonObject {
  const { version, tables } = layoutsOf(schema);
  return {
    format: FORMAT,
    version,
    tables: tables.map(({ name, primaryKey, materialize, columns, scopes }) => ({
      name,
      primaryKey,
      materialize,
      columns: columns.map((column) => ({ ...column })),
      scopes: scopes.map((scope) => ({ ...scope })),
    })),
  };
}

/** Reads `describeLayout`'s value back. Throws `SchemaError` when it is something else or of a later format. */
export function parseLayouts(stored: unknown): SchemaLayouts {
  if (!isRecord(stored) || stored.format !== FORMAT) throw unreadable('its format is not known');
  return {
    version: asNumber(stored.version),
    tables: asList(stored.tables).map((table) => ({
      name: asText(table.name),
      primaryKey: asText(table.primaryKey),
      materialize: asFlag(table.materialize),
      columns: asList(table.columns).map((column) => ({
        name: asText(column.name),
        type: asColumnType(column.type),
        nullable: asFlag(column.nullable),
      })),
      scopes: asList(table.scopes).map((scope) => ({
        variable: asText(scope.variable),
        column: asText(scope.column),
      })),
    })),
  };
}

/** True when both describe the same tables, in whatever order, with the same columns in the same order. */
export function sameLayouts(a: SchemaLayouts, b: SchemaLayouts): boolean {
  return layoutText(a) === layoutText(b);
}

function layoutText({ tables }: SchemaLayouts): string {
  return JSON.stringify(tables.map((table) => JSON.stringify(sorted(table))).sort());
}

function sorted({ name, primaryKey, materialize, columns, scopes }: TableLayout): unknown {
  const columnParts = columns.map((column) => [column.name, column.type, column.nullable]);
  const scopeParts = scopes.map(({ variable, column }) => JSON.stringify([variable, column])).sort();
  return [name, primaryKey, materialize, columnParts, scopeParts];
}

function unreadable(fault: string): SchemaError {
  return new SchemaError([
    { table: null, fault: `the stored layout cannot be read: ${fault}`, fix: 'restore sync_schema_meta' },
  ]);
}

function asList(value: unknown): readonly Readonly<Record<string, unknown>>[] {
  if (!Array.isArray(value) || !value.every(isRecord)) throw unreadable('a list is missing');
  return value;
}

function asText(value: unknown): string {
  if (typeof value !== 'string') throw unreadable('a name is missing');
  return value;
}

function asNumber(value: unknown): number {
  if (typeof value !== 'number') throw unreadable('the version is missing');
  return value;
}

function asFlag(value: unknown): boolean {
  if (typeof value !== 'boolean') throw unreadable('a flag is missing');
  return value;
}

function asColumnType(value: unknown): ColumnType {
  const type = asText(value);
  if (!Object.hasOwn(COLUMN_TAGS, type)) throw unreadable('a column type is not known');
  return type as ColumnType;
}
