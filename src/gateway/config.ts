/** Flags, environment and file become one read-only configuration; all that is wrong is said at once. */
import { resolve } from 'node:path';
import { assertLimits, DEFAULT_LIMITS, type Limits } from '../protocol/limits.ts';
import { isRecord } from '../protocol/schema-problems.ts';
import type { CheckpointDeclaration } from '../storage/checkpoints.ts';
import type { StaticGrant } from './auth.ts';
import { readCheckpoints } from './config-checkpoints.ts';
import { ConfigError, messageOf } from './config-error.ts';
import type { ConfigFile } from './config-file.ts';
import { type ModuleHooks, readHooks } from './config-hooks.ts';
import { readJwt } from './config-jwt.ts';
import { readStaticTokens } from './config-tokens.ts';
import type { JwtOptions } from './jwt.ts';
import { envName, flagName, LIMIT_OPTIONS, OPTIONS, type OptionSpec, type Settings } from './option-table.ts';
import { normalizeMount } from './routes.ts';
import { isPostgresUrl } from './storage-option.ts';

export interface ConfigSources {
  /** Values as typed, by flag name (`--port`). */
  readonly flags: Readonly<Record<string, string | undefined>>;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly file: ConfigFile | null;
  /** Relative paths in flags and variables start here. */
  readonly workingFolder: string;
}

export interface Config {
  readonly settings: Settings;
  readonly limits: Limits;
  readonly storage:
    | { readonly kind: 'sqlite'; readonly path: string }
    /** May hold a password: never logged, never in a message. */
    | { readonly kind: 'postgres'; readonly url: string };
  readonly schema:
    | { readonly kind: 'document'; readonly document: unknown }
    | { readonly kind: 'file'; readonly path: string };
  readonly access:
    | { readonly kind: 'tokens'; readonly tokens: ReadonlyMap<string, StaticGrant> }
    | { readonly kind: 'jwt'; readonly jwt: JwtOptions }
    | { readonly kind: 'hooks' };
  readonly hooks: ModuleHooks;
  readonly checkpoints: readonly CheckpointDeclaration[];
}

/** A value as found, with its place for messages and its folder for paths. */
interface Found {
  readonly value: unknown;
  readonly place: string;
  readonly folder: string;
}

/** A flag wins over a variable, a variable over the file, the file over the default. Throws a `ConfigError`. */
export function resolveConfig(sources: ConfigSources): Config {
  const problems: string[] = [];
  const settings = readSettings(sources, problems);
  const limits = readLimits(sources, problems);
  const hooks = readHooks(sources.file, problems);
  const jwt = readJwt(sources.file, problems);
  const tokens = readStaticTokens(sources.file, problems);
  const checkpoints = readCheckpoints(sources.file, problems);
  reportUnknownKeys(sources.file, problems);
  const storage = readStorage(sources, problems);
  const schema = readSchema(sources, problems);
  try {
    normalizeMount(settings.mount);
  } catch (failure) {
    problems.push(messageOf(failure));
  }
  const hasAuth = isRecord(sources.file?.content.auth);
  if (!hasAuth && tokens === null && hooks.authenticate === null) {
    problems.push(
      'nobody could connect: set auth.tokens or auth.jwt, or authenticate and resolveScopes in a module',
    );
  }
  if ((hasAuth || tokens !== null) && hooks.authenticate !== null)
    problems.push('auth and authenticate exclude each other');
  if (hooks.authenticate !== null && hooks.resolveScopes === null) {
    problems.push('authenticate needs resolveScopes beside it');
  }
  if (problems.length > 0 || storage === null || schema === null) throw new ConfigError(problems);
  const access = accessOf(tokens, jwt);
  return Object.freeze({ settings, limits, storage, schema, access, hooks, checkpoints });
}

function accessOf(tokens: ReadonlyMap<string, StaticGrant> | null, jwt: JwtOptions | null): Config['access'] {
  if (jwt !== null) return { kind: 'jwt', jwt };
  return tokens === null ? { kind: 'hooks' } : { kind: 'tokens', tokens };
}

