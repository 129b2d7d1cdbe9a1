/**
 * Compiles a schema document into what every layer asks about tables, columns and scopes. Refuses here, before anything
 * is served, what could not be served safely: S-039, S-040, S-111, part 2.24 decisions 17 and 28, part 6 rules 4 and 5.
 */
import { foldIdentifier, identifierFault } from './identifiers.ts';
import type {
  CompiledColumn,
  CompiledIndex,
  CompiledSchema,
  CompiledScope,
  CompiledTable,
} from './schema.ts';
import { compileColumns, compilePrimaryKey } from './schema-columns.ts';
import { isRecord, ProblemReport, SchemaError, type SchemaProblem } from './schema-problems.ts';
import { compileRequiredScopes, compileScopes } from './schema-scopes.ts';

export interface CompileOptions {
  /** CRDT types that the host can merge, beside the built-in `yjs-doc`. */
  readonly crdtTypes?: readonly string[];
}

const BUILT_IN_CRDT_TYPES = ['yjs-doc'];
/** The wire carries it as an `i32` of at least 1. */
const VERSION_MAX = 2 ** 31 - 1;

interface Compilation {
  readonly crdtTypes: ReadonlySet<string>;
  readonly problems: SchemaProblem[];
  /** Tables and indexes share one name space in both databases. Folded name → what has it. */
  readonly names: Map<string, string>;
}

/** `document`: a `SchemaDocument`. Throws `SchemaError` with every problem found. */
export function compileSchema(document: unknown, options: CompileOptions = {}): CompiledSchema {
  const problems: SchemaProblem[] = [];
  const report = new ProblemReport(null, problems);
  if (!isRecord(document)) {
    report.add('is not an object', 'write it as { version, tables }');
    throw new SchemaError(problems);
  }
  const crdtTypes = new Set([...BUILT_IN_CRDT_TYPES, ...(options.crdtTypes ?? [])]);
  const compilation: Compilation = { crdtTypes, problems, names: new Map() };
  const version = compileVersion(document, report);
  const tables = compileTables(document.tables, compilation, report);
  if (problems.length > 0) throw new SchemaError(problems);
  return {
    version,
    tables,
    tableByName: new Map(tables.map((table) => [table.name, table])),
    variables: new Set(tables.flatMap(({ scopes }) => scopes.map(({ variable }) => variable))),
  };
}

function compileVersion(document: Readonly<Record<string, unknown>>, report: ProblemReport): number {
  const { version, schemaVersion } = document;
  if (version !== undefined && schemaVersion !== undefined && version !== schemaVersion) {
    report.add('version and schemaVersion differ', 'keep one of them');
  }
  const value = version ?? schemaVersion;
  if (typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= VERSION_MAX)
    return value;
  report.add('version is not a whole number from 1 to 2147483647', 'set it, and raise it with every change');
  return 0;
}

function compileTables(
  raw: unknown,
  compilation: Compilation,
  report: ProblemReport,
): readonly CompiledTable[] {
  if (!Array.isArray(raw)) {
    report.add('tables is not a list', 'list the tables, parents before children');
    return [];
  }
  return raw.flatMap((entry: unknown, position) => compileTable(entry, position, compilation) ?? []);
}

function compileTable(raw: unknown, position: number, compilation: Compilation): CompiledTable | null {
  const { problems, crdtTypes, names } = compilation;
  if (!isRecord(raw) || typeof raw.name !== 'string') {
    new ProblemReport(`#${position}`, problems).add('has no name', 'write it as { name, columns, ... }');
    return null;
  }
  const name = raw.name;
  const report = new ProblemReport(name, problems);
  const fault = identifierFault(name, 'table');
  if (fault !== null) report.add(`its name ${fault}`, 'rename the table');
  claimName({ name, holder: 'a table' }, names, report);

  const columns = compileColumns(raw.columns, crdtTypes, report);
  const primaryKeyIndex = compilePrimaryKey(raw.primaryKey, columns, report);
  const scopes = compileScopes(raw.scopes, columns, report);
  const requiredScopes = compileRequiredScopes(raw.requiredScopes, scopes, report);
  const indexes = compileIndexes(raw.indexes, { columns, names, report });
  const primaryKey = columns[primaryKeyIndex]?.name ?? '';
  const materialize = compileMaterialize(raw.materialize, {
    primaryKey,
    columns,
    scopes,
    indexes,
    report,
  });
  return {
    name,
    columns,
    columnIndex: new Map(columns.map((column, index) => [column.name, index])),
    primaryKey,
    primaryKeyIndex,
    scopes,
    scopeByVariable: new Map(scopes.map((scope) => [scope.variable, scope])),
    requiredScopes,
    indexes,
    materialize,
    hasEncrypted: columns.some(({ encrypted }) => encrypted),
  };
}

