/** Envelope and framing faults (part 1.2) and unknown frames (rules 5 to 7). */
import { describe, expect, it } from 'vitest';
import { END_FRAME, encodeEnvelope, encodeFrame } from '../../src/protocol/frame-codecs.ts';
import { FRAME_TYPES, type Frame, type SyncMessage } from '../../src/protocol/frames.ts';
import { DEFAULT_LIMITS } from '../../src/protocol/limits.ts';
import { decodeMessage, decodeRequest, encodeMessage, readEnvelope } from '../../src/protocol/message.ts';
import { concat, equalBytes, hex } from './bytes-of.ts';
import { codeOf, INVALID } from './faults.ts';
import { validCases, vector } from './vectors.ts';

const judge = (bytes: Uint8Array): string => codeOf(() => decodeMessage(bytes));

function patched(bytes: Uint8Array, at: number, ...values: readonly number[]): Uint8Array {
  const copy = bytes.slice();
  copy.set(values, at);
  return copy;
}

describe('envelope', () => {
  const good = vector('request', 'pull-minimal');

  it('takes wire versions 1 and 2 alone', () => {
    for (const version of [0, 3, 4, 255, 256, 257, 258, 999, 65_535]) {
      expect(judge(patched(good, 4, version & 0xff, version >> 8)), `version ${version}`).toBe(INVALID);
    }
    const response = vector('response', 'pull-empty');
    expect(readEnvelope(patched(response, 4, 2, 0))).toStrictEqual({ wireVersion: 2, kind: 'response' });
  });

  it('takes msgKind 1 and 2 of all 256 bytes', () => {
    for (let byte = 0; byte < 256; byte++) {
      const code = codeOf(() => readEnvelope(patched(good, 6, byte)));
      expect(code, `msgKind ${byte}`).toBe(byte === 1 || byte === 2 ? 'none' : INVALID);
    }
  });

  it('takes no flags and no other magic', () => {
    for (let bit = 0; bit < 8; bit++) expect(judge(patched(good, 7, 1 << bit))).toBe(INVALID);
    for (let at = 0; at < 4; at++) expect(judge(patched(good, at, good[at]! ^ 1))).toBe(INVALID);
  });

  it('reads the worked example of part 1.2', () => {
    expect(encodeEnvelope(1, 'request')).toStrictEqual(hex('53 53 50 32 | 01 00 | 01 | 00'));
    expect(encodeEnvelope(2, 'response')).toStrictEqual(hex('53 53 50 32 | 02 00 | 02 | 00'));
    expect(END_FRAME).toStrictEqual(hex('00 | 00 00 00 00'));
  });

  it('decodeRequest takes no response', () => {
    expect(codeOf(() => decodeRequest(vector('response', 'pull-empty'), DEFAULT_LIMITS))).toBe(INVALID);
  });
});

describe('END', () => {
  const head = concat(encodeEnvelope(1, 'response'), encodeFrame(1, { type: 'RESP_HEADER' }));

  it('has no payload, and nothing stands behind it', () => {
    expect(judge(concat(head, END_FRAME))).toBe('none');
    expect(judge(head)).toBe(INVALID);
    expect(judge(concat(head, hex('00 | 01 00 00 00 | 00')))).toBe(INVALID);
    expect(judge(concat(head, END_FRAME, hex('00')))).toBe(INVALID);
    expect(judge(concat(head, END_FRAME, END_FRAME))).toBe(INVALID);
  });
});

describe('exact payloads (rule 2)', () => {
  const all = [...validCases('request'), ...validCases('response')];

  /** Offsets of the frame headers in a message. */
  function frameStarts(bytes: Uint8Array): number[] {
    const starts: number[] = [];
    const view = new DataView(bytes.buffer, bytes.byteOffset);
    for (let at = 8; at < bytes.length; at += 5 + view.getUint32(at + 1, true)) starts.push(at);
    return starts;
  }

  it('refuse one byte left over in each known frame', () => {
    const seen = new Set<number>();
    for (const { bytes } of all) {
      for (const start of frameStarts(bytes)) {
        const type = bytes[start]!;
        const length = new DataView(bytes.buffer, bytes.byteOffset).getUint32(start + 1, true);
        const behind = start + 5 + length;
        const longer = concat(bytes.subarray(0, behind), Uint8Array.of(0), bytes.subarray(behind));
        new DataView(longer.buffer).setUint32(start + 1, length + 1, true);
        const known = Object.values(FRAME_TYPES).includes(type as (typeof FRAME_TYPES)['END']);
        expect(judge(longer), `type ${type}`).toBe(known ? INVALID : 'none');
        seen.add(type);
      }
    }
    // PUSH_RESULT_DETAILS is in no vector; field-rules.test.ts has it.
    expect(seen.size).toBe(15);
  });

  it('refuse one byte too few in each known frame', () => {
    for (const { bytes } of all) {
      for (const start of frameStarts(bytes).slice(0, -1)) {
        const view = new DataView(bytes.buffer, bytes.byteOffset);
        const length = view.getUint32(start + 1, true);
        if (length === 0 || bytes[start] === 0x17) continue;
        const behind = start + 5 + length;
        const shorter = concat(bytes.subarray(0, behind - 1), bytes.subarray(behind));
        new DataView(shorter.buffer).setUint32(start + 1, length - 1, true);
        expect(judge(shorter)).toBe(INVALID);
      }
    }
  });

  it('refuse a length beyond the message, up to 0xFFFFFFFF, at once', () => {
    const bytes = vector('request', 'pull-minimal');
    expect(judge(patched(bytes, 9, 0xff, 0xff, 0xff, 0xff))).toBe(INVALID);
    expect(judge(patched(bytes, 9, 0x69))).toBe(INVALID);
  });
});

