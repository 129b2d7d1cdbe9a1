/**
 * The rows segment "SSG2" (§5.2, part 1.7). Structural faults are `sync.invalid_request`; `sync.schema_mismatch` is
 * the receiver's verdict alone and only `compareColumns` and `matchSegment` speak it.
 */
import { ByteReader, ByteWriter, decodeError } from './bytes.ts';
import { SyncError } from './errors.ts';
import {
  COLUMN_TAGS,
  type CodecColumn,
  columnTypeOfTag,
  compileRowCodec,
  type RowCodec,
} from './row-codec.ts';
import type { ColumnValue, CompiledSchema, CompiledTable } from './schema.ts';

/** `SSG2` as a little-endian u32. */
const MAGIC = 0x32_47_53_53;
const FORMAT_VERSION = 1;
const NULLABLE_FLAG = 0x01;
const SERVER_VERSION_BYTES = 8;
const END_MARKER_BYTES = 4;

export interface SegmentHeader {
  readonly table: string;
  readonly schemaVersion: number;
  readonly columns: readonly CodecColumn[];
}

export interface SegmentRow {
  /** The row's version at the pin; usable as `baseVersion` at once. */
  readonly serverVersion: number;
  readonly values: ColumnValue[];
  /** The row-codec bytes of `values`, a view of the segment. */
  readonly payload: Uint8Array;
}

/** Apply each block in one local transaction (§5.2). */
export type SegmentBlock = readonly SegmentRow[];

export interface DecodedSegment extends SegmentHeader {
  readonly blocks: readonly SegmentBlock[];
}

export interface SegmentReader {
  readonly header: SegmentHeader;
  /** Decodes block by block while it is iterated, once; a structural fault throws when its block is reached. */
  readonly blocks: Iterable<SegmentBlock>;
}

/** Checks the structure of a whole segment, rows included, and keeps nothing of it. */
export function checkSegment(bytes: Uint8Array): void {
  const reader = new ByteReader(bytes);
  const codec = compileRowCodec(readHeader(reader).columns);
  for (;;) {
    const rowCount = reader.u32();
    if (rowCount === 0) break;
    const block = blockReader(reader, rowCount, codec);
    for (let i = 0; i < rowCount; i++) {
      readServerVersion(block);
      codec.validateFrom(block);
    }
    block.expectEnd('a segment block');
  }
  reader.expectEnd('a segment');
}

export function decodeSegment(bytes: Uint8Array): DecodedSegment {
  const { header, blocks } = readSegmentBlocks(bytes);
  return { ...header, blocks: [...blocks] };
}

/** Reads the header at once and each block when asked for it: memory is the header and the current block. */
export function readSegmentBlocks(bytes: Uint8Array): SegmentReader {
  const reader = new ByteReader(bytes);
  const header = readHeader(reader);
  return { header, blocks: decodeBlocks(reader, compileRowCodec(header.columns)) };
}

function* decodeBlocks(reader: ByteReader, codec: RowCodec): Generator<SegmentBlock, void, void> {
  for (;;) {
    const rowCount = reader.u32();
    if (rowCount === 0) break;
    yield decodeBlock(blockReader(reader, rowCount, codec), rowCount, codec);
  }
  reader.expectEnd('a segment');
}

function decodeBlock(block: ByteReader, rowCount: number, codec: RowCodec): SegmentBlock {
  const rows: SegmentRow[] = [];
  for (let i = 0; i < rowCount; i++) {
    const serverVersion = readServerVersion(block);
    const start = block.offset;
    const values = codec.decodeFrom(block);
    rows.push({ serverVersion, values, payload: block.bytes.subarray(start, block.offset) });
  }
  block.expectEnd('a segment block');
  return rows;
}

function readHeader(reader: ByteReader): SegmentHeader {
  if (reader.u32() !== MAGIC) throw decodeError('not a rows segment');
  if (reader.u16() !== FORMAT_VERSION) throw decodeError('unknown segment format version');
  if (reader.u16() !== 0) throw decodeError('a segment flag is set');
  const table = reader.str();
  const schemaVersion = reader.i32();
  const count = reader.u16();
  const columns: CodecColumn[] = [];
  for (let i = 0; i < count; i++) columns.push(readColumn(reader));
  return { table, schemaVersion, columns };
}

function readColumn(reader: ByteReader): CodecColumn {
  const name = reader.str();
  const type = columnTypeOfTag(reader.u8());
  if (type === undefined) throw decodeError('unknown column type tag in a segment');
  const flags = reader.u8();
  if ((flags & ~NULLABLE_FLAG) !== 0) throw decodeError('a reserved column flag is set in a segment');
  return { name, type, nullable: flags === NULLABLE_FLAG };
}

