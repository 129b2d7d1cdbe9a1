/** Columns and the primary key of one table of a schema document. */
import { foldIdentifier, identifierFault } from './identifiers.ts';
import { COLUMN_TAGS } from './row-codec.ts';
import type { ColumnType, CompiledColumn } from './schema.ts';
import { isRecord, type ProblemReport } from './schema-problems.ts';

/** PostgreSQL ends at 1,600 columns, some of which are ours. */
const COLUMNS_MAX = 1_500;
const COLUMN_TYPES = Object.keys(COLUMN_TAGS).join(', ');

function isColumnType(type: unknown): type is ColumnType {
  return typeof type === 'string' && Object.hasOwn(COLUMN_TAGS, type);
}

/**
 * What may be a primary key or a scope value: it has one text form and one equality on both databases. An encrypted column
 * is `bytes` and therefore not one.
 */
export function isKeyType(column: CompiledColumn): boolean {
  return column.type === 'string' || column.type === 'integer';
}

export function compileColumns(
  raw: unknown,
  crdtTypes: ReadonlySet<string>,
  report: ProblemReport,
): readonly CompiledColumn[] {
  if (!Array.isArray(raw) || raw.length === 0) {
    report.add('has no columns', 'list them under columns');
    return [];
  }
  if (raw.length > COLUMNS_MAX) {
    report.add(`has ${raw.length} columns`, `split it, ${COLUMNS_MAX} is the most a table can have`);
  }
  const columns: CompiledColumn[] = [];
  const taken = new Set<string>();
  for (const [position, entry] of raw.entries()) {
    const column = compileColumn(entry, { position, crdtTypes, report });
    if (column === null) continue;
    const folded = foldIdentifier(column.name);
    if (taken.has(folded))
      report.add(`column ${column.name} appears twice`, 'rename one (case does not count)');
    taken.add(folded);
    columns.push(column);
  }
  return columns;
}

interface ColumnContext {
  readonly position: number;
  readonly crdtTypes: ReadonlySet<string>;
  readonly report: ProblemReport;
}

function compileColumn(raw: unknown, context: ColumnContext): CompiledColumn | null {
  const { report } = context;
  if (!isRecord(raw) || typeof raw.name !== 'string') {
    report.add(`column #${context.position} has no name`, 'write it as { name, type, nullable }');
    return null;
  }
  const name = raw.name;
  const fault = identifierFault(name, 'column');
  if (fault !== null) report.add(`column name ${JSON.stringify(name)} ${fault}`, 'rename the column');
  const type = raw.type;
  if (!isColumnType(type)) {
    report.add(`column ${name} has an unknown type`, `use one of ${COLUMN_TYPES}`);
    return null;
  }
  const nullable = readFlag(raw, 'nullable', name, report);
  const encrypted = readFlag(raw, 'encrypted', name, report);
  const crdtType = compileCrdtType(raw.crdtType, { ...context, name, type });
  if (!encrypted) return { name, type, nullable, encrypted, ...(crdtType === undefined ? {} : { crdtType }) };
  const declaredType = compileDeclaredType(raw.declaredType, { name, type, report });
  return { name, type: 'bytes', nullable, encrypted, declaredType };
}

function readFlag(
  raw: Readonly<Record<string, unknown>>,
  member: 'nullable' | 'encrypted',
  column: string,
  report: ProblemReport,
): boolean {
  const flag = raw[member] ?? false;
  if (typeof flag === 'boolean') return flag;
  report.add(`${member} of column ${column} is neither true nor false`, 'make it a boolean');
  return false;
}

interface NamedColumn {
  readonly name: string;
  readonly type: ColumnType;
  readonly report: ProblemReport;
}

/** §5.10: a type nobody can merge is refused here, before anything is served (S-111). */
function compileCrdtType(raw: unknown, column: NamedColumn & ColumnContext): string | undefined {
  const { name, type, crdtTypes, report } = column;
  if (raw === undefined || raw === null) {
    if (type === 'crdt') report.add(`crdt column ${name} has no crdtType`, "add one, for example 'yjs-doc'");
    return undefined;
  }
  if (type !== 'crdt') {
    report.add(`column ${name} has a crdtType but type ${type}`, "make its type 'crdt' or drop crdtType");
    return undefined;
  }
  if (typeof raw !== 'string' || !crdtTypes.has(raw)) {
    const known = [...crdtTypes].join(', ');
    report.add(`column ${name} has an unknown crdtType`, `use one of ${known}, or register a merger for it`);
    return undefined;
  }
  return raw;
}

/** §5.11: on the wire an encrypted column is `bytes`; what the server must read or merge cannot be encrypted. */
function compileDeclaredType(raw: unknown, { name, type, report }: NamedColumn): ColumnType {
  const declared = raw === undefined || raw === null ? type : raw;
  if (!isColumnType(declared)) {
    report.add(`encrypted column ${name} has an unknown declaredType`, `use one of ${COLUMN_TYPES}`);
    return type;
  }
  if (type !== 'bytes' && type !== declared) {
    report.add(
      `encrypted column ${name} has type ${type} but declaredType ${declared}`,
      "make them equal, or its type 'bytes'",
    );
  }
  if (declared === 'blob_ref') {
    // Part 2.24 decision 17: the server could neither check nor index the reference.
    report.add(`blob_ref column ${name} is encrypted`, 'leave it in the clear and encrypt the blob itself');
  }
  if (declared === 'crdt') {
    report.add(`crdt column ${name} is encrypted`, 'leave it in the clear, the server merges it');
  }
  return declared;
}

/** Position of the primary key, or -1 after reporting why there is none. */
export function compilePrimaryKey(
  raw: unknown,
  columns: readonly CompiledColumn[],
  report: ProblemReport,
): number {
  const index = columns.findIndex((column) => column.name === raw);
  const column = columns[index];
  if (typeof raw !== 'string' || column === undefined) {
    report.add('primaryKey names no column', 'name exactly one column of the table');
    return -1;
  }
  if (!isKeyType(column)) {
    const kind = column.encrypted ? 'encrypted' : column.type;
    report.add(`primary key ${raw} is ${kind}`, 'use a string or integer column in the clear');
  }
  if (column.nullable) report.add(`primary key ${raw} is nullable`, 'make it not nullable');
  return index;
}