describe('unknown frames', () => {
  const types = [0x05, 0x1a, 0x1c, 0x20, 0xff];
  const unknown = (frameType: number): Frame => ({ type: 'UNKNOWN', frameType, payload: hex('00 ff 00') });

  /** Every place in the frame list, the front (0) included. */
  function* places(message: SyncMessage): Generator<{ at: number; frames: readonly Frame[] }> {
    for (let at = 0; at <= message.frames.length; at++) {
      yield { at, frames: message.frames };
    }
  }

  it.each(types)(
    '0x%s is skipped and kept at each legal place, refused in front and behind ERROR',
    (type) => {
      const frame = encodeFrame(1, unknown(type));
      for (const { bytes, name } of [...validCases('request'), ...validCases('response')]) {
        const message = decodeMessage(bytes);
        for (const { at, frames } of places(message)) {
          const parts = frames.map((known) => encodeFrame(message.wireVersion, known));
          parts.splice(at, 0, frame);
          const mixed = concat(bytes.subarray(0, 8), ...parts, END_FRAME);
          const legal = at > 0 && frames[at - 1]!.type !== 'ERROR';
          expect(judge(mixed), `${name} at ${at}`).toBe(legal ? 'none' : INVALID);
          if (!legal) continue;
          const decoded = decodeMessage(mixed);
          expect(decoded.frames[at]).toStrictEqual(unknown(type));
          expect(equalBytes(encodeMessage(decoded), mixed)).toBe(true);
        }
      }
    },
  );

  it('stand in decodeRequest as well', () => {
    const bytes = vector('request', 'combined');
    const mixed = concat(bytes.subarray(0, bytes.length - 5), encodeFrame(1, unknown(0x1a)), END_FRAME);
    expect(decodeRequest(mixed, DEFAULT_LIMITS).unknown).toStrictEqual([unknown(0x1a)]);
  });

  it('the encoder refuses one of a registered type, with an error of its own (rule 7)', () => {
    for (const type of Object.values(FRAME_TYPES)) {
      expect(codeOf(() => encodeFrame(1, unknown(type)))).toBe('EncodeError');
      expect(codeOf(() => encodeFrame(2, unknown(type)))).toBe('EncodeError');
    }
    const frames = [{ type: 'RESP_HEADER' }, unknown(FRAME_TYPES.SUB_START)];
    const message = { kind: 'response', wireVersion: 1, frames } as SyncMessage;
    expect(codeOf(() => encodeMessage(message))).toBe('EncodeError');
  });

  it.each([256, -1, 0.5])('the encoder has no byte for type %d', (type) => {
    expect(codeOf(() => encodeFrame(1, unknown(type)))).toBe('EncodeError');
  });
});

describe('bounds of a reader (W-o)', () => {
  const bytes = vector('request', 'combined');

  it('counts frames, END included', () => {
    const limits = (framesMax: number) => ({ limits: { framesMax, frameBytesMax: 1_000 } });
    expect(decodeMessage(bytes, limits(5)).frames).toHaveLength(4);
    expect(codeOf(() => decodeMessage(bytes, limits(4)))).toBe(INVALID);
  });

  it('weighs each payload', () => {
    const longest = Math.max(...decodeMessage(bytes).frames.map((frame) => encodeFrame(1, frame).length - 5));
    const limits = (frameBytesMax: number) => ({ framesMax: 10, frameBytesMax });
    expect(codeOf(() => decodeRequest(bytes, limits(longest)))).toBe('none');
    expect(codeOf(() => decodeRequest(bytes, limits(longest - 1)))).toBe(INVALID);
  });
});
