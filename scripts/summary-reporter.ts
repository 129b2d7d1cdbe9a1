/** Prints the runner's own count as the last line: `N passed, N failed`. */
import type { Reporter, TestModule } from 'vitest/node';

export default class SummaryReporter implements Reporter {
  onTestRunEnd(modules: readonly TestModule[], unhandledErrors: readonly unknown[]): void {
    let passed = 0;
    let failed = unhandledErrors.length;
    let skipped = 0;
    for (const module of modules) {
      for (const test of module.children.allTests()) {
        const { state } = test.result();
        if (state === 'passed') passed += 1;
        else if (state === 'skipped') skipped += 1;
        else failed += 1;
      }
      if (module.errors().length > 0) failed += 1;
    }
    const rest = skipped === 0 ? '' : `, ${skipped} skipped`;
    process.on('exit', () => process.stdout.write(`${passed} passed, ${failed} failed${rest}\n`));
  }
}
