/** Encode and decode are inverse over everything the tables allow (part 1.1 rule 3, 1.2 rule 6). */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encodeFrame } from '../../src/protocol/frame-codecs.ts';
import { FrameWriter } from '../../src/protocol/frame-writer.ts';
import type { SyncMessage } from '../../src/protocol/frames.ts';
import { DEFAULT_LIMITS } from '../../src/protocol/limits.ts';
import { decodeMessage, decodeRequest, encodeMessage } from '../../src/protocol/message.ts';
import { ResponseReader } from '../../src/protocol/response-reader.ts';
import { MessageScanner } from '../../src/protocol/stream.ts';
import { message, request, response } from './arbitraries.ts';
import { concat, equalBytes } from './bytes-of.ts';
import { codeOf, INVALID } from './faults.ts';

/** Absent fields are `undefined` after a decode, and maps have no prototype: neither is a difference. */
function plain(value: unknown): unknown {
  if (value instanceof Uint8Array) return `bytes:${Buffer.from(value).toString('hex')}`;
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== 'object' || value === null) return value;
  return Object.entries(value)
    .filter(([, member]) => member !== undefined)
    .map(([name, member]) => [name, plain(member)])
    .sort(([a], [b]) => (String(a) < String(b) ? -1 : 1));
}

describe('round trips (property)', () => {
  it('decode(encode(message)) is the message, and its bytes are the only ones', () => {
    fc.assert(
      fc.property(message, (original) => {
        const bytes = encodeMessage(original);
        const decoded = decodeMessage(bytes);
        expect(plain(decoded)).toStrictEqual(plain(original));
        expect(equalBytes(encodeMessage(decoded), bytes)).toBe(true);
      }),
      { numRuns: 400 },
    );
  });

  it('frames written one by one are the message', () => {
    fc.assert(
      fc.property(message, (original: SyncMessage) => {
        const writer = new FrameWriter(original.wireVersion, 16);
        writer.envelope(original.kind);
        for (const [i, frame] of original.frames.entries()) {
          if (i % 2 === 0) writer.frame(frame);
          else writer.raw(encodeFrame(original.wireVersion, frame));
        }
        writer.end();
        expect(equalBytes(writer.take(), encodeMessage(original))).toBe(true);
      }),
    );
  });

  it('decodeRequest holds what decodeMessage lists', () => {
    fc.assert(
      fc.property(request, (original) => {
        const parts = decodeRequest(encodeMessage(original), DEFAULT_LIMITS);
        const of = (type: string): unknown => plain(original.frames.filter((frame) => frame.type === type));
        expect(parts.wireVersion).toBe(original.wireVersion);
        expect(plain([parts.header])).toStrictEqual(of('REQ_HEADER'));
        expect(plain(parts.pushes)).toStrictEqual(of('PUSH_COMMIT'));
        expect(plain(parts.pull === null ? [] : [parts.pull])).toStrictEqual(of('PULL_HEADER'));
        expect(plain(parts.subscriptions)).toStrictEqual(of('SUBSCRIPTION'));
        expect(plain(parts.unknown)).toStrictEqual(of('UNKNOWN'));
      }),
    );
  });

  it('no strict prefix decodes, and nothing decodes with a byte more', () => {
    fc.assert(
      fc.property(message, fc.nat(), (original, cut) => {
        const bytes = encodeMessage(original);
        expect(codeOf(() => decodeMessage(bytes.subarray(0, cut % bytes.length)))).toBe(INVALID);
        expect(codeOf(() => decodeMessage(concat(bytes, new Uint8Array(1))))).toBe(INVALID);
      }),
    );
  });

  it('scanner and response reader see the same message, however it is cut', () => {
    const cuts = fc.array(fc.nat(), { maxLength: 10 });
    fc.assert(
      fc.property(response, cuts, (original, places) => {
        const bytes = encodeMessage(original);
        const edges = [0, ...places.map((place) => place % bytes.length).sort((a, b) => a - b), bytes.length];
        const scanner = new MessageScanner('response', DEFAULT_LIMITS);
        const reader = new ResponseReader();
        const frames: unknown[] = [];
        for (let i = 1; i < edges.length; i++) {
          const chunk = bytes.slice(edges[i - 1], edges[i]);
          const scanned = scanner.push(chunk);
          const read = reader.push(chunk);
          frames.push(...read.frames);
          const whole = edges[i] === bytes.length;
          expect(read.state).toBe(whole ? 'ended' : 'open');
          if (whole && chunk.length > 0) expect(scanned).toMatchObject({ kind: 'message' });
        }
        expect(plain(frames)).toStrictEqual(plain(original.frames));
      }),
    );
  });
});
