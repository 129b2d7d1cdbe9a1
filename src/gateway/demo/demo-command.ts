/** `tidegate demo`. */
import { type CliIo, EXIT, type ExitCode } from '../cli-io.ts';
import { runDemo } from './demo.ts';
import type { DemoStyle } from './demo-log.ts';

export interface DemoSettings {
  /** A running `tidegate dev`. */
  readonly url?: string;
}

/** Fails unless both sides converged. */
export async function demo({ url }: DemoSettings, io: CliIo): Promise<ExitCode> {
  const target = url === undefined ? {} : { url };
  const { converged } = await runDemo({ write: io.stdout, style: styleOf(io), ...target });
  return converged ? EXIT.ok : EXIT.failed;
}

/** https://no-color.org: set and not empty means no colour. */
export function styleOf({ isTerminal, env }: Pick<CliIo, 'isTerminal' | 'env'>): DemoStyle {
  const isUnwanted = (env.NO_COLOR ?? '') !== '' || env.TERM === 'dumb';
  return isTerminal && !isUnwanted ? 'colour' : 'plain';
}
