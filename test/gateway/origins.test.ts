import { describe, expect, test } from 'vitest';
import { createOriginPolicy } from '../../src/gateway/origins.ts';

const allows = (allowed: readonly string[], headers: Record<string, string>): boolean =>
  createOriginPolicy(allowed).allows(new Headers(headers));

describe('origins of upgrades', () => {
  test('no Origin header means no browser', () => {
    expect(allows([], { host: 'a.example' })).toBe(true);
  });

  test.each([
    ['http://a.example', 'a.example', true],
    ['https://a.example', 'a.example:443', true],
    ['https://a.example', 'A.EXAMPLE', true],
    ['http://a.example:8080', 'a.example:8080', true],
    ['http://a.example:8080', 'a.example', false],
    ['http://b.example', 'a.example', false],
    ['http://a.example.evil.example', 'a.example', false],
    ['null', 'a.example', false],
    ['', 'a.example', false],
    ['http://a.example', 'a.example/x@b.example', true],
  ])('page %j on host %j: %j', (origin, host, expected) => {
    expect(allows([], { origin, host })).toBe(expected);
  });

  test('listed origins are allowed on any host', () => {
    const list = ['https://app.example'];
    expect(allows(list, { origin: 'https://app.example', host: 'sync.example' })).toBe(true);
    expect(allows(list, { origin: 'https://APP.example', host: 'sync.example' })).toBe(true);
    expect(allows(list, { origin: 'http://app.example', host: 'sync.example' })).toBe(false);
    expect(allows(['*'], { origin: 'http://anything.example', host: 'sync.example' })).toBe(true);
  });

  test('localhost means every port of this machine and nothing else', () => {
    const from = (origin: string): boolean => allows(['localhost'], { origin, host: 'sync.example' });
    expect(['http://localhost:5173', 'http://127.0.0.1', 'https://[::1]:8443'].map(from)).toEqual([
      true,
      true,
      true,
    ]);
    expect(['http://localhost.evil.example', 'http://10.0.0.1', 'null'].map(from)).toEqual([
      false,
      false,
      false,
    ]);
  });
});
