/** The rows segment (§5.2, part 1.7, the segment line of part 1.15) and its rendering (part 1.13). */
import { createHash } from 'node:crypto';
import { isDeepStrictEqual } from 'node:util';
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import { DEFAULT_LIMITS } from '../../src/protocol/limits.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import {
  checkSegment,
  compareColumns,
  type DecodedSegment,
  decodeSegment,
  matchSegment,
  readSegmentBlocks,
  SegmentWriter,
} from '../../src/protocol/segment.ts';
import { renderSegment } from '../../src/protocol/segment-render.ts';
import { codeOf } from './faults.ts';
import { columnsArbitrary, modelRow, plain, valueFor } from './row-arbitraries.ts';
import { invalidCases, validCases, vector, vectorText } from './vectors.ts';

const toHex = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const UNBOUNDED = { segmentBlockRows: 2 ** 31, segmentBlockBytes: 2 ** 31 };

/** Writes a decoded segment again, closing blocks where it did. */
function rewrite(segment: DecodedSegment): Uint8Array {
  const writer = new SegmentWriter(segment, UNBOUNDED);
  for (const block of segment.blocks) {
    for (const { serverVersion, payload } of block) writer.addRow(serverVersion, payload);
    writer.closeBlock();
  }
  return writer.finish().bytes;
}

function allReaders(bytes: Uint8Array): readonly (() => unknown)[] {
  return [() => checkSegment(bytes), () => decodeSegment(bytes), () => renderSegment(bytes)];
}

describe('golden segments', () => {
  test.each(validCases('segment'))('$name decodes, renders and encodes back', ({ bytes, rendering }) => {
    checkSegment(bytes);
    expect(renderSegment(bytes)).toEqual(rendering);
    expect(toHex(rewrite(decodeSegment(bytes)))).toBe(toHex(bytes));
  });

  test.each(validCases('segment'))('$name: every strict prefix and one byte more is refused', ({ bytes }) => {
    const inputs = [...bytes.keys()].map((length) => bytes.subarray(0, length));
    for (const input of [...inputs, Buffer.concat([bytes, Buffer.from([0])])]) {
      for (const read of allReaders(input)) expect(codeOf(read)).toBe('sync.invalid_request');
    }
  });

  test.each(invalidCases('segment'))('invalid: $name', ({ bytes, error }) => {
    for (const read of allReaders(bytes)) expect(codeOf(read)).toBe(error);
  });

  test('SegmentWriter closes blocks at the row bound and gives the golden bytes', () => {
    const bytes = vector('segment', 'rows-two-blocks');
    const segment = decodeSegment(bytes);
    const writer = new SegmentWriter(segment, { segmentBlockRows: 2, segmentBlockBytes: 2 ** 20 });
    for (const { serverVersion, payload } of segment.blocks.flat()) writer.addRow(serverVersion, payload);
    expect(writer.byteLength).toBe(bytes.length);
    const finished = writer.finish();
    expect(toHex(finished.bytes)).toBe(toHex(bytes));
    expect(finished.rowCount).toBe(3);
    expect(finished.bytes.buffer.byteLength).toBe(bytes.length);
  });

  test('part 1.15: the second descriptor of bootstrap-segments is the inline segment’s hash and length', () => {
    const { frames } = JSON.parse(vectorText('response', 'bootstrap-segments.json'));
    const [, descriptor] = frames.filter(({ type }: { type: string }) => type === 'SEGMENT_REF');
    const { payload } = frames.find(({ type }: { type: string }) => type === 'SEGMENT_INLINE');
    const bytes = Buffer.from(payload, 'base64');
    checkSegment(bytes);
    expect(descriptor.segmentId).toBe(`sha256:${createHash('sha256').update(bytes).digest('hex')}`);
    expect([descriptor.byteLength, bytes.length]).toEqual([171, 171]);
    expect(decodeSegment(bytes).blocks.flat()).toHaveLength(descriptor.rowCount);
  });
});

/** Bytes of the example in part 1.7 with a legal version, as named parts that a test can replace. */
const PARTS = {
  magic: '53534732',
  formatVersion: '0100',
  flags: '0000',
  table: '050000006e6f746573',
  schemaVersion: '01000000',
  columnCount: '0100',
  columnName: '020000006964',
  columnType: '01',
  columnFlags: '00',
  rowCount: '01000000',
  byteLength: '10000000',
  serverVersion: '0100000000000000',
  bitmap: '00',
  value: '030000006e2d31',
  end: '00000000',
  tail: '',
};

function segmentOf(changes: Partial<typeof PARTS>): Buffer {
  return Buffer.from(Object.values({ ...PARTS, ...changes }).join(''), 'hex');
}

