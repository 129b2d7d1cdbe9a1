import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { renderConfigDocs } from '../../scripts/config-docs.ts';
import { type Config, type ConfigSources, resolveConfig } from '../../src/gateway/config.ts';
import { ConfigError } from '../../src/gateway/config-error.ts';
import {
  envName,
  flagName,
  LIMIT_OPTIONS,
  OPTIONS,
  type OptionSpec,
} from '../../src/gateway/option-table.ts';
import { DEFAULT_LIMITS } from '../../src/protocol/limits.ts';

const TOKENS = { tokens: { t1: { actorId: 'a', partition: 'p', scopes: { project: ['x'] } } } };

interface Given {
  readonly flags?: ConfigSources['flags'];
  readonly env?: ConfigSources['env'];
  readonly content?: Readonly<Record<string, unknown>>;
  readonly kind?: 'json' | 'module';
}

function resolve({ flags = {}, env = {}, content = {}, kind = 'json' }: Given): Config {
  const base = { schema: './schema.json', auth: TOKENS };
  return resolveConfig({
    flags,
    env,
    file: { path: 'tidegate.json', folder: '/etc/tidegate', kind, content: { ...base, ...content } },
    workingFolder: '/work-folder',
  });
}

function problemsOf(given: Given): readonly string[] {
  try {
    resolve(given);
  } catch (failure) {
    if (failure instanceof ConfigError) return failure.problems;
    throw failure;
  }
  return [];
}

describe('precedence', () => {
  test('defaults', () => {
    const { settings, limits, storage, schema } = resolve({});
    expect(settings).toMatchObject({ host: '127.0.0.1', port: 8787, mount: '/', logLevel: 'info' });
    expect(limits).toEqual(DEFAULT_LIMITS);
    expect(storage).toEqual({ kind: 'sqlite', path: '/work-folder/tidegate.db' });
    expect(schema).toEqual({ kind: 'file', path: '/etc/tidegate/schema.json' });
  });

  test('a flag wins over a variable, a variable over the file, the file over the default', () => {
    const content = { port: 1, host: 'file', logLevel: 'warn' };
    const env = { TIDEGATE_PORT: '2', TIDEGATE_HOST: 'env', TIDEGATE_MOUNT: '' };
    const { settings } = resolve({ content, env, flags: { '--port': '3' } });
    expect(settings).toMatchObject({ port: 3, host: 'env', logLevel: 'warn', mount: '/' });
  });

  test('limits come from all three as well', () => {
    const { limits } = resolve({
      content: { limits: { requestBytesMax: 9_000_000, connectionsMax: 7, operationsMax: 8 } },
      env: { TIDEGATE_LIMIT_CONNECTIONS_MAX: '70' },
      flags: { '--limit-operations-max': '80' },
    });
    expect(limits).toEqual({
      ...DEFAULT_LIMITS,
      requestBytesMax: 9_000_000,
      connectionsMax: 70,
      operationsMax: 80,
    });
  });

  test('the result cannot be changed', () => {
    const config = resolve({});
    expect([config, config.settings, config.limits].every(Object.isFrozen)).toBe(true);
  });
});

