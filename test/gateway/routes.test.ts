import { describe, expect, test } from 'vitest';
import { loggablePath, parseTarget } from '../../src/gateway/http-message.ts';
import { matchRoute, normalizeMount } from '../../src/gateway/routes.ts';

describe('the mount prefix', () => {
  test.each([
    ['', ''],
    ['/', ''],
    ['/sync-api', '/sync-api'],
    ['/sync-api/', '/sync-api'],
    ['/a/b_c/v1.2~x', '/a/b_c/v1.2~x'],
  ])('%j is %j', (mount, expected) => {
    expect(normalizeMount(mount)).toBe(expected);
  });

  test.each(['sync', '/a//b', '/a b', '/a?b', '/%61', 'http://host/a'])('%j is refused', (mount) => {
    expect(() => normalizeMount(mount)).toThrow(RangeError);
  });
});

describe('the route table', () => {
  test.each([
    ['POST', '/api/sync', 'sync', ''],
    ['GET', '/api/segments/sha256:ab', 'segment', 'sha256:ab'],
    ['GET', '/api/segments/sha256%3Aab', 'segment', 'sha256:ab'],
    ['GET', '/api/realtime', 'realtime', ''],
    ['GET', '/healthz', 'live', ''],
    ['HEAD', '/readyz', 'ready', ''],
  ])('%s %s is %s', (method, path, name, parameter) => {
    expect(matchRoute('/api', method, path)).toEqual({ kind: 'match', name, parameter });
  });

  test.each(['/sync', '/api', '/api/', '/api/sync/', '/api/syncs', '/api/segments/', '/api/segments/a/b'])(
    '%s is nobody',
    (path) => {
      expect(matchRoute('/api', 'GET', path)).toEqual({ kind: 'unknown' });
    },
  );

  test('malformed percent-encoding names nothing', () => {
    expect(matchRoute('', 'GET', '/segments/%zz')).toEqual({ kind: 'unknown' });
  });

  test.each([
    ['GET', '/sync', ['POST']],
    ['POST', '/segments/a', ['GET']],
    ['DELETE', '/healthz', ['GET', 'HEAD']],
  ])('%s %s is a wrong method', (method, path, allow) => {
    expect(matchRoute('', method, path)).toMatchObject({ kind: 'wrong-method', allow });
  });
});

describe('request targets', () => {
  test('a doubled slash is a path, not another host', () => {
    expect(parseTarget('//evil.example/sync')?.pathname).toBe('//evil.example/sync');
  });

  test('the absolute form is understood', () => {
    expect(parseTarget('http://a.example/sync?x=1')?.pathname).toBe('/sync');
  });

  test.each(['*', '', 'sync'])('%j is none', (target) => {
    expect(parseTarget(target)).toBeNull();
  });

  test('what is logged has no query', () => {
    expect(loggablePath('/realtime?ticket=secret')).toBe('/realtime');
    expect(loggablePath('/realtime')).toBe('/realtime');
  });
});
