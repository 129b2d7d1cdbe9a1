import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { findTests, idsInTitle, readRules, renderConformance, stringsIn } from '../../scripts/conformance.ts';

const rules = readRules();
const tests = findTests();

test('ids in titles: single, several, ranges', () => {
  expect(idsInTitle('S-014, R-031: x')).toEqual(['S-014', 'R-031']);
  expect(idsInTitle('S-008..S-010 y')).toEqual(['S-008', 'S-009', 'S-010']);
  expect(idsInTitle('R-020..022')).toEqual(['R-020', 'R-021', 'R-022']);
  expect(idsInTitle('no rule here')).toEqual([]);
});

test('every rule that is not marked "later" points to a test', () => {
  const uncovered = rules.filter(
    (rule) => rule.later === undefined && rule.tests === undefined && !tests.has(rule.id),
  );
  expect(uncovered.map((rule) => rule.id)).toEqual([]);
});

test('the tests that a rule names by title exist', () => {
  const missing = rules
    .flatMap((rule) => rule.tests ?? [])
    .filter((named) => {
      const [file, title = ''] = named.split(/: ?(.*)/s);
      const strings = stringsIn(readFileSync(new URL(`../../${file}`, import.meta.url), 'utf8'));
      return !strings.some((text) => text.startsWith(title));
    });
  expect(missing).toEqual([]);
});

test('no test names a rule that does not exist', () => {
  const known = new Set(rules.map((rule) => rule.id));
  expect([...tests.keys()].filter((id) => !known.has(id))).toEqual([]);
});

test('docs/CONFORMANCE.md is current (npm run conformance)', () => {
  const page = readFileSync(new URL('../../docs/CONFORMANCE.md', import.meta.url), 'utf8');
  expect(page).toBe(renderConformance(rules, tests));
});
