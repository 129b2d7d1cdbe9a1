/** Whatever SSP2 can say, the dialect says as well, both ways; and another library reads and writes the same bytes. */
import fc from 'fast-check';
import { Packr, Unpackr } from 'msgpackr';
import { describe, expect, it } from 'vitest';
import { DEFAULT_LIMITS } from '../../../src/protocol/limits.ts';
import { encodeMessage } from '../../../src/protocol/message.ts';
import { MSGPACK_RESPONSE_BOUNDS } from '../../../src/protocol/msgpack/bounds.ts';
import { MsgpackFrameReader } from '../../../src/protocol/msgpack/frame-reader.ts';
import type { MsgpackFrame } from '../../../src/protocol/msgpack/frames.ts';
import {
  decodeClientMessage,
  decodeServerMessage,
  encodeRound,
} from '../../../src/protocol/msgpack/messages.ts';
import { readRequest } from '../../../src/protocol/msgpack/request.ts';
import { encodeDeltaMessage, MsgpackResponse } from '../../../src/protocol/msgpack/response.ts';
import { decodeMap, IntegralFloat, type MsgpackValue } from '../../../src/protocol/msgpack/value.ts';
import { partsOf, type ResponseSample, requestFrames, responseSample, SCHEMA } from './samples.ts';

const BOUNDS = MSGPACK_RESPONSE_BOUNDS;

/** The messages of a response, its bytes cut every `step`. */
function messagesOf({ message, request }: ResponseSample, step: number): Uint8Array[] {
  const round = { request, segments: 'as-segments' } as const;
  const answer = new MsgpackResponse({ schema: SCHEMA, id: 5, round });
  const bytes = encodeMessage(message);
  const messages: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += step)
    messages.push(...answer.push(bytes.subarray(at, at + step)));
  return messages;
}

function readFrames(values: readonly MsgpackValue[], { request }: ResponseSample): MsgpackFrame[] {
  // Results of a commit id that stands twice are told apart by their place.
  let place = -1;
  const tableOf = () => request.pushes[place]?.operations[0]?.table;
  const reader = new MsgpackFrameReader({ schema: SCHEMA, tableOf });
  return values.map((value) => {
    if ((value as { readonly type: string }).type === 'PUSH_RESULT') place++;
    return reader.read(value)!;
  });
}

describe('round trips', () => {
  it('every response comes back, cut anywhere, one message per frame', () => {
    fc.assert(
      fc.property(responseSample, fc.integer({ min: 1, max: 200 }), (sample, step) => {
        const messages = messagesOf(sample, step).map((bytes) => decodeServerMessage(bytes, BOUNDS));
        const frames = messages.map((message) => {
          if (message.kind !== 'frame') throw new Error(`a ${message.kind} in a response`);
          expect(message.id).toBe(5);
          return message.frame;
        });
        expect(readFrames(frames, sample)).toEqual([...sample.message.frames, { type: 'END' }]);
      }),
      { numRuns: 150 },
    );
  });

  it('a delta holds the frames of its response but END', () => {
    fc.assert(
      fc.property(responseSample, (sample) => {
        // Conflict rows are shown only in answers, where the request says which table they belong to.
        const frames = sample.message.frames.filter(({ type }) => !type.startsWith('PUSH_RESULT'));
        const bytes = encodeDeltaMessage(encodeMessage({ ...sample.message, frames }), SCHEMA);
        const message = decodeServerMessage(bytes, BOUNDS);
        if (message.kind !== 'delta') throw new Error('not a delta');
        expect(readFrames(message.frames, sample)).toEqual(frames);
      }),
      { numRuns: 200 },
    );
  });

  it('every request comes back as the session core takes it', () => {
    fc.assert(
      fc.property(requestFrames, fc.maxSafeNat(), (frames, id) => {
        const parts = partsOf(frames);
        const message = decodeClientMessage(encodeRound(id, parts, SCHEMA), BOUNDS);
        if (message.kind !== 'round') throw new Error('not a round');
        expect(message.id).toBe(id);
        const { request, segments } = readRequest(message.req, { schema: SCHEMA, limits: DEFAULT_LIMITS });
        expect(segments).toBe('as-segments');
        expect(request).toEqual({ wireVersion: 2, ...parts, unknown: [] });
      }),
      { numRuns: 150 },
    );
  });
});

/** As `msgpackr` decodes: floats and integers are one type. */
function merged(value: MsgpackValue): unknown {
  if (value instanceof IntegralFloat) return value.value;
  if (value instanceof Uint8Array) return Uint8Array.from(value);
  if (Array.isArray(value)) return value.map((item: MsgpackValue) => merged(item));
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, merged(member)]));
}

describe('another library', () => {
  const unpackr = new Unpackr({ useRecords: false, mapsAsObjects: true, int64AsType: 'number' });
  const packr = new Packr({ useRecords: false, variableMapSize: true });
  const key = fc
    .string({ maxLength: 40 })
    .filter((text) => !['__proto__', 'constructor', 'prototype'].includes(text));
  const { value } = fc.letrec((tie) => ({
    value: fc.oneof(
      { maxDepth: 3 },
      fc.constant(null),
      fc.boolean(),
      fc.maxSafeInteger(),
      fc.double(),
      fc.string({ unit: 'binary', maxLength: 300 }),
      fc.uint8Array({ maxLength: 300 }),
      fc.array(tie('value'), { maxLength: 4 }),
      fc.dictionary(key, tie('value'), { maxKeys: 4 }),
    ),
  }));

  it('writes what the decoder reads', () => {
    fc.assert(
      fc.property(fc.dictionary(key, value, { maxKeys: 20 }), (map) => {
        const bytes = Uint8Array.from(packr.pack(map));
        const plain = (read: unknown) => JSON.stringify(read, (_, v) => (Object.is(v, -0) ? 0 : v));
        expect(plain(merged(decodeMap(bytes, BOUNDS)))).toBe(plain(map));
      }),
      { numRuns: 150 },
    );
  });

  it('reads what the encoder writes', () => {
    fc.assert(
      fc.property(responseSample, (sample) => {
        for (const bytes of messagesOf(sample, 1_000)) {
          const theirs: unknown = unpackr.unpack(bytes);
          expect(merged(theirs as MsgpackValue)).toEqual(merged(decodeMap(bytes, BOUNDS)));
        }
      }),
      { numRuns: 100 },
    );
  });
});
