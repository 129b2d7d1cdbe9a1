/** Everything that is wrong with a configuration, at once. */
export class ConfigError extends Error {
  override readonly name = 'ConfigError';
  readonly problems: readonly string[];

  constructor(problems: readonly string[]) {
    super(
      `the configuration has ${problems.length} problem(s):\n${problems.map((text) => `  - ${text}`).join('\n')}`,
    );
    this.problems = problems;
  }
}

/** The message of whatever was thrown, for a person at a terminal. */
export function messageOf(failure: unknown): string {
  return failure instanceof Error ? failure.message : String(failure);
}
