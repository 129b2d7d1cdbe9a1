/** Row ids, stored scopes, scope keys (§2.4, §3.1, part 2.24 decision 28) and rows by column name. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { rowFromObject, rowToObject } from '../../src/protocol/named-rows.ts';
import { RowEncodeError, rowCodecOf } from '../../src/protocol/row-codec.ts';
import { extractScopes, extractScopesFromRow, rowIdOf, scopeKey } from '../../src/protocol/row-identity.ts';
import type { ColumnValue } from '../../src/protocol/schema.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';

const schema = compileSchema({
  version: 1,
  tables: [
    {
      name: 'tasks',
      columns: [
        { name: 'title', type: 'string' },
        { name: 'id', type: 'integer' },
        { name: 'org', type: 'integer', nullable: true },
        { name: '__proto__', type: 'string', nullable: true },
        { name: 'constructor', type: 'string', nullable: true },
      ],
      primaryKey: 'id',
      scopes: ['org:{org}', { pattern: 'app:owner:{constructor}', column: '__proto__' }],
    },
  ],
});
const tasks = schema.tableByName.get('tasks')!;
const codec = rowCodecOf(tasks);

const rows = fc.tuple(
  fc.string({ unit: 'binary' }),
  fc.maxSafeInteger(),
  fc.option(fc.maxSafeInteger(), { nil: null }),
  fc.option(fc.string({ unit: 'binary' }), { nil: null }),
  fc.option(fc.string({ unit: 'binary' }), { nil: null }),
);

describe('row id and stored scopes', () => {
  test('decision 28: integers in decimal, strings as they are, one value per variable', () => {
    const values: ColumnValue[] = ['t', Number.MIN_SAFE_INTEGER, 0, ' *:x ', null];
    expect(rowIdOf(tasks, values)).toBe('-9007199254740991');
    expect(extractScopes(tasks, values)).toEqual({
      kind: 'complete',
      scopes: { org: '0', constructor: ' *:x ' },
    });
  });

  test.each<[ColumnValue, ColumnValue, string]>([
    [null, 'x', 'org'],
    [1, null, 'constructor'],
    [1, '', 'constructor'],
    [null, null, 'org'],
  ])('§3.4 rule 3: NULL and the empty string are missing (%j, %j)', (org, owner, variable) => {
    expect(extractScopes(tasks, ['t', 1, org, owner, null])).toEqual({ kind: 'missing', variable });
  });

  test('property: row-codec bytes tell the same as decoded values', () => {
    fc.assert(
      fc.property(rows, (values) => {
        const row = codec.encode(values);
        expect(extractScopesFromRow(tasks, row)).toEqual(extractScopes(tasks, values));
      }),
    );
  });

  test('a scope key is prefix, colon, value', () => {
    expect(tasks.scopes.map((scope) => scopeKey(scope, 'a:b'))).toEqual(['org:a:b', 'app:owner:a:b']);
  });
});

describe('rows by column name', () => {
  test('property: there and back, members named like those of Object included', () => {
    fc.assert(
      fc.property(rows, (values) => {
        const record = rowToObject(tasks, values);
        expect(Object.keys(record)).toEqual(['title', 'id', 'org', '__proto__', 'constructor']);
        expect(Object.getPrototypeOf(record)).toBe(Object.prototype);
        expect(rowFromObject(tasks, record)).toEqual(values);
        const parsed = JSON.parse(JSON.stringify(record)) as Record<string, ColumnValue>;
        expect(rowFromObject(tasks, parsed)).toEqual(
          values.map((value) => (Object.is(value, -0) ? 0 : value)),
        );
      }),
    );
  });

  test('missing and undefined members are NULL, not what the prototype has', () => {
    expect(rowFromObject(tasks, { id: 1, title: undefined })).toEqual([null, 1, null, null, null]);
  });

  test('a member that is no column is refused by its name', () => {
    expect(() => rowFromObject(tasks, { id: 1, titel: 'secret' })).toThrow(RowEncodeError);
    expect(() => rowFromObject(tasks, { id: 1, titel: 'secret' })).toThrow(/^column titel: (?!.*secret)/);
  });
});