describe('structural faults (part 1.7 rule 1): always sync.invalid_request, never sync.schema_mismatch', () => {
  test('the example without a fault passes', () => {
    checkSegment(segmentOf({}));
  });

  test.each<[string, Partial<typeof PARTS>]>([
    ['magic', { magic: '53535032' }],
    ['formatVersion 0', { formatVersion: '0000' }],
    ['formatVersion 2', { formatVersion: '0200' }],
    ['flags', { flags: '0100' }],
    ['table not UTF-8', { table: '01000000ff' }],
    ['column count beyond the bytes', { columnCount: 'ffff' }],
    ['tag 0', { columnType: '00' }],
    ['tag 9', { columnType: '09' }],
    ['tag 255', { columnType: 'ff' }],
    ['reserved column flag 1', { columnFlags: '02' }],
    ['reserved column flag 7', { columnFlags: '81' }],
    ['byteLength one short', { byteLength: '0f000000' }],
    ['byteLength one long', { byteLength: '11000000', tail: '00' }],
    ['byteLength huge', { byteLength: 'ffffffff' }],
    ['rowCount beyond the block', { rowCount: '02000000' }],
    ['rowCount huge', { rowCount: 'ffffffff' }],
    ['a row more than counted', { byteLength: '20000000', value: `${PARTS.value}${'00'.repeat(16)}` }],
    ['serverVersion 0', { serverVersion: '0000000000000000' }],
    ['serverVersion -1', { serverVersion: 'ffffffffffffffff' }],
    ['serverVersion 2^53', { serverVersion: '0000000000002000' }],
    ['NULL bit on a required column', { bitmap: '01', value: '', byteLength: '09000000' }],
    ['padding bit', { bitmap: '02' }],
    ['row value not UTF-8', { value: '030000006e2dff' }],
    ['value length beyond the block', { value: 'ff0000006e2d31' }],
    ['no end', { end: '' }],
    ['cut end', { end: '000000' }],
    ['bytes after the end', { tail: '00' }],
    ['byteLength behind the end', { tail: '00000000' }],
  ])('%s', (_fault, changes) => {
    for (const read of allReaders(segmentOf(changes))) expect(codeOf(read)).toBe('sync.invalid_request');
  });

  test.each<[string, Partial<typeof PARTS>]>([
    ['an empty segment', { rowCount: '', byteLength: '', serverVersion: '', bitmap: '', value: '' }],
    [
      'no columns',
      {
        columnCount: '0000',
        columnName: '',
        columnType: '',
        columnFlags: '',
        bitmap: '',
        value: '',
        byteLength: '08000000',
      },
    ],
    ['an empty table name and schemaVersion 0', { table: '00000000', schemaVersion: '00000000' }],
  ])('W-n, nothing forbids %s', (_case, changes) => {
    checkSegment(segmentOf(changes));
    expect(toHex(rewrite(decodeSegment(segmentOf(changes))))).toBe(toHex(segmentOf(changes)));
  });
});

describe('readSegmentBlocks', () => {
  test('§5.2: a block is decoded when it is asked for; a later fault does not spoil the blocks before it', () => {
    const bytes = vector('segment', 'rows-two-blocks');
    bytes[bytes.length - 1] = 1;
    const { header, blocks } = readSegmentBlocks(bytes);
    expect(header.table).toBe('notes');
    const iterator = blocks[Symbol.iterator]();
    expect(iterator.next().value).toHaveLength(2);
    expect(iterator.next().value).toHaveLength(1);
    expect(codeOf(() => iterator.next())).toBe('sync.invalid_request');
  });
});

describe('SegmentWriter', () => {
  const header = decodeSegment(segmentOf({}));
  const row = Buffer.from(`${PARTS.bitmap}${PARTS.value}`, 'hex');

  function blockSizes(rows: number, bounds: ConstructorParameters<typeof SegmentWriter>[1]): number[] {
    const writer = new SegmentWriter(header, bounds);
    for (let i = 1; i <= rows; i++) writer.addRow(i, row);
    return decodeSegment(writer.finish().bytes).blocks.map((block) => block.length);
  }

  test('blocks close at the row bound or the byte bound, whichever is reached first', () => {
    expect(blockSizes(5, { segmentBlockRows: 2, segmentBlockBytes: 1_000 })).toEqual([2, 2, 1]);
    expect(blockSizes(5, { segmentBlockRows: 100, segmentBlockBytes: 33 })).toEqual([3, 2]);
    expect(blockSizes(4, { segmentBlockRows: 100, segmentBlockBytes: 32 })).toEqual([2, 2]);
    expect(blockSizes(2_500, DEFAULT_LIMITS)).toEqual([1_000, 1_000, 500]);
    expect(blockSizes(0, DEFAULT_LIMITS)).toEqual([]);
  });

  test('byteLength and rowCount tell what finish will give', () => {
    const writer = new SegmentWriter(header, { segmentBlockRows: 3, segmentBlockBytes: 1_000 });
    for (let i = 1; i <= 10; i++) writer.addRow(i, row);
    const told = { length: writer.byteLength, rowCount: writer.rowCount };
    const { bytes, rowCount } = writer.finish();
    expect({ length: bytes.length, rowCount }).toEqual(told);
  });

  test.each([0, -1, Number.NaN, 1.5, 2 ** 53])('serverVersion %d is refused', (version) => {
    expect(() => new SegmentWriter(header, DEFAULT_LIMITS).addRow(version, row)).toThrow(RangeError);
  });

  test('property: rows in, the same rows out, in blocks within their bounds', () => {
    const sample = columnsArbitrary.chain((columns) =>
      fc.record({
        columns: fc.constant(columns),
        rows: fc.array(
          fc.record({ version: fc.integer({ min: 1 }), values: fc.tuple(...columns.map(valueFor)) }),
        ),
        segmentBlockRows: fc.integer({ min: 1, max: 5 }),
        segmentBlockBytes: fc.integer({ min: 1, max: 200 }),
      }),
    );
    fc.assert(
      fc.property(sample, ({ columns, rows, ...bounds }) => {
        const writer = new SegmentWriter({ table: 't', schemaVersion: 3, columns }, bounds, 1);
        for (const { version, values } of rows) writer.addRow(version, modelRow({ columns, values }));
        const { bytes } = writer.finish();
        checkSegment(bytes);
        const decoded = decodeSegment(bytes);
        expect(decoded).toMatchObject({ table: 't', schemaVersion: 3, columns });
        expect(
          decoded.blocks.flat().map(({ serverVersion, values }) => [serverVersion, plain(values)]),
        ).toEqual(rows.map(({ version, values }) => [version, values]));
        for (const block of decoded.blocks) expect(block.length).toBeLessThanOrEqual(bounds.segmentBlockRows);
        expect(toHex(rewrite(decoded))).toBe(toHex(bytes));
      }),
    );
  });
});