/** Bounds a block and moves `reader` behind it; its declared counts are checked before anything is reserved. */
function blockReader(reader: ByteReader, rowCount: number, codec: RowCodec): ByteReader {
  const byteLength = reader.u32();
  const start = reader.offset;
  if (byteLength > reader.remaining) throw decodeError('a segment block exceeds the segment');
  if (rowCount * (SERVER_VERSION_BYTES + codec.bitmapBytes) > byteLength) {
    throw decodeError('a segment block is too short for its rows');
  }
  reader.offset = start + byteLength;
  return new ByteReader(reader.bytes, start, start + byteLength);
}

function readServerVersion(block: ByteReader): number {
  const version = block.i64();
  if (version < 1) throw decodeError('a server version in a segment is below 1');
  return version;
}

/** The receiver's verdict on a segment it was sent: `sync.schema_mismatch` unless it fits the receiver's schema. */
export function matchSegment(header: SegmentHeader, schema: CompiledSchema): CompiledTable {
  const table = schema.tableByName.get(header.table);
  if (table === undefined) throw mismatch('a segment is for a table that the schema does not have');
  if (header.schemaVersion !== schema.version) throw mismatch('a segment is for another schema version');
  compareColumns(header, table);
  return table;
}

/** Throws `sync.schema_mismatch` unless table name and columns agree in order, names, types and nullability. */
export function compareColumns(header: SegmentHeader, table: CompiledTable): void {
  if (header.table !== table.name) throw mismatch('a segment is for another table');
  const { columns } = table;
  const agrees =
    header.columns.length === columns.length &&
    header.columns.every((column, index) => {
      const own = columns[index]!;
      return column.name === own.name && column.type === own.type && column.nullable === own.nullable;
    });
  if (!agrees) throw mismatch('the columns of a segment differ from the schema');
}

function mismatch(message: string): SyncError {
  return new SyncError('sync.schema_mismatch', message);
}

/** When a block closes: at this many rows or this many bytes, whichever is reached first (§5.2). */
export interface BlockBounds {
  readonly segmentBlockRows: number;
  readonly segmentBlockBytes: number;
}

export interface FinishedSegment {
  /** Owns its buffer, without slack. */
  readonly bytes: Uint8Array;
  readonly rowCount: number;
}

/**
 * Builds one segment out of row-codec bytes, copied verbatim. The same rows and bounds give the same bytes, hence the
 * same segment id (part 1.7 rule 4).
 */
export class SegmentWriter {
  readonly #writer: ByteWriter;
  readonly #blockRowsMax: number;
  readonly #blockBytesMax: number;
  #rowCount = 0;
  /** Position of the open block's `rowCount`; only meaningful while `#blockRows` is above 0. */
  #blockAt = 0;
  #blockRows = 0;

  /** `bounds`: `Limits` is one. */
  constructor(header: SegmentHeader, bounds: BlockBounds, capacityBytes = 64 * 1024) {
    this.#blockRowsMax = bounds.segmentBlockRows;
    this.#blockBytesMax = bounds.segmentBlockBytes;
    this.#writer = new ByteWriter(capacityBytes);
    writeHeader(this.#writer, header);
  }

  get rowCount(): number {
    return this.#rowCount;
  }

  /** Length of the segment if it were finished now. */
  get byteLength(): number {
    return this.#writer.length + END_MARKER_BYTES;
  }

  /** Copies `payload`, trusted row-codec bytes of the header's columns. `RangeError` for a version below 1. */
  addRow(serverVersion: number, payload: Uint8Array): void {
    if (!(serverVersion >= 1)) throw new RangeError('a server version must be at least 1');
    const writer = this.#writer;
    if (this.#blockRows === 0) {
      this.#blockAt = writer.holeU32();
      writer.holeU32();
    }
    writer.i64(serverVersion);
    writer.raw(payload);
    this.#rowCount++;
    this.#blockRows++;
    const blockBytes = writer.length - this.#blockAt - 8;
    if (this.#blockRows >= this.#blockRowsMax || blockBytes >= this.#blockBytesMax) this.closeBlock();
  }

  /** Ends the open block, if any, before its bounds are reached. */
  closeBlock(): void {
    if (this.#blockRows === 0) return;
    this.#writer.patchU32(this.#blockAt, this.#blockRows);
    this.#writer.patchU32(this.#blockAt + 4, this.#writer.length - this.#blockAt - 8);
    this.#blockRows = 0;
  }

  /** The writer must not be used afterwards. */
  finish(): FinishedSegment {
    this.closeBlock();
    this.#writer.u32(0);
    return { bytes: this.#writer.finish().slice(), rowCount: this.#rowCount };
  }
}

function writeHeader(writer: ByteWriter, header: SegmentHeader): void {
  writer.u32(MAGIC);
  writer.u16(FORMAT_VERSION);
  writer.u16(0);
  writer.str(header.table);
  writer.i32(header.schemaVersion);
  writer.u16(header.columns.length);
  for (const column of header.columns) {
    writer.str(column.name);
    writer.u8(COLUMN_TAGS[column.type]);
    writer.u8(column.nullable ? NULLABLE_FLAG : 0);
  }
}
