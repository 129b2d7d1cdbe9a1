/** Debug rendering of messages (§11.1, part 1.13), for tools and vectors; nothing in production parses it. */
import { toBase64 } from './base64.ts';
import { decodeError, EncodeError } from './bytes.ts';
import type { JsonObject, JsonValue } from './errors.ts';
import { MAGIC } from './frame-codecs.ts';
import { type Field, FRAME_TABLE, type Layout } from './frame-table.ts';
import type { Frame, SyncMessage } from './frames.ts';
import { type DecodeOptions, decodeMessage } from './message.ts';
import { renderSegment } from './segment-render.ts';

const SEGMENT_MAGIC: readonly number[] = [0x53, 0x53, 0x47, 0x32];
const FIELDS: ReadonlyMap<string, readonly Field[]> = new Map(
  FRAME_TABLE.map((spec) => [spec.name, spec.fields]),
);

/** Renders whatever the magic says. Throws `sync.invalid_request` for bytes that are neither message nor segment. */
export function renderAny(bytes: Uint8Array, options: DecodeOptions = {}): JsonObject {
  if (startsWith(bytes, SEGMENT_MAGIC)) return renderSegment(bytes);
  if (startsWith(bytes, MAGIC)) return renderMessage(decodeMessage(bytes, options));
  throw decodeError('neither a message nor a segment');
}

export function renderMessage({ kind, wireVersion, frames }: SyncMessage): JsonObject {
  return { magic: 'SSP2', wireVersion, msgKind: kind, frames: frames.map(renderFrame) };
}

export function renderFrame(frame: Frame): JsonObject {
  if (frame.type === 'UNKNOWN') {
    return { type: frame.type, frameType: frame.frameType, payload: toBase64(frame.payload) };
  }
  const fields = FIELDS.get(frame.type);
  if (fields === undefined) throw new EncodeError('a frame has a type without a layout');
  return { type: frame.type, ...renderFields(fields, frame) };
}

/** Absent fields are left out, never `null` (rule 3). */
function renderFields(fields: readonly Field[], record: object): JsonObject {
  const values = record as Readonly<Record<string, unknown>>;
  const rendered: [string, JsonValue][] = [];
  for (const { name, layout } of fields) {
    const value = values[name];
    if (value !== undefined) rendered.push([name, renderValue(layout, value)]);
    if (typeof layout === 'object' && 'choice' in layout) {
      const chosen = layout.choice.find(([choice]) => choice === value);
      if (chosen !== undefined) rendered.push(...Object.entries(renderFields(chosen[1], record)));
    }
  }
  return Object.fromEntries(rendered);
}

function renderValue(layout: Layout, value: unknown): JsonValue {
  if (typeof layout === 'object') {
    if ('opt' in layout) return renderValue(layout.opt, value);
    if ('record' in layout) return renderFields(layout.record, value as object);
    if ('list' in layout) return (value as readonly unknown[]).map((item) => renderValue(layout.list, item));
    if ('map' in layout) {
      // `fromEntries` defines own properties, so that a key named `__proto__` is one as well.
      const entries = Object.entries(value as object);
      return Object.fromEntries(entries.map(([key, item]) => [key, renderValue(layout.map, item)]));
    }
    return value as string;
  }
  if (layout === 'bytes' || layout === 'rest') return toBase64(value as Uint8Array);
  if (layout === 'json') return JSON.parse(value as string) as JsonValue;
  return value as JsonValue;
}

function startsWith(bytes: Uint8Array, magic: readonly number[]): boolean {
  return magic.every((byte, i) => bytes[i] === byte);
}
