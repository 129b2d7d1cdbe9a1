/** How a subscription is answered, and the tokens and bounds that decide it: pure parts of a pull. */
import { describe, expect, test } from 'vitest';
import { DEFAULT_LIMITS } from '../../src/protocol/limits.ts';
import { acceptsRows, pullBounds } from '../../src/session/sync/pull-bounds.ts';
import {
  encodeResumeToken,
  parseResumeToken,
  type ResumeToken,
} from '../../src/session/sync/resume-token.ts';
import { type AnswerInput, answerSubscription } from '../../src/session/sync/subscription-answer.ts';

const LOG = { head: 100, horizon: 40, freshPin: 100 };
const TOKEN: ResumeToken = {
  asOfCommitSeq: 70,
  tables: ['notes'],
  tableIndex: 0,
  rowCursor: 'row-5',
  scopeDigest: 'digest',
  paramsDigest: '',
};

function input(changes: Partial<AnswerInput>): AnswerInput {
  return {
    table: 'notes',
    effective: { status: 'active', scopes: { project: ['p1'] } },
    cursor: 70,
    scopes: 'known',
    token: 'absent',
    scopeDigest: 'digest',
    paramsDigest: '',
    ...changes,
  };
}

const RESUMED = { kind: 'bootstrap', pin: 70, rowCursor: 'row-5', firstPage: 'delivered' };
const FRESH = { kind: 'bootstrap', pin: 100, rowCursor: null, firstPage: 'due' };
const RESTARTED = { kind: 'bootstrap', pin: 100, rowCursor: null, firstPage: 'delivered' };
const RESET = { kind: 'reset' };
const INCREMENTAL = { kind: 'incremental' };

describe('part 2.7, decisions 1, 3 and 6: the answer', () => {
  const untouched = { ...TOKEN, rowCursor: null };
  const cases: readonly (readonly [string, Partial<AnswerInput>, object])[] = [
    [
      'revoked wins over a pruned cursor',
      { effective: { status: 'revoked' }, cursor: 3 },
      { kind: 'revoked' },
    ],
    ['revoked wins over a token', { effective: { status: 'revoked' }, token: TOKEN }, { kind: 'revoked' }],
    ['S-069: a usable token resumes at its pin', { token: TOKEN }, RESUMED],
    ['a token decides before the cursor', { token: TOKEN, cursor: -1 }, RESUMED],
    [
      'S-070: a pin at the horizon resumes',
      { token: { ...TOKEN, asOfCommitSeq: 40 } },
      { ...RESUMED, pin: 40 },
    ],
    ['S-070: a pin below the horizon resets', { token: { ...TOKEN, asOfCommitSeq: 39 } }, RESET],
    ['a pin above the log resets', { token: { ...TOKEN, asOfCommitSeq: 101 } }, RESET],
    ['S-070: a pruned pin without a row restarts', { token: { ...untouched, asOfCommitSeq: 39 } }, RESTARTED],
    ['S-071: an unusable token resets', { token: 'unusable', cursor: -1 }, RESET],
    ['S-071: a token of another table resets', { token: { ...TOKEN, tables: ['tasks'] } }, RESET],
    ['a token of several tables resets', { token: { ...TOKEN, tables: ['notes', 'tasks'] } }, RESET],
    ['a token of other scopes resets', { token: { ...TOKEN, scopeDigest: 'other' } }, RESET],
    ['a token of other scopes without a row resets', { token: { ...untouched, scopeDigest: 'o' } }, RESET],
    ['a token of other params resets', { token: { ...TOKEN, paramsDigest: 'other' } }, RESET],
    ['a cursor below 0 bootstraps', { cursor: -1 }, FRESH],
    ['any cursor below 0 bootstraps', { cursor: -7 }, FRESH],
    ['S-066: a cursor below the horizon resets', { cursor: 39 }, RESET],
    ['S-066: a cursor of 0 below the horizon resets', { cursor: 0 }, RESET],
    ['S-066: a cursor at the horizon is incremental', { cursor: 40 }, INCREMENTAL],
    ['R-081: far behind is incremental', { cursor: 41 }, INCREMENTAL],
    ['a cursor at the head is incremental', { cursor: 100 }, INCREMENTAL],
    ['decision 1: grown scopes reset', { scopes: 'grown' }, RESET],
    ['grown scopes bootstrap from -1', { scopes: 'grown', cursor: -1 }, FRESH],
    ['grown scopes resume a token of the same scopes', { scopes: 'grown', token: TOKEN }, RESUMED],
    ['S-073: a cursor above the log resets', { cursor: 101 }, RESET],
  ];

  test.each(cases)('%s', (_title, changes, answer) => {
    expect(answerSubscription(input(changes), LOG)).toEqual(answer);
  });

  test('an empty log takes cursor 0', () => {
    const empty = { head: 0, horizon: 0, freshPin: 0 };
    expect(answerSubscription(input({ cursor: 0 }), empty)).toEqual(INCREMENTAL);
    expect(answerSubscription(input({ cursor: -1 }), empty)).toEqual({ ...FRESH, pin: 0 });
  });
});

