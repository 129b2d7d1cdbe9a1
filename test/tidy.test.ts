/** House style as tests: lengths with a ratchet, banned words with their replacement, leftovers. */
import { readdirSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';
import { describe, expect, test } from 'vitest';

const ROOT = resolve(fileURLToPath(new URL('..', import.meta.url)));
const FILE_LINES_MAX = 400;
const FUNCTION_LINES_MAX = 70;

interface Source {
  readonly path: string;
  readonly text: string;
}

function readSources(folder: string): Source[] {
  return readdirSync(join(ROOT, folder), { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts'))
    .map((file) => {
      const path = `${folder}/${file.replaceAll('\\', '/')}`;
      return { path, text: readFileSync(join(ROOT, path), 'utf8') };
    });
}

const src = readSources('src');
const tests = readSources('test').filter((source) => source.path !== 'test/tidy.test.ts');
const bench = readSources('bench');

function longFunctions(source: Source): string[] {
  const file = ts.createSourceFile(source.path, source.text, ts.ScriptTarget.ES2022, true);
  const found: string[] = [];
  const visit = (node: ts.Node): void => {
    if (ts.isFunctionLike(node) && 'body' in node && node.body !== undefined) {
      const first = file.getLineAndCharacterOfPosition(node.getStart()).line;
      const last = file.getLineAndCharacterOfPosition(node.getEnd()).line;
      const lines = last - first + 1;
      if (lines > FUNCTION_LINES_MAX) found.push(`${source.path}:${first + 1} has ${lines} lines`);
    }
    ts.forEachChild(node, visit);
  };
  visit(file);
  return found;
}

/** Text without comments and string literals, so that prose may name what code may not. */
function codeOnly(source: Source): string {
  const scanner = ts.createScanner(ts.ScriptTarget.ES2022, true, ts.LanguageVariant.Standard, source.text);
  const parts: string[] = [];
  for (let kind = scanner.scan(); kind !== ts.SyntaxKind.EndOfFileToken; kind = scanner.scan()) {
    if (kind !== ts.SyntaxKind.StringLiteral && kind !== ts.SyntaxKind.NoSubstitutionTemplateLiteral) {
      parts.push(scanner.getTokenText());
    }
  }
  return parts.join(' ');
}

const BANNED: readonly {
  readonly pattern: RegExp;
  readonly instead: string;
  readonly except: readonly string[];
}[] = [
  {
    pattern: /\bDate \. now\b/,
    instead: 'Clock.nowMs()',
    except: ['src/gateway/real-clock.ts', 'src/client/browser-clock.ts'],
  },
  {
    pattern: /\b(setTimeout|setInterval|setImmediate)\b/,
    instead: 'Clock.after() or Clock.nextTurn()',
    except: ['src/gateway/real-clock.ts', 'src/client/browser-clock.ts'],
  },
  {
    pattern: /\bMath \. random\b/,
    instead: 'Random.unit()',
    except: ['src/gateway/random.ts', 'src/client/browser-clock.ts'],
  },
  { pattern: /\bconsole \./, instead: 'the logger, or the CLI output helper', except: [] },
  { pattern: /\bas any\b/, instead: 'a type', except: [] },
  { pattern: /\bas unknown as\b/, instead: 'a type guard', except: [] },
  { pattern: /\benum\b/, instead: 'a union of literals', except: [] },
];

describe('src', () => {
  test(`no file is longer than ${FILE_LINES_MAX} lines`, () => {
    const long = src.filter((source) => source.text.split('\n').length - 1 > FILE_LINES_MAX);
    expect(long.map((source) => `${source.path} has ${source.text.split('\n').length - 1} lines`)).toEqual(
      [],
    );
  });

  test(`no function is longer than ${FUNCTION_LINES_MAX} lines`, () => {
    expect(src.flatMap(longFunctions)).toEqual([]);
  });

  test('banned calls and casts', () => {
    const hits = src.flatMap((source) => {
      const code = codeOnly(source);
      return BANNED.filter((ban) => ban.pattern.test(code) && !ban.except.includes(source.path)).map(
        (ban) => `${source.path}: ${ban.pattern.source}, use ${ban.instead}`,
      );
    });
    expect(hits).toEqual([]);
  });

  test('no SELECT *, no compiler escape hatches, no swallowed errors', () => {
    const patterns = [/SELECT \*/i, /@ts-(ignore|nocheck|expect-error)/, /catch\s*(\([^)]*\))?\s*\{\s*\}/];
    const hits = src.flatMap((source) =>
      patterns
        .filter((pattern) => pattern.test(source.text))
        .map((pattern) => `${source.path}: ${pattern.source}`),
    );
    expect(hits).toEqual([]);
  });

  test('file names are kebab-case', () => {
    const odd = src.filter((source) => !/^[a-z0-9]+(-[a-z0-9]+)*\.ts$/.test(source.path.split('/').at(-1)!));
    expect(odd.map((source) => source.path)).toEqual([]);
  });
});

describe('src, bench and test', () => {
  test('no leftovers', () => {
    const leftover = new RegExp(`\\b(${['TO', 'DO'].join('')}|${['FIX', 'ME'].join('')}|XXX|HACK)\\b`);
    const hits = [...src, ...tests, ...bench].filter((source) => leftover.test(source.text));
    expect(hits.map((source) => source.path)).toEqual([]);
  });

  test('tests neither sleep, nor skip, nor focus', () => {
    const hits = tests.flatMap((source) => {
      const code = codeOnly(source);
      const patterns = [
        /\b(setTimeout|setInterval)\b/,
        /\b(it|test|describe) \. (only|skip|todo|skipIf|runIf)\b/,
      ];
      return patterns
        .filter((pattern) => pattern.test(code))
        .map((pattern) => `${source.path}: ${pattern.source}`);
    });
    expect(hits).toEqual([]);
  });
});
