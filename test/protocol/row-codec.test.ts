/** The row codec (§2.4, part 1.6, and the row codec line of part 1.15). */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { ByteReader, ByteWriter } from '../../src/protocol/bytes.ts';
import {
  COLUMN_TAGS,
  type CodecColumn,
  columnTypeOfTag,
  compileRowCodec,
  RowEncodeError,
  rowCodecOf,
} from '../../src/protocol/row-codec.ts';
import type { ColumnType, ColumnValue } from '../../src/protocol/schema.ts';
import { decodeSegment } from '../../src/protocol/segment.ts';
import { codeOf } from './faults.ts';
import { ALL_TYPES, modelRow, plain, rowArbitrary, valueFor } from './row-arbitraries.ts';
import { validCases, vector } from './vectors.ts';

function column(type: ColumnType, nullability: 'nullable' | 'required', name: string = type): CodecColumn {
  return { name, type, nullable: nullability === 'nullable' };
}

const single = (type: ColumnType) => compileRowCodec([column(type, 'required')]);
const hex = (text: string) => Uint8Array.from(Buffer.from(text.replaceAll(' ', ''), 'hex'));
const toHex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');

describe('column tags', () => {
  test('tags 1 to 8 and nothing else', () => {
    expect(ALL_TYPES.map((type) => COLUMN_TAGS[type])).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
    for (let tag = 0; tag < 256; tag++) expect(columnTypeOfTag(tag)).toBe(ALL_TYPES[tag - 1]);
  });
});

describe('all eight types', () => {
  const ref = `{"blobId":"sha256:${'0a'.repeat(32)}","byteLength":3}`;
  test.each<[ColumnType, ColumnValue, string]>([
    ['string', 'é😀', '00 06000000 c3a9f09f9880'],
    ['string', '', '00 00000000'],
    ['string', '\ufeff\u0000', '00 04000000 efbbbf00'],
    ['integer', -7, '00 f9ffffffffffffff'],
    ['integer', Number.MAX_SAFE_INTEGER, '00 ffffffffffff1f00'],
    ['integer', Number.MIN_SAFE_INTEGER, '00 010000000000e0ff'],
    ['float', 0.125, '00 000000000000c03f'],
    ['float', Number.NEGATIVE_INFINITY, '00 000000000000f0ff'],
    ['float', -0, '00 0000000000000080'],
    ['boolean', true, '00 01'],
    ['boolean', false, '00 00'],
    ['json', '{"b":1,  "a":"\\u0041"}', `00 16000000 ${toHex(Buffer.from('{"b":1,  "a":"\\u0041"}'))}`],
    ['json', 'null', '00 04000000 6e756c6c'],
    ['bytes', hex('00fe'), '00 02000000 00fe'],
    ['blob_ref', ref, `00 ${ref.length.toString(16)}000000 ${toHex(Buffer.from(ref))}`],
    ['crdt', hex(''), '00 00000000'],
  ])('%s %o', (type, value, bytes) => {
    const codec = single(type);
    expect(toHex(codec.encode([value]))).toBe(bytes.replaceAll(' ', ''));
    expect(plain(codec.decode(hex(bytes)))).toEqual([value]);
    expect(plain([codec.readColumn(hex(bytes), 0)])).toEqual([value]);
  });
});

