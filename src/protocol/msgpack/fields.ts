/**
 * Records as maps, driven by the frame table: the same fields, the same names, the differences of §5.3. What stands behind
 * `bytes` is a row of the table that the record names.
 */
import { compareUtf16, decodeError, EncodeError } from '../bytes.ts';
import type { Field, Layout } from '../frame-table.ts';
import { isJsonText } from '../json-text.ts';
import { MapEntries } from '../map-entries.ts';
import { isMap, type MsgpackMap, type MsgpackValue } from './value.ts';
import type { MsgpackWriter } from './writer.ts';

/** A frame, operation, change or result record. */
export type Fields = Readonly<Record<string, unknown>>;

/** How rows travel. `owner` is the record that the row stands in. */
export interface RowWriter {
  write(writer: MsgpackWriter, row: Uint8Array, owner: Fields): void;
}

export interface RowReader {
  read(row: MsgpackMap, owner: Fields): Uint8Array;
}

const I32_MAX = 0x7fff_ffff;
/** Bits 0 to 3 as in SSP2, and bit 4, which only this dialect has (§5.3). */
const ACCEPT_MAX = 0b1_1111;

/** Counts the pairs that `writeFields` writes. */
export function countFields(fields: readonly Field[], record: Fields): number {
  let count = 0;
  for (const { name, layout } of fields) {
    const value = record[name];
    if (value === undefined) continue;
    count++;
    if (typeof layout === 'object' && 'choice' in layout) {
      count += countFields(choiceFields(layout.choice, value), record);
    }
  }
  return count;
}

/** Writes the pairs, without the header of their map. Absent fields have no key. */
export function writeFields(
  writer: MsgpackWriter,
  { fields, record, rows }: { fields: readonly Field[]; record: Fields; rows: RowWriter },
): void {
  for (const { name, layout } of fields) {
    const value = record[name];
    if (value === undefined) {
      if (typeof layout === 'object' && 'opt' in layout) continue;
      throw new EncodeError(`${name} is missing`);
    }
    writer.str(name);
    writeLayout(writer, layout, value, { record, rows });
    if (typeof layout === 'object' && 'choice' in layout) {
      writeFields(writer, { fields: choiceFields(layout.choice, value), record, rows });
    }
  }
}

type Choices = Extract<Layout, { readonly choice: unknown }>['choice'];

function choiceFields(choices: Choices, value: unknown): readonly Field[] {
  const chosen = choices.find(([name]) => name === value);
  if (chosen === undefined) throw new EncodeError('an enum value has no name');
  return chosen[1];
}

interface WriteOwner {
  readonly record: Fields;
  readonly rows: RowWriter;
}

function writeLayout(writer: MsgpackWriter, layout: Layout, value: unknown, owner: WriteOwner): void {
  if (typeof layout === 'string') {
    writePrimitive(writer, layout, value, owner);
  } else if ('opt' in layout) {
    writeLayout(writer, layout.opt, value, owner);
  } else if ('list' in layout) {
    const items = value as readonly unknown[];
    writer.array(items.length);
    for (const item of items) writeLayout(writer, layout.list, item, owner);
  } else if ('map' in layout) {
    const map = value as Fields;
    const keys = Object.keys(map).sort(compareUtf16);
    writer.map(keys.length);
    for (const key of keys) {
      writer.str(key);
      writeLayout(writer, layout.map, map[key], owner);
    }
  } else if ('record' in layout) {
    const record = value as Fields;
    writer.map(countFields(layout.record, record));
    writeFields(writer, { fields: layout.record, record, rows: owner.rows });
  } else {
    writer.str(value as string);
  }
}

function writePrimitive(
  writer: MsgpackWriter,
  layout: Extract<Layout, string>,
  value: unknown,
  { record, rows }: WriteOwner,
): void {
  switch (layout) {
    case 'bool':
      writer.bool(value as boolean);
      break;
    case 'str':
    case 'json':
      writer.str(value as string);
      break;
    case 'bytes':
      rows.write(writer, value as Uint8Array, record);
      break;
    case 'rest':
      writer.bin(value as Uint8Array);
      break;
    default:
      writer.int(value as number);
  }
}

