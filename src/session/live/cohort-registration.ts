/** One subscription of a cohort: what it matches and how its delta section begins. */
import { encodeFrame } from '../../protocol/frame-codecs.ts';
import type { ScopeMap, WireVersion } from '../../protocol/frames.ts';
import type { LogChange } from '../../storage/storage.ts';
import type { Registration } from '../sync/round-outcome.ts';
import type { Cohort } from './cohort.ts';

/** From this many values on a list is looked up in a set. */
const SET_VALUES_MIN = 9;

interface VariableValues {
  readonly variable: string;
  has(value: string): boolean;
}

export class CohortRegistration {
  readonly cohort: Cohort;
  readonly id: string;
  readonly table: string;
  readonly effective: ScopeMap;
  readonly state: Registration['state'];
  /** The variable under which the scope index keeps it; `null` while it is not in there. */
  indexedUnder: string | null = null;
  readonly #variables: readonly VariableValues[];
  readonly #wireVersion: WireVersion;
  #startFrame: Uint8Array | null = null;

  constructor(cohort: Cohort, registration: Registration, wireVersion: WireVersion) {
    this.cohort = cohort;
    this.id = registration.id;
    this.table = registration.table;
    this.effective = registration.effective;
    this.state = registration.state;
    this.#wireVersion = wireVersion;
    this.#variables = Object.entries(registration.effective).map(([variable, values]) =>
      variableValues(variable, values),
    );
  }

  /** Only these take delta sections (part 3, 3.5.2-8, R-078). */
  get isLive(): boolean {
    return this.state === 'live';
  }

  /** §3.2: equal table, and the stored value lies in the list for every effective variable. */
  readonly selects = (change: LogChange): boolean => {
    if (change.table !== this.table) return false;
    for (const variable of this.#variables) {
      const value = change.scopes[variable.variable];
      if (value === undefined || !variable.has(value)) return false;
    }
    return true;
  };

  /** `SUB_START` of a delta section; the same bytes for every delta. */
  get startFrame(): Uint8Array {
    this.#startFrame ??= encodeFrame(this.#wireVersion, {
      type: 'SUB_START',
      id: this.id,
      status: 'active',
      reasonCode: '',
      effectiveScopes: this.effective,
      bootstrap: false,
    });
    return this.#startFrame;
  }
}

function variableValues(variable: string, values: readonly string[]): VariableValues {
  if (values.length < SET_VALUES_MIN) return { variable, has: (value) => values.includes(value) };
  const held = new Set(values);
  return { variable, has: (value) => held.has(value) };
}
