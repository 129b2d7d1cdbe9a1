/** What a command may touch of the process; tests hand in their own. */
import type { Readable } from 'node:stream';

export interface CliIo {
  readonly stdout: (text: string) => void;
  readonly stderr: (text: string) => void;
  /** Somebody reads along: standard output is a terminal. */
  readonly isTerminal: boolean;
  readonly stdin: Readable;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly workingFolder: string;
  /** Resolves when the process is asked to end. */
  readonly untilStopped: () => Promise<void>;
}

/** Exit codes, part of the command line's contract. */
export const EXIT = {
  ok: 0,
  /** The command ran and failed. */
  failed: 1,
  /** The command line or the configuration is wrong; nothing was started. */
  misused: 2,
  /** The storage and the schema do not fit, or a backfill is not complete; nothing was served (part 4, 4.2). */
  notReady: 3,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/** 128 + the number of SIGINT, as shells count. */
const EXIT_INTERRUPTED = 130;

export function processIo(): CliIo {
  return {
    stdout: (text) => {
      process.stdout.write(text);
    },
    stderr: (text) => {
      process.stderr.write(text);
    },
    isTerminal: process.stdout.isTTY === true,
    stdin: process.stdin,
    env: process.env,
    workingFolder: process.cwd(),
    untilStopped,
  };
}

/** The first SIGINT or SIGTERM begins the drain, a second one ends the process at once. */
function untilStopped(): Promise<void> {
  return new Promise((resolve) => {
    let signals = 0;
    const onSignal = (): void => {
      signals += 1;
      if (signals > 1) process.exit(EXIT_INTERRUPTED);
      resolve();
    };
    process.on('SIGINT', onSignal);
    process.on('SIGTERM', onSignal);
  });
}
