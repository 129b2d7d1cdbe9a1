import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';
import { runCli } from '../../src/gateway/cli.ts';
import { type CliIo, EXIT } from '../../src/gateway/cli-io.ts';
import { call, json } from './support/http-client.ts';
import { connectTo } from './support/live-gateway.ts';
import { SCHEMA } from './support/requests.ts';

const BIN = fileURLToPath(new URL('../../src/gateway/bin.ts', import.meta.url));
const VECTORS = fileURLToPath(new URL('../vectors', import.meta.url));
const TSX = import.meta.resolve('tsx');

interface Run {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

function createFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-cli-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function run(args: readonly string[], overrides: Partial<CliIo> = {}): Promise<Run> {
  let out = '';
  let err = '';
  const code = await runCli(args, {
    stdout: (text) => {
      out += text;
    },
    stderr: (text) => {
      err += text;
    },
    isTerminal: false,
    stdin: Readable.from([]),
    env: {},
    workingFolder: tmpdir(),
    untilStopped: () => Promise.resolve(),
    ...overrides,
  });
  return { code, out, err };
}

/** A folder with a schema and a configuration of fixed tokens. */
function createConfig(extra: Readonly<Record<string, unknown>> = {}): string {
  const folder = createFolder();
  writeFileSync(join(folder, 'schema.json'), JSON.stringify(SCHEMA));
  const auth = { tokens: { t1: { actorId: 'a', partition: 'p', scopes: { project: ['*'] } } } };
  const config = {
    schema: 'schema.json',
    storage: 'sqlite:tidegate.db',
    port: 0,
    auth,
    logLevel: 'silent',
    ...extra,
  };
  writeFileSync(join(folder, 'tidegate.json'), JSON.stringify(config));
  return folder;
}

describe('help and usage', () => {
  test('--help names the commands and the exit codes', async () => {
    const { code, out } = await run(['--help']);
    expect(code).toBe(EXIT.ok);
    for (const word of ['serve', 'dev', 'inspect', 'schema', 'Exit codes:']) expect(out).toContain(word);
  });

  test('serve --help has every shown option with its variable, and no limit', async () => {
    const { out } = await run(['serve', '--help']);
    expect(out).toContain('--log-level <value>');
    expect(out).toContain('TIDEGATE_LOG_LEVEL');
    expect(out).not.toContain('--limit-');
  });

  test('--version is that of the package', async () => {
    const manifest = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
    expect((await run(['--version'])).out).toBe(`${manifest.version}\n`);
  });

  test.each([[['nonsense']], [['serve', '--no-such-flag']], [['inspect']], [['schema']]])(
    '%j is misuse',
    async (args) => {
      const { code, err } = await run(args);
      expect(code).toBe(EXIT.misused);
      expect(err).not.toBe('');
    },
  );
});

describe('serve', () => {
  test('starts, answers and ends when asked', async () => {
    const folder = createConfig();
    const { code, err } = await run(['serve', '--config', 'tidegate.json'], { workingFolder: folder });
    expect({ code, err }).toEqual({ code: EXIT.ok, err: '' });
  });

  test('all problems of a configuration, and nothing started', async () => {
    const folder = createConfig({ schema: undefined, storage: 'mysql://u:hunter2@h/db' });
    const { code, err } = await run(['serve', '--port', 'x'], {
      workingFolder: folder,
      env: { TIDEGATE_CONFIG: 'tidegate.json' },
    });
    expect(code).toBe(EXIT.misused);
    expect(err).toContain('--port must be a whole number');
    expect(err).toContain('must be sqlite:PATH');
    expect(err).not.toContain('hunter2');
    expect(err).toContain('schema is missing');
  });

  test.each([
    ['missing.json', null, 'cannot be read'],
    ['broken.json', '{', 'is not JSON'],
    ['list.json', '[]', 'must hold an object'],
    ['empty.mjs', 'export const x = 1;', 'must export by default an object'],
    ['throws.mjs', 'throw new Error("no secrets here");', 'cannot be imported: no secrets here'],
  ])('%s is misuse', async (name, text, problem) => {
    const folder = createFolder();
    if (text !== null) writeFileSync(join(folder, name), text);
    const { code, err } = await run(['serve', '--config', name], { workingFolder: folder });
    expect(code).toBe(EXIT.misused);
    expect(err).toContain(problem);
  });

  test('a schema that cannot be served: exit 3, with the phase and every problem', async () => {
    const folder = createConfig({ schema: { version: 0, tables: [] } });
    const { code, err } = await run(['serve', '--config', 'tidegate.json'], { workingFolder: folder });
    expect(code).toBe(EXIT.notReady);
    expect(err).toContain('(schema_compile)');
    expect(err).toContain('version is not a whole number');
  });

  test('a module with functions of its own', async () => {
    const folder = createConfig();
    const module = `export default {
      schema: ${JSON.stringify(SCHEMA)}, storage: 'sqlite::memory:', port: 0, logLevel: 'silent',
      authenticate: () => ({ actorId: 'a', partition: 'p' }), resolveScopes: () => ({ project: ['*'] }),
    };`;
    writeFileSync(join(folder, 'host.mjs'), module);
    const { code, err } = await run(['serve', '--config', 'host.mjs'], { workingFolder: folder });
    expect({ code, err }).toEqual({ code: EXIT.ok, err: '' });
  });
});

describe('dev', () => {
  test('says what to do next and leaves the schema beside the database', async () => {
    const folder = createFolder();
    const { code, out } = await run(['dev', '--port', '0', '--log-level', 'silent'], {
      workingFolder: folder,
    });
    expect(code).toBe(EXIT.ok);
    for (const word of [
      '/realtime?clientId=',
      'dev-ada',
      'dev-ben',
      'createClient',
      './src/client/index.ts',
      'npm run demo',
    ]) {
      expect(out).toContain(word);
    }
    const schema = JSON.parse(readFileSync(join(folder, '.tidegate', 'dev-schema.json'), 'utf8'));
    expect(schema.tables.map(({ name }: { name: string }) => name)).toEqual([
      'projects',
      'tasks',
      'comments',
    ]);
  });

  test('shows two clients converge at its first start, and leaves it to `demo` later', async () => {
    const folder = createFolder();
    const args = ['dev', '--port', '0', '--log-level', 'silent'];
    const first = await run(args, { workingFolder: folder });
    expect(first.out).toContain('goes offline');
    expect(first.out).toContain('CONVERGED');
    expect(first.out.indexOf('Stop with Ctrl+C')).toBeGreaterThan(first.out.indexOf('CONVERGED'));
    const second = await run(args, { workingFolder: folder });
    expect(second.out).not.toContain('CONVERGED');
    expect(second.out).toContain('npm run demo');
  });

  test('refuses production', async () => {
    const folder = createFolder();
    const { code, err } = await run(['dev'], { workingFolder: folder, env: { NODE_ENV: 'production' } });
    expect(code).toBe(EXIT.misused);
    expect(err).toContain('refuses to run');
  });
});

describe('inspect and schema check', () => {
  test('a message of the golden vectors is printed as JSON', async () => {
    const path = join(VECTORS, 'request', 'combined.bin');
    const { code, out } = await run(['inspect', path]);
    expect(code).toBe(EXIT.ok);
    expect(JSON.parse(out)).toEqual(JSON.parse(readFileSync(path.replace('.bin', '.json'), 'utf8')));
    const piped = await run(['inspect', '-'], { stdin: Readable.from([readFileSync(path)]) });
    expect(piped.out).toBe(out);
  });

  test('bytes that are neither are a failure, a missing file is misuse', async () => {
    expect(await run(['inspect', '-'], { stdin: Readable.from(['hello']) })).toMatchObject({
      code: EXIT.failed,
      err: expect.stringContaining('standard input: '),
    });
    expect((await run(['inspect', '/no/such/file'])).code).toBe(EXIT.misused);
  });

  test('a good schema is summarized, a bad one explained', async () => {
    const folder = createFolder();
    writeFileSync(join(folder, 'good.json'), JSON.stringify(SCHEMA));
    writeFileSync(join(folder, 'bad.json'), JSON.stringify({ version: 1, tables: [{ name: 'a b' }] }));
    const good = await run(['schema', 'check', 'good.json'], { workingFolder: folder });
    expect(good.code).toBe(EXIT.ok);
    expect(good.out).toContain('notes: 3 columns, key id, scopes project:{project} on project');
    const bad = await run(['schema', 'check', 'bad.json'], { workingFolder: folder });
    expect(bad.code).toBe(EXIT.failed);
    expect(bad.err).toContain('table a b');
  });
});

describe('the process', () => {
  /** The real command in a process of its own; resolves once it listens. */
  async function spawnServe(folder: string) {
    const child = spawn(process.execPath, ['--import', TSX, BIN, 'serve', '--config', 'tidegate.json'], {
      cwd: folder,
      stdio: ['ignore', 'pipe', 'inherit'],
      env: { PATH: process.env.PATH },
    });
    onTestFinished(() => {
      child.kill('SIGKILL');
    });
    const exited = new Promise<number | null>((resolve) => child.once('exit', resolve));
    const entries: Record<string, unknown>[] = [];
    let listening: (url: string) => void = () => undefined;
    const url = new Promise<string>((resolve) => {
      listening = resolve;
    });
    let rest = '';
    child.stdout.on('data', (chunk: Buffer) => {
      const lines = (rest + chunk.toString()).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines) {
        const entry = JSON.parse(line) as Record<string, unknown>;
        entries.push(entry);
        if (entry.msg === 'listening') listening(String(entry.url));
      }
    });
    return { child, exited, entries, url: await url };
  }

  test.each(['SIGTERM', 'SIGINT'] as const)(
    '%s drains and exits with 0; every log line is JSON',
    async (signal) => {
      const folder = createConfig({ logLevel: 'info', limits: { drainSpreadMs: 0 } });
      const { child, exited, entries, url } = await spawnServe(folder);
      expect(json(await call(`${url}/readyz`))).toEqual({ status: 'ready' });
      child.kill(signal);
      expect(await exited).toBe(0);
      expect(entries.map(({ msg }) => msg)).toEqual(['listening', 'draining', 'stopped']);
    },
  );

  test('a second signal ends it at once', async () => {
    const folder = createConfig({ logLevel: 'info', limits: { drainSpreadMs: 600_000 } });
    const { child, exited, url } = await spawnServe(folder);
    // Its session is closed somewhere within ten minutes, so the drain does not end by itself.
    const socket = await connectTo(url, { token: 't1' });
    child.kill('SIGTERM');
    let draining = false;
    while (!draining) draining = (await call(`${url}/readyz`)).status === 503;
    child.kill('SIGTERM');
    expect(await exited).toBe(130);
    socket.end();
  });
});
