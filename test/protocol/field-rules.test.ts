/** Field rules of the decoder and the encoder: rows 4 to 9 of part 1.8, versions, hostile sizes (S-019, S-022). */
import { describe, expect, it } from 'vitest';
import { encodeFrame } from '../../src/protocol/frame-codecs.ts';
import type { Frame } from '../../src/protocol/frames.ts';
import { concat } from './bytes-of.ts';
import { codeOf, INVALID } from './faults.ts';
import {
  b,
  bytes,
  decode,
  type FrameName,
  i32,
  i64,
  judge,
  s,
  u8,
  u16,
  u32,
  type Write,
} from './payloads.ts';

describe('rows 4 to 7 of part 1.8', () => {
  it('clientId and schemaVersion', () => {
    expect(judge('REQ_HEADER', [s(''), i32(1)])).toBe(INVALID);
    expect(judge('REQ_HEADER', [s('a'), i32(0)])).toBe(INVALID);
    expect(judge('REQ_HEADER', [s('a'), i32(-1)])).toBe(INVALID);
    expect(judge('REQ_HEADER', [s('a'), i32(1)])).toBe('none');
  });

  it('clientCommitId', () => {
    expect(judge('PUSH_COMMIT', [s(''), u32(1), s('t'), s('r'), u8(2), u8(0), u8(0)])).toBe(INVALID);
  });

  it('zero operations have a code of their own (S-022)', () => {
    expect(judge('PUSH_COMMIT', [s('c'), u32(0)])).toBe('sync.empty_commit');
    expect(judge('PUSH_COMMIT', [s(''), u32(0)])).toBe(INVALID);
  });

  it('tableIndex stays inside the dictionary', () => {
    const change = (tables: readonly string[], index: number): Write[] => [
      i64(1),
      i64(1),
      s('a'),
      u32(tables.length),
      ...tables.map(s),
      u32(1),
      u16(index),
      s('r'),
      u8(2),
      u8(0),
      u32(0),
      u8(0),
    ];
    expect(judge('COMMIT', change(['t'], 0))).toBe('none');
    expect(judge('COMMIT', change(['t'], 1))).toBe(INVALID);
    expect(judge('COMMIT', change([], 0))).toBe(INVALID);
    expect(judge('COMMIT', change(['t', 'u'], 65_535))).toBe(INVALID);
  });
});

describe('what the server judges decodes (second table of part 1.8, S-019)', () => {
  it.each<readonly [string, FrameName, readonly Write[]]>([
    [
      "a requested '*'",
      'SUBSCRIPTION',
      [s('i'), s('t'), u32(1), s('k'), u32(1), s('*'), u8(0), i64(0), u8(0)],
    ],
    ['an unknown subscription table', 'SUBSCRIPTION', [s('i'), s('no such'), u32(0), u8(0), i64(-7), u8(0)]],
    ['an unknown operation table', 'PUSH_COMMIT', [s('c'), u32(1), s('no such'), s(''), u8(2), u8(0), u8(0)]],
    ['a payload that is no row', 'PUSH_COMMIT', [s('c'), u32(1), s('t'), s('r'), u8(1), u8(0), u8(1), b()]],
    ['accept without bits 0 and 1 (S-024)', 'PULL_HEADER', [i32(-5), i32(0), i32(2_000_000), u8(4)]],
    ['a reserved clientId', 'REQ_HEADER', [s('["remote-command",'), i32(1)]],
    ['an empty leaseId (W-b)', 'LEASE', [s(''), i64(0)]],
    ['a reason for an active section', 'SUB_START', [s('i'), u8(1), s('sync.cursor_expired'), u32(0), u8(0)]],
    ['scopes in a revoked section', 'SUB_START', [s('i'), u8(2), s(''), u32(1), s('k'), u32(0), u8(0)]],
    [
      'cursors on an image',
      'SEGMENT_REF',
      [s('x'), u8(2), s('t'), i64(-1), i64(0), i64(0), s(''), u8(1), s(''), u8(1), s(''), u8(0), u8(0)],
    ],
    [
      'negative and repeated opIndexes in results',
      'PUSH_RESULT',
      [s(''), u8(1), u8(1), i64(-1), u32(2), i32(-1), u8(1), i32(-1), u8(1)],
    ],
    ['a commit without tables and changes (W-n)', 'COMMIT', [i64(0), i64(0), s(''), u32(0), u32(0)]],
  ])('%s', (_name, frame, writes) => {
    expect(judge(frame, writes)).toBe('none');
  });

  it('empty epochs of a peer (W-b)', () => {
    expect(judge('REQ_HEADER', [s('a'), i32(1), u8(1), s('')], 2)).toBe('none');
    expect(judge('RESP_HEADER', [u8(0), u8(0), s(''), u8(0)], 2)).toBe('none');
  });

  it('a delete keeps its baseVersion', () => {
    const frame = decode('PUSH_COMMIT', bytes(s('c'), u32(1), s('t'), s('r'), u8(2), u8(1), i64(9), u8(0)));
    expect(frame).toMatchObject({ operations: [{ op: 'delete', baseVersion: 9, payload: undefined }] });
  });
});

