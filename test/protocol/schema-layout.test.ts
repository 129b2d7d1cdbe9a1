/** Stored layouts (part 6, `sync_schema_meta.layouts`) and the conversion of rows from one to the next. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { type CodecColumn, compileRowCodec } from '../../src/protocol/row-codec.ts';
import { planRowConversion } from '../../src/protocol/row-conversion.ts';
import type { ColumnValue } from '../../src/protocol/schema.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import type { TableDocument } from '../../src/protocol/schema-document.ts';
import { describeLayout, layoutsOf, parseLayouts, sameLayouts } from '../../src/protocol/schema-layout.ts';
import { SchemaError } from '../../src/protocol/schema-problems.ts';
import { codeOf } from './faults.ts';
import { modelRow, rowArbitrary } from './row-arbitraries.ts';

const TASKS: TableDocument = {
  name: 'tasks',
  columns: [
    { name: '__proto__', type: 'string' },
    { name: 'org', type: 'integer', nullable: true },
    { name: 'secret', type: 'json', encrypted: true },
  ],
  primaryKey: '__proto__',
  scopes: ['org:{org}', { pattern: 'task:{task}', column: '__proto__' }],
};
const NOTES: TableDocument = { ...TASKS, name: 'notes' };
const compile = (...tables: readonly TableDocument[]) => compileSchema({ version: 3, tables });

describe('layouts', () => {
  test('survive JSON, also one that sorts its members', () => {
    const schema = compile(TASKS, NOTES);
    const text = JSON.stringify(describeLayout(schema));
    expect(parseLayouts(JSON.parse(text))).toEqual(layoutsOf(schema));
    expect(layoutsOf(schema)).toMatchObject({
      version: 3,
      tables: [
        {
          name: 'tasks',
          primaryKey: '__proto__',
          materialize: true,
          columns: [
            { name: '__proto__' },
            { name: 'org' },
            { name: 'secret', type: 'bytes', nullable: false },
          ],
          scopes: [
            { variable: 'org', column: 'org' },
            { variable: 'task', column: '__proto__' },
          ],
        },
        { name: 'notes' },
      ],
    });
  });

  test('a stored layout gives the codec of its rows', () => {
    const [table] = parseLayouts(describeLayout(compile(TASKS))).tables;
    const row = compileRowCodec(table!.columns).encode(['t', null, new Uint8Array([1])]);
    expect(compileRowCodec(compile(TASKS).tables[0]!.columns).decode(row)[0]).toBe('t');
  });

  test.each<[string, TableDocument[], boolean]>([
    [
      'order of tables and scopes, indexes, encryption metadata',
      [
        NOTES,
        {
          ...TASKS,
          scopes: [...TASKS.scopes].reverse(),
          indexes: [{ name: 'i', columns: ['org'] }],
          columns: [...TASKS.columns.slice(0, 2), { name: 'secret', type: 'bytes' }],
        },
      ],
      true,
    ],
    [
      'a column more',
      [NOTES, { ...TASKS, columns: [...TASKS.columns, { name: 'x', type: 'string' }] }],
      false,
    ],
    ['order of columns', [NOTES, { ...TASKS, columns: [...TASKS.columns].reverse() }], false],
    [
      'nullability',
      [
        NOTES,
        {
          ...TASKS,
          columns: TASKS.columns.map((own) => (own.name === 'org' ? { ...own, nullable: false } : own)),
        },
      ],
      false,
    ],
    ['a scope less', [NOTES, { ...TASKS, scopes: TASKS.scopes.slice(0, 1) }], false],
    ['a table less', [NOTES], false],
  ])('sameLayouts: %s', (_case, tables, same) => {
    const stored = parseLayouts(describeLayout(compile(TASKS, NOTES)));
    expect(sameLayouts(stored, layoutsOf(compile(...tables)))).toBe(same);
  });

  test.each<[string, (layout: { [key: string]: unknown }) => unknown]>([
    ['null', () => null],
    ['a later format', (layout) => ({ ...layout, format: 2 })],
    ['no version', (layout) => ({ ...layout, version: undefined })],
    ['no tables', (layout) => ({ ...layout, tables: {} })],
    ['a table that is no object', (layout) => ({ ...layout, tables: [1] })],
    ['a table without a name', (layout) => ({ ...layout, tables: [{}] })],
    [
      'a column of an unknown type',
      (layout) => ({
        ...layout,
        tables: [
          {
            name: 't',
            primaryKey: 'a',
            materialize: true,
            scopes: [],
            columns: [{ name: 'a', type: 'text', nullable: true }],
          },
        ],
      }),
    ],
    [
      'materialize missing',
      (layout) => ({ ...layout, tables: [{ name: 't', primaryKey: 'a', scopes: [], columns: [] }] }),
    ],
  ])('parseLayouts refuses %s', (_case, change) => {
    expect(() => parseLayouts(change({ ...describeLayout(compile(TASKS)) }))).toThrow(SchemaError);
  });
});

describe('planRowConversion', () => {
  const a: CodecColumn = { name: 'a', type: 'string', nullable: false };
  const b: CodecColumn = { name: 'b', type: 'float', nullable: true };
  const added: CodecColumn = { name: 'added', type: 'json', nullable: true };

  test('the same columns, or one that became nullable: the bytes stay', () => {
    expect(planRowConversion({ from: [a, b], to: [a, b] })).toEqual({ kind: 'identical' });
    expect(planRowConversion({ from: [a, b], to: [{ ...a, nullable: true }, b] })).toEqual({
      kind: 'identical',
    });
  });

  test.each<[string, CodecColumn[], string]>([
    ['a new column that is not nullable', [a, b, { ...added, nullable: false }], 'new column added'],
    ['another type', [a, { ...b, type: 'integer' }], 'float to integer'],
    ['no longer nullable', [a, { ...b, nullable: false }], 'column b must stay nullable'],
  ])('impossible: %s', (_case, to, word) => {
    const plan = planRowConversion({ from: [a, b], to });
    expect(plan).toEqual({ kind: 'impossible', problems: [expect.stringContaining(word)] });
  });

  test('property: columns dropped, added and moved; NaN bits and every other value byte for byte', () => {
    const change = rowArbitrary.chain((sample) => {
      const kept = fc.shuffledSubarray([...sample.columns.keys()]);
      return fc.record({ sample: fc.constant(sample), kept, addedAt: fc.nat() });
    });
    fc.assert(
      fc.property(change, ({ sample, kept, addedAt }) => {
        const columns = kept.map((index) => sample.columns[index]!);
        const values: ColumnValue[] = kept.map((index) => sample.values[index]!);
        columns.splice(addedAt % (columns.length + 1), 0, added);
        values.splice(addedAt % (values.length + 1), 0, null);
        const plan = planRowConversion({ from: sample.columns, to: columns });
        if (plan.kind !== 'convert') return expect.fail(plan.kind);
        const before = modelRow(sample);
        const copy = Buffer.from(before);
        expect(Buffer.from(plan.convert(before))).toEqual(modelRow({ columns, values }));
        expect(before).toEqual(copy);
      }),
    );
  });

  test('a column less at the end is a conversion too', () => {
    const plan = planRowConversion({ from: [a, b], to: [a] });
    if (plan.kind !== 'convert') return expect.fail(plan.kind);
    const row = modelRow({ columns: [a, b], values: ['x', 1] });
    expect(Buffer.from(plan.convert(row))).toEqual(modelRow({ columns: [a], values: ['x'] }));
  });

  test('NaN bits survive, bytes of another layout are refused', () => {
    const plan = planRowConversion({ from: [a, b], to: [b] });
    if (plan.kind !== 'convert') return expect.fail(plan.kind);
    const row = Buffer.from('0001000000783412cdabefbef1ff', 'hex');
    expect(Buffer.from(plan.convert(row)).toString('hex')).toBe('003412cdabefbef1ff');
    expect(codeOf(() => plan.convert(row.subarray(1)))).toBe('sync.invalid_request');
    expect(codeOf(() => plan.convert(Buffer.concat([row, row])))).toBe('sync.invalid_request');
  });
});