interface ReadOwner {
  readonly record: Record<string, unknown>;
  readonly rows: RowReader;
}

/**
 * The record of a map. Keys that no field has are refused, as a frame of SSP2 is never extended in place; `also` names those
 * that the caller reads itself. Throws `sync.invalid_request`.
 */
export function readFields(
  map: MsgpackMap,
  { fields, rows, also = [] }: { fields: readonly Field[]; rows: RowReader; also?: readonly string[] },
): Record<string, unknown> {
  const record: Record<string, unknown> = {};
  const known = new Set(also);
  takeFields(map, { fields, record, rows, known });
  for (const key in map) {
    if (!known.has(key)) throw decodeError('a map has a key that it does not know');
  }
  return record;
}

function takeFields(
  map: MsgpackMap,
  { fields, record, rows, known }: ReadOwner & { fields: readonly Field[]; known: Set<string> },
): void {
  for (const { name, layout } of fields) {
    known.add(name);
    record[name] = readLayout(name, layout, map[name], { record, rows });
    if (typeof layout === 'object' && 'choice' in layout) {
      const chosen = layout.choice.find(([choice]) => choice === record[name]);
      if (chosen !== undefined) takeFields(map, { fields: chosen[1], record, rows, known });
    }
  }
}

function readLayout(
  name: string,
  layout: Layout,
  value: MsgpackValue | undefined,
  owner: ReadOwner,
): unknown {
  if (typeof layout === 'string') return readPrimitive(name, layout, value, owner);
  if ('opt' in layout) {
    return value === undefined || value === null ? undefined : readLayout(name, layout.opt, value, owner);
  }
  if ('list' in layout) {
    if (!Array.isArray(value)) throw wrong(name, 'an array');
    return value.map((item: MsgpackValue) => readLayout(name, layout.list, item, owner));
  }
  if ('map' in layout) {
    if (!isMap(value)) throw wrong(name, 'a map');
    const entries = new MapEntries<unknown>();
    for (const key in value) entries[key] = readLayout(name, layout.map, value[key], owner);
    return entries;
  }
  if ('record' in layout) {
    if (!isMap(value)) throw wrong(name, 'a map');
    return readFields(value, { fields: layout.record, rows: owner.rows });
  }
  const names = 'names' in layout ? layout.names : layout.choice.map(([choice]) => choice);
  if (typeof value !== 'string' || !names.includes(value)) throw wrong(name, `one of ${names.join(', ')}`);
  return value;
}

function readPrimitive(
  name: string,
  layout: Extract<Layout, string>,
  value: MsgpackValue | undefined,
  { record, rows }: ReadOwner,
): unknown {
  switch (layout) {
    case 'bool':
      if (typeof value === 'boolean') return value;
      throw wrong(name, 'a boolean');
    case 'str':
      if (typeof value === 'string') return value;
      throw wrong(name, 'a string');
    case 'json':
      if (typeof value === 'string' && isJsonText(value)) return value;
      throw wrong(name, 'JSON text');
    case 'bytes':
      if (isMap(value)) return rows.read(value, record);
      throw wrong(name, 'a map of columns');
    case 'rest':
      if (value instanceof Uint8Array) return value;
      throw wrong(name, 'bytes');
    default:
      return readInt(name, layout, value);
  }
}

function readInt(
  name: string,
  layout: 'u16' | 'i32' | 'i64' | 'mask4',
  value: MsgpackValue | undefined,
): number {
  if (typeof value !== 'number' || !Number.isSafeInteger(value)) throw wrong(name, 'a safe integer');
  if (layout === 'i32' && (value > I32_MAX || value < -I32_MAX - 1)) throw wrong(name, 'a 32-bit integer');
  if (layout === 'mask4' && (value < 0 || value > ACCEPT_MAX)) throw wrong(name, 'a mask of bits 0 to 4');
  return value;
}

/** `name` is a field of the protocol, never what was sent. */
function wrong(name: string, needed: string): Error {
  return decodeError(`${name} needs ${needed}`);
}
