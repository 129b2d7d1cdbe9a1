/** The text of a stored outcome: what was written is read back, and nothing else is (S-037, S-127). */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import {
  answerOf,
  decodeStoredOutcome,
  encodeStoredOutcome,
  type StoredOutcome,
} from '../../src/session/sync/stored-result.ts';

const text = fc.string({ unit: 'grapheme' });
const index = fc.nat({ max: 500 });
const outcome: fc.Arbitrary<StoredOutcome> = fc.oneof(
  fc.record({
    status: fc.constant('applied' as const),
    commitSeq: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
    operations: fc.integer({ min: 1, max: 600 }),
  }),
  fc.record({
    status: fc.constant('rejected' as const),
    detailsJson: fc.option(text),
    record: fc.oneof(
      fc.record({
        opIndex: index,
        status: fc.constant('error' as const),
        code: text,
        message: text,
        retryable: fc.boolean(),
      }),
      fc.record({
        opIndex: index,
        status: fc.constant('conflict' as const),
        code: text,
        message: text,
        serverVersion: fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }),
        serverRow: fc.uint8Array({ maxLength: 200 }),
      }),
    ),
  }),
);

test('an outcome is read back as it was written, and answers alike (S-037)', () => {
  fc.assert(
    fc.property(outcome, (written) => {
      const read = decodeStoredOutcome(encodeStoredOutcome(written));
      expect(read).toEqual(written);
      const delivery = { clientCommitId: 'c', appliedAs: 'cached' } as const;
      expect(answerOf(read!, delivery)).toEqual(answerOf(written, delivery));
    }),
  );
});

test('a conflict row of megabytes', () => {
  const serverRow = new Uint8Array(3_000_001).fill(171);
  const record = {
    opIndex: 0,
    status: 'conflict',
    code: 'sync.version_conflict',
    message: 'm',
    serverVersion: 1,
    serverRow,
  } as const;
  const read = decodeStoredOutcome(encodeStoredOutcome({ status: 'rejected', record, detailsJson: null }));
  expect(
    read?.status === 'rejected' && read.record.status === 'conflict' && read.record.serverRow.length,
  ).toBe(serverRow.length);
});

test('a cut or changed text is unreadable, never another outcome (S-127)', () => {
  fc.assert(
    fc.property(outcome, fc.nat(), (written, cutAt) => {
      const whole = encodeStoredOutcome(written);
      expect(decodeStoredOutcome(whole.slice(0, cutAt % whole.length))).toBeNull();
    }),
  );
});

describe('unreadable', () => {
  const record = { opIndex: 0, status: 'error', code: 'c', message: 'm', retryable: false };
  const conflict = { ...record, status: 'conflict', serverVersion: 1, serverRow: 'AAA=' };
  test.each<[string, unknown]>([
    ['no object', null],
    ['a list', []],
    ['another format', { format: 2, applied: { commitSeq: 1, operations: 1 } }],
    ['no outcome', { format: 1 }],
    ['no commitSeq', { format: 1, applied: { operations: 1 } }],
    ['a commitSeq of 0', { format: 1, applied: { commitSeq: 0, operations: 1 } }],
    ['half an operation', { format: 1, applied: { commitSeq: 1, operations: 0.5 } }],
    ['a record of another status', { format: 1, rejected: { ...record, status: 'applied' } }],
    ['a negative opIndex', { format: 1, rejected: { ...record, opIndex: -1 } }],
    ['no code', { format: 1, rejected: { ...record, code: undefined } }],
    ['a number for a message', { format: 1, rejected: { ...record, message: 1 } }],
    ['no retryable', { format: 1, rejected: { ...record, retryable: undefined } }],
    ['details that are no text', { format: 1, rejected: record, details: {} }],
    ['a version of 0', { format: 1, rejected: { ...conflict, serverVersion: 0 } }],
    ['white space in base64', { format: 1, rejected: { ...conflict, serverRow: 'AA\nA' } }],
    ['white space that fills up base64', { format: 1, rejected: { ...conflict, serverRow: 'AA    AA' } }],
    ['unpadded base64', { format: 1, rejected: { ...conflict, serverRow: 'AAA' } }],
    ['another alphabet', { format: 1, rejected: { ...conflict, serverRow: 'AA_-' } }],
  ])('%s', (_name, value) => {
    expect(decodeStoredOutcome(JSON.stringify(value))).toBeNull();
  });

  test('the two shapes that are readable, for comparison', () => {
    expect(decodeStoredOutcome(JSON.stringify({ format: 1, rejected: record }))).not.toBeNull();
    expect(decodeStoredOutcome(JSON.stringify({ format: 1, rejected: conflict }))).not.toBeNull();
  });
});
