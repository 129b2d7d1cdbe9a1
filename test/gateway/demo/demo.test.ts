/** The demo, as a user runs it. */

import { tmpdir } from 'node:os';
import { Readable } from 'node:stream';
import { stripVTControlCharacters } from 'node:util';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createStaticTokens } from '../../../src/gateway/auth.ts';
import { runCli } from '../../../src/gateway/cli.ts';
import { EXIT } from '../../../src/gateway/cli-io.ts';
import { runDemo } from '../../../src/gateway/demo/demo.ts';
import { styleOf } from '../../../src/gateway/demo/demo-command.ts';
import { DemoLog, type DemoStyle } from '../../../src/gateway/demo/demo-log.ts';
import { DEV_SCHEMA } from '../../../src/gateway/dev-schema.ts';
import { DEV_TOKENS } from '../../../src/gateway/dev-tokens.ts';
import { createGateway } from '../../../src/gateway/gateway.ts';

const ESCAPE = '\u001b';

async function cli(
  args: readonly string[],
  terminal: { readonly isTerminal: boolean; readonly env: Readonly<Record<string, string>> },
): Promise<{ readonly code: number; readonly out: string }> {
  let out = '';
  const code = await runCli(args, {
    stdout: (text) => {
      out += text;
    },
    stderr: () => undefined,
    stdin: Readable.from([]),
    workingFolder: tmpdir(),
    untilStopped: () => Promise.resolve(),
    ...terminal,
  });
  return { code, out };
}

describe('the demo', () => {
  test('shows live edits, one conflict and convergence, and says so', async () => {
    let out = '';
    const report = await runDemo({
      write: (text) => {
        out += text;
      },
    });
    expect(report.failure).toBeNull();
    expect(report.converged).toBe(true);
    expect(report.tasks.ada).toEqual(report.tasks.ben);
    expect(report.tasks.ada.map(({ title }) => title)).toContain('Buy almond milk, two litres');
    expect(report.conflict).toEqual({
      code: 'sync.version_conflict',
      kept: 'Buy almond milk',
      merged: 'Buy almond milk, two litres',
    });
    expect(report.latenciesMs.length).toBeGreaterThan(40);
    expect(report.latenciesMs.every((latencyMs) => latencyMs > 0)).toBe(true);
    for (const text of ['time', 'who', 'latency', 'goes offline', 'CONVERGED']) expect(out).toContain(text);
    expect(out).not.toContain(ESCAPE);
    expect(report.events.map(({ atMs }) => atMs)).toEqual(
      [...report.events].map(({ atMs }) => atMs).sort((a, b) => a - b),
    );
  });

  test('runs on a gateway that is there, and leaves nothing on it', async () => {
    const gateway = await createGateway({
      schema: DEV_SCHEMA,
      storage: { path: ':memory:' },
      ...createStaticTokens(DEV_TOKENS),
    });
    onTestFinished(() => gateway.close());
    const { url } = await gateway.listen({ port: 0 });
    const first = await runDemo({ url, write: () => undefined });
    expect(first.converged).toBe(true);
    expect(gateway.stats().state).toBe('running');
    const second = await runDemo({ url, write: () => undefined });
    expect(second.tasks.ada).toHaveLength(first.tasks.ada.length);
  });

  test('without a gateway at the URL it fails with a reason and a non-zero exit', async () => {
    const { code, out } = await cli(['demo', '--url', 'http://127.0.0.1:9'], { isTerminal: false, env: {} });
    expect(code).toBe(EXIT.failed);
    expect(out).toContain('FAILED  ada found no gateway that lets them in');
  });

  test('on a pipe it is plain text and ends with 0', async () => {
    const { code, out } = await cli(['demo'], { isTerminal: false, env: {} });
    expect(code).toBe(EXIT.ok);
    expect(out).not.toContain(ESCAPE);
  });

  test('in colour every line says the same', () => {
    const written: Record<DemoStyle, string> = { plain: '', colour: '' };
    for (const style of ['plain', 'colour'] as const) {
      const log = new DemoLog(
        (text) => {
          written[style] += text;
        },
        style,
        () => 0,
      );
      log.title('here');
      log.event('ada', 'adds', 1.25);
      log.event('server', 'refuses');
      log.lists(['left', 'right'], ['a'], ['a', 'b']);
      log.verdict('failed', 'no');
    }
    expect(written.colour).toContain(ESCAPE);
    expect(stripVTControlCharacters(written.colour)).toBe(written.plain);
  });

  test.each([
    ['a terminal', { isTerminal: true, env: {} }, 'colour'],
    ['a terminal with an empty NO_COLOR', { isTerminal: true, env: { NO_COLOR: '' } }, 'colour'],
    ['a terminal with NO_COLOR', { isTerminal: true, env: { NO_COLOR: '1' } }, 'plain'],
    ['a dumb terminal', { isTerminal: true, env: { TERM: 'dumb' } }, 'plain'],
    ['a pipe', { isTerminal: false, env: {} }, 'plain'],
  ])('on %s', (_where, terminal, style) => {
    expect(styleOf(terminal)).toBe(style);
  });
});
