/** Rules of the rendering that no vector shows (part 1.13). */
import { describe, expect, it } from 'vitest';
import type { Frame } from '../../src/protocol/frames.ts';
import { renderAny, renderFrame, renderMessage } from '../../src/protocol/render.ts';
import { hex } from './bytes-of.ts';
import { codeOf, INVALID } from './faults.ts';

describe('rendering', () => {
  it('keeps the order of the tables and leaves absent fields out (rules 2 and 3)', () => {
    const frame: Frame = {
      urlExpiresAtMs: 5,
      url: 'u',
      nextRowCursor: undefined,
      scopeDigest: 'd',
      asOfCommitSeq: 3,
      rowCount: 2,
      byteLength: 1,
      table: 't',
      mediaType: 'sqlite',
      segmentId: 's',
      type: 'SEGMENT_REF',
    };
    expect(JSON.stringify(renderFrame(frame))).toBe(
      '{"type":"SEGMENT_REF","segmentId":"s","mediaType":"sqlite","table":"t","byteLength":1,"rowCount":2,' +
        '"asOfCommitSeq":3,"scopeDigest":"d","url":"u","urlExpiresAtMs":5}',
    );
  });

  it('parses detailsJson (rule 7, W-h)', () => {
    const entries = [{ opIndex: 0, detailsJson: '{"reason":"x"}' }];
    expect(renderFrame({ type: 'PUSH_RESULT_DETAILS', clientCommitId: 'c', entries })).toStrictEqual({
      type: 'PUSH_RESULT_DETAILS',
      clientCommitId: 'c',
      entries: [{ opIndex: 0, detailsJson: { reason: 'x' } }],
    });
  });

  it('shows the fields of each kind of result record', () => {
    const results = [
      { opIndex: 0, status: 'applied' },
      { opIndex: 1, status: 'conflict', code: 'c', message: 'm', serverVersion: 7, serverRow: hex('00 ff') },
      { opIndex: 2, status: 'error', code: 'c', message: 'm', retryable: true },
    ] as const;
    const frame = { type: 'PUSH_RESULT', clientCommitId: 'x', status: 'rejected', results } as const;
    const shown = renderFrame(frame).results as unknown[];
    expect(shown).toStrictEqual([results[0], { ...results[1], serverRow: 'AP8=' }, results[2]]);
  });

  it('renders a wire 2 header and an unknown frame', () => {
    const frames: Frame[] = [
      { type: 'RESP_HEADER', logEpoch: 'e', resetRequired: false },
      { type: 'UNKNOWN', frameType: 26, payload: hex('') },
    ];
    expect(renderMessage({ kind: 'response', wireVersion: 2, frames: frames as never })).toStrictEqual({
      magic: 'SSP2',
      wireVersion: 2,
      msgKind: 'response',
      frames: [
        { type: 'RESP_HEADER', logEpoch: 'e', resetRequired: false },
        { type: 'UNKNOWN', frameType: 26, payload: '' },
      ],
    });
  });

  it('takes a map key named __proto__ for a key', () => {
    const effectiveScopes = Object.assign(Object.create(null), { ['__proto__']: ['x'] });
    const rest = { id: 's', status: 'active', reasonCode: '', bootstrap: false } as const;
    const shown = renderFrame({ type: 'SUB_START', ...rest, effectiveScopes });
    expect(JSON.stringify(shown.effectiveScopes)).toBe('{"__proto__":["x"]}');
  });

  it.each(['', '53 53', '53 53 50 31 01 00 01 00', '00'])(
    'bytes %j are neither message nor segment',
    (bytes) => {
      expect(codeOf(() => renderAny(hex(bytes)))).toBe(INVALID);
    },
  );
});
