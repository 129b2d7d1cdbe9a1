/** Frame order (part 1.3; S-012, S-013, S-014, S-018): every sequence up to length 5 against the EBNF of the protocol. */
import { describe, expect, it } from 'vitest';
import { END_FRAME, encodeEnvelope, encodeFrame } from '../../src/protocol/frame-codecs.ts';
import { FRAME_TYPES, type Frame, type SyncMessage } from '../../src/protocol/frames.ts';
import { FrameOrder } from '../../src/protocol/grammar.ts';
import { decodeMessage, encodeMessage } from '../../src/protocol/message.ts';
import { concat } from './bytes-of.ts';
import { codeOf, INVALID } from './faults.ts';
import { vector } from './vectors.ts';

const UNKNOWN: Frame = { type: 'UNKNOWN', frameType: 0x1a, payload: new Uint8Array([1]) };
const REJECTED: Frame = {
  type: 'PUSH_RESULT',
  clientCommitId: 'c',
  status: 'rejected',
  results: [{ opIndex: 0, status: 'error', code: 'host.no', message: '', retryable: false }],
};

/** One letter per frame; `z` is END. */
const FRAMES: Readonly<Record<string, Frame>> = {
  h: { type: 'REQ_HEADER', clientId: 'a', schemaVersion: 1 },
  c: { type: 'PUSH_COMMIT', clientCommitId: 'c', operations: [{ table: 't', rowId: 'r', op: 'delete' }] },
  p: { type: 'PULL_HEADER', limitCommits: 0, limitSnapshotRows: 0, maxSnapshotPages: 0, accept: 3 },
  s: { type: 'SUBSCRIPTION', id: 's', table: 't', scopes: {}, cursor: 0 },
  H: { type: 'RESP_HEADER' },
  L: { type: 'LEASE', leaseId: 'l', expiresAtMs: 1 },
  R: REJECTED,
  D: {
    type: 'PUSH_RESULT_DETAILS',
    clientCommitId: 'c',
    entries: [{ opIndex: 0, detailsJson: '{"reason":"x"}' }],
  },
  S: { type: 'SUB_START', id: 's', status: 'active', reasonCode: '', effectiveScopes: {}, bootstrap: false },
  C: { type: 'COMMIT', commitSeq: 1, createdAtMs: 1, actorId: 'a', tables: [], changes: [] },
  G: {
    type: 'SEGMENT_REF',
    segmentId: 'g',
    mediaType: 'rows',
    table: 't',
    byteLength: 0,
    rowCount: 0,
    asOfCommitSeq: 1,
    scopeDigest: '',
  },
  I: { type: 'SEGMENT_INLINE', payload: vector('segment', 'crdt-column') },
  E: { type: 'SUB_END', nextCursor: 1 },
  X: { type: 'ERROR', code: 'x', message: '', category: '', retryable: false, recommendedAction: '' },
  u: UNKNOWN,
};

/**
 * The EBNF of part 1.3 as regular expressions over those letters. Unknown frames are struck out first: they may stand
 * anywhere but in front and behind ERROR.
 */
const REQUEST = /^h(c+|c*ps*)z$/;
const RESPONSE = /^HL?(RD?)*(S(C*|[GI]*)E)*z$/;
/** What an ERROR may cut short: any beginning of a response. */
const RESPONSE_BEGUN = /^H(L?(RD?)*|L?(RD?)*(S(C*|[GI]*)E)*(S(C*|[GI]*))?)$/;

function legalByGrammar(letters: string): boolean {
  if (letters.startsWith('u') || letters.includes('Xu') || /zu|z./.test(letters)) return false;
  const known = letters.replaceAll('u', '');
  if (REQUEST.test(known) || RESPONSE.test(known)) return true;
  return known.endsWith('Xz') && !known.slice(0, -2).includes('X') && RESPONSE_BEGUN.test(known.slice(0, -2));
}

const BYTES = new Map(Object.entries(FRAMES).map(([letter, frame]) => [letter, encodeFrame(1, frame)]));
BYTES.set('z', END_FRAME);

function* sequences(alphabet: string, lengthMax: number): Generator<string> {
  for (const letter of alphabet) {
    yield letter;
    if (lengthMax > 1) for (const tail of sequences(alphabet, lengthMax - 1)) yield letter + tail;
  }
}

function typeOf(letter: string): number {
  if (letter === 'z') return FRAME_TYPES.END;
  const frame = FRAMES[letter]!;
  return frame.type === 'UNKNOWN' ? frame.frameType : FRAME_TYPES[frame.type];
}

/** The table's verdict: every step is legal and the last one ends the message. */
function legalByTable(kind: SyncMessage['kind'], letters: string): boolean {
  const order = new FrameOrder(kind);
  for (const letter of letters) {
    if (order.step(typeOf(letter)) !== null) return false;
  }
  return order.ended;
}

