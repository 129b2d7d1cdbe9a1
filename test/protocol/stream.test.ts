/** The request scanner (part 1.9, §8.7; R-060 needs the bytes behind END, 3.11.4 row 1 the fatal header). */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { END_FRAME, encodeEnvelope, encodeFrame } from '../../src/protocol/frame-codecs.ts';
import { DEFAULT_LIMITS } from '../../src/protocol/limits.ts';
import { MessageScanner, type ScanResult } from '../../src/protocol/stream.ts';
import { concat, equalBytes } from './bytes-of.ts';
import { validCases, vector } from './vectors.ts';

const BOUNDS = { requestBytesMax: 4_096, frameBytesMax: 1_024, framesMax: 8 };

function scanner(bounds = BOUNDS): MessageScanner {
  return new MessageScanner('request', bounds);
}

function feedBytewise(target: MessageScanner, bytes: Uint8Array): ScanResult[] {
  return Array.from(bytes, (_, i) => target.push(bytes.slice(i, i + 1)));
}

describe.each(['request', 'response'] as const)(
  'golden %s vectors through the scanner (part 1.15)',
  (kind) => {
    it.each(validCases(kind))('$name in one chunk comes out as the chunk itself', ({ bytes }) => {
      const result = new MessageScanner(kind, DEFAULT_LIMITS).push(bytes);
      if (result.kind !== 'message') throw new Error(result.kind);
      expect(result.message.buffer).toBe(bytes.buffer);
      expect(result.message).toStrictEqual(bytes);
      expect(result.rest).toHaveLength(0);
    });

    it.each(validCases(kind))('$name byte by byte completes on the last byte only', ({ bytes }) => {
      const results = feedBytewise(new MessageScanner(kind, DEFAULT_LIMITS), bytes);
      const last = results.pop()!;
      expect(results.every((result) => result.kind === 'more')).toBe(true);
      expect(last).toMatchObject({ kind: 'message', message: bytes });
    });

    it.each(validCases(kind))('$name cut in two anywhere comes out whole', ({ bytes }) => {
      for (let cut = 0; cut <= bytes.length; cut++) {
        const target = new MessageScanner(kind, DEFAULT_LIMITS);
        const first = target.push(bytes.slice(0, cut));
        const result = cut === bytes.length ? first : target.push(bytes.slice(cut));
        expect(result.kind === 'message' && equalBytes(result.message, bytes), `cut at ${cut}`).toBe(true);
      }
    });
  },
);

describe('message boundaries', () => {
  const bytes = vector('request', 'pull-minimal');

  it('reports the bytes behind END, in one chunk and in several (R-060)', () => {
    const behind = new Uint8Array([1, 2, 3]);
    const whole = scanner().push(concat(bytes, behind));
    expect(whole).toMatchObject({ kind: 'message', wireVersion: 1, message: bytes, rest: behind });
    const target = scanner();
    target.push(bytes.slice(0, 50));
    expect(target.push(concat(bytes.slice(50), behind))).toMatchObject({ message: bytes, rest: behind });
  });

  it('stands at the start of the next message afterwards', () => {
    const target = scanner();
    expect(target.idle).toBe(true);
    target.push(bytes.slice(0, 1));
    expect(target.idle).toBe(false);
    expect(target.push(bytes.slice(1)).kind).toBe('message');
    expect(target.idle).toBe(true);
    expect(target.push(vector('request', 'epoch-bound'))).toMatchObject({ kind: 'message', wireVersion: 2 });
  });

  it('takes empty chunks as nothing', () => {
    const target = scanner();
    expect(target.push(new Uint8Array(0)).kind).toBe('more');
    expect(target.idle).toBe(true);
    target.push(bytes.slice(0, 30));
    expect(target.push(new Uint8Array(0)).kind).toBe('more');
    expect(target.push(bytes.slice(30))).toMatchObject({ kind: 'message', message: bytes });
  });

  it('finds the end behind a faulty body: that is for the decoder to judge (3.11.4 row 3)', () => {
    const faulty = concat(encodeEnvelope(1, 'request'), new Uint8Array([0x03, 1, 0, 0, 0, 0xff]), END_FRAME);
    expect(scanner().push(faulty)).toMatchObject({ kind: 'message', message: faulty });
    const endWithPayload = concat(encodeEnvelope(1, 'request'), new Uint8Array([0, 2, 0, 0, 0, 7, 7]));
    expect(scanner().push(endWithPayload)).toMatchObject({ kind: 'message', message: endWithPayload });
  });

  it('completes any cut of a run of messages (property)', () => {
    const messages = validCases('request').map((one) => one.bytes);
    const run = fc.array(fc.constantFrom(...messages), { minLength: 1, maxLength: 4 });
    fc.assert(
      fc.property(run, fc.array(fc.nat(2_000), { maxLength: 12 }), (sent, cuts) => {
        const stream = concat(...sent);
        const edges = [0, ...cuts.map((cut) => cut % stream.length).sort((a, b) => a - b), stream.length];
        const target = new MessageScanner('request', DEFAULT_LIMITS);
        const got: Uint8Array[] = [];
        for (let i = 1; i < edges.length; i++) {
          let chunk: Uint8Array = stream.slice(edges[i - 1], edges[i]);
          for (let more = true; more; ) {
            const result = target.push(chunk);
            more = result.kind === 'message' && result.rest.length > 0;
            if (result.kind !== 'message') continue;
            got.push(result.message.slice());
            chunk = result.rest;
          }
        }
        expect(got).toStrictEqual(sent.map((one) => one.slice()));
      }),
    );
  });
});

