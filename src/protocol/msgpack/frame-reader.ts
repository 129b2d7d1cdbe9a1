/** Response frames of one response or delta as a client reads them: fields, ties and order as in SSP2 (part 1.3 to 1.5). */
import { decodeError } from '../bytes.ts';
import {
  type CommitFrame,
  FRAME_TYPES,
  type OpResult,
  type PushResultFrame,
  type ResponseFrame,
  type SegmentRefFrame,
} from '../frames.ts';
import { FrameOrder } from '../grammar.ts';
import { detailsEntriesFault, detailsFault } from '../result-details.ts';
import { RowEncodeError, rowCodecOf } from '../row-codec.ts';
import type { CompiledSchema } from '../schema.ts';
import { checkSegment } from '../segment.ts';
import { type Fields, type RowReader, readFields } from './fields.ts';
import { type KnownResponseFrame, MSGPACK_FIELDS, type MsgpackFrame, type RowsFrame } from './frames.ts';
import { encodeRow, valuesOf } from './rows.ts';
import { isMap, type MsgpackMap, type MsgpackValue } from './value.ts';

export interface FrameReaderParts {
  readonly schema: CompiledSchema;
  /** The table of the operation that a conflict refers to; `undefined` when the client no longer knows it. */
  readonly tableOf: (clientCommitId: string, opIndex: number) => string | undefined;
}

/** A type of SSP2 that no wire version knows: stands for every name of the future. */
const UNKNOWN_TYPE = 0xff;
const NO_ROW = new Uint8Array(0);
const NO_ROWS: RowReader = { read: () => NO_ROW };

/** Reads one response, or the frames of one delta. Throws `sync.invalid_request`; nothing is read after that. */
export class MsgpackFrameReader {
  readonly #parts: FrameReaderParts;
  readonly #order = new FrameOrder('response');
  #lastResult: PushResultFrame | null = null;

  constructor(parts: FrameReaderParts) {
    this.#parts = parts;
  }

  /** `END` was read. */
  get ended(): boolean {
    return this.#order.ended;
  }

  /** `null` for a frame of the future, which is skipped where SSP2 skips one. */
  read(value: MsgpackValue): MsgpackFrame | null {
    if (!isMap(value) || typeof value.type !== 'string') throw decodeError('a frame is no map with a type');
    const { type } = value;
    const fault = this.#order.step(typeNumber(type));
    if (fault !== null) throw decodeError(fault);
    if (type === 'END') {
      readFields(value, { fields: [], rows: NO_ROWS, also: ['type'] });
      return { type };
    }
    if (type === 'ROWS') return this.#rows(value);
    return MSGPACK_FIELDS.has(type) ? this.#known(type, value) : null;
  }