describe('the receiver’s verdict (part 1.7 rule 2)', () => {
  const schema = compileSchema({
    version: 1,
    tables: [
      {
        name: 'notes',
        columns: [
          { name: 'id', type: 'string' },
          { name: 'body', type: 'string', nullable: true },
        ],
        primaryKey: 'id',
        scopes: ['note:{id}'],
      },
    ],
  });
  const notes = schema.tableByName.get('notes')!;
  const header = { table: 'notes', schemaVersion: 1, columns: notes.columns };
  const [id, body] = notes.columns as readonly [(typeof notes.columns)[0], (typeof notes.columns)[0]];

  test('the own schema fits', () => {
    compareColumns(header, notes);
    expect(matchSegment(header, schema)).toBe(notes);
  });

  test.each([
    ['order', [body, id]],
    ['name', [id, { ...body, name: 'text' }]],
    ['type', [id, { ...body, type: 'json' as const }]],
    ['nullability', [id, { ...body, nullable: false }]],
    ['a column missing', [id]],
    ['a column more', [id, body, { ...body, name: 'more' }]],
  ])('%s differs: sync.schema_mismatch', (_case, columns) => {
    expect(codeOf(() => compareColumns({ ...header, columns }, notes))).toBe('sync.schema_mismatch');
    expect(codeOf(() => matchSegment({ ...header, columns }, schema))).toBe('sync.schema_mismatch');
  });

  test('another table or schema version: sync.schema_mismatch', () => {
    expect(codeOf(() => compareColumns({ ...header, table: 'tasks' }, notes))).toBe('sync.schema_mismatch');
    expect(codeOf(() => matchSegment({ ...header, table: 'tasks' }, schema))).toBe('sync.schema_mismatch');
    expect(codeOf(() => matchSegment({ ...header, schemaVersion: 2 }, schema))).toBe('sync.schema_mismatch');
  });
});

describe('rendering (part 1.13 rules 9 and 10)', () => {
  test('non-finite floats are null, W-h: blob_ref is parsed, a column named __proto__ is a member', () => {
    const ref = { blobId: `sha256:${'00'.repeat(32)}`, byteLength: 1 };
    const columns = [
      { name: '__proto__', type: 'string' as const, nullable: false },
      { name: 'ref', type: 'blob_ref' as const, nullable: false },
      { name: 'nan', type: 'float' as const, nullable: false },
      { name: 'inf', type: 'float' as const, nullable: false },
      { name: 'raw', type: 'bytes' as const, nullable: false },
    ];
    const raw = new Uint8Array(300_000).map((_, i) => i);
    const values = ['p', JSON.stringify(ref), Number.NaN, Number.POSITIVE_INFINITY, raw];
    const writer = new SegmentWriter({ table: 't', schemaVersion: 1, columns }, DEFAULT_LIMITS);
    writer.addRow(1, modelRow({ columns, values }));
    const rendered = Object.fromEntries([
      ['__proto__', 'p'],
      ['ref', ref],
      ['nan', null],
      ['inf', null],
      ['raw', Buffer.from(raw).toString('base64')],
    ]);
    expect(Object.hasOwn(rendered, '__proto__')).toBe(true);
    expect(renderSegment(writer.finish().bytes)).toMatchObject({
      blocks: [[{ serverVersion: 1, values: expect.toSatisfy((own) => isDeepStrictEqual(own, rendered)) }]],
    });
  });
});
