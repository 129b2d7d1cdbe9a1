/** The functions that a configuration module brings. */

import type { ScopeMap } from '../protocol/frames.ts';
import type { CommitValidator, CrdtMerger, Identity, RowValidator } from '../session/sync/sync-deps.ts';
import type { Authenticate } from './auth.ts';
import type { ConfigFile } from './config-file.ts';

export interface ModuleHooks {
  readonly authenticate: Authenticate | null;
  readonly resolveScopes: ((who: Identity) => ScopeMap | Promise<ScopeMap>) | null;
  readonly rowValidators: Readonly<Record<string, RowValidator>>;
  readonly commitValidator: CommitValidator | null;
  readonly crdtMergers: Readonly<Record<string, CrdtMerger>>;
}

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
  };
}