describe('versions (part 1.12)', () => {
  it('a wire 1 header with the bytes of wire 2 has bytes left over', () => {
    expect(judge('REQ_HEADER', [s('a'), i32(1), u8(0)], 1)).toBe(INVALID);
    expect(judge('REQ_HEADER', [s('a'), i32(1)], 2)).toBe(INVALID);
    expect(judge('RESP_HEADER', [u8(0), u8(0), s('e'), u8(0)], 1)).toBe(INVALID);
    expect(judge('RESP_HEADER', [u8(0), u8(0)], 2)).toBe(INVALID);
  });

  it('the floor of wire 2 carries epoch and reset flag', () => {
    const frame = decode('RESP_HEADER', bytes(u8(1), i32(3), u8(1), i32(5), s('e'), u8(1)), 2);
    const floor = { requiredSchemaVersion: 3, latestSchemaVersion: 5, logEpoch: 'e', resetRequired: true };
    expect(frame).toStrictEqual({ type: 'RESP_HEADER', ...floor });
  });

  it('no field of wire 2 is written in wire 1', () => {
    const request = { type: 'REQ_HEADER', clientId: 'a', schemaVersion: 1 } as const;
    const response = { type: 'RESP_HEADER', latestSchemaVersion: 1 } as const;
    expect(encodeFrame(1, { ...request, logEpoch: 'e' })).toStrictEqual(encodeFrame(1, request));
    expect(encodeFrame(1, { ...response, logEpoch: 'e', resetRequired: true })).toStrictEqual(
      encodeFrame(1, response),
    );
  });
});

describe('hostile sizes fail at once', () => {
  const huge = u32(0xffff_ffff);
  it.each<readonly [string, FrameName, readonly Write[]]>([
    ['operations', 'PUSH_COMMIT', [s('c'), huge]],
    ['clientCommitId', 'PUSH_COMMIT', [huge]],
    ['payload', 'PUSH_COMMIT', [s('c'), u32(1), s('t'), s('r'), u8(1), u8(0), u8(1), huge]],
    ['scopes', 'SUBSCRIPTION', [s('i'), s('t'), huge]],
    ['scope values', 'SUBSCRIPTION', [s('i'), s('t'), u32(1), s('k'), huge]],
    ['params', 'SUBSCRIPTION', [s('i'), s('t'), u32(0), u8(1), huge]],
    ['results', 'PUSH_RESULT', [s('c'), u8(3), u8(0), huge]],
    ['entries', 'PUSH_RESULT_DETAILS', [s('c'), huge]],
    ['tables', 'COMMIT', [i64(1), i64(1), s('a'), huge]],
    ['changes', 'COMMIT', [i64(1), i64(1), s('a'), u32(0), huge]],
    [
      'stored scopes',
      'COMMIT',
      [i64(1), i64(1), s('a'), u32(1), s('t'), u32(1), u16(0), s('r'), u8(2), u8(0), huge, u8(0)],
    ],
  ])('%s', (_name, frame, writes) => {
    expect(judge(frame, [...writes, b(...new Array(32).fill(0))])).toBe(INVALID);
  });
});