describe('null bitmap', () => {
  test.each([1, 8, 9, 16, 17])('%i columns: every NULL pattern round-trips', (count) => {
    const columns = Array.from({ length: count }, (_, i) => column('boolean', 'nullable', `c${i}`));
    const codec = compileRowCodec(columns);
    for (let pattern = 0; pattern < 2 ** count; pattern++) {
      const values = columns.map((_, i) => ((pattern >> i) & 1 ? null : i % 3 === 0));
      const bytes = codec.encode(values);
      const decoded = codec.decode(bytes);
      const bitmap = bytes.slice(0, codec.bitmapBytes).reduce((sum, byte, i) => sum + byte * 256 ** i, 0);
      if (bitmap !== pattern || decoded.some((value, i) => value !== values[i])) {
        expect.fail(`pattern ${pattern} gave ${toHex(bytes)}`);
      }
    }
  });

  test.each([1, 2, 7, 9, 15, 17])('%i columns: each padding bit is a fault', (count) => {
    const codec = compileRowCodec(
      Array.from({ length: count }, (_, i) => column('boolean', 'nullable', `c${i}`)),
    );
    const allNull = codec.encode(Array.from({ length: count }, () => null));
    for (let bit = count; bit < codec.bitmapBytes * 8; bit++) {
      const row = Uint8Array.from(allNull);
      row[bit >> 3]! |= 1 << (bit & 7);
      expect(codeOf(() => codec.decode(row))).toBe('sync.invalid_request');
      expect(codeOf(() => codec.validate(row))).toBe('sync.invalid_request');
    }
  });

  test('a NULL bit on a column that is not nullable is a fault, wherever the column stands', () => {
    for (let at = 0; at < 17; at++) {
      const columns = Array.from({ length: 17 }, (_, i) =>
        column('boolean', i === at ? 'required' : 'nullable', `c${i}`),
      );
      const row = hex('ffff01');
      expect(codeOf(() => compileRowCodec(columns).decode(row))).toBe('sync.invalid_request');
    }
  });

  test('W-n: no columns, no bytes', () => {
    const codec = compileRowCodec([]);
    expect(codec.decode(codec.encode([]))).toEqual([]);
    expect(codeOf(() => codec.decode(hex('00')))).toBe('sync.invalid_request');
  });
});

describe('decode faults, each sync.invalid_request', () => {
  test.each<[string, ColumnType, string]>([
    ['string: invalid byte', 'string', '00 01000000 ff'],
    ['string: overlong', 'string', '00 02000000 c080'],
    ['string: surrogate', 'string', '00 03000000 eda080'],
    ['string: cut character', 'string', '00 02000000 e282'],
    ['string: beyond U+10FFFF', 'string', '00 04000000 f4908080'],
    ['integer: 2^53', 'integer', '00 0000000000002000'],
    ['integer: -2^53', 'integer', '00 000000000000e0ff'],
    ['integer: smallest i64', 'integer', '00 0000000000000080'],
    ['boolean: 2', 'boolean', '00 02'],
    ['json: empty', 'json', '00 00000000'],
    ['json: not JSON', 'json', '00 01000000 7b'],
    ['json: byte order mark', 'json', '00 04000000 efbbbf31'],
    ['blob_ref: JSON, but no BlobRef', 'blob_ref', '00 02000000 7b7d'],
    ['blob_ref: not JSON', 'blob_ref', '00 01000000 78'],
    ['bytes: length beyond the row', 'bytes', '00 ffffffff'],
    ['crdt: length beyond the row', 'crdt', '00 02000000 00'],
    ['a byte left over', 'boolean', '00 01 00'],
    ['no bitmap', 'boolean', ''],
  ])('%s', (_fault, type, bytes) => {
    const codec = single(type);
    expect(codeOf(() => codec.decode(hex(bytes)))).toBe('sync.invalid_request');
    expect(codeOf(() => codec.validate(hex(bytes)))).toBe('sync.invalid_request');
  });

  test('property: every strict prefix and every longer row is refused', () => {
    fc.assert(
      fc.property(rowArbitrary, fc.nat(), (sample, cut) => {
        const row = modelRow(sample);
        const codec = compileRowCodec(sample.columns);
        const longer = Buffer.concat([row, Buffer.from([0])]);
        expect(codeOf(() => codec.decode(longer))).toBe('sync.invalid_request');
        expect(codeOf(() => codec.columnStarts(longer))).toBe('sync.invalid_request');
        if (row.length === 0) return;
        const prefix = row.subarray(0, cut % row.length);
        expect(codeOf(() => codec.decode(prefix))).toBe('sync.invalid_request');
        expect(codeOf(() => codec.validate(prefix))).toBe('sync.invalid_request');
        expect(codeOf(() => codec.columnStarts(prefix))).toBe('sync.invalid_request');
        expect(codeOf(() => codec.skip(new ByteReader(prefix)))).toBe('sync.invalid_request');
      }),
    );
  });

  test('property: arbitrary bytes decode to a row that encodes back, or are refused', () => {
    fc.assert(
      fc.property(rowArbitrary, fc.uint8Array({ maxLength: 60 }), ({ columns }, bytes) => {
        const codec = compileRowCodec(columns.filter(({ type }) => type !== 'float'));
        let values: ColumnValue[];
        try {
          values = codec.decode(bytes);
        } catch {
          expect(codeOf(() => codec.validate(bytes))).toBe('sync.invalid_request');
          return;
        }
        expect(toHex(codec.encode(values))).toBe(toHex(bytes));
      }),
      { numRuns: 500 },
    );
  });
});

