/** Every enum, bool and presence byte of every frame over all 256 values, and with them the ties (part 1.1, S-019, S-022). */
import { describe, it } from 'vitest';
import { b, type FrameName, i32, i64, judge, s, sweep, u8, u16, u32, type Write } from './payloads.ts';

describe('every enum, bool and presence byte over all 256 values', () => {
  const operation = (op: number, base: number, present: number): Write[] => [
    s('c'),
    u32(1),
    s('t'),
    s('r'),
    u8(op),
    u8(base),
    ...(base === 1 ? [i64(1)] : []),
    u8(present),
    ...(present === 1 ? [b(1)] : []),
  ];
  const change = (op: number, version: number, row: number): Write[] => [
    i64(1),
    i64(1),
    s('a'),
    u32(1),
    s('t'),
    u32(1),
    u16(0),
    s('r'),
    u8(op),
    u8(version),
    ...(version === 1 ? [i64(1)] : []),
    u32(0),
    u8(row),
    ...(row === 1 ? [b(1)] : []),
  ];
  const result = (status: number, seq: number): Write[] => [
    s('c'),
    u8(status),
    u8(seq),
    ...(seq === 1 ? [i64(1)] : []),
    u32(0),
  ];
  const ref = (media: number, presence: readonly [number, number, number, number]): Write[] => [
    s('id'),
    u8(media),
    s('t'),
    i64(1),
    i64(1),
    i64(1),
    s('d'),
    u8(presence[0]),
    ...(presence[0] === 1 ? [s('')] : []),
    u8(presence[1]),
    ...(presence[1] === 1 ? [s('')] : []),
    u8(presence[2]),
    ...(presence[2] === 1 ? [s('u')] : []),
    u8(presence[3]),
    ...(presence[3] === 1 ? [i64(1)] : []),
  ];
  const record = (...tail: readonly Write[]): Write[] => [s('c'), u8(3), u8(0), u32(1), i32(0), ...tail];
  const subStart = (status: number, bootstrap: number): Write[] => [
    s('i'),
    u8(status),
    s(''),
    u32(0),
    u8(bootstrap),
  ];
  const subscription = (params: number, state: number): Write[] => [
    s('i'),
    s('t'),
    u32(0),
    u8(params),
    ...(params === 1 ? [s('1')] : []),
    i64(0),
    u8(state),
    ...(state === 1 ? [s('1')] : []),
  ];
  const error = (retryable: number, details: number): Write[] => [
    s('c'),
    s('m'),
    s('k'),
    u8(retryable),
    s('a'),
    u8(details),
    ...(details === 1 ? [s('{}')] : []),
  ];

  it.each<readonly [string, readonly number[], FrameName, (byte: number) => readonly Write[]]>([
    ['operation.op, payload present', [1], 'PUSH_COMMIT', (v) => operation(v, 0, 1)],
    ['operation.op, payload absent', [2], 'PUSH_COMMIT', (v) => operation(v, 0, 0)],
    ['operation.baseVersion of an upsert', [0, 1], 'PUSH_COMMIT', (v) => operation(1, v, 1)],
    ['operation.baseVersion of a delete', [0, 1], 'PUSH_COMMIT', (v) => operation(2, v, 0)],
    ['operation.payload of an upsert (tie 1)', [1], 'PUSH_COMMIT', (v) => operation(1, 0, v)],
    ['operation.payload of a delete (tie 1)', [0], 'PUSH_COMMIT', (v) => operation(2, 0, v)],
    ['SUBSCRIPTION.params', [0, 1], 'SUBSCRIPTION', (v) => subscription(v, 0)],
    ['SUBSCRIPTION.bootstrapState', [0, 1], 'SUBSCRIPTION', (v) => subscription(0, v)],
    [
      'RESP_HEADER.requiredSchemaVersion',
      [0, 1],
      'RESP_HEADER',
      (v) => [u8(v), ...(v === 1 ? [i32(1)] : []), u8(0)],
    ],
    [
      'RESP_HEADER.latestSchemaVersion',
      [0, 1],
      'RESP_HEADER',
      (v) => [u8(0), u8(v), ...(v === 1 ? [i32(1)] : [])],
    ],
    ['PUSH_RESULT.status with commitSeq (tie 3)', [1, 2], 'PUSH_RESULT', (v) => result(v, 1)],
    ['PUSH_RESULT.status without commitSeq (tie 3)', [3], 'PUSH_RESULT', (v) => result(v, 0)],
    ['PUSH_RESULT.commitSeq of applied (tie 3)', [1], 'PUSH_RESULT', (v) => result(1, v)],
    ['PUSH_RESULT.commitSeq of cached (tie 3)', [1], 'PUSH_RESULT', (v) => result(2, v)],
    ['PUSH_RESULT.commitSeq of rejected (tie 3)', [0], 'PUSH_RESULT', (v) => result(3, v)],
    ['record.status without fields', [1], 'PUSH_RESULT', (v) => record(u8(v))],
    [
      'record.status with the fields of a conflict',
      [2],
      'PUSH_RESULT',
      (v) => record(u8(v), s(''), s(''), i64(1), b()),
    ],
    [
      'record.status with the fields of an error',
      [3],
      'PUSH_RESULT',
      (v) => record(u8(v), s(''), s(''), u8(0)),
    ],
    ['record.retryable', [0, 1], 'PUSH_RESULT', (v) => record(u8(3), s(''), s(''), u8(v))],
    ['SUB_START.status', [1, 2, 3], 'SUB_START', (v) => subStart(v, 0)],
    ['SUB_START.bootstrap', [0, 1], 'SUB_START', (v) => subStart(1, v)],
    ['change.op, upsert fields', [1], 'COMMIT', (v) => change(v, 1, 1)],
    ['change.op, no fields', [2], 'COMMIT', (v) => change(v, 0, 0)],
    ['change.rowVersion of an upsert (tie 2)', [1], 'COMMIT', (v) => change(1, v, 1)],
    ['change.row of an upsert (tie 2)', [1], 'COMMIT', (v) => change(1, 1, v)],
    ['change.rowVersion of a delete (tie 2)', [0], 'COMMIT', (v) => change(2, v, 0)],
    ['change.row of a delete (tie 2)', [0], 'COMMIT', (v) => change(2, 0, v)],
    ['SEGMENT_REF.mediaType', [1, 2], 'SEGMENT_REF', (v) => ref(v, [0, 0, 0, 0])],
    ['SEGMENT_REF.rowCursor', [0, 1], 'SEGMENT_REF', (v) => ref(1, [v, 0, 0, 0])],
    ['SEGMENT_REF.nextRowCursor', [0, 1], 'SEGMENT_REF', (v) => ref(1, [0, v, 0, 0])],
    ['SEGMENT_REF.url without expiry (tie 4)', [0], 'SEGMENT_REF', (v) => ref(1, [0, 0, v, 0])],
    ['SEGMENT_REF.url with expiry (tie 4)', [1], 'SEGMENT_REF', (v) => ref(1, [0, 0, v, 1])],
    ['SEGMENT_REF.urlExpiresAtMs without url (tie 4)', [0], 'SEGMENT_REF', (v) => ref(1, [0, 0, 0, v])],
    ['SEGMENT_REF.urlExpiresAtMs with url (tie 4)', [1], 'SEGMENT_REF', (v) => ref(1, [0, 0, 1, v])],
    ['SUB_END.bootstrapState', [0, 1], 'SUB_END', (v) => [i64(1), u8(v), ...(v === 1 ? [s('null')] : [])]],
    ['ERROR.retryable', [0, 1], 'ERROR', (v) => error(v, 0)],
    ['ERROR.details', [0, 1], 'ERROR', (v) => error(0, v)],
    [
      'PULL_HEADER.accept: bits 4 to 7 are refused',
      Array.from({ length: 16 }, (_, v) => v),
      'PULL_HEADER',
      (v) => [i32(0), i32(0), i32(0), u8(v)],
    ],
  ])('%s', (_name, legal, frame, payload) => {
    sweep(legal, (byte) => judge(frame, payload(byte)));
  });

  it('the fields of wire 2', () => {
    sweep([0, 1], (v) => judge('REQ_HEADER', [s('a'), i32(1), u8(v), ...(v === 1 ? [s('e')] : [])], 2));
    sweep([0, 1], (v) => judge('RESP_HEADER', [u8(0), u8(0), s('e'), u8(v)], 2));
  });
});