describe('the writer refuses what no reader takes (part 1.2 rule 7)', () => {
  const upsert = { table: 't', rowId: 'r', op: 'upsert' } as const;
  const remove = { table: 't', rowId: 'r', op: 'delete' } as const;
  const row = Uint8Array.of(0);
  const change = { tableIndex: 0, rowId: 'r', scopes: {} } as const;
  const push = { type: 'PUSH_COMMIT', clientCommitId: 'c' } as const;
  const commit = { type: 'COMMIT', commitSeq: 1, createdAtMs: 1, actorId: 'a', tables: ['t'] } as const;
  const header = { type: 'REQ_HEADER', clientId: 'a', schemaVersion: 1 } as const;
  const pull = { type: 'PULL_HEADER', limitCommits: 0, limitSnapshotRows: 0, maxSnapshotPages: 0 } as const;
  const ref = {
    ...{ type: 'SEGMENT_REF', segmentId: 'x', mediaType: 'rows', table: 't', byteLength: 1 },
    ...{ rowCount: 1, asOfCommitSeq: 1, scopeDigest: '' },
  } as const;
  const section = {
    type: 'SUB_START',
    id: 's',
    status: 'active',
    reasonCode: '',
    effectiveScopes: {},
    bootstrap: false,
  } as const;

  it.each<readonly [string, object]>([
    ['an empty clientId', { ...header, clientId: '' }],
    ['schemaVersion 0', { ...header, schemaVersion: 0 }],
    ['an empty logEpoch (W-b)', { ...header, logEpoch: '' }],
    ['an empty clientCommitId', { ...push, clientCommitId: '', operations: [remove] }],
    ['no operations', { ...push, operations: [] }],
    ['an upsert without payload', { ...push, operations: [upsert] }],
    ['a delete with payload', { ...push, operations: [{ ...remove, payload: row }] }],
    ['an op of another name', { ...push, operations: [{ ...remove, op: 'patch' }] }],
    ['accept 16', { ...pull, accept: 16 }],
    ['a fractional limit', { ...pull, accept: 3, limitCommits: 0.5 }],
    [
      'params that are not JSON',
      { type: 'SUBSCRIPTION', id: 's', table: 't', scopes: {}, cursor: 0, params: '{' },
    ],
    ['a header without epoch', { type: 'RESP_HEADER', resetRequired: false }],
    ['a header without reset flag', { type: 'RESP_HEADER', logEpoch: 'e' }],
    ['a header with an empty epoch (W-b)', { type: 'RESP_HEADER', logEpoch: '', resetRequired: false }],
    ['an empty leaseId (W-b)', { type: 'LEASE', leaseId: '', expiresAtMs: 1 }],
    [
      'applied without commitSeq',
      { type: 'PUSH_RESULT', clientCommitId: 'c', status: 'applied', results: [] },
    ],
    [
      'rejected with commitSeq',
      { type: 'PUSH_RESULT', clientCommitId: 'c', status: 'rejected', commitSeq: 1, results: [] },
    ],
    ['a status of another name', { ...section, status: 'paused' }],
    ['a tableIndex out of range', { ...commit, changes: [{ ...change, tableIndex: 1, op: 'delete' }] }],
    ['an upserted change without row', { ...commit, changes: [{ ...change, op: 'upsert', rowVersion: 1 }] }],
    ['an upserted change without version', { ...commit, changes: [{ ...change, op: 'upsert', row }] }],
    ['a deleted change with a row', { ...commit, changes: [{ ...change, op: 'delete', row }] }],
    ['a url without expiry', { ...ref, url: 'u' }],
    ['an expiry without url', { ...ref, urlExpiresAtMs: 1 }],
    ['an inline payload that is no segment', { type: 'SEGMENT_INLINE', payload: concat(row, row) }],
    ['a frame of no type', { type: 'NONE' }],
    ['END as a frame', { type: 'END' }],
  ])('%s', (_name, frame) => {
    expect(codeOf(() => encodeFrame(2, frame as Frame))).toBe('EncodeError');
  });
});
