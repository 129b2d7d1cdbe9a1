/** `PUSH_RESULT_DETAILS` (§6.3.1, part 1.5, W-a; S-130, S-132). */
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { END_FRAME, encodeEnvelope, encodeFrame } from '../../src/protocol/frame-codecs.ts';
import type { Frame, OpResult, PushResultFrame, SyncMessage } from '../../src/protocol/frames.ts';
import { decodeMessage, encodeMessage } from '../../src/protocol/message.ts';
import { normalizeResultDetails, parseResultDetails } from '../../src/protocol/result-details.ts';
import { concat, equalBytes, hex } from './bytes-of.ts';
import { codeOf, INVALID } from './faults.ts';
import { i32, judge, s, u32 } from './payloads.ts';

const judgeText = (text: string): string => codeOf(() => parseResultDetails(text));
const token = (length: number): string => 'a'.repeat(length);
const json = (value: unknown): string => JSON.stringify(value);

describe('detailsJson', () => {
  it.each([
    ['each member alone: reason', '{"reason":"over-quota.v2_x"}'],
    ['requiredAction', '{"requiredAction":"pay"}'],
    ['fieldPaths', '{"fieldPaths":["a","_b.C9.d_"]}'],
    ['references', '{"references":{"invoice":"I 1"}}'],
    ['members in any order, spaced', ' { "references" : {"a":"b"} , "reason" : "x" } '],
    ['a reason of 96', json({ reason: token(96) })],
    ['a path of 160', json({ fieldPaths: [`${'a'.repeat(79)}.${'b'.repeat(80)}`] })],
    ['32 paths', json({ fieldPaths: Array.from({ length: 32 }, (_, i) => `f${i}`) })],
    [
      '16 references',
      json({ references: Object.fromEntries(Array.from({ length: 16 }, (_, i) => [`k${i}`, 'v'])) }),
    ],
    ['a reference key of 64', json({ references: { [token(64)]: 'v' } })],
    ['a reference of 256 bytes', json({ references: { k: 'é'.repeat(128) } })],
    ['a colon and quotes inside a value', json({ references: { k: '"reason": \\"x' } })],
  ])('takes %s', (_name, text) => {
    expect(judgeText(text)).toBe('none');
  });

  it.each([
    ['no JSON', '{'],
    ['an array', '[]'],
    ['null', 'null'],
    ['a string', '"reason"'],
    ['no member', '{}'],
    ['an unknown member', '{"reason":"x","note":"y"}'],
    ['a duplicate member', '{"reason":"x","reason":"x"}'],
    ['a duplicate member, escaped', '{"reason":"x","r\\u0065ason":"x"}'],
    ['a duplicate reference', '{"references":{"a":"b","a":"b"}}'],
    ['an empty reason', '{"reason":""}'],
    ['a reason that is no string', '{"reason":7}'],
    ['a reason of null', '{"reason":null}'],
    ['a reason of 97', json({ reason: token(97) })],
    ['an upper-case token', '{"reason":"Over"}'],
    ['a token with a leading digit', '{"reason":"1x"}'],
    ['a token with a doubled separator', '{"reason":"a--b"}'],
    ['a token with a trailing separator', '{"reason":"a-"}'],
    ['a token with a line break behind it', '{"reason":"a\\n"}'],
    ['a token with a space', '{"requiredAction":"a b"}'],
    ['no paths', '{"fieldPaths":[]}'],
    ['33 paths', json({ fieldPaths: Array.from({ length: 33 }, (_, i) => `f${i}`) })],
    ['a path twice', '{"fieldPaths":["a","a"]}'],
    ['a path of 161', json({ fieldPaths: ['a'.repeat(161)] })],
    ['an empty path', '{"fieldPaths":[""]}'],
    ['an empty step', '{"fieldPaths":["a..b"]}'],
    ['a step that begins with a digit', '{"fieldPaths":["a.1b"]}'],
    ['a step with a dash', '{"fieldPaths":["a-b"]}'],
    ['a step with a letter beyond ASCII (decision 26)', '{"fieldPaths":["é"]}'],
    ['paths that are no array', '{"fieldPaths":"a"}'],
    ['a path that is no string', '{"fieldPaths":[1]}'],
    ['no references', '{"references":{}}'],
    ['references that are an array', '{"references":["a"]}'],
    [
      '17 references',
      json({ references: Object.fromEntries(Array.from({ length: 17 }, (_, i) => [`k${i}`, 'v'])) }),
    ],
    ['a reference key of 65', json({ references: { [token(65)]: 'v' } })],
    ['a reference key that is no token', '{"references":{"A":"v"}}'],
    ['an empty reference', '{"references":{"a":""}}'],
    ['a reference that is no string', '{"references":{"a":1}}'],
    ['a reference with a leading space', '{"references":{"a":" v"}}'],
    ['a reference with a trailing space', '{"references":{"a":"v\\u00a0"}}'],
    ['a control character', '{"references":{"a":"v\\u0007w"}}'],
    ['a C1 control character', '{"references":{"a":"v\\u0085w"}}'],
    ['a lone surrogate', '{"references":{"a":"\\ud800"}}'],
    ['a reference of 257 bytes', json({ references: { k: `${'é'.repeat(128)}a` } })],
  ])('refuses %s', (_name, text) => {
    expect(judgeText(text)).toBe(INVALID);
  });

  it('weighs at most 4096 encoded bytes', () => {
    const pad = (bytes: number): string => `{"reason":"x"${' '.repeat(bytes - 14)}}`;
    expect(judgeText(pad(4_096))).toBe('none');
    expect(judgeText(pad(4_097))).toBe(INVALID);
    const references = (count: number) =>
      json({
        references: Object.fromEntries(Array.from({ length: count }, (_, i) => [`k${i}`, 'é'.repeat(128)])),
      });
    // 16 references of 256 bytes are under the limit in units and over it in bytes.
    expect(references(16).length).toBeLessThan(4_096);
    expect(judgeText(references(16))).toBe(INVALID);
    expect(judgeText(references(15))).toBe('none');
  });
});

