/** Frame payloads by hand, field by field, and what the decoder says of them. */
import { expect } from 'vitest';
import { ByteReader, ByteWriter } from '../../src/protocol/bytes.ts';
import { decodePayload } from '../../src/protocol/frame-codecs.ts';
import { FRAME_TYPES, type Frame, type WireVersion } from '../../src/protocol/frames.ts';
import { codeOf, INVALID } from './faults.ts';

export type FrameName = keyof typeof FRAME_TYPES;
export type Write = (writer: ByteWriter) => void;

export function bytes(...writes: readonly Write[]): Uint8Array {
  const writer = new ByteWriter();
  for (const write of writes) write(writer);
  return writer.finish();
}

export const s =
  (text: string): Write =>
  (writer) =>
    writer.str(text);
export const u8 =
  (value: number): Write =>
  (writer) =>
    writer.u8(value);
export const u16 =
  (value: number): Write =>
  (writer) =>
    writer.u16(value);
export const u32 =
  (value: number): Write =>
  (writer) =>
    writer.u32(value);
export const i32 =
  (value: number): Write =>
  (writer) =>
    writer.i32(value);
export const i64 =
  (value: number): Write =>
  (writer) =>
    writer.i64(value);
export const b =
  (...values: readonly number[]): Write =>
  (writer) =>
    writer.blob(Uint8Array.from(values));

export function decode(name: FrameName, payload: Uint8Array, wireVersion: WireVersion = 1): Frame {
  const reader = new ByteReader(payload);
  return decodePayload(reader, wireVersion, { type: FRAME_TYPES[name], length: payload.length });
}

export function judge(name: FrameName, writes: readonly Write[], wireVersion: WireVersion = 1): string {
  return codeOf(() => decode(name, bytes(...writes), wireVersion));
}

/** All 256 values of one byte: exactly `legal` decode. */
export function sweep(legal: readonly number[], code: (byte: number) => string): void {
  for (let byte = 0; byte < 256; byte++) {
    expect(code(byte), `byte ${byte}`).toBe(legal.includes(byte) ? 'none' : INVALID);
  }
}