describe('round trips', () => {
  test('property: bytes equal those of a plain model, values come back', () => {
    fc.assert(
      fc.property(rowArbitrary, (sample) => {
        const codec = compileRowCodec(sample.columns);
        const row = codec.encode(sample.values);
        expect(toHex(row)).toBe(toHex(modelRow(sample)));
        expect(plain(codec.decode(row))).toEqual(sample.values);
        codec.validate(row);
        expect(row.buffer.byteLength).toBe(row.length);
      }),
      { numRuns: 500 },
    );
  });

  test('property: single columns are read without the others, and rows are skipped, in any buffer', () => {
    fc.assert(
      fc.property(rowArbitrary, (sample) => {
        const codec = compileRowCodec(sample.columns);
        const row = modelRow(sample);
        const inside = Buffer.concat([Buffer.from([0xff, 0xff, 0xff]), row, Buffer.from([0xff])]);
        const view = inside.subarray(3, 3 + row.length);
        expect(plain(sample.columns.map((_, i) => codec.readColumn(view, i)))).toEqual(sample.values);
        const reader = new ByteReader(inside, 3);
        codec.skip(reader);
        expect(reader.offset).toBe(3 + row.length);
        const again = new ByteReader(inside, 3);
        expect(plain(codec.decodeFrom(again))).toEqual(sample.values);
        expect(again.offset).toBe(3 + row.length);
      }),
    );
  });

  test('encodeInto appends', () => {
    const codec = single('boolean');
    const writer = new ByteWriter();
    writer.u8(0xee);
    codec.encodeInto(writer, [true]);
    codec.encodeInto(writer, [false]);
    expect(toHex(writer.finish())).toBe('ee00010000');
  });

  test('a length that runs out of the row, or back into it, is refused by readers that only walk', () => {
    const codec = compileRowCodec([column('bytes', 'required'), column('float', 'nullable')]);
    for (const row of ['02 05000000 00', '00 fcffffff 00000000', '02 fcffffff', '02 0000']) {
      expect(codeOf(() => codec.readColumn(hex(row), 1))).toBe('sync.invalid_request');
      expect(codeOf(() => codec.columnStarts(hex(row)))).toBe('sync.invalid_request');
    }
    const nine = Array.from({ length: 9 }, (_, i) => column('boolean', 'nullable', `c${i}`));
    expect(codeOf(() => compileRowCodec(nine).readColumn(hex('ff'), 0))).toBe('sync.invalid_request');
  });

  test('readColumn refuses a column that does not exist', () => {
    expect(() => single('boolean').readColumn(hex('0001'), 1)).toThrow(RangeError);
  });

  test('the codec of a table is compiled once', () => {
    const table = { columns: [column('string', 'required')] };
    expect(rowCodecOf(table)).toBe(rowCodecOf(table));
  });
});

describe('withColumns', () => {
  test('property: only the replaced columns change', () => {
    const change = rowArbitrary.chain((sample) =>
      fc
        .tuple(...sample.columns.map((own) => fc.option(valueFor(own), { nil: undefined })))
        .map((replacements) => ({ sample, replacements })),
    );
    fc.assert(
      fc.property(change, ({ sample, replacements }) => {
        const codec = compileRowCodec(sample.columns);
        const row = modelRow(sample);
        const before = toHex(row);
        const given = replacements.flatMap((value, index) => (value === undefined ? [] : [{ index, value }]));
        const values = sample.values.map((value, i) =>
          replacements[i] === undefined ? value : replacements[i],
        );
        expect(toHex(codec.withColumns(row, given))).toBe(toHex(modelRow({ ...sample, values })));
        expect(toHex(row)).toBe(before);
      }),
    );
  });

  test('NaN bits of an untouched float are kept', () => {
    const codec = compileRowCodec([column('float', 'required'), column('string', 'nullable')]);
    const row = hex('02 efcdab8967f5f0ff');
    expect(toHex(codec.withColumns(row, [{ index: 1, value: 'x' }]))).toBe('00efcdab8967f5f0ff0100000078');
    expect(codec.decode(row)[0]).toBeNaN();
  });

  test('NULL for a column that is not nullable is refused', () => {
    const codec = single('boolean');
    expect(() => codec.withColumns(hex('0001'), [{ index: 0, value: null }])).toThrow(RowEncodeError);
  });
});