describe('a stream without a valid header has no end (3.11.4 row 1)', () => {
  const good = vector('request', 'pull-minimal');
  const faults: readonly (readonly [name: string, at: number, byte: number])[] = [
    ['magic', 0, 0x54],
    ['magic', 3, 0x31],
    ['wireVersion 0', 4, 0],
    ['wireVersion 3', 4, 3],
    ['wireVersion 257', 5, 1],
    ['a response', 6, 2],
    ['msgKind 0', 6, 0],
    ['msgKind 3', 6, 3],
    ['flags', 7, 1],
  ];

  it.each(faults)('%s at byte %i', (_name, at, byte) => {
    const bad = good.slice();
    bad[at] = byte;
    expect(scanner().push(bad)).toStrictEqual({ kind: 'bad-header' });
    const kinds = feedBytewise(scanner(), bad.slice(0, at + 1)).map((result) => result.kind);
    expect(kinds).toStrictEqual([...Array(at).fill('more'), 'bad-header']);
  });

  it('is final', () => {
    const target = scanner();
    target.push(new Uint8Array([0]));
    expect(target.push(good)).toStrictEqual({ kind: 'bad-header' });
  });

  it('takes responses when told to, and no requests then', () => {
    const target = new MessageScanner('response', BOUNDS);
    expect(target.push(vector('response', 'pull-empty')).kind).toBe('message');
    expect(target.push(good).kind).toBe('bad-header');
  });
});

describe('bounds are results of their own', () => {
  const envelope = encodeEnvelope(2, 'request');

  function header(type: number, length: number): Uint8Array {
    const bytes = new Uint8Array(5);
    new DataView(bytes.buffer).setUint32(1, length, true);
    bytes[0] = type;
    return bytes;
  }

  it('frameBytesMax, by the announced length alone', () => {
    const at = scanner().push(concat(envelope, header(0x77, 1_024)));
    expect(at.kind).toBe('more');
    const over = scanner().push(concat(envelope, header(0x77, 1_025)));
    expect(over).toStrictEqual({ kind: 'too-big', bound: 'frameBytesMax', wireVersion: 2 });
    const huge = scanner().push(concat(envelope, header(0x77, 0xffff_ffff)));
    expect(huge).toMatchObject({ kind: 'too-big', bound: 'frameBytesMax' });
  });

  it('framesMax, END included', () => {
    const frame = encodeFrame(2, { type: 'UNKNOWN', frameType: 0x77, payload: new Uint8Array(0) });
    const seven = Array(7).fill(frame) as Uint8Array[];
    expect(scanner().push(concat(envelope, ...seven, END_FRAME)).kind).toBe('message');
    expect(scanner().push(concat(envelope, ...seven, frame, END_FRAME))).toMatchObject({
      kind: 'too-big',
      bound: 'framesMax',
    });
  });

  it('requestBytesMax, exactly at the bound and one beyond', () => {
    const frame = encodeFrame(2, { type: 'UNKNOWN', frameType: 0x77, payload: new Uint8Array(1_000) });
    const whole = concat(envelope, frame, frame, END_FRAME);
    const bounds = { ...BOUNDS, requestBytesMax: whole.length };
    expect(scanner(bounds).push(whole).kind).toBe('message');
    expect(scanner({ ...bounds, requestBytesMax: whole.length - 1 }).push(whole)).toStrictEqual({
      kind: 'too-big',
      bound: 'requestBytesMax',
      wireVersion: 2,
    });
  });

  it('stays refused and keeps nothing', () => {
    const target = scanner();
    target.push(concat(envelope, header(0x77, 2_000)));
    expect(target.push(END_FRAME)).toMatchObject({ kind: 'too-big', bound: 'frameBytesMax' });
  });
});

describe('cost', () => {
  it('copies each byte a bounded number of times, however small the chunks are', () => {
    const payload = new Uint8Array(256 * 1_024);
    const frame = encodeFrame(1, { type: 'UNKNOWN', frameType: 0x77, payload });
    const bytes = concat(encodeEnvelope(1, 'request'), frame, END_FRAME);
    const target = new MessageScanner('request', DEFAULT_LIMITS);
    const buffers = new Set<ArrayBufferLike>();
    const original = Uint8Array.prototype.set;
    let copied = 0;
    Uint8Array.prototype.set = function set(source: ArrayLike<number>, offset?: number): void {
      copied += source.length;
      original.call(this, source, offset);
    };
    try {
      for (let at = 0; at < bytes.length; at += 16) {
        const result = target.push(bytes.subarray(at, at + 16));
        if (result.kind === 'message') buffers.add(result.message.buffer);
      }
    } finally {
      Uint8Array.prototype.set = original;
    }
    expect(buffers.size).toBe(1);
    expect(copied).toBeLessThan(bytes.length * 3);
  });
});
