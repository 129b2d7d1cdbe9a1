/** The client's small parts on their own, and what its bundle may contain. */
import { readFileSync } from 'node:fs';
import { dirname, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { createClient } from '../../src/client/client.ts';
import { DEFAULT_CLIENT_LIMITS, resolveClientLimits } from '../../src/client/client-limits.ts';
import { policyOf, retryAfterMs } from '../../src/client/error-policy.ts';
import { endpointsOf } from '../../src/client/mount-url.ts';
import { Replica } from '../../src/client/replica.ts';
import { decodeRow, encodeRow } from '../../src/client/rows.ts';
import { Bell, Cancelled } from '../../src/client/waiting.ts';
import { ERROR_CATALOGUE, type ErrorCode } from '../../src/protocol/errors.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { TASKS } from './harness.ts';

describe('the bundle', () => {
  const SRC = resolve(fileURLToPath(new URL('../../src', import.meta.url)));
  const IMPORT = /\b(?:import|export)\b[^'"`;]*?\bfrom\s*['"]([^'"]+)['"]|\bimport\s*\(?\s*['"]([^'"]+)['"]/g;

  function reach(entry: string): { readonly files: Set<string>; readonly foreign: string[] } {
    const files = new Set<string>();
    const foreign: string[] = [];
    const open = [entry];
    for (let file = open.pop(); file !== undefined; file = open.pop()) {
      if (files.has(file)) continue;
      files.add(file);
      const text = readFileSync(file, 'utf8').replace(/\/\*[\s\S]*?\*\//g, '');
      for (const match of text.matchAll(IMPORT)) {
        const target = match[1] ?? match[2]!;
        const path = resolve(dirname(file), target);
        const folder = relative(SRC, path).split(/[\\/]/)[0];
        if (target.startsWith('.') && (folder === 'client' || folder === 'protocol')) open.push(path);
        else foreign.push(`${relative(SRC, file)} -> ${target}`);
      }
    }
    return { files, foreign };
  }

  test('from index.ts only src/client and src/protocol are reached: it runs in a browser', () => {
    const { files, foreign } = reach(resolve(SRC, 'client/index.ts'));
    expect(foreign).toEqual([]);
    expect(files.size).toBeGreaterThan(20);
  });

  test('neither the MessagePack dialect nor the renderer ride along', () => {
    const { files } = reach(resolve(SRC, 'client/index.ts'));
    const names = [...files].map((file) => relative(SRC, file));
    expect(names.filter((name) => /msgpack|render/.test(name))).toEqual([]);
  });
});

describe('addresses', () => {
  test.each([
    ['http://h:1/m', 'ws://h:1/m/realtime?clientId=c+1', 'http://h:1/m/segments/sha256%3Aab'],
    ['https://h/', 'wss://h/realtime?clientId=c+1', 'https://h/segments/sha256%3Aab'],
    ['wss://h/a/b/', 'wss://h/a/b/realtime?clientId=c+1', 'https://h/a/b/segments/sha256%3Aab'],
    ['ws://h', 'ws://h/realtime?clientId=c+1', 'http://h/segments/sha256%3Aab'],
  ])('under %s', (mount, realtime, segment) => {
    const endpoints = endpointsOf(mount);
    expect(endpoints.realtime('c 1', null)).toBe(realtime);
    expect(endpoints.segment('sha256:ab')).toBe(segment);
  });

  test('a token is escaped; a signed URL may be relative', () => {
    const endpoints = endpointsOf('https://h/m');
    expect(endpoints.realtime('c', 'a&b=')).toBe('wss://h/m/realtime?clientId=c&token=a%26b%3D');
    expect(endpoints.resolve('/cdn/x?st=1')).toBe('https://h/cdn/x?st=1');
    expect(endpoints.resolve('https://cdn/x')).toBe('https://cdn/x');
  });

  test.each(['', '/sync', 'ftp://h', 'https://h/?a=1', 'https://h/#x'])('%j is refused', (mount) => {
    expect(() => endpointsOf(mount)).toThrow(expect.objectContaining({ code: 'client.invalid_options' }));
  });
});

describe('options', () => {
  test('without any WebSocket the error says what to do', () => {
    expect(() => createClient({ url: 'http://h', schema: TASKS })).toThrow(
      expect.objectContaining({ code: 'client.no_websocket' }),
    );
  });

  test.each(['', '\ud800'])('the clientId %j is refused', (clientId) => {
    expect(() => createClient({ url: 'http://h', schema: TASKS, clientId })).toThrow(
      expect.objectContaining({ code: 'client.invalid_options' }),
    );
  });

  test.each([
    [{ outboxCommitsMax: -1 }, 'outboxCommitsMax'],
    [{ commitBytesMax: 0.5 }, 'commitBytesMax'],
    [{ commitBytesMax: 9, roundBytesMax: 8 }, 'roundBytesMax'],
    [{ backoffFirstMs: 9, backoffMaxMs: 8 }, 'backoffMaxMs'],
  ])('limits %j are refused', (limits, named) => {
    expect(() => resolveClientLimits(limits)).toThrow(named);
  });

  test('the defaults agree with each other', () => {
    expect(resolveClientLimits()).toEqual(DEFAULT_CLIENT_LIMITS);
  });
});

describe('error policy', () => {
  test('follows the catalogue for every code, whatever the frame says', () => {
    for (const code of Object.keys(ERROR_CATALOGUE) as ErrorCode[]) {
      const { action, retryable } = ERROR_CATALOGUE[code];
      const policy = policyOf({ code, retryable: !retryable });
      if (action === 'refreshAuth') expect(policy).toBe('reauthenticate');
      else if (action === 'splitBatch') expect(policy).toBe('split');
      else if (code === 'sync.schema_not_ready') expect(policy).toBe('upgrade-wait');
      else expect(policy).toBe(retryable ? 'retry' : 'stop');
    }
  });

  test.each([
    [undefined, 0],
    ['{"retryAfterMs":1500}', 1_500],
    ['{"retryAfterMs":-1}', 0],
    ['{"retryAfterMs":"soon"}', 0],
    ['7', 0],
    ['null', 0],
  ])('details %j wish for %i ms', (details, wishMs) => {
    expect(retryAfterMs(details === undefined ? {} : { details })).toBe(wishMs);
  });
});

describe('waiting', () => {
  test('a ring before the wait is kept, and only once', async () => {
    const clock = new ManualClock();
    const bell = new Bell(clock);
    const { signal } = new AbortController();
    bell.ring();
    bell.ring();
    await bell.wait(null, signal);
    const late = bell.wait(10, signal);
    clock.advance(10);
    await late;
    expect(clock.timersWaiting).toBe(0);
  });

  test('an abort ends it with Cancelled, before or after it began', async () => {
    const clock = new ManualClock();
    const bell = new Bell(clock);
    const abort = new AbortController();
    const waiting = bell.wait(10, abort.signal);
    abort.abort();
    await expect(waiting).rejects.toBeInstanceOf(Cancelled);
    await expect(bell.wait(10, abort.signal)).rejects.toBeInstanceOf(Cancelled);
    expect(clock.timersWaiting).toBe(0);
  });
});

describe('rows', () => {
  const table = compileSchema({
    version: 1,
    tables: [
      {
        name: 'files',
        primaryKey: 'id',
        columns: [
          { name: 'id', type: 'integer' },
          { name: 'list', type: 'string' },
          { name: 'content', type: 'bytes', nullable: true },
        ],
        scopes: ['list:{list}'],
      },
    ],
  }).tables[0]!;

  test('bytes belong to the row: neither the buffer of the writer nor the message is shared', () => {
    const content = new Uint8Array([1, 2, 3]);
    const { row, rowId, payload } = encodeRow(table, { id: -7, list: 'l', content });
    content[0] = 9;
    expect(rowId).toBe('-7');
    expect(row.content).toEqual(new Uint8Array([1, 2, 3]));
    const decoded = decodeRow(table, payload);
    payload.fill(0);
    expect(decoded).toEqual(row);
    expect((decoded.content as Uint8Array).buffer.byteLength).toBe(3);
  });

  test('a member that is missing is NULL', () => {
    expect(encodeRow(table, { id: 1, list: 'l' }).row).toEqual({ id: 1, list: 'l', content: null });
  });
});

describe('replica', () => {
  type Step = readonly [holder: number, rowId: string, kind: 'arrive' | 'depart' | 'departAll', seq: number];
  const step: fc.Arbitrary<Step> = fc.tuple(
    fc.nat(2),
    fc.constantFrom('a', 'b'),
    fc.constantFrom('arrive', 'arrive', 'depart', 'departAll'),
    fc.nat(5),
  );

  test('property: a row is there exactly while someone holds it, in its newest known state', () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 30 }), (steps) => {
        const holders = [{}, {}, {}];
        const replica = new Replica(() => undefined);
        const held = new Map<string, { owners: Set<number>; seq: number }>();
        for (const [holder, rowId, kind, seq] of steps) {
          const owner = holders[holder]!;
          if (kind === 'arrive') {
            replica.arrive({ table: 't', rowId, row: { seq }, version: 1, seq, holder: owner });
            const known = held.get(rowId) ?? { owners: new Set(), seq };
            known.owners.add(holder);
            known.seq = Math.max(known.seq, seq);
            held.set(rowId, known);
            continue;
          }
          if (kind === 'depart') replica.depart({ table: 't', rowId, holder: owner });
          else replica.departAll(owner);
          for (const [id, known] of held) {
            if (kind === 'depart' && id !== rowId) continue;
            known.owners.delete(holder);
            if (known.owners.size === 0) held.delete(id);
          }
        }
        expect(Object.fromEntries([...replica.rows('t')].map(([id, { row }]) => [id, row.seq]))).toEqual(
          Object.fromEntries([...held].map(([id, { seq }]) => [id, seq])),
        );
      }),
    );
  });
});
