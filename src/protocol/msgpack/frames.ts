/** Response frames as maps (§5.3), both ways. */
import { EncodeError } from '../bytes.ts';
import { SyncError } from '../errors.ts';
import { type Field, FRAME_TABLE, type Layout } from '../frame-table.ts';
import type { CommitFrame, OpResult, PushResultFrame, ResponseFrame } from '../frames.ts';
import { rowCodecOf } from '../row-codec.ts';
import type { ColumnValue, CompiledSchema } from '../schema.ts';
import type { SegmentBlock } from '../segment.ts';
import { countFields, type Fields, type RowWriter, writeFields } from './fields.ts';
import { type NamedColumns, writeRow, writeValues } from './rows.ts';
import type { MsgpackWriter } from './writer.ts';

export type KnownResponseFrame = Exclude<ResponseFrame, { readonly type: 'UNKNOWN' }>;

/** A block of a rows segment, for clients without a segment decoder (`accept` bit 4). */
export interface RowsFrame {
  readonly type: 'ROWS';
  readonly table: string;
  readonly rows: readonly { readonly serverVersion: number; readonly values: readonly ColumnValue[] }[];
  /** The client clears its rows of the scope before it applies this frame (part 2.8, §5.6). */
  readonly first: boolean;
}

export type MsgpackFrame = KnownResponseFrame | RowsFrame | { readonly type: 'END' };

/**
 * The fields of each frame in this dialect. A change names its table instead of counting in a dictionary, and the row of a
 * conflict may be absent.
 */
export const MSGPACK_FIELDS: ReadonlyMap<string, readonly Field[]> = new Map(
  FRAME_TABLE.map(({ name, fields }) => [
    name,
    name === 'COMMIT' ? commitFields(fields) : optionalRows(fields),
  ]),
);

function optionalRows(fields: readonly Field[]): readonly Field[] {
  return fields.map((field) =>
    field.name === 'results' ? { ...field, layout: optionalRow(field.layout) } : field,
  );
}

function optionalRow(layout: Layout): Layout {
  if (typeof layout === 'string') return layout;
  if ('list' in layout) return { list: optionalRow(layout.list) };
  if ('record' in layout) {
    return { record: layout.record.map((field) => ({ ...field, layout: optionalRow(field.layout) })) };
  }
  if (!('choice' in layout)) return layout;
  const choice = layout.choice.map(([name, fields]) => {
    const optional = fields.map(
      (field): Field => (field.layout === 'bytes' ? { ...field, layout: { opt: 'bytes' } } : field),
    );
    return [name, optional] as const;
  });
  return { choice };
}

function commitFields(fields: readonly Field[]): readonly Field[] {
  return fields
    .filter(({ name }) => name !== 'tables')
    .map((field) => (field.name === 'changes' ? { ...field, layout: namedTables(field.layout) } : field));
}

function namedTables(changes: Layout): Layout {
  const list = (changes as Extract<Layout, { readonly list: Layout }>).list;
  const { record } = list as Extract<Layout, { readonly record: readonly Field[] }>;
  const table: Field = { name: 'table', layout: 'str' };
  return { list: { record: [table, ...record.filter(({ name }) => name !== 'tableIndex')] } };
}

/** The table of an operation that a result refers to, if the request had it. */
export type TableOfResult = (result: PushResultFrame, opIndex: number) => string | undefined;

function rowWriter(schema: CompiledSchema): RowWriter {
  return {
    write: (writer, row, owner) => {
      const table = schema.tableByName.get(owner.table as string);
      if (table === undefined) throw new EncodeError('a row belongs to no table of the schema');
      writeRow(writer, table, row);
    },
  };
}

/** Writes frames of one schema version. Throws `EncodeError`, or `sync.invalid_request` for a row that is none. */
export class MsgpackFrameWriter {
  readonly #schema: CompiledSchema;
  readonly #rows: RowWriter;

  constructor(schema: CompiledSchema) {
    this.#schema = schema;
    this.#rows = rowWriter(schema);
  }

  frame(writer: MsgpackWriter, frame: KnownResponseFrame, tableOf: TableOfResult): void {
    const fields = MSGPACK_FIELDS.get(frame.type)!;
    const record = this.#recordOf(frame, tableOf);
    writer.map(1 + countFields(fields, record));
    writer.str('type');
    writer.str(frame.type);
    writeFields(writer, { fields, record, rows: this.#rows });
  }

  #recordOf(frame: KnownResponseFrame, tableOf: TableOfResult): Fields {
    if (frame.type === 'COMMIT') return namedChanges(frame);
    if (frame.type !== 'PUSH_RESULT') return { ...frame };
    const results = frame.results.map((result) => this.#shownResult(result, frame, tableOf));
    return { ...frame, results };
  }

  /** A row of another time or table, kept with a stored result, cannot be shown by name: its key stays away. */
  #shownResult(result: OpResult, frame: PushResultFrame, tableOf: TableOfResult): Fields {
    if (result.status !== 'conflict') return { ...result };
    const table = this.#schema.tableByName.get(tableOf(frame, result.opIndex) ?? '');
    const isShown = table !== undefined && isRowOf(table, result.serverRow);
    return { ...result, table: table?.name, serverRow: isShown ? result.serverRow : undefined };
  }
}

function isRowOf(table: NamedColumns & { readonly name: string }, row: Uint8Array): boolean {
  try {
    rowCodecOf(table).validate(row);
    return true;
  } catch (failure) {
    if (failure instanceof SyncError) return false;
    throw failure;
  }
}

function namedChanges(frame: CommitFrame): Fields {
  const { type, commitSeq, createdAtMs, actorId, tables } = frame;
  const changes = frame.changes.map((change) => ({ ...change, table: tables[change.tableIndex] }));
  return { type, commitSeq, createdAtMs, actorId, changes };
}

/** `first` as in `RowsFrame`. */
export function writeRowsFrame(
  writer: MsgpackWriter,
  { table, columns, block, first }: NamedColumns & { table: string; block: SegmentBlock; first: boolean },
): void {
  writer.map(4);
  writer.str('type');
  writer.str('ROWS');
  writer.str('table');
  writer.str(table);
  writer.str('rows');
  writer.array(block.length);
  for (const { serverVersion, values } of block) {
    writer.map(2);
    writer.str('serverVersion');
    writer.int(serverVersion);
    writer.str('values');
    writeValues(writer, { columns }, values);
  }
  writer.str('first');
  writer.bool(first);
}
