/** `SEGMENT_INLINE` (§5.7, row 10 of part 1.8): the structure is checked, the bytes stay, the schema is nobody's business here. */
import { describe, expect, it } from 'vitest';
import { END_FRAME, encodeEnvelope, encodeFrame } from '../../src/protocol/frame-codecs.ts';
import { decodeMessage } from '../../src/protocol/message.ts';
import { ResponseReader } from '../../src/protocol/response-reader.ts';
import { concat, hex } from './bytes-of.ts';
import { codeOf, INVALID } from './faults.ts';
import { invalidCases, validCases, vector } from './vectors.ts';

function inlined(segment: Uint8Array): Uint8Array {
  const header = concat(hex('15'), new Uint8Array(4), segment);
  new DataView(header.buffer).setUint32(1, segment.length, true);
  return concat(
    encodeEnvelope(1, 'response'),
    encodeFrame(1, { type: 'RESP_HEADER' }),
    encodeFrame(1, {
      type: 'SUB_START',
      id: 's',
      status: 'active',
      reasonCode: '',
      effectiveScopes: {},
      bootstrap: true,
    }),
    header,
    encodeFrame(1, { type: 'SUB_END', nextCursor: 1 }),
    END_FRAME,
  );
}

/** By both readers. */
function judge(segment: Uint8Array): readonly string[] {
  const bytes = inlined(segment);
  const reader = new ResponseReader();
  reader.push(bytes);
  return [codeOf(() => decodeMessage(bytes)), codeOf(() => reader.finish())];
}

const REFUSED = [INVALID, INVALID];

describe('inline segments', () => {
  it.each(validCases('segment'))('$name decodes and keeps its bytes', ({ bytes }) => {
    const frame = decodeMessage(inlined(bytes)).frames[2];
    expect(frame).toStrictEqual({ type: 'SEGMENT_INLINE', payload: bytes });
    expect(judge(bytes)).toStrictEqual(['none', 'none']);
  });

  it.each(invalidCases('segment'))('$name is a decode error of the message', ({ bytes }) => {
    expect(judge(bytes)).toStrictEqual(REFUSED);
  });

  it('columns that fit no schema are not the decoder’s concern: never sync.schema_mismatch', () => {
    const bytes = vector('segment', 'crdt-column');
    const renamed = bytes.slice();
    renamed.set(hex('7a 7a'), bytes.indexOf(0x64, 12));
    expect(judge(renamed)).toStrictEqual(['none', 'none']);
  });

  it('is whole: no prefix, no byte behind it, no image', () => {
    const bytes = vector('segment', 'rows-two-blocks');
    for (let length = 0; length < bytes.length; length++) {
      expect(judge(bytes.subarray(0, length)), `prefix of ${length}`).toStrictEqual(REFUSED);
    }
    expect(judge(concat(bytes, hex('00')))).toStrictEqual(REFUSED);
    expect(judge(new Uint8Array(Buffer.from('SQLite format 3\0')))).toStrictEqual(REFUSED);
  });

  it('each fault of the prologue and the column table', () => {
    const bytes = vector('segment', 'rows-two-blocks');
    const patched = (at: number, byte: number): Uint8Array => {
      const copy = bytes.slice();
      copy[at] = byte;
      return copy;
    };
    // Magic, formatVersion, flags; the first column's tag and flags lie behind "notes", version, count and "id".
    const tagAt = 8 + 9 + 4 + 2 + 6;
    expect(bytes[tagAt]).toBe(1);
    for (const [at, byte] of [
      [0, 0x54],
      [3, 0x31],
      [4, 0],
      [4, 2],
      [5, 1],
      [6, 1],
      [7, 1],
      [tagAt, 0],
      [tagAt, 9],
      [tagAt + 1, 2],
      [tagAt + 1, 0x80],
    ] as const) {
      expect(judge(patched(at, byte)), `byte ${at} = ${byte}`).toStrictEqual(REFUSED);
    }
  });
});