/** What a command needs that works on the data and serves nobody. */
export type DataConfig = Pick<Config, 'settings' | 'storage'>;
export type MigrationConfig = DataConfig & Pick<Config, 'schema' | 'hooks' | 'checkpoints'>;
export type BackfillConfig = MigrationConfig & Pick<Config, 'limits'>;

/** Throws a `ConfigError`. */
export function resolveDataConfig(sources: ConfigSources): DataConfig {
  const problems: string[] = [];
  const settings = readSettings(sources, problems);
  reportUnknownKeys(sources.file, problems);
  const storage = readStorage(sources, problems);
  if (storage?.kind === 'sqlite' && storage.path === ':memory:') {
    problems.push('storage must be a database that outlives this command');
  }
  if (problems.length > 0 || storage === null) throw new ConfigError(problems);
  return Object.freeze({ settings, storage });
}

/** Throws a `ConfigError`. */
export function resolveMigrationConfig(sources: ConfigSources): MigrationConfig {
  const problems: string[] = [];
  const hooks = readHooks(sources.file, problems);
  const checkpoints = readCheckpoints(sources.file, problems);
  const schema = readSchema(sources, problems);
  const data = resolveDataConfig(sources);
  if (problems.length > 0 || schema === null) throw new ConfigError(problems);
  return Object.freeze({ ...data, schema, hooks, checkpoints });
}

/** Throws a `ConfigError`. */
export function resolveBackfillConfig(sources: ConfigSources): BackfillConfig {
  const problems: string[] = [];
  const limits = readLimits(sources, problems);
  if (problems.length > 0) throw new ConfigError(problems);
  return Object.freeze({ ...resolveMigrationConfig(sources), limits });
}

/** The plain values alone, for commands that need no more. Throws a `ConfigError`. */
export function resolveSettings(sources: ConfigSources): Settings {
  const problems: string[] = [];
  const settings = readSettings(sources, problems);
  if (problems.length > 0) throw new ConfigError(problems);
  return settings;
}

const SCALARS: readonly OptionSpec[] = OPTIONS.filter(({ reach }) => reach === 'everywhere');

function readSettings(sources: ConfigSources, problems: string[]): Settings {
  const settings: Record<string, unknown> = {};
  for (const spec of SCALARS) {
    // The schema may be a document in the file; `readSchema` looks at it.
    const found = find(spec, sources);
    const isDocument = spec.name === 'schema' && typeof found?.value === 'object';
    settings[spec.name] = found === null || isDocument ? spec.default : parse(spec, found, problems);
  }
  return Object.freeze(settings) as Settings;
}

function readLimits(sources: ConfigSources, problems: string[]): Limits {
  const overrides: Record<string, number> = {};
  for (const spec of LIMIT_OPTIONS) {
    const found = find(spec, sources);
    const value = found === null ? undefined : parse(spec, found, problems);
    if (typeof value === 'number') overrides[spec.name] = value;
  }
  const limits: Limits = Object.freeze({ ...DEFAULT_LIMITS, ...overrides });
  try {
    assertLimits(limits);
  } catch (failure) {
    problems.push(messageOf(failure));
  }
  return limits;
}

function find(spec: OptionSpec, { flags, env, file, workingFolder }: ConfigSources): Found | null {
  const flag = flags[flagName(spec)];
  if (flag !== undefined) return { value: flag, place: flagName(spec), folder: workingFolder };
  const variable = env[envName(spec)];
  // An empty variable is how a shell or a compose file unsets one.
  if (variable !== undefined && variable !== '') {
    return { value: variable, place: envName(spec), folder: workingFolder };
  }
  if (file === null) return null;
  const holder = spec.group === 'limits' ? file.content.limits : file.content;
  if (!isRecord(holder) || holder[spec.name] === undefined) return null;
  const key = spec.group === 'limits' ? `limits.${spec.name}` : spec.name;
  return { value: holder[spec.name], place: `${key} in ${file.path}`, folder: file.folder };
}