describe('values', () => {
  test('relative paths start where they were written', () => {
    const inFile = resolve({ content: { storage: 'sqlite:data/x.db' } });
    expect(inFile.storage).toEqual({ kind: 'sqlite', path: '/etc/tidegate/data/x.db' });
    const inEnv = resolve({ env: { TIDEGATE_STORAGE: 'sqlite:data/x.db', TIDEGATE_SCHEMA: 's.json' } });
    expect(inEnv.storage).toEqual({ kind: 'sqlite', path: '/work-folder/data/x.db' });
    expect(inEnv.schema).toEqual({ kind: 'file', path: '/work-folder/s.json' });
    expect(resolve({ content: { storage: 'sqlite::memory:' } }).storage).toEqual({
      kind: 'sqlite',
      path: ':memory:',
    });
    expect(resolve({ content: { storage: 'sqlite:/abs.db' } }).storage).toEqual({
      kind: 'sqlite',
      path: '/abs.db',
    });
  });

  test('a PostgreSQL url is kept as it is', () => {
    const url = 'postgres://user:secret@db.example/app?sslmode=require';
    expect(resolve({ env: { TIDEGATE_STORAGE: url } }).storage).toEqual({ kind: 'postgres', url });
  });

  test('the schema may stand in the file', () => {
    const document = { version: 1, tables: [] };
    expect(resolve({ content: { schema: document } }).schema).toEqual({ kind: 'document', document });
    const flags = { '--schema': 'other.json' };
    expect(resolve({ content: { schema: document }, flags }).schema).toMatchObject({ kind: 'file' });
  });

  test('lists have commas in a variable', () => {
    const env = { TIDEGATE_ALLOWED_ORIGINS: 'https://a.example, https://b.example' };
    expect(resolve({ env }).settings.allowedOrigins).toEqual(['https://a.example', 'https://b.example']);
    const content = { allowedOrigins: ['https://c.example'] };
    expect(resolve({ content }).settings.allowedOrigins).toEqual(['https://c.example']);
  });

  test('tokens become grants', () => {
    const tokens = { t2: { ...TOKENS.tokens.t1, expiresAt: '2030-01-31T00:00:00Z' }, ...TOKENS.tokens };
    const { access } = resolve({ content: { auth: { tokens } } });
    expect(access.kind === 'tokens' ? [...access.tokens] : null).toEqual([
      [
        't2',
        { actorId: 'a', partition: 'p', scopes: { project: ['x'] }, expiresAtMs: Date.UTC(2030, 0, 31) },
      ],
      ['t1', { actorId: 'a', partition: 'p', scopes: { project: ['x'] }, expiresAtMs: null }],
    ]);
  });

  test('a module brings functions', () => {
    const hooks = { authenticate: () => null, resolveScopes: () => ({}), rowValidators: { tasks: () => 0 } };
    const config = resolve({ kind: 'module', content: { auth: undefined, ...hooks } });
    expect(config.access).toEqual({ kind: 'hooks' });
    expect(config.hooks).toMatchObject({ ...hooks, commitValidator: null, crdtMergers: {} });
  });
});

