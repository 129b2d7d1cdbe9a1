/** The streaming reader of a client (part 1.9). */
import { describe, expect, it } from 'vitest';
import { END_FRAME, encodeEnvelope, encodeFrame } from '../../src/protocol/frame-codecs.ts';
import type { Frame, ResponseFrame } from '../../src/protocol/frames.ts';
import { decodeMessage } from '../../src/protocol/message.ts';
import { ResponseReader } from '../../src/protocol/response-reader.ts';
import { concat, hex } from './bytes-of.ts';
import { codeOf, INVALID } from './faults.ts';
import { invalidCases, validCases, vector } from './vectors.ts';

function readBytewise(bytes: Uint8Array): {
  reader: ResponseReader;
  frames: ResponseFrame[];
  endedAt: number;
} {
  const reader = new ResponseReader();
  const frames: ResponseFrame[] = [];
  let endedAt = -1;
  for (let at = 0; at < bytes.length; at++) {
    const result = reader.push(bytes.slice(at, at + 1));
    frames.push(...result.frames);
    if (result.state !== 'open' && endedAt < 0) endedAt = at;
  }
  return { reader, frames, endedAt };
}

describe.each(validCases('response'))('$name', ({ bytes }) => {
  const { frames: whole, wireVersion } = decodeMessage(bytes);

  it('comes out of one chunk', () => {
    const reader = new ResponseReader();
    expect(reader.push(bytes)).toStrictEqual({
      frames: whole,
      state: 'ended',
      failure: null,
      rest: new Uint8Array(0),
    });
    expect(reader.wireVersion).toBe(wireVersion);
    expect(codeOf(() => reader.finish())).toBe('none');
  });

  it('comes out byte by byte, ending on the last byte', () => {
    const { frames, endedAt } = readBytewise(bytes);
    expect(frames).toStrictEqual(whole);
    expect(endedAt).toBe(bytes.length - 1);
  });

  it('is cut short by every prefix', () => {
    for (let length = 0; length < bytes.length; length++) {
      const reader = new ResponseReader();
      expect(reader.push(bytes.subarray(0, length)).state).toBe('open');
      expect(codeOf(() => reader.finish())).toBe(INVALID);
    }
  });
});

describe('faults', () => {
  it.each(invalidCases('response'))('$name fails with $error', ({ bytes, error }) => {
    const { reader } = readBytewise(bytes);
    expect(reader.state).toBe('failed');
    expect(codeOf(() => reader.finish())).toBe(error);
  });

  const header = encodeFrame(1, { type: 'RESP_HEADER' });
  const end = encodeFrame(1, { type: 'SUB_END', nextCursor: 1 });
  const start: Frame = {
    type: 'SUB_START',
    id: 's',
    status: 'active',
    reasonCode: '',
    effectiveScopes: {},
    bootstrap: false,
  };

  it('hands out what was complete in front of the fault, and nothing behind it', () => {
    const reader = new ResponseReader();
    const section = [encodeFrame(1, start), end];
    const result = reader.push(
      concat(encodeEnvelope(1, 'response'), header, ...section, end, ...section, END_FRAME),
    );
    expect(result.frames.map((frame) => frame.type)).toStrictEqual(['RESP_HEADER', 'SUB_START', 'SUB_END']);
    expect(result.state).toBe('failed');
    expect(result.failure?.code).toBe(INVALID);
    expect(reader.push(END_FRAME)).toMatchObject({ frames: [], state: 'failed' });
  });

  it('sees a frame of the wrong place before its payload came', () => {
    const reader = new ResponseReader();
    expect(reader.push(concat(encodeEnvelope(1, 'response'), end.subarray(0, 5))).state).toBe('failed');
  });

  it('takes no request', () => {
    expect(new ResponseReader().push(vector('request', 'pull-minimal')).state).toBe('failed');
  });

  it('refuses an announced length over its bound at once', () => {
    const reader = new ResponseReader({ framesMax: 10, frameBytesMax: 100 });
    const announced = concat(encodeEnvelope(1, 'response'), header, hex('77 | 65 00 00 00'));
    expect(reader.push(announced).failure?.details).toStrictEqual({ limit: 'frameBytesMax', max: 100 });
    const counted = new ResponseReader({ framesMax: 1, frameBytesMax: 100 });
    expect(
      counted.push(concat(encodeEnvelope(1, 'response'), header, header)).failure?.details,
    ).toMatchObject({
      limit: 'framesMax',
    });
  });
});

describe('bytes behind END', () => {
  it('come back unread, then and later', () => {
    const reader = new ResponseReader();
    const bytes = vector('response', 'pull-empty');
    const result = reader.push(concat(bytes, hex('01 02')));
    expect([result.state, result.rest]).toStrictEqual(['ended', hex('01 02')]);
    expect(reader.push(hex('03'))).toMatchObject({ frames: [], state: 'ended', rest: hex('03') });
  });
});

describe('memory', () => {
  it('a frame inside one chunk is a view of it; one in several has bytes of its own', () => {
    const payload = new Uint8Array(1_000).fill(7);
    const frame = encodeFrame(1, { type: 'UNKNOWN', frameType: 0x77, payload });
    const whole = concat(encodeEnvelope(1, 'response'), encodeFrame(1, { type: 'RESP_HEADER' }), frame);
    const [, inside] = new ResponseReader().push(whole).frames;
    expect((inside as { payload: Uint8Array }).payload.buffer).toBe(whole.buffer);
    const reader = new ResponseReader();
    reader.push(whole.slice(0, 500));
    const [pieced] = reader.push(whole.slice(500)).frames;
    expect(pieced).toStrictEqual({ type: 'UNKNOWN', frameType: 0x77, payload });
  });
});
