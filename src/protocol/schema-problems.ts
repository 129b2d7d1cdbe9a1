/** Faults of a schema document: all of them are reported at once, each with its place and its fix. */

export interface SchemaProblem {
  /** Name of the table, or `#n` (counted from 0) for one without a usable name; `null` for the document itself. */
  readonly table: string | null;
  readonly fault: string;
  readonly fix: string;
}

/** The schema cannot be served. `problems` has everything that is wrong with it, in document order. */
export class SchemaError extends Error {
  override readonly name = 'SchemaError';
  readonly problems: readonly SchemaProblem[];

  constructor(problems: readonly SchemaProblem[]) {
    super(['the schema cannot be used:', ...problems.map(problemLine)].join('\n'));
    this.problems = problems;
  }
}

function problemLine({ table, fault, fix }: SchemaProblem): string {
  return `- ${table === null ? 'schema' : `table ${table}`}: ${fault}; ${fix}`;
}

/** Collects the problems of one table, or of the document as a whole. */
export class ProblemReport {
  readonly #table: string | null;
  readonly #problems: SchemaProblem[];

  constructor(table: string | null, problems: SchemaProblem[]) {
    this.#table = table;
    this.#problems = problems;
  }

  add(fault: string, fix: string): void {
    this.#problems.push({ table: this.#table, fault, fix });
  }
}

export function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