function claimName(
  claim: { readonly name: string; readonly holder: string },
  names: Map<string, string>,
  report: ProblemReport,
): void {
  const folded = foldIdentifier(claim.name);
  const taken = names.get(folded);
  if (taken !== undefined) {
    report.add(
      `the name ${claim.name} is already that of ${taken}`,
      'rename one of them (case does not count)',
    );
  }
  names.set(folded, claim.holder);
}

interface IndexContext {
  readonly columns: readonly CompiledColumn[];
  readonly names: Map<string, string>;
  readonly report: ProblemReport;
}

function compileIndexes(raw: unknown, context: IndexContext): readonly CompiledIndex[] {
  const { names, report } = context;
  if (raw === undefined || raw === null) return [];
  if (!Array.isArray(raw)) {
    report.add('indexes is not a list', 'list them as { name, columns, unique }');
    return [];
  }
  return raw.flatMap((entry: unknown, position) => {
    const index = compileIndex(entry, position, context);
    if (index === null) return [];
    claimName({ name: index.name, holder: 'an index' }, names, report);
    return [index];
  });
}

function compileIndex(
  raw: unknown,
  position: number,
  { columns, report }: IndexContext,
): CompiledIndex | null {
  if (!isRecord(raw) || typeof raw.name !== 'string') {
    report.add(`index #${position} has no name`, 'write it as { name, columns, unique }');
    return null;
  }
  const name = raw.name;
  const fault = identifierFault(name, 'index');
  if (fault !== null) report.add(`index name ${JSON.stringify(name)} ${fault}`, 'rename the index');
  const indexed: readonly unknown[] = Array.isArray(raw.columns) ? raw.columns : [];
  const known = indexed.filter(
    (column): column is string => typeof column === 'string' && columns.some((own) => own.name === column),
  );
  if (indexed.length === 0 || known.length !== indexed.length || new Set(known).size !== known.length) {
    report.add(`index ${name} does not list columns of the table`, 'list existing columns, each once');
  }
  const unique = raw.unique ?? false;
  if (typeof unique !== 'boolean') {
    report.add(`unique of index ${name} is neither true nor false`, 'make it a boolean');
  }
  return { name, columns: known, unique: unique === true };
}

interface MaterializeContext {
  readonly primaryKey: string;
  readonly columns: readonly CompiledColumn[];
  readonly scopes: readonly CompiledScope[];
  readonly indexes: readonly CompiledIndex[];
  readonly report: ProblemReport;
}

/**
 * Part 6 rule 5: only encrypted-only tables may go without typed columns, that is tables with an encrypted column whose
 * every other column is the primary key or a scope column.
 */
function compileMaterialize(raw: unknown, context: MaterializeContext): boolean {
  const { primaryKey, columns, scopes, indexes, report } = context;
  const materialize = raw ?? true;
  if (typeof materialize !== 'boolean') {
    report.add('materialize is neither true nor false', 'make it a boolean');
    return true;
  }
  if (materialize) return true;
  const visible = columns.filter(
    ({ name, encrypted }) =>
      !encrypted && name !== primaryKey && !scopes.some((scope) => scope.column === name),
  );
  if (visible.length > 0 || !columns.some(({ encrypted }) => encrypted)) {
    const names = visible.map(({ name }) => name).join(', ') || 'none';
    report.add(
      `materialize is false but the table is not encrypted-only (columns in the clear: ${names})`,
      'encrypt every column but the primary key and the scope columns, or drop materialize',
    );
  }
  if (indexes.length > 0) {
    report.add('materialize is false but the table has indexes', 'drop the indexes or materialize');
  }
  return false;
}
