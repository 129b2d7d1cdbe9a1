/** The functions that a configuration module brings. */

import type { ScopeMap } from '../protocol/frames.ts';
import { isRecord } from '../protocol/schema-problems.ts';
import type { BackfillRequest } from '../session/sync/backfill-request.ts';
import type { CommitValidator, CrdtMerger, Identity, RowValidator } from '../session/sync/sync-deps.ts';
import type { Authenticate } from './auth.ts';
import type { ConfigFile } from './config-file.ts';

export interface ModuleHooks {
  readonly authenticate: Authenticate | null;
  readonly resolveScopes: ((who: Identity) => ScopeMap | Promise<ScopeMap>) | null;
  readonly rowValidators: Readonly<Record<string, RowValidator>>;
  readonly commitValidator: CommitValidator | null;
  readonly crdtMergers: Readonly<Record<string, CrdtMerger>>;
  /** By the name of the checkpoint. */
  readonly backfills: Readonly<Record<string, ConfiguredBackfill>>;
}

export type ConfiguredBackfill = Pick<BackfillRequest, 'sources' | 'derived' | 'batch'>;

/** A function's parameters and result cannot be checked from outside: the name of the key is the host's promise. */
type AnyFunction<Fn> = (value: unknown) => value is Fn;

function isFunction<Fn>(value: unknown): value is Fn {
  return typeof value === 'function';
}

export function readHooks(file: ConfigFile | null, problems: string[]): ModuleHooks {
  const one = <Fn>(key: string, isOne: AnyFunction<Fn>): Fn | null => {
    const value = file?.content[key];
    if (value === undefined || value === null) return null;
    if (isOne(value)) return value;
    problems.push(`${key} in ${file?.path} must be a function, which only a .js, .mjs or .ts file can hold`);
    return null;
  };
  const several = <Fn>(key: string, isOne: AnyFunction<Fn>): Readonly<Record<string, Fn>> => {
    const value = file?.content[key];
    if (value === undefined || value === null) return {};
    const entries = typeof value === 'object' ? Object.entries(value) : [];
    const functions = entries.filter((entry): entry is [string, Fn] => isOne(entry[1]));
    if (typeof value !== 'object' || functions.length !== entries.length) {
      problems.push(`${key} in ${file?.path} must be an object of functions`);
    }
    return Object.fromEntries(functions);
  };
  return {
    authenticate: one('authenticate', isFunction<Authenticate>),
    resolveScopes: one('resolveScopes', isFunction<NonNullable<ModuleHooks['resolveScopes']>>),
    rowValidators: several('rowValidators', isFunction<RowValidator>),
    commitValidator: one('commitValidator', isFunction<CommitValidator>),
    crdtMergers: several('crdtMergers', isFunction<CrdtMerger>),
    backfills: readBackfills(file, problems),
  };
}

function readBackfills(file: ConfigFile | null, problems: string[]): ModuleHooks['backfills'] {
  const value = file?.content.backfills;
  if (value === undefined || value === null) return {};
  if (!isRecord(value)) {
    problems.push(
      `backfills in ${file?.path} must be an object of { sources, derived?, batch } by checkpoint name`,
    );
    return {};
  }
  const entries = Object.entries(value).flatMap(([name, each]): [string, ConfiguredBackfill][] => {
    if (isBackfill(each)) return [[name, each]];
    problems.push(
      `backfills.${name} in ${file?.path} must be { sources, derived?, batch }: lists of tables, and a function that only a .js, .mjs or .ts file can hold`,
    );
    return [];
  });
  return Object.fromEntries(entries);
}

const isListOfTexts = (value: unknown): boolean =>
  Array.isArray(value) && value.every((each) => typeof each === 'string');

function isBackfill(value: unknown): value is ConfiguredBackfill {
  if (!isRecord(value)) return false;
  const { sources, derived, batch, ...unknown } = value;
  const isKnown = Object.keys(unknown).length === 0;
  return (
    isKnown &&
    isListOfTexts(sources) &&
    (derived === undefined || isListOfTexts(derived)) &&
    isFunction(batch)
  );
}
