/**
 * The one table of options. Environment names, flags, `--help`, the keys of a configuration file and `docs/CONFIG.md` all
 * derive from it.
 */
import { DEFAULT_LIMITS } from '../protocol/limits.ts';

export type OptionGroup = 'server' | 'data' | 'access' | 'limits';
/** `structure` and `function` are written in a file, never in a flag or a variable. */
export type OptionType = 'text' | 'integer' | 'list' | 'choice' | 'structure' | 'function';
/** Where it may be set. `module`: a configuration file that is JavaScript or TypeScript. */
export type OptionReach = 'everywhere' | 'file' | 'module';

export interface OptionSpec {
  readonly name: string;
  readonly group: OptionGroup;
  readonly type: OptionType;
  readonly reach: OptionReach;
  readonly default: string | number | readonly string[] | null;
  readonly unit: string | null;
  /** Of a `choice`. */
  readonly choices: readonly string[];
  /** Of an `integer`. */
  readonly min: number;
  readonly max: number;
  readonly sentence: string;
  /** Hidden ones are left out of `--help`. */
  readonly visibility: 'shown' | 'hidden';
  readonly secrecy: 'public' | 'secret';
}

const BASE = {
  reach: 'everywhere',
  unit: null,
  choices: [],
  min: 0,
  max: Number.MAX_SAFE_INTEGER,
  visibility: 'shown',
  secrecy: 'public',
} as const;

export const OPTIONS = [
  {
    ...BASE,
    name: 'host',
    group: 'server',
    type: 'text',
    default: '127.0.0.1',
    sentence: 'Address to listen on; 0.0.0.0 for every interface.',
  },
  {
    ...BASE,
    name: 'port',
    group: 'server',
    type: 'integer',
    default: 8787,
    max: 65_535,
    sentence: 'TCP port to listen on; 0 takes a free one.',
  },
  {
    ...BASE,
    name: 'mount',
    group: 'server',
    type: 'text',
    default: '/',
    sentence: 'Path prefix of the protocol routes, such as /sync-api.',
  },
  {
    ...BASE,
    name: 'logLevel',
    group: 'server',
    type: 'choice',
    default: 'info',
    choices: ['debug', 'info', 'warn', 'error', 'silent'],
    sentence: 'Least severe log entry that is written.',
  },
  {
    ...BASE,
    name: 'storage',
    group: 'data',
    type: 'text',
    secrecy: 'secret',
    default: 'sqlite:./tidegate.db',
    sentence:
      'Where the log lives: sqlite:PATH, sqlite::memory: for a database that ends with the process, or postgres://USER:PASSWORD@HOST/DATABASE.',
  },
  {
    ...BASE,
    name: 'sqliteSynchronous',
    group: 'data',
    type: 'choice',
    default: 'FULL',
    choices: ['FULL', 'NORMAL'],
    sentence:
      'FULL: an acknowledged commit survives power loss. NORMAL: it survives a crash of the process; faster.',
  },
  {
    ...BASE,
    name: 'postgresNamespace',
    group: 'data',
    type: 'text',
    default: 'tidegate',
    sentence: 'PostgreSQL: the schema (namespace) that holds every table; created when it is missing.',
  },
  {
    ...BASE,
    name: 'postgresPreparedStatements',
    group: 'data',
    type: 'choice',
    default: 'auto',
    choices: ['auto', 'named', 'unnamed'],
    sentence:
      'PostgreSQL: whether the server keeps frequent statements, which is faster; auto goes on without where a transaction pooler does not know of them.',
  },
  {
    ...BASE,
    name: 'postgresWritersMax',
    group: 'data',
    type: 'integer',
    default: 8,
    min: 1,
    max: 1_000,
    sentence: 'PostgreSQL: connections of this process for transactions and short reads, at most.',
  },
  {
    ...BASE,
    name: 'postgresReadersMax',
    group: 'data',
    type: 'integer',
    default: 16,
    min: 1,
    max: 1_000,
    sentence: 'PostgreSQL: connections of this process for the snapshots that pulls read, at most.',
  },
  {
    ...BASE,
    name: 'schema',
    group: 'data',
    type: 'text',
    default: null,
    sentence: 'Path of the schema document (JSON); in a file also the document itself.',
  },
  {
    ...BASE,
    name: 'allowedOrigins',
    group: 'access',
    type: 'list',
    default: [],
    sentence:
      'Origins of pages on other hosts that may connect, such as https://app.example, with CORS headers; localhost for any port of this machine, * for every page.',
  },
  {
    ...BASE,
    name: 'duplicateClients',
    group: 'access',
    type: 'choice',
    default: 'replace',
    choices: ['replace', 'keep'],
    sentence: 'replace: a newer connection of a client closes the older one with 4409. keep: both live.',
  },
  {
    ...BASE,
    name: 'operatorToken',
    group: 'access',
    type: 'text',
    default: null,
    secrecy: 'secret',
    sentence: 'With it as bearer token, /readyz names the backfills that are pending; without, to nobody.',
  },
  {
    ...BASE,
    name: 'metrics',
    group: 'access',
    type: 'choice',
    default: 'off',
    choices: ['off', 'operator', 'public'],
    sentence:
      'GET /metrics for Prometheus. operator: with operatorToken as bearer token. public: for everybody who reaches the port.',
  },
  {
    ...BASE,
    name: 'ticketSecret',
    group: 'access',
    type: 'text',
    default: null,
    secrecy: 'secret',
    sentence:
      'Seals the tickets that POST ticket issues, at least 32 bytes: the same on every node. Without, each node takes its own only.',
  },
  {
    ...BASE,
    name: 'auth',
    group: 'access',
    type: 'structure',
    reach: 'file',
    default: null,
    secrecy: 'secret',
    sentence:
      'Fixed tokens: { tokens: { "<token>": { actorId, partition, scopes, expiresAt? } } }, or JSON Web Tokens: { jwt: { keys, issuer, audience, ... } } (docs/EMBEDDING.md). Instead of authenticate.',
  },
  {
    ...BASE,
    name: 'authenticate',
    group: 'access',
    type: 'function',
    reach: 'module',
    default: null,
    sentence: 'Says who sent a request or an upgrade: (request) => identity or null.',
  },
  {
    ...BASE,
    name: 'resolveScopes',
    group: 'access',
    type: 'function',
    reach: 'module',
    default: null,
    sentence: 'Says which scope values an actor may read and write: (identity) => { variable: values }.',
  },
  {
    ...BASE,
    name: 'rowValidators',
    group: 'access',
    type: 'structure',
    reach: 'module',
    default: null,
    sentence: 'Table name to function that rejects a row by throwing ValidationRejection.',
  },
  {
    ...BASE,
    name: 'commitValidator',
    group: 'access',
    type: 'function',
    reach: 'module',
    default: null,
    sentence: 'Rejects a whole commit by throwing CommitValidationRejection.',
  },
  {
    ...BASE,
    name: 'checkpoints',
    group: 'data',
    type: 'structure',
    reach: 'file',
    default: null,
    sentence:
      'Backfills that this version of the schema rolls out: [{ partition, name, schemaVersion }]. See docs/BACKFILL.md.',
  },
  {
    ...BASE,
    name: 'backfills',
    group: 'data',
    type: 'structure',
    reach: 'module',
    default: null,
    sentence:
      'For `tidegate backfill`: name of a checkpoint to { sources, derived?, batch }, as of runBackfill. See docs/BACKFILL.md.',
  },
  {
    ...BASE,
    name: 'crdtMergers',
    group: 'data',
    type: 'structure',
    reach: 'module',
    default: null,
    sentence: 'CRDT type to function that merges two states of a crdt column.',
  },
] as const satisfies readonly OptionSpec[];

