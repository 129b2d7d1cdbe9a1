/** From the scopes of a change to the registrations that match it: (table, variable, value) → registrations (architecture §4.3). */
import type { Cohort } from './cohort.ts';
import type { CohortRegistration } from './cohort-registration.ts';
import type { RingEntry } from './ring-entry.ts';

/** Where cohorts go that have something to deliver. */
export interface ReadyCohorts {
  addCohort(cohort: Cohort): void;
}

type ByValue = Map<string, Set<CohortRegistration>>;
type ByVariable = Map<string, ByValue>;

export class ScopeIndex {
  readonly #tables = new Map<string, ByVariable>();
  #size = 0;

  /** Registrations in it. */
  get size(): number {
    return this.#size;
  }

  /** A registration stands under one of its variables, with all values of it, so that a change finds it at most once. */
  add(registration: CohortRegistration): void {
    const variable = this.#cheapestVariable(registration);
    if (variable === null) return;
    registration.indexedUnder = variable;
    this.#size++;
    const byValue = this.#table(registration.table, variable);
    for (const value of registration.effective[variable]!) {
      const there = byValue.get(value);
      if (there === undefined) byValue.set(value, new Set([registration]));
      else there.add(registration);
    }
  }

  remove(registration: CohortRegistration): void {
    const variable = registration.indexedUnder;
    if (variable === null) return;
    registration.indexedUnder = null;
    this.#size--;
    const byVariable = this.#tables.get(registration.table)!;
    const byValue = byVariable.get(variable)!;
    for (const value of registration.effective[variable]!) {
      const there = byValue.get(value);
      there?.delete(registration);
      if (there?.size === 0) byValue.delete(value);
    }
    if (byValue.size > 0) return;
    byVariable.delete(variable);
    if (byVariable.size === 0) this.#tables.delete(registration.table);
  }

  /** Hands the commit to every cohort that one of its changes matches. Returns how many registrations were looked at. */
  match(entry: RingEntry, ready: ReadyCohorts): number {
    const { changes } = entry.commit;
    let looked = 0;
    for (const change of changes) {
      const byVariable = this.#tables.get(change.table);
      if (byVariable === undefined) continue;
      for (const [variable, byValue] of byVariable) {
        const value = change.scopes[variable];
        const candidates = value === undefined ? undefined : byValue.get(value);
        if (candidates === undefined) continue;
        for (const registration of candidates) {
          looked++;
          if (!registration.selects(change)) continue;
          registration.cohort.collect(entry);
          ready.addCohort(registration.cohort);
        }
      }
    }
    return looked;
  }

  /** Fewest postings to keep plus fewest others to wade through. */
  #cheapestVariable(registration: CohortRegistration): string | null {
    let cheapest: string | null = null;
    let least = Number.POSITIVE_INFINITY;
    for (const [variable, values] of Object.entries(registration.effective)) {
      const byValue = this.#tables.get(registration.table)?.get(variable);
      let cost = values.length;
      if (byValue !== undefined) {
        for (const value of values) cost += byValue.get(value)?.size ?? 0;
      }
      if (cost >= least) continue;
      least = cost;
      cheapest = variable;
    }
    return cheapest;
  }

  #table(table: string, variable: string): ByValue {
    let byVariable = this.#tables.get(table);
    if (byVariable === undefined) {
      byVariable = new Map();
      this.#tables.set(table, byVariable);
    }
    let byValue = byVariable.get(variable);
    if (byValue === undefined) {
      byValue = new Map();
      byVariable.set(variable, byValue);
    }
    return byValue;
  }
}