describe('problems', () => {
  test('all at once, each with its place', () => {
    const problems = problemsOf({
      content: {
        host: 7,
        prot: 1,
        storage: 'mysql:x',
        mount: 'no slash',
        limits: { heartbeatMs: -1, hartbeatMs: 1 },
      },
      env: { TIDEGATE_PORT: 'tcp://10.0.0.1:80', TIDEGATE_LOG_LEVEL: 'loud' },
      flags: { '--limit-outbox-bytes-low': '99999999' },
    });
    expect(problems).toEqual([
      'host in tidegate.json must be a text',
      'TIDEGATE_PORT must be a whole number from 0 to 65535',
      'TIDEGATE_LOG_LEVEL must be one of debug, info, warn, error, silent',
      'limits.heartbeatMs in tidegate.json must be a whole number, at least 0',
      expect.stringContaining('limit outboxBytesLow (99999999) must be < outboxBytesHigh'),
      'prot in tidegate.json is no option',
      'limits.hartbeatMs in tidegate.json is no limit',
      'storage in tidegate.json must be sqlite:PATH, sqlite::memory: or postgres://HOST/DATABASE',
      expect.stringContaining('mount must be a path prefix'),
    ]);
  });

  test.each<[string, Given, string]>([
    [
      'a port out of range',
      { flags: { '--port': '65536' } },
      '--port must be a whole number from 0 to 65535',
    ],
    ['a port with a sign', { flags: { '--port': '-1' } }, '--port must be'],
    ['a port with a fraction', { content: { port: 1.5 } }, 'port in tidegate.json must be'],
    ['an empty list item', { flags: { '--allowed-origins': 'a,,b' } }, '--allowed-origins must be a list'],
    ['a storage nobody knows', { flags: { '--storage': 'mysql://h/db' } }, '--storage must be sqlite:PATH'],
    ['limits that are none', { content: { limits: 3 } }, 'limits in tidegate.json must be an object'],
    ['no schema', { content: { schema: undefined } }, 'schema is missing'],
    ['nobody to let in', { content: { auth: undefined } }, 'nobody could connect'],
    ['auth of another shape', { content: { auth: [] } }, 'auth in tidegate.json must be'],
    ['two ways in', { kind: 'module', content: { authenticate: () => null } }, 'exclude each other'],
    [
      'authenticate alone',
      { kind: 'module', content: { auth: undefined, authenticate: () => null } },
      'authenticate needs resolveScopes',
    ],
    [
      'a hook that is text',
      { content: { commitValidator: './v.js' } },
      'commitValidator in tidegate.json must be a function',
    ],
    ['validators that are none', { content: { rowValidators: { a: 1 } } }, 'must be an object of functions'],
  ])('%s', (_name, given, problem) => {
    expect(problemsOf(given)).toContainEqual(expect.stringContaining(problem));
  });

  test.each([
    [{ actorId: '', partition: 'p', scopes: {} }, 'needs an actorId'],
    [{ actorId: 'a', scopes: {} }, 'needs a partition'],
    [{ actorId: 'a', partition: 'p', scopes: ['x'] }, 'needs scopes'],
    [{ actorId: 'a', partition: 'p', scopes: {}, expiresAt: 'soon' }, 'expiresAt must be a date'],
    [{ actorId: 'a', partition: 'p', scopes: {}, expires: 1 }, 'unknown keys: expires'],
    ['x', 'must be an object'],
  ])('a token entry %j; the token is not named', (entry, problem) => {
    const problems = problemsOf({ content: { auth: { tokens: { 'secret-token': entry } } } });
    expect(problems).toContainEqual(expect.stringContaining(`auth.tokens entry 1 in tidegate.json`));
    expect(problems.join()).toContain(problem);
    expect(problems.join()).not.toContain('secret-token');
  });

  test('a token with white space could never be sent', () => {
    const problems = problemsOf({ content: { auth: { tokens: { 'a b': TOKENS.tokens.t1 } } } });
    expect(problems.join()).toContain('text without white space');
  });
});

describe('the table', () => {
  const specs: readonly OptionSpec[] = [...OPTIONS, ...LIMIT_OPTIONS];

  test('names derive from one name and are unique', () => {
    expect(envName(specs.find(({ name }) => name === 'logLevel')!)).toBe('TIDEGATE_LOG_LEVEL');
    expect(flagName(specs.find(({ name }) => name === 'requestBytesMax')!)).toBe('--limit-request-bytes-max');
    expect(new Set(specs.map(envName)).size).toBe(specs.length);
    expect(new Set(specs.map(flagName)).size).toBe(specs.length);
  });

  test('every limit is an option', () => {
    expect(LIMIT_OPTIONS.map(({ name }) => name)).toEqual(Object.keys(DEFAULT_LIMITS));
  });

  test('every default is acceptable', () => {
    for (const spec of specs) {
      if (spec.reach !== 'everywhere' || spec.default === null || Array.isArray(spec.default)) continue;
      expect(problemsOf({ flags: { [flagName(spec)]: String(spec.default) } })).toEqual([]);
    }
  });

  test('docs/CONFIG.md is what scripts/config-docs.ts writes', () => {
    const written = readFileSync(new URL('../../docs/CONFIG.md', import.meta.url), 'utf8');
    expect(written, 'run: npx tsx scripts/config-docs.ts').toBe(renderConfigDocs());
  });

  test('every limit has a sentence in docs/CONFIG.md', () => {
    const rows = renderConfigDocs()
      .split('\n')
      .filter((row) => row.includes('`TIDEGATE_LIMIT_'));
    expect(rows.length).toBe(LIMIT_OPTIONS.length);
    expect(rows.filter((row) => /\|\s*\|$/.test(row))).toEqual([]);
  });
});
