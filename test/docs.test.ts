/** The pages against the code: links lead somewhere, PROTOCOL.md knows every frame, field, code and close code. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, test } from 'vitest';
import { CLOSE_CODES } from '../src/protocol/close-codes.ts';
import { ERROR_CATALOGUE } from '../src/protocol/errors.ts';
import { type Field, FRAME_TABLE, type Layout } from '../src/protocol/frame-table.ts';

const ROOT = resolve(fileURLToPath(new URL('..', import.meta.url)));
const PAGES = [
  'README.md',
  'ARCHITECTURE.md',
  'CHANGELOG.md',
  'examples/README.md',
  ...readdirSync(join(ROOT, 'docs')).map((name) => `docs/${name}`),
];
const read = (page: string): string => readFileSync(join(ROOT, page), 'utf8');
const protocol = read('docs/PROTOCOL.md');

/** As GitHub makes them. */
const anchorsOf = (text: string): string[] =>
  [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading]) =>
    heading!
      .toLowerCase()
      .replace(/[^\p{L}\p{N} _-]/gu, '')
      .replaceAll(' ', '-'),
  );

test.each(PAGES)('links of %s', (page) => {
  const text = read(page);
  const broken = [...text.matchAll(/\]\(([^)\s]+)\)/g)]
    .map(([, target]) => target!)
    .filter((target) => !/^https?:/.test(target))
    .filter((target) => {
      const [path, anchor] = target.split('#') as [string, string?];
      const file = path === '' ? page : join(dirname(page), path);
      if (!existsSync(join(ROOT, file))) return true;
      return anchor !== undefined && !anchorsOf(read(file)).includes(anchor);
    });
  expect(broken).toEqual([]);
});

/** How the page writes fields, with their type behind them, and enum members; nested ones included. */
function namesIn(fields: readonly Field[]): string[] {
  return fields.flatMap(({ name, layout }) => [
    layout === 'rest' ? `\`${name}\`` : `\`${name} `,
    ...namesOf(layout),
  ]);
}

const quoted = (name: string): string => `\`${name}\``;

function namesOf(layout: Layout): string[] {
  if (typeof layout === 'string') return [];
  if ('opt' in layout) return namesOf(layout.opt);
  if ('list' in layout) return namesOf(layout.list);
  if ('map' in layout) return namesOf(layout.map);
  if ('record' in layout) return namesIn(layout.record);
  if ('names' in layout) return layout.names.map(quoted);
  return layout.choice.flatMap(([name, fields]) => [quoted(name), ...namesIn(fields)]);
}

describe('docs/PROTOCOL.md', () => {
  test.each(FRAME_TABLE.map((spec) => [spec.name, spec] as const))(
    '%s: number and fields in order',
    (name, spec) => {
      const heading = `### \`${name}\` 0x${spec.type.toString(16).toUpperCase().padStart(2, '0')}\n`;
      const at = protocol.indexOf(heading);
      expect(at, heading).toBeGreaterThan(-1);
      const section = protocol.slice(at + heading.length).split(/^##/m)[0]!;
      for (const part of ['Direction:', 'Purpose:', 'Layout:', 'Violation:']) expect(section).toContain(part);
      let layout = section.slice(section.indexOf('Layout:'));
      for (const field of namesIn(spec.fields)) {
        const found = layout.indexOf(field);
        expect(found, `${name}.${field}`).toBeGreaterThan(-1);
        layout = layout.slice(found + 1);
      }
    },
  );

  test('every error code with its status, retry and action, or as one that is not sent', () => {
    const rows = new Map(
      [
        ...protocol.matchAll(
          /^\| `((?:sync|blob|operation)\.[a-z_]+)` \| (\S+)[^|]*\| (yes|no) \| (\w+) \|/gm,
        ),
      ].map(([, code, ...cells]) => [code!, cells]),
    );
    for (const [code, { httpStatus, retryable, action }] of Object.entries(ERROR_CATALOGUE)) {
      const cells = rows.get(code);
      if (cells === undefined) expect(protocol, code).toContain(`\`${code}\``);
      else
        expect([code, ...cells]).toEqual([code, String(httpStatus ?? '–'), retryable ? 'yes' : 'no', action]);
    }
    expect([...rows.keys()].filter((code) => !Object.hasOwn(ERROR_CATALOGUE, code))).toEqual([]);
  });

  test('every close code', () => {
    const listed = [...protocol.matchAll(/^\| ([\d, ]+) \|/gm)].flatMap(([, codes]) => codes!.split(', '));
    expect(listed.filter((code) => code.length === 4).sort()).toEqual(Object.keys(CLOSE_CODES).sort());
  });
});