describe('S-071: resume tokens are untrusted', () => {
  const parse = (text: string) => parseResumeToken(text, 1_000);

  test('round trip', () => {
    expect(parse(encodeResumeToken(TOKEN))).toEqual(TOKEN);
    expect(parse(encodeResumeToken({ ...TOKEN, rowCursor: null }))).toEqual({ ...TOKEN, rowCursor: null });
    expect(Object.keys(JSON.parse(encodeResumeToken(TOKEN))).slice(0, 4)).toEqual([
      'asOfCommitSeq',
      'tables',
      'tableIndex',
      'rowCursor',
    ]);
  });

  const faults: readonly (readonly [string, unknown])[] = [
    ['null', null],
    ['a list', [TOKEN]],
    ['empty', {}],
    ['no pin', { ...TOKEN, asOfCommitSeq: undefined }],
    ['a negative pin', { ...TOKEN, asOfCommitSeq: -1 }],
    ['a fractional pin', { ...TOKEN, asOfCommitSeq: 1.5 }],
    ['an unsafe pin', { ...TOKEN, asOfCommitSeq: 2 ** 53 }],
    ['a pin as text', { ...TOKEN, asOfCommitSeq: '70' }],
    ['tables no list', { ...TOKEN, tables: 'notes' }],
    ['no tables', { ...TOKEN, tables: [] }],
    ['a table no text', { ...TOKEN, tables: [7] }],
    ['an index out of range', { ...TOKEN, tableIndex: 1 }],
    ['a row cursor that is no text', { ...TOKEN, rowCursor: 7 }],
    ['a missing row cursor', { ...TOKEN, rowCursor: undefined }],
    ['a NUL in the row cursor', { ...TOKEN, rowCursor: 'a\0b' }],
    ['a lone surrogate in the row cursor', { ...TOKEN, rowCursor: '\ud800' }],
    ['no scope digest', { ...TOKEN, scopeDigest: undefined }],
    ['params digest no text', { ...TOKEN, paramsDigest: null }],
    ['too long', { ...TOKEN, rowCursor: 'x'.repeat(1_000) }],
  ];
  test.each(faults)('unusable: %s', (_title, value) => {
    expect(parse(JSON.stringify(value))).toBeNull();
  });

  test('unusable: not JSON, deeply nested', () => {
    expect(parse('{')).toBeNull();
    expect(parseResumeToken('['.repeat(100_000), 16_384)).toBeNull();
  });

  test('a member from a prototype is not one of the token', () => {
    expect(parse('{"__proto__":{"asOfCommitSeq":1,"tables":["notes"]}}')).toBeNull();
  });
});

describe('S-057: defaults and silent clamps', () => {
  const header = { type: 'PULL_HEADER', limitCommits: 0, limitSnapshotRows: 0, maxSnapshotPages: 0 } as const;
  const bounds = (changes: object) => pullBounds({ ...header, accept: 1, ...changes }, DEFAULT_LIMITS);

  test.each([
    [0, 1000],
    [-5, 1],
    [1, 1],
    [1000, 1000],
    [1001, 1000],
    [2 ** 31 - 1, 1000],
  ])('limitCommits %i counts %i changes', (asked, changesMax) => {
    expect(bounds({ limitCommits: asked }).changesMax).toBe(changesMax);
  });

  test.each([
    [0, 1000],
    [-(2 ** 31), 1],
    [50_001, 50_000],
  ])('limitSnapshotRows %i is %i', (asked, rows) => {
    expect(bounds({ limitSnapshotRows: asked }).pageRowsMax).toBe(rows);
  });

  test.each([
    [0, 4],
    [-1, 1],
    [51, 50],
  ])('maxSnapshotPages %i is %i', (asked, pages) => {
    expect(bounds({ maxSnapshotPages: asked }).pagesMax).toBe(pages);
  });

  test('S-024, S-059: accept chooses how rows segments travel', () => {
    expect([0b01, 0b10, 0b11, 0b1111, 0b1101].map((accept) => bounds({ accept }).delivery)).toEqual([
      'inline',
      'external',
      'by-size',
      'by-size',
      'inline',
    ]);
    expect([0b00, 0b0100, 0b1100].some(acceptsRows)).toBe(false);
    expect([0b01, 0b10, 0b11].every(acceptsRows)).toBe(true);
  });
});