describe.each([
  { kind: 'request', alphabet: 'hcpsuzHEX', start: 'h', legalCount: 28 },
  { kind: 'response', alphabet: 'HLRDSCGIEXuzhp', start: 'H', legalCount: 63 },
] as const)('all $kind sequences up to length 5', ({ kind, alphabet, start, legalCount }) => {
  it('are judged by the table as by the EBNF', () => {
    let legal = 0;
    for (const letters of sequences(alphabet, 5)) {
      const expected = letters.startsWith(start) && legalByGrammar(letters);
      if (legalByTable(kind, letters) !== expected) expect.fail(`${letters} should be legal: ${expected}`);
      if (expected) legal++;
    }
    expect(legal).toBe(legalCount);
  });

  it('decode and encode exactly when they are legal', () => {
    const envelope = encodeEnvelope(1, kind);
    for (const letters of sequences(alphabet, 5)) {
      // Only the neighbourhood of legal ones: the table test above has seen the rest.
      const near = legalByTable(kind, letters) || legalByTable(kind, `${letters}z`) || letters.length < 4;
      if (!near) continue;
      const bytes = concat(envelope, ...Array.from(letters, (letter) => BYTES.get(letter)!));
      const expected = letters.startsWith(start) && legalByGrammar(letters);
      expect(
        codeOf(() => decodeMessage(bytes)),
        letters,
      ).toBe(expected ? 'none' : INVALID);
    }
  });
});

describe('the encoder keeps the order too (part 1.2 rule 7)', () => {
  it('refuses what the table refuses and writes the rest', () => {
    for (const letters of sequences('hcpsuHSEX', 4)) {
      const kind = letters.startsWith('h') ? 'request' : 'response';
      const frames = Array.from(letters, (letter) => FRAMES[letter]!);
      const message = { kind, wireVersion: 1, frames } as SyncMessage;
      const start = letters.startsWith('h') || letters.startsWith('H');
      const expected = start && legalByGrammar(`${letters}z`) ? 'none' : 'EncodeError';
      expect(
        codeOf(() => encodeMessage(message)),
        letters,
      ).toBe(expected);
    }
  });
});

describe('single rules', () => {
  const judge = (letters: string): string => {
    const kind = letters.startsWith('h') ? 'request' : 'response';
    const bytes = concat(encodeEnvelope(1, kind), ...Array.from(letters, (letter) => BYTES.get(letter)!));
    return codeOf(() => decodeMessage(bytes));
  };

  it.each([
    ['content made of unknown frames only', 'huuz'],
    ['a second request header', 'hhpz'],
    ['a second PULL_HEADER', 'hppz'],
    ['a commit behind the pull', 'hpcz'],
    ['a subscription without a pull', 'hcsz'],
    ['a second response header', 'HHz'],
    ['a second LEASE', 'HLLz'],
    ['a LEASE behind a result', 'HRLz'],
    ['details without a result', 'HDz'],
    ['details behind details', 'HRDDz'],
    ['COMMIT, then segments (S-013)', 'HSCGEz'],
    ['COMMIT, then an inline segment (S-013)', 'HSCIEz'],
    ['segments, then COMMIT (S-013)', 'HSGCEz'],
    ['an inline segment, then COMMIT (S-013)', 'HSICEz'],
    ['a nested section', 'HSSEEz'],
    ['END in an open section', 'HSz'],
    ['a result behind a section', 'HSERz'],
    ['a commit outside a section', 'HCz'],
    ['a second ERROR (S-018)', 'HXXz'],
    ['a frame behind ERROR (S-018)', 'HXSEz'],
    ['an unknown frame behind ERROR', 'HXuz'],
    ['an unknown frame in front', 'uHz'],
    ['a request frame in a response', 'Hpz'],
  ])('refuses %s', (_name, letters) => {
    expect(judge(letters)).toBe(INVALID);
  });

  it.each([
    ['a push without a pull', 'hccz'],
    ['a pull without subscriptions', 'hpz'],
    ['both', 'hccpssz'],
    ['a header alone', 'Hz'],
    ['mixed segment frames', 'HSGIGEz'],
    ['ERROR in an open section', 'HSCXz'],
    ['ERROR at once', 'HXz'],
    ['an unknown frame between header and LEASE (W-e)', 'HuLz'],
    ['an unknown frame between a result and its details (W-e)', 'HRuDz'],
    ['unknown frames everywhere else', 'HuRuSuCuEuSuEuz'],
  ])('takes %s', (_name, letters) => {
    expect(judge(letters)).toBe('none');
  });
});