function parse(spec: OptionSpec, { value, place }: Found, problems: string[]): unknown {
  const parsed = PARSERS[spec.type](value, spec);
  if (parsed === undefined) {
    problems.push(`${place} must be ${describe(spec)}`);
    return spec.default;
  }
  return parsed;
}

type Parser = (value: unknown, spec: OptionSpec) => unknown;

const readText: Parser = (value) => (typeof value === 'string' && value !== '' ? value : undefined);

const PARSERS: Readonly<Record<OptionSpec['type'], Parser>> = {
  text: readText,
  integer: (value, { min, max }) => {
    const number = typeof value === 'string' && /^\d{1,16}$/.test(value) ? Number(value) : value;
    if (typeof number !== 'number' || !Number.isSafeInteger(number)) return undefined;
    return number >= min && number <= max ? number : undefined;
  },
  list: (value) => {
    const items: unknown = typeof value === 'string' ? value.split(',').map((item) => item.trim()) : value;
    return Array.isArray(items) && items.every((item) => typeof item === 'string' && item !== '')
      ? items
      : undefined;
  },
  choice: (value, { choices }) => choices.find((choice) => choice === value),
  structure: (value) => value,
  function: (value) => value,
};

function describe({ type, min, max, choices }: OptionSpec): string {
  if (type === 'integer') {
    return max === Number.MAX_SAFE_INTEGER
      ? `a whole number, at least ${min}`
      : `a whole number from ${min} to ${max}`;
  }
  if (type === 'choice') return `one of ${choices.join(', ')}`;
  return type === 'list' ? 'a list of texts (with commas between them in a flag or variable)' : 'a text';
}

function optionNamed(name: string): OptionSpec {
  return SCALARS.find((spec) => spec.name === name)!;
}

function readStorage(sources: ConfigSources, problems: string[]): Config['storage'] | null {
  const spec = optionNamed('storage');
  const found = find(spec, sources) ?? {
    value: spec.default,
    place: 'storage',
    folder: sources.workingFolder,
  };
  if (typeof found.value !== 'string') return null;
  const path = /^sqlite:(.+)$/s.exec(found.value)?.[1];
  if (path !== undefined) {
    return { kind: 'sqlite', path: path === ':memory:' ? path : resolve(found.folder, path) };
  }
  if (isPostgresUrl(found.value)) return { kind: 'postgres', url: found.value };
  problems.push(`${found.place} must be sqlite:PATH, sqlite::memory: or postgres://HOST/DATABASE`);
  return null;
}

function readSchema(sources: ConfigSources, problems: string[]): Config['schema'] | null {
  const found = find(optionNamed('schema'), sources);
  if (found === null) {
    problems.push('schema is missing: the path of a schema document, or in a file the document itself');
    return null;
  }
  if (isRecord(found.value)) return { kind: 'document', document: found.value };
  if (typeof found.value !== 'string' || found.value === '') return null;
  return { kind: 'file', path: resolve(found.folder, found.value) };
}

/** A key that nobody reads is most often a misspelt one. */
function reportUnknownKeys(file: ConfigFile | null, problems: string[]): void {
  if (file === null) return;
  const known = new Set<string>([...OPTIONS.map(({ name }) => name), 'limits']);
  for (const key of Object.keys(file.content)) {
    if (!known.has(key)) problems.push(`${key} in ${file.path} is no option`);
  }
  const { limits } = file.content;
  if (limits === undefined) return;
  if (!isRecord(limits)) {
    problems.push(`limits in ${file.path} must be an object`);
    return;
  }
  for (const key of Object.keys(limits)) {
    if (!Object.hasOwn(DEFAULT_LIMITS, key)) problems.push(`limits.${key} in ${file.path} is no limit`);
  }
}
