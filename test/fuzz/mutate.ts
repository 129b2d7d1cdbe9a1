/** Damage: blind to what the bytes mean, and along the frames, so that faults lie deep as well. */
import { concat } from '../protocol/bytes-of.ts';
import type { Prng } from './prng.ts';

const ENVELOPE_BYTES = 8;
const FRAME_HEADER_BYTES = 5;
const LENGTHS = [
  0, 1, 2, 3, 4, 8, 127, 128, 255, 256, 65_535, 0x7fff_ffff, 0x8000_0000, 0xffff_fffe, 0xffff_ffff,
];
const BYTES = [0, 1, 2, 3, 4, 5, 0x10, 0x13, 0x1a, 0x1b, 0x1f, 0x20, 0x7f, 0x80, 0xc0, 0xed, 0xf4, 0xff];

type Mutation = (bytes: Uint8Array, prng: Prng) => Uint8Array;

function changed(bytes: Uint8Array, change: (copy: Uint8Array) => void): Uint8Array {
  const copy = bytes.slice();
  change(copy);
  return copy;
}

function spliced(
  bytes: Uint8Array,
  at: number,
  { remove, insert }: { remove: number; insert: Uint8Array },
): Uint8Array {
  return concat(bytes.subarray(0, at), insert, bytes.subarray(at + remove));
}

function randomBytes(prng: Prng, length: number): Uint8Array {
  return Uint8Array.from({ length }, () => prng.below(256));
}

const NONE = new Uint8Array(0);

const BLIND: readonly Mutation[] = [
  (bytes, prng) =>
    changed(bytes, (copy) => {
      copy[prng.below(copy.length)]! ^= 1 << prng.below(8);
    }),
  (bytes, prng) =>
    changed(bytes, (copy) => {
      copy[prng.below(copy.length)] = prng.pick(BYTES);
    }),
  (bytes, prng) => spliced(bytes, prng.below(bytes.length), { remove: 1 + prng.below(8), insert: NONE }),
  (bytes, prng) =>
    spliced(bytes, prng.below(bytes.length), { remove: 0, insert: randomBytes(prng, 1 + prng.below(8)) }),
  (bytes, prng) => bytes.slice(0, prng.below(bytes.length)),
  (bytes, prng) => {
    const from = prng.below(bytes.length);
    const piece = bytes.slice(from, from + 1 + prng.below(64));
    return spliced(bytes, prng.below(bytes.length), { remove: 0, insert: piece });
  },
  (bytes, prng) => withU32(bytes, prng.below(Math.max(1, bytes.length - 3)), prng.pick(LENGTHS)),
  (bytes, prng) => withU32(bytes, prng.below(Math.max(1, bytes.length - 3)), prng.u32()),
];

function withU32(bytes: Uint8Array, at: number, value: number): Uint8Array {
  if (bytes.length < at + 4) return bytes;
  return changed(bytes, (copy) => new DataView(copy.buffer).setUint32(at, value, true));
}

/** Some damage anywhere. */
export function mutateBytes(bytes: Uint8Array, prng: Prng): Uint8Array {
  let result = bytes;
  for (let times = 1 + prng.below(3); times > 0; times--) result = prng.pick(BLIND)(result, prng);
  return result;
}

/** The message cut into its envelope and its frames, as far as its lengths say so. */
function framesOf(message: Uint8Array): Uint8Array[] {
  const frames: Uint8Array[] = [];
  const view = new DataView(message.buffer, message.byteOffset, message.byteLength);
  for (let at = ENVELOPE_BYTES; at + FRAME_HEADER_BYTES <= message.length; ) {
    const end = at + FRAME_HEADER_BYTES + view.getUint32(at + 1, true);
    frames.push(message.subarray(at, end));
    at = end;
  }
  return frames;
}

/** A frame around a damaged payload, its length put right, so that the payload itself is what is looked at. */
function damagedFrame(frame: Uint8Array, prng: Prng): Uint8Array {
  const payload = mutateBytes(frame.subarray(FRAME_HEADER_BYTES), prng);
  return withU32(concat(frame.subarray(0, FRAME_HEADER_BYTES), payload), 1, payload.length);
}

/** Damage along the frames: one damaged inside, dropped, doubled, moved, or brought in from another message. */
export function mutateFrames(message: Uint8Array, other: Uint8Array, prng: Prng): Uint8Array {
  const frames = framesOf(message);
  if (frames.length === 0) return message;
  const at = prng.below(frames.length);
  const frame = frames[at]!;
  const elsewhere = prng.below(frames.length + 1);
  switch (prng.below(6)) {
    case 0:
      frames.splice(at, 1);
      break;
    case 1:
      frames.splice(elsewhere, 0, frame);
      break;
    case 2:
      frames.splice(at, 1);
      frames.splice(elsewhere, 0, frame);
      break;
    case 3:
      frames.splice(elsewhere, 0, prng.pick([frame, ...framesOf(other)]));
      break;
    default:
      frames[at] = damagedFrame(frame, prng);
  }
  return concat(message.subarray(0, ENVELOPE_BYTES), ...frames);
}

const PIECES = [
  '"',
  '\\',
  '{',
  '}',
  '[',
  ']',
  ',',
  ':',
  '0',
  '-',
  '.',
  'e5',
  '\n',
  '\u0000',
  '\ud800',
  'é',
  'null',
  '"a":1,',
  '\\u0061',
];

/** Some damage anywhere in a text. */
export function mutateText(text: string, prng: Prng): string {
  let result = text;
  for (let times = 1 + prng.below(3); times > 0; times--) {
    const at = prng.below(result.length + 1);
    const piece = prng.pick([prng.pick(PIECES), '', result.slice(at, at + prng.below(20))]);
    result = result.slice(0, at) + piece + result.slice(at + prng.below(4));
  }
  return result;
}