describe('encode refuses what has no row form, naming the column and not the value', () => {
  const secret = 'top-secret';
  test.each<[ColumnType, ColumnValue]>([
    ['string', 7],
    ['string', `${secret}\ud800`],
    ['string', `${'x'.repeat(100)}\udc00`],
    ['integer', secret],
    ['integer', 1.5],
    ['integer', 2 ** 53],
    ['integer', Number.NaN],
    ['float', secret],
    ['boolean', 1],
    ['json', 7],
    ['json', secret],
    ['json', '"\ud800"'],
    ['bytes', secret],
    ['blob_ref', secret],
    ['blob_ref', '{}'],
    ['crdt', secret],
    ['string', null],
  ])('%s %o', (type, value) => {
    const codec = compileRowCodec([column('boolean', 'required'), column(type, 'required', 'culprit')]);
    let failure: unknown;
    try {
      codec.encode([true, value]);
    } catch (caught) {
      failure = caught;
    }
    expect(failure).toBeInstanceOf(RowEncodeError);
    expect(failure).toMatchObject({ column: 'culprit', message: expect.stringContaining('culprit') });
    expect(String(failure)).not.toContain(secret);
  });

  test('a row of another length', () => {
    expect(() => single('boolean').encode([])).toThrow(RowEncodeError);
    expect(() => single('boolean').encode([true, true])).toThrow(RowEncodeError);
  });
});

interface RenderedEntry {
  readonly table?: string;
  readonly tableIndex?: number;
  readonly payload?: string;
  readonly row?: string;
  readonly serverRow?: string;
}

interface RenderedMessage {
  readonly frames: readonly {
    readonly tables?: readonly string[];
    readonly operations?: readonly RenderedEntry[];
    readonly changes?: readonly RenderedEntry[];
    readonly results?: readonly RenderedEntry[];
  }[];
}

/** The base64 rows of one table in the rendered request and response vectors. */
function vectorRows(table: string): readonly string[] {
  const messages = [...validCases('request'), ...validCases('response')];
  return messages
    .flatMap(({ rendering }) => (rendering as RenderedMessage).frames)
    .flatMap((frame) => {
      const { tables = [], operations = [], changes = [], results = [] } = frame;
      return [...operations, ...changes, ...results].flatMap((entry) => {
        // Of the vectors only `notes` has conflict results, which do not name their table.
        const own = entry.table ?? (entry.tableIndex === undefined ? 'notes' : tables[entry.tableIndex]);
        return own === table ? [entry.payload ?? entry.row ?? entry.serverRow ?? []].flat() : [];
      });
    });
}

describe('cross-checks of part 1.15: rows of the message vectors decode with the segments’ column tables', () => {
  test.each([
    ['notes', 'rows-two-blocks', 5],
    ['docs', 'crdt-column', 1],
  ])('%s', (table, segment, atLeast) => {
    const { columns, blocks } = decodeSegment(vector('segment', segment));
    const codec = compileRowCodec(columns);
    const known = blocks.flat().map(({ payload }) => toHex(payload));
    const rows = vectorRows(table);
    expect(rows.length).toBeGreaterThanOrEqual(atLeast);
    for (const row of rows) {
      const bytes = Buffer.from(row, 'base64');
      expect(toHex(codec.encode(codec.decode(bytes)))).toBe(toHex(bytes));
      expect(known).toContain(toHex(bytes));
    }
  });
});
