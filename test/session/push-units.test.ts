/** Small parts of the push path whose rules do not show well from outside. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { PushOperation } from '../../src/protocol/frames.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import { contentHash } from '../../src/session/sync/content-hash.ts';
import { CandidateRow, type JournalEntry, RowCell } from '../../src/session/sync/overlay.ts';
import { compilePushPlan } from '../../src/session/sync/push-plan.ts';
import { keyMoves } from '../../src/session/sync/unique-keys.ts';
import { sha256 } from './support/push-harness.ts';

describe('contentHash (part 2.24 decision 19)', () => {
  const operation: fc.Arbitrary<PushOperation> = fc
    .record({
      table: fc.constantFrom('', 'a', 'ab'),
      rowId: fc.constantFrom('', 'a', 'bc'),
      op: fc.constantFrom('upsert' as const, 'delete' as const),
      baseVersion: fc.option(fc.constantFrom(0, 1, 256), { nil: undefined }),
      payload: fc.option(fc.uint8Array({ maxLength: 3 }), { nil: undefined }),
    })
    .map(({ baseVersion, payload, ...rest }) => ({
      ...rest,
      ...(baseVersion === undefined ? {} : { baseVersion }),
      ...(payload === undefined ? {} : { payload }),
    }));
  const operations = fc.array(operation, { minLength: 1, maxLength: 3 });
  const canonical = (list: readonly PushOperation[]) =>
    JSON.stringify(
      list.map((o) => [o.table, o.rowId, o.op, o.baseVersion ?? null, o.payload ? [...o.payload] : null]),
    );

  test('equal exactly for equal operations', () => {
    fc.assert(
      fc.property(operations, operations, (a, b) => {
        expect(contentHash(a, sha256) === contentHash(b, sha256)).toBe(canonical(a) === canonical(b));
      }),
      { numRuns: 2_000 },
    );
  });

  test('does not depend on the buffer the payload lies in', () => {
    const bytes = Uint8Array.of(9, 1, 2, 9).subarray(1, 3);
    const list = (payload: Uint8Array): PushOperation[] => [
      { table: 't', rowId: 'r', op: 'upsert', payload },
    ];
    expect(contentHash(list(bytes), sha256)).toBe(contentHash(list(Buffer.from([1, 2])), sha256));
  });
});

describe('keyMoves', () => {
  const schema = compileSchema({
    version: 1,
    tables: [
      {
        name: 't',
        columns: [
          { name: 'id', type: 'string', nullable: false },
          { name: 'a', type: 'float', nullable: true },
          { name: 'b', type: 'json', nullable: true },
          { name: 'c', type: 'bytes', nullable: true },
        ],
        primaryKey: 'id',
        scopes: ['row:{id}'],
        indexes: [
          { name: 'pair', columns: ['a', 'c'], unique: true },
          { name: 'doc', columns: ['b'], unique: true },
          { name: 'plain', columns: ['a'], unique: false },
        ],
      },
    ],
  });
  const hooks = {
    resolveScopes: () => ({}),
    rowValidators: new Map(),
    commitValidator: 'off',
    crdtMergers: new Map(),
  } as const;
  const plan = compilePushPlan(schema, hooks).tables.get('t')!;
  type Values = readonly [number | null, string | null, Uint8Array | null];

  const row = (values: Values | null) =>
    values === null
      ? null
      : new CandidateRow({ rowId: 'r', serverVersion: 1, scopes: {}, payload: new Uint8Array() }, plan, [
          'r',
          ...values,
        ]);

  function moves(...states: (Values | null)[]) {
    const rows = states.map(row);
    const cell = new RowCell('r', rows[0]!);
    cell.current = rows.at(-1)!;
    const entries: JournalEntry[] = rows.slice(1).map((after, i) => ({
      plan,
      cell,
      opIndex: i,
      before: rows[i]!,
      beforeSeq: 0,
      after,
      afterSeq: 1,
    }));
    const { taken, freed } = keyMoves(entries);
    return [taken.length, freed.length];
  }
  const bytes = Uint8Array.of(1);

  test('a key that stays is neither taken nor freed', () => {
    expect(moves([1, '{}', bytes], [1, '{}', Uint8Array.of(1)])).toEqual([0, 0]);
    expect(moves([0, null, bytes], [-0, null, bytes])).toEqual([0, 0]);
  });

  test('a NULL in a key takes and frees nothing', () => {
    expect(moves(null, [1, null, null])).toEqual([0, 0]);
    expect(moves([1, null, null], [2, null, null])).toEqual([0, 0]);
    expect(moves([1, null, null], [1, null, bytes])).toEqual([1, 0]);
  });

  test('only the ends of a commit count', () => {
    expect(moves([1, null, bytes], [2, null, bytes], [1, null, bytes])).toEqual([0, 0]);
    expect(moves(null, [1, null, bytes], null)).toEqual([0, 0]);
    expect(moves([1, null, bytes], null, [2, null, bytes])).toEqual([1, 1]);
  });

  test('JSON texts that differ may be one value, so they are one key that moves', () => {
    expect(moves([null, '{"a":1}', null], [null, '{"a": 1}', null])).toEqual([1, 1]);
    const { taken, freed } = keyMoves([]);
    expect([taken, freed]).toEqual([[], []]);
  });
});
