/** A second encoder, driven by the layout table alone and sharing no code with the codecs by hand. */
import { type Field, FRAME_TABLE, type Layout } from '../../src/protocol/frame-table.ts';
import type { Frame, WireVersion } from '../../src/protocol/frames.ts';

type Values = Readonly<Record<string, unknown>>;

export function encodeByTable(frame: Frame, wireVersion: WireVersion): Uint8Array {
  if (frame.type === 'UNKNOWN') return framed(frame.frameType, Buffer.from(frame.payload));
  const spec = FRAME_TABLE.find((candidate) => candidate.name === frame.type)!;
  return framed(spec.type, fieldsBytes(spec.fields, frame, wireVersion));
}

function framed(type: number, payload: Buffer): Uint8Array {
  return new Uint8Array(Buffer.concat([Buffer.of(type), u32(payload.length), payload]));
}

function fieldsBytes(fields: readonly Field[], record: object, wireVersion: WireVersion): Buffer {
  const values = record as Values;
  const parts: Buffer[] = [];
  for (const { name, layout, since } of fields) {
    if (since !== undefined && since > wireVersion) continue;
    parts.push(valueBytes(layout, values[name], wireVersion));
    if (typeof layout !== 'object' || !('choice' in layout)) continue;
    const chosen = layout.choice.find(([choice]) => choice === values[name])!;
    parts.push(fieldsBytes(chosen[1], values, wireVersion));
  }
  return Buffer.concat(parts);
}

function valueBytes(layout: Layout, value: unknown, wireVersion: WireVersion): Buffer {
  if (typeof layout !== 'object') return primitiveBytes(layout, value);
  if ('names' in layout) return Buffer.of(1 + layout.names.indexOf(value as string));
  if ('choice' in layout) return Buffer.of(1 + layout.choice.findIndex(([name]) => name === value));
  if ('record' in layout) return fieldsBytes(layout.record, value as object, wireVersion);
  if ('opt' in layout) {
    if (value === undefined) return Buffer.of(0);
    return Buffer.concat([Buffer.of(1), valueBytes(layout.opt, value, wireVersion)]);
  }
  if ('list' in layout) {
    const items = (value as readonly unknown[]).map((item) => valueBytes(layout.list, item, wireVersion));
    return Buffer.concat([u32(items.length), ...items]);
  }
  const map = value as Values;
  const keys = Object.keys(map).sort();
  const pairs = keys.flatMap((key) => [str(key), valueBytes(layout.map, map[key], wireVersion)]);
  return Buffer.concat([u32(keys.length), ...pairs]);
}

function primitiveBytes(layout: Exclude<Layout, object>, value: unknown): Buffer {
  const out = Buffer.alloc(8);
  switch (layout) {
    case 'bool':
      return Buffer.of(value === true ? 1 : 0);
    case 'mask4':
      return Buffer.of(value as number);
    case 'u16':
      return out.subarray(0, out.writeUInt16LE(value as number));
    case 'i32':
      return out.subarray(0, out.writeInt32LE(value as number));
    case 'i64':
      return out.subarray(0, out.writeBigInt64LE(BigInt(value as number)));
    case 'rest':
      return Buffer.from(value as Uint8Array);
    case 'bytes':
      return Buffer.concat([u32((value as Uint8Array).length), value as Uint8Array]);
    case 'str':
    case 'json':
      return str(value as string);
  }
}

function str(text: string): Buffer {
  const bytes = Buffer.from(text, 'utf8');
  return Buffer.concat([u32(bytes.length), bytes]);
}

function u32(value: number): Buffer {
  const out = Buffer.alloc(4);
  out.writeUInt32LE(value);
  return out;
}
