/** Starts and ends the gateway under test in its own process, and samples what it uses. */
import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';

export interface Usage {
  readonly rssBytes: number;
  readonly cpu: NodeJS.CpuUsage;
}

export class ServerProcess {
  readonly url: string;
  readonly #child: ChildProcess;

  private constructor(child: ChildProcess, url: string) {
    this.#child = child;
    this.url = url;
  }

  /** Resolves when the gateway listens; rejects when it ends before. `profileFolder` gets its CPU profile when it ends. */
  static async start(storageUrl: string, profileFolder: string | null = null): Promise<ServerProcess> {
    const script = fileURLToPath(new URL('server.ts', import.meta.url));
    const profiling = profileFolder === null ? [] : ['--cpu-prof', `--cpu-prof-dir=${profileFolder}`];
    const execArgv = ['--import', 'tsx', ...profiling];
    const child = fork(script, [storageUrl], { execArgv, stdio: 'inherit' });
    const ended = once(child, 'exit').then(([code]) => {
      throw new Error(`the server ended with ${code} before it listened`);
    });
    const [message] = await Promise.race([once(child, 'message'), ended]);
    return new ServerProcess(child, message.url);
  }

  async usage(): Promise<Usage> {
    const answer = once(this.#child, 'message');
    this.#child.send('usage');
    const [usage] = await answer;
    return usage;
  }

  /** SIGKILL: nothing is flushed, nothing says goodbye. */
  async kill(): Promise<void> {
    const gone = once(this.#child, 'exit');
    this.#child.kill('SIGKILL');
    await gone;
  }

  async stop(): Promise<void> {
    if (this.#child.exitCode !== null || this.#child.signalCode !== null) return;
    const gone = once(this.#child, 'exit');
    this.#child.disconnect();
    await gone;
  }
}