describe('the frame on its own', () => {
  const ok = s('{"reason":"x"}');
  it('has entries, with opIndexes that are not negative and not repeated', () => {
    expect(judge('PUSH_RESULT_DETAILS', [s('c'), u32(1), i32(0), ok])).toBe('none');
    expect(judge('PUSH_RESULT_DETAILS', [s('c'), u32(2), i32(0), ok, i32(1), ok])).toBe('none');
    expect(judge('PUSH_RESULT_DETAILS', [s('c'), u32(0)])).toBe(INVALID);
    expect(judge('PUSH_RESULT_DETAILS', [s('c'), u32(1), i32(-1), ok])).toBe(INVALID);
    expect(judge('PUSH_RESULT_DETAILS', [s('c'), u32(2), i32(0), ok, i32(0), ok])).toBe(INVALID);
    expect(judge('PUSH_RESULT_DETAILS', [s('c'), u32(1), i32(0), s('{}')])).toBe(INVALID);
    expect(judge('PUSH_RESULT_DETAILS', [s('c'), u32(1), i32(0), ok, u32(0)])).toBe(INVALID);
  });
});

describe('behind its result (S-130)', () => {
  const error: OpResult = { opIndex: 2, status: 'error', code: 'host.no', message: '', retryable: false };
  const rejected: PushResultFrame = {
    type: 'PUSH_RESULT',
    clientCommitId: 'c',
    status: 'rejected',
    results: [error],
  };
  const details = (clientCommitId: string, ...opIndexes: readonly number[]): Frame => ({
    type: 'PUSH_RESULT_DETAILS',
    clientCommitId,
    entries: opIndexes.map((opIndex) => ({ opIndex, detailsJson: ' {"reason":"x"}' })),
  });

  function both(result: PushResultFrame, companion: Frame): readonly [decoded: string, encoded: string] {
    const frames = [{ type: 'RESP_HEADER' }, result, companion] as const;
    const bytes = concat(
      encodeEnvelope(1, 'response'),
      ...frames.map((frame) => encodeFrame(1, frame)),
      END_FRAME,
    );
    const message = { kind: 'response', wireVersion: 1, frames } as SyncMessage;
    return [codeOf(() => decodeMessage(bytes)), codeOf(() => encodeMessage(message))];
  }

  const refused = [INVALID, 'EncodeError'];

  it('stands for an error record of the same commit', () => {
    expect(both(rejected, details('c', 2))).toStrictEqual(['none', 'none']);
    expect(both(rejected, details('d', 2))).toStrictEqual(refused);
    expect(both(rejected, details('c', 0))).toStrictEqual(refused);
    expect(both(rejected, details('c', 2, 3))).toStrictEqual(refused);
  });

  it('not for a conflict and not for an applied record', () => {
    const conflict = {
      opIndex: 2,
      status: 'conflict',
      code: '',
      message: '',
      serverVersion: 1,
      serverRow: hex('00'),
    } as const;
    expect(both({ ...rejected, results: [conflict] }, details('c', 2))).toStrictEqual(refused);
    expect(
      both({ ...rejected, results: [{ opIndex: 2, status: 'applied' }] }, details('c', 2)),
    ).toStrictEqual(refused);
    expect(both({ ...rejected, results: [conflict, error] }, details('c', 2))).toStrictEqual([
      'none',
      'none',
    ]);
  });

  it('not behind applied or cached', () => {
    for (const status of ['applied', 'cached'] as const) {
      expect(both({ ...rejected, status, commitSeq: 1 }, details('c', 2))).toStrictEqual(refused);
    }
  });

  it('belongs to the last result, and keeps its text byte for byte (S-132)', () => {
    const other: PushResultFrame = { ...rejected, clientCommitId: 'd' };
    const frames = [
      { type: 'RESP_HEADER' },
      rejected,
      other,
      details('d', 2),
      rejected,
      details('c', 2),
    ] as const;
    const bytes = encodeMessage({ kind: 'response', wireVersion: 1, frames } as SyncMessage);
    expect(equalBytes(encodeMessage(decodeMessage(bytes)), bytes)).toBe(true);
    expect(decodeMessage(bytes).frames.at(-1)).toStrictEqual(details('c', 2));
  });
});

