/** Scope patterns of one table of a schema document (§3.1). */
import { isWellFormed } from './bytes.ts';
import type { CompiledColumn, CompiledScope } from './schema.ts';
import { isKeyType } from './schema-columns.ts';
import { isRecord, type ProblemReport } from './schema-problems.ts';

const PATTERN = /^([^{}]+):\{([^{}]+)\}$/;
const PATTERN_FIX = "write it as 'prefix:{variable}' with exactly one variable, at the end";
// biome-ignore lint/suspicious/noControlCharactersInRegex: control characters are what it looks for
const BAD_VARIABLE = /[\s\u0000-\u001f\u007f]/;

/**
 * Within a table a variable names one column under one prefix (S-039). Across tables the same variable may stand for
 * another column and another prefix, and two variables may share a prefix: `project:{id}` on projects beside
 * `project:{project_id}` on tasks gives both the same scope keys.
 *
 * A nullable scope column is allowed; a row whose value is NULL (or empty) is denied when it is written (§3.4 rule 3).
 */
export function compileScopes(
  raw: unknown,
  columns: readonly CompiledColumn[],
  report: ProblemReport,
): readonly CompiledScope[] {
  if (!Array.isArray(raw) || raw.length === 0) {
    report.add(
      'has no scope pattern',
      "add one such as 'project:{project_id}'; a table shared by all needs an explicit scope column too",
    );
    return [];
  }
  const scopes: CompiledScope[] = [];
  for (const [position, entry] of raw.entries()) {
    const scope = compileScope(entry, { position, columns, report });
    if (scope === null) continue;
    const earlier = scopes.find(({ variable }) => variable === scope.variable);
    if (earlier === undefined) scopes.push(scope);
    else if (earlier.columnIndex !== scope.columnIndex) {
      report.add(
        `scope variable ${scope.variable} names the columns ${earlier.column} and ${scope.column}`,
        'give each column a variable of its own',
      );
    } else report.add(`scope variable ${scope.variable} has two patterns`, 'keep one of them');
  }
  return scopes;
}

interface ScopeContext {
  readonly position: number;
  readonly columns: readonly CompiledColumn[];
  readonly report: ProblemReport;
}

function compileScope(raw: unknown, { position, columns, report }: ScopeContext): CompiledScope | null {
  const entry = typeof raw === 'string' ? { pattern: raw } : raw;
  const pattern = isRecord(entry) ? entry.pattern : undefined;
  if (!isRecord(entry) || typeof pattern !== 'string') {
    report.add(`scope #${position} has no pattern`, PATTERN_FIX);
    return null;
  }
  const [, prefix, variable] = PATTERN.exec(pattern) ?? [];
  if (prefix === undefined || variable === undefined || !isWellFormed(pattern)) {
    report.add(`scope pattern ${JSON.stringify(pattern)} is malformed`, PATTERN_FIX);
    return null;
  }
  if (variable === '*' || variable === '__proto__' || BAD_VARIABLE.test(variable)) {
    report.add(`scope variable ${JSON.stringify(variable)} cannot be used`, 'name it like a column');
    return null;
  }
  const name = entry.column ?? variable;
  const columnIndex = columns.findIndex((column) => column.name === name);
  const column = columns[columnIndex];
  if (column === undefined) {
    report.add(
      `scope ${pattern} is over a column that does not exist`,
      "add the column, or name another one with { pattern, column: '...' }",
    );
    return null;
  }
  if (!isKeyType(column)) {
    const kind = column.encrypted ? 'encrypted' : column.type;
    report.add(
      `scope ${pattern} is over the ${kind} column ${column.name}`,
      'use a string or integer column in the clear',
    );
    return null;
  }
  return { variable, prefix, column: column.name, columnIndex };
}

export function compileRequiredScopes(
  raw: unknown,
  scopes: readonly CompiledScope[],
  report: ProblemReport,
): readonly string[] {
  if (raw === undefined || raw === null) return [];
  if (!Array.isArray(raw)) {
    report.add('requiredScopes is not a list', 'list scope variables of the table');
    return [];
  }
  const required = new Set<string>();
  for (const variable of raw as unknown[]) {
    if (typeof variable === 'string' && scopes.some((scope) => scope.variable === variable)) {
      required.add(variable);
    } else {
      report.add(
        `requiredScopes names ${JSON.stringify(variable)}, which no pattern declares`,
        'name a variable of a scope pattern of this table',
      );
    }
  }
  return [...required];
}