  #known(type: string, value: MsgpackMap): KnownResponseFrame {
    const fields = MSGPACK_FIELDS.get(type)!;
    const rows = this.#rowReader(value.clientCommitId);
    const record: Fields = { ...readFields(value, { fields, rows, also: ['type'] }), type };
    if (type === 'COMMIT') return commitOf(record);
    if (type === 'PUSH_RESULT') return this.#resultOf(record as Fields & PushResultFrame);
    const frame = record as Fields & KnownResponseFrame;
    const wrong = this.#fault(frame);
    if (wrong !== null) throw decodeError(wrong);
    return frame;
  }

  #rowReader(clientCommitId: MsgpackValue | undefined): RowReader {
    const { schema, tableOf } = this.#parts;
    return {
      read: (row, owner) => {
        const isNamed = typeof owner.table === 'string';
        const name = isNamed ? owner.table : tableOf(String(clientCommitId), owner.opIndex as number);
        const table = schema.tableByName.get(String(name));
        if (table !== undefined) return inDialect(() => encodeRow(table, row));
        if (isNamed) throw decodeError('a row belongs to no table of the schema');
        return NO_ROW;
      },
    };
  }

  #resultOf(frame: PushResultFrame): PushResultFrame {
    if ((frame.commitSeq !== undefined) !== (frame.status !== 'rejected')) {
      throw decodeError('a push result has a commitSeq exactly when it is not rejected');
    }
    const results = frame.results.map((result): OpResult => {
      if (result.status !== 'conflict') return result;
      const serverRow: Uint8Array | undefined = result.serverRow;
      return serverRow === undefined ? { ...result, serverRow: NO_ROW } : result;
    });
    this.#lastResult = { ...frame, results };
    return this.#lastResult;
  }

  #fault(frame: ResponseFrame): string | null {
    switch (frame.type) {
      case 'PUSH_RESULT_DETAILS':
        return detailsEntriesFault(frame.entries) ?? detailsFault(frame, this.#lastResult!);
      case 'SEGMENT_REF':
        return urlFault(frame);
      case 'SEGMENT_INLINE':
        checkSegment(frame.payload);
        return null;
      default:
        return null;
    }
  }

  #rows(value: MsgpackMap): RowsFrame {
    const { table: name, rows, first } = value;
    readFields(value, { fields: [], rows: NO_ROWS, also: ['type', 'table', 'rows', 'first'] });
    const table = typeof name === 'string' ? this.#parts.schema.tableByName.get(name) : undefined;
    if (table === undefined) throw decodeError('rows belong to no table of the schema');
    if (!Array.isArray(rows) || typeof first !== 'boolean') throw decodeError('a ROWS frame is malformed');
    const codec = rowCodecOf(table);
    const read = rows.map((row: MsgpackValue) => {
      if (!isMap(row) || !isMap(row.values)) throw decodeError('a row is malformed');
      const { serverVersion } = row;
      if (typeof serverVersion !== 'number' || !Number.isSafeInteger(serverVersion) || serverVersion < 1) {
        throw decodeError('a row has no version');
      }
      const values = valuesOf.bind(null, table, row.values);
      // Encoding is what judges types and nullability.
      return { serverVersion, values: inDialect(() => codec.decode(codec.encode(values()))) };
    });
    return { type: 'ROWS', table: table.name, rows: read, first };
  }
}

function typeNumber(type: string): number {
  if (type === 'ROWS') return FRAME_TYPES.SEGMENT_INLINE;
  return Object.hasOwn(FRAME_TYPES, type) ? FRAME_TYPES[type as keyof typeof FRAME_TYPES] : UNKNOWN_TYPE;
}

/** A value that the table cannot hold, from a server: the message is broken. */
function inDialect<T>(encode: () => T): T {
  try {
    return encode();
  } catch (failure) {
    if (failure instanceof RowEncodeError) throw decodeError(failure.message);
    throw failure;
  }
}

/** Back to the dictionary of SSP2, in the order in which tables appear. */
function commitOf(record: Fields): CommitFrame {
  const { commitSeq, createdAtMs, actorId, changes } = record as Fields &
    Pick<CommitFrame, 'commitSeq' | 'createdAtMs' | 'actorId'> & {
      readonly changes: readonly (CommitFrame['changes'][number] & { readonly table: string })[];
    };
  const tables: string[] = [];
  const indexOf = new Map<string, number>();
  const indexed = changes.map(({ table, rowId, op, rowVersion, scopes, row }) => {
    const upsert = op === 'upsert';
    if ((rowVersion !== undefined) !== upsert || (row !== undefined) !== upsert) {
      throw decodeError('a change has rowVersion and row exactly when it is an upsert');
    }
    let tableIndex = indexOf.get(table);
    if (tableIndex === undefined) {
      tableIndex = tables.push(table) - 1;
      indexOf.set(table, tableIndex);
    }
    return { tableIndex, rowId, op, rowVersion, scopes, row };
  });
  return { type: 'COMMIT', commitSeq, createdAtMs, actorId, tables, changes: indexed };
}

function urlFault({ url, urlExpiresAtMs }: SegmentRefFrame): string | null {
  return (url === undefined) === (urlExpiresAtMs === undefined)
    ? null
    : 'url and urlExpiresAtMs do not stand together';
}