/** Every bound of `protocol/limits.ts` is an option too. */
export const LIMIT_OPTIONS: readonly OptionSpec[] = Object.entries(DEFAULT_LIMITS).map(([name, value]) => ({
  ...BASE,
  name,
  group: 'limits',
  type: 'integer',
  default: value,
  unit: limitUnit(name),
  sentence: 'See src/protocol/limits.ts.',
  visibility: 'hidden',
}));

function limitUnit(name: string): string {
  if (name.endsWith('Ms')) return 'ms';
  return /Bytes/.test(name) ? 'bytes' : 'count';
}

type ScalarSpec = Extract<
  (typeof OPTIONS)[number],
  { readonly type: 'text' | 'integer' | 'list' | 'choice' }
>;
type ValueOf<Spec extends ScalarSpec> = Spec extends { readonly type: 'integer' }
  ? number
  : Spec extends { readonly type: 'list' }
    ? readonly string[]
    : Spec extends { readonly default: null }
      ? string | null
      : string;

/** The options that are plain values, by name. */
export type Settings = {
  readonly [Spec in ScalarSpec as Spec['name']]: ValueOf<Spec>;
};

const kebab = (name: string): string => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

/** `TIDEGATE_LOG_LEVEL`, `TIDEGATE_LIMIT_REQUEST_BYTES_MAX`. */
export function envName({ name, group }: OptionSpec): string {
  const prefix = group === 'limits' ? 'TIDEGATE_LIMIT_' : 'TIDEGATE_';
  return prefix + kebab(name).replaceAll('-', '_').toUpperCase();
}

/** `--log-level`, `--limit-request-bytes-max`. */
export function flagName({ name, group }: OptionSpec): string {
  return `--${group === 'limits' ? 'limit-' : ''}${kebab(name)}`;
}
