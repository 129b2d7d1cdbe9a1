/** What a backfill reads and writes, checked against the schema before anything is claimed. */
import type { CompiledSchema } from '../../protocol/schema.ts';
import { BackfillError } from './backfill-writes.ts';
import { compilePushPlan, type PushPlan, type TablePlan } from './push-plan.ts';

export interface BackfillPlan {
  readonly plan: PushPlan;
  readonly derived: ReadonlySet<string>;
  /** Tables of a scan: the derived ones, which are emptied, then the sources. */
  readonly order: readonly TablePlan[];
}

export interface BackfillTables {
  readonly name: string;
  readonly sources: readonly string[];
  readonly derived?: readonly string[];
}

/** Throws `BackfillError`. */
export function planBackfill(
  { name, sources, derived }: BackfillTables,
  schema: CompiledSchema,
): BackfillPlan {
  // No code of the host judges what a backfill writes: the batch function is the host's.
  const plan = compilePushPlan(schema, {
    resolveScopes: () => ({}),
    rowValidators: new Map(),
    commitValidator: 'off',
    crdtMergers: new Map(),
  });
  const planOf = (table: string): TablePlan => {
    const found = plan.tables.get(table);
    if (found === undefined) {
      throw new BackfillError(
        `the backfill ${name} names the table ${table}, which the schema does not have`,
      );
    }
    return found;
  };
  const written = derived ?? defaultDerived(name, plan);
  if (sources.length === 0) throw new BackfillError(`the backfill ${name} has no source tables`);
  if (written.length === 0) throw new BackfillError(`the backfill ${name} has no derived tables`);
  const all = [...written, ...sources];
  if (new Set(all).size !== all.length) {
    throw new BackfillError(`the backfill ${name} names a table twice; a source cannot be derived as well`);
  }
  return { plan, derived: new Set(written), order: all.map(planOf) };
}

function defaultDerived(name: string, plan: PushPlan): readonly string[] {
  if (plan.tables.has(name)) return [name];
  throw new BackfillError(
    `the backfill ${name} must say which tables it writes (derived), as no table is named like it`,
  );
}