describe('normalizeResultDetails', () => {
  it('orders members and references, whatever the host gave (decision 26)', () => {
    const value = {
      references: { b: '2', a: '1' },
      requiredAction: 'pay',
      reason: 'x',
      fieldPaths: ['b', 'a'],
    };
    expect(normalizeResultDetails(value)).toBe(
      '{"fieldPaths":["b","a"],"reason":"x","requiredAction":"pay","references":{"a":"1","b":"2"}}',
    );
    expect(normalizeResultDetails({ reason: 'x', fieldPaths: undefined })).toBe('{"reason":"x"}');
  });

  it.each([
    [{}],
    [null],
    ['x'],
    [[]],
    [{ reason: 'X' }],
    [{ note: 'x' }],
    [{ reason: undefined }],
    [{ fieldPaths: [] }],
  ])('throws RangeError for %j: a defect of the host (part 2.17)', (value) => {
    expect(codeOf(() => normalizeResultDetails(value))).toBe('RangeError');
  });

  it('writes only what the decoder takes, and is idempotent (property, S-130)', () => {
    const word = fc.stringMatching(/^[a-z][a-z0-9]{0,8}$/);
    const anything = fc.oneof({ weight: 12, arbitrary: word }, fc.string({ maxLength: 12 }), fc.integer());
    const value = fc.record({
      fieldPaths: fc.option(fc.array(anything, { maxLength: 4 }), { nil: undefined }),
      reason: anything,
      requiredAction: anything,
      references: fc.option(fc.dictionary(word, anything, { maxKeys: 4 }), { nil: undefined }),
    });
    let written = 0;
    fc.assert(
      fc.property(value, (details) => {
        let text: string;
        try {
          text = normalizeResultDetails(details);
        } catch (failure) {
          expect(failure).toBeInstanceOf(RangeError);
          return;
        }
        written++;
        const parsed = parseResultDetails(text);
        expect(normalizeResultDetails(parsed)).toBe(text);
      }),
      { numRuns: 2_000 },
    );
    expect(written).toBeGreaterThan(50);
  });

  it('weighs the normalized text', () => {
    const references = Object.fromEntries(Array.from({ length: 16 }, (_, i) => [`k${i}`, 'é'.repeat(128)]));
    expect(codeOf(() => normalizeResultDetails({ references }))).toBe('RangeError');
  });
});
