/** The golden vectors of the dialect (§5.5): the bytes, what they hold, and that both ends write exactly them. */
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { parseServerControl } from '../../../src/protocol/control.ts';
import type { PullHeaderFrame, RequestFrame, ResponseFrame } from '../../../src/protocol/frames.ts';
import { DEFAULT_LIMITS } from '../../../src/protocol/limits.ts';
import { encodeMessage } from '../../../src/protocol/message.ts';
import { MSGPACK_RESPONSE_BOUNDS } from '../../../src/protocol/msgpack/bounds.ts';
import { MsgpackFrameReader } from '../../../src/protocol/msgpack/frame-reader.ts';
import type { MsgpackFrame } from '../../../src/protocol/msgpack/frames.ts';
import {
  decodeClientMessage,
  decodeServerMessage,
  encodeAckMessage,
  encodeEvent,
  encodePresenceMessage,
  encodeRound,
} from '../../../src/protocol/msgpack/messages.ts';
import { readRequest } from '../../../src/protocol/msgpack/request.ts';
import { encodeDeltaMessage, MsgpackResponse } from '../../../src/protocol/msgpack/response.ts';
import { decodeMap, IntegralFloat, type MsgpackValue } from '../../../src/protocol/msgpack/value.ts';
import { SegmentWriter } from '../../../src/protocol/segment.ts';
import { codeOf } from '../faults.ts';
import { type Model, pack } from './model.ts';
import { NOTES, noteRow, SCHEMA } from './samples.ts';

interface Vector {
  readonly name: string;
  readonly from: 'client' | 'server';
  readonly meaning: string;
  readonly value: { readonly [key: string]: Model };
  readonly hex: string;
}

const { cases, invalid } = JSON.parse(
  readFileSync(new URL('../../vectors/msgpack/manifest.json', import.meta.url), 'utf8'),
) as {
  readonly cases: readonly Vector[];
  readonly invalid: readonly { readonly name: string; readonly hex: string; readonly error: string }[];
};
const BOUNDS = MSGPACK_RESPONSE_BOUNDS;
const bytesOf = (hex: string): Uint8Array => Uint8Array.from(Buffer.from(hex, 'hex'));
const hexOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString('hex');
const ofKind = (prefix: string): readonly Vector[] => cases.filter(({ name }) => name.startsWith(prefix));

/** In the notation of the manifest. */
function shown(value: MsgpackValue): Model {
  if (value instanceof IntegralFloat)
    return { $float: Object.is(value.value, -0) ? '-0' : String(value.value) };
  if (value instanceof Uint8Array) return { $bin: hexOf(value) };
  if (typeof value === 'bigint') return { $int: String(value) };
  if (typeof value === 'number') return Number.isInteger(value) ? value : { $float: String(value) };
  if (Array.isArray(value)) return value.map((item: MsgpackValue) => shown(item));
  if (typeof value !== 'object' || value === null) return value as Model;
  return Object.fromEntries(Object.entries(value).map(([key, member]) => [key, shown(member)]));
}

describe('golden vectors', () => {
  it.each(cases)('M-5.5: $name holds what the manifest says ($meaning)', ({ value, hex }) => {
    expect(hexOf(pack(value))).toBe(hex);
    expect(shown(decodeMap(bytesOf(hex), BOUNDS))).toEqual(value);
  });

  it.each(invalid)('M-5.5: $name is refused', ({ hex, error }) => {
    expect(codeOf(() => decodeMap(bytesOf(hex), BOUNDS))).toBe(error);
  });

  it.each(cases)('M-5.5: every strict prefix of $name is refused', ({ hex }) => {
    const bytes = bytesOf(hex);
    for (let length = 0; length < bytes.length; length++) {
      expect(codeOf(() => decodeMap(bytes.subarray(0, length), BOUNDS))).toBe('sync.invalid_request');
    }
  });

  it.each(ofKind('round-'))('M-5.5: $name is read and written byte for byte', ({ value, hex }) => {
    const message = decodeClientMessage(bytesOf(hex), BOUNDS);
    if (message.kind !== 'round') throw new Error('not a round');
    const { request, segments } = readRequest(message.req, { schema: SCHEMA, limits: DEFAULT_LIMITS });
    const { header, pushes, subscriptions } = request;
    // What the server fills in was never written; bit 4 is the dialect's own.
    const { pull: asked } = value.req as { readonly pull?: Readonly<Record<string, number>> };
    const pull = asked === undefined ? null : onlyNumbers(asked);
    expect(segments).toBe(asked === undefined ? 'as-segments' : 'as-rows');
    expect(hexOf(encodeRound(message.id, { header, pushes, pull, subscriptions }, SCHEMA))).toBe(hex);
  });

  it('M-5.5: control messages are read and written byte for byte', () => {
    const byName = (name: string): Vector => cases.find((vector) => vector.name === name)!;
    const doc = { cursor: [1, 1.5], name: 'Ada' };
    expect(hexOf(encodeAckMessage(70_000))).toBe(byName('ack').hex);
    expect(hexOf(encodePresenceMessage('project:p1', doc))).toBe(byName('presence-publish').hex);
    expect(hexOf(encodePresenceMessage('project:p1', null))).toBe(byName('presence-leave').hex);
    const read = (name: string) => decodeClientMessage(bytesOf(byName(name).hex), BOUNDS);
    expect(read('ack')).toEqual({ kind: 'ack', cursor: 70_000 });
    expect(read('presence-publish')).toMatchObject({ kind: 'presence-publish', doc });
    expect(read('presence-leave')).toMatchObject({ kind: 'presence-leave', scopeKey: 'project:p1' });
    for (const name of ['hello', 'sync', 'heartbeat', 'presence-fanout', 'presence-refusal']) {
      const { value, hex } = byName(name);
      const { t, ...data } = JSON.parse(JSON.stringify(value, numbers)) as Record<string, unknown>;
      const text = JSON.stringify({ event: t, data });
      expect(hexOf(encodeEvent(text)!)).toBe(hex);
      expect(decodeServerMessage(bytesOf(hex), BOUNDS)).toEqual(parseServerControl(text));
    }
  });

  it.each([...ofKind('frame-'), ...ofKind('delta')])(
    'M-5.5: $name is read and written byte for byte',
    ({ name, hex }) => {
      const { frames, asRows } = SOURCES[name]!;
      if (name === 'delta') {
        expect(hexOf(encodeDeltaMessage(responseOf(frames), SCHEMA))).toBe(hex);
        return;
      }
      const operations = [{ table: 'notes', rowId: 'n1', op: 'delete' }] as const;
      const request = {
        wireVersion: 2,
        header: { type: 'REQ_HEADER', clientId: 'c', schemaVersion: 7 },
        pushes: [{ type: 'PUSH_COMMIT', clientCommitId: 'c1', operations }],
        pull: null,
        subscriptions: [{ type: 'SUBSCRIPTION', id: 's1', table: 'notes', scopes: {}, cursor: -1 }],
        unknown: [],
      } as const;
      const segments = asRows ? 'as-rows' : 'as-segments';
      const answer = new MsgpackResponse({ schema: SCHEMA, id: 1, round: { request, segments } });
      const messages = answer.push(responseOf(frames));
      expect(messages.map(hexOf)).toContain(hex);
      const reader = new MsgpackFrameReader({ schema: SCHEMA, tableOf: () => 'notes' });
      const read = messages.map((bytes) => {
        const message = decodeServerMessage(bytes, BOUNDS);
        if (message.kind !== 'frame') throw new Error('not a frame');
        return reader.read(message.frame);
      });
      const expected = frames.map((frame) => (frame.type === 'SEGMENT_INLINE' ? ROWS : normal(frame)));
      expect(read.map((frame) => (frame === null ? frame : normal(frame)))).toEqual([
        ...expected,
        { type: 'END' },
      ]);
    },
  );
});

/** Tables of a commit by name: their order is not part of what it means. */
function normal(frame: ResponseFrame | MsgpackFrame): unknown {
  if (frame.type !== 'COMMIT') return frame;
  const { tables, changes, ...head } = frame;
  return {
    ...head,
    changes: changes.map(({ tableIndex, ...change }) => ({ ...change, table: tables[tableIndex] })),
  };
}

/** The limits of a pull, without its subscriptions. */
function onlyNumbers(pull: Readonly<Record<string, unknown>>): Partial<PullHeaderFrame> {
  return Object.fromEntries(Object.entries(pull).filter(([, value]) => typeof value === 'number'));
}

const ROWS = {
  type: 'ROWS',
  table: 'notes',
  rows: [{ serverVersion: 2, values: ['n1', 'p1', 300] }],
  first: true,
} as const;

/** Numbers of the manifest as JSON has them. */
function numbers(_: string, value: unknown): unknown {
  const float = (value as { readonly $float?: string } | null)?.$float;
  return float === undefined ? value : Number(float);
}

interface Source {
  readonly frames: readonly ResponseFrame[];
  readonly asRows?: boolean;
}

const HEADER = { type: 'RESP_HEADER', logEpoch: 'epoch-1', resetRequired: false } as const;
const start = (bootstrap: boolean) =>
  ({
    type: 'SUB_START',
    id: 's1',
    status: 'active',
    reasonCode: '',
    effectiveScopes: { project: ['p1'] },
    bootstrap,
  }) as const;
const END = { type: 'SUB_END', nextCursor: 13, bootstrapState: '{"tableIndex":0}' } as const;
const scopes = { project: 'p1' };
const COMMIT = {
  type: 'COMMIT',
  commitSeq: 13,
  createdAtMs: 1_782_993_600_000,
  actorId: 'ada',
  tables: ['everything', 'notes'],
  changes: [
    { tableIndex: 1, rowId: 'n1', op: 'upsert', rowVersion: 2, scopes, row: noteRow('n1', -129) },
    { tableIndex: 0, rowId: 'n9', op: 'delete', scopes },
  ],
} as const;
const pushed = { type: 'PUSH_RESULT', clientCommitId: 'c1' } as const;
const page = new SegmentWriter({ table: 'notes', schemaVersion: 7, columns: NOTES.columns }, DEFAULT_LIMITS);
page.addRow(2, noteRow('n1', 300));
const segment = page.finish().bytes;

const SOURCES: Readonly<Record<string, Source>> = {
  'frame-resp-header': { frames: [{ type: 'RESP_HEADER', logEpoch: 'epoch-2', resetRequired: true }] },
  'frame-push-applied': {
    frames: [
      HEADER,
      {
        ...pushed,
        status: 'applied',
        commitSeq: 13,
        results: [
          { opIndex: 0, status: 'applied' },
          { opIndex: 1, status: 'applied' },
        ],
      },
    ],
  },
  'frame-push-conflict': {
    frames: [
      HEADER,
      {
        ...pushed,
        status: 'rejected',
        results: [
          {
            opIndex: 0,
            status: 'conflict',
            code: 'sync.version_conflict',
            message: 'm',
            serverVersion: 5,
            serverRow: noteRow('n1', null),
          },
        ],
      },
    ],
  },
  'frame-sub-start': { frames: [HEADER, start(true), END] },
  'frame-rows': {
    frames: [HEADER, start(true), { type: 'SEGMENT_INLINE', payload: segment }, END],
    asRows: true,
  },
  'frame-commit': { frames: [HEADER, start(false), COMMIT, END] },
  'frame-sub-end': { frames: [HEADER, start(true), END] },
  'frame-error': {
    frames: [
      HEADER,
      {
        type: 'ERROR',
        code: 'sync.invalid_request',
        message: 'm',
        category: 'invalid-request',
        retryable: false,
        recommendedAction: 'fixRequest',
      },
    ],
  },
  'frame-end': { frames: [HEADER] },
  delta: {
    frames: [
      HEADER,
      start(false),
      {
        ...COMMIT,
        createdAtMs: 5,
        tables: ['notes'],
        changes: [{ tableIndex: 0, rowId: 'n1', op: 'delete', scopes }],
      },
      { type: 'SUB_END', nextCursor: 13 },
    ],
  },
};

function responseOf(frames: readonly (ResponseFrame | RequestFrame)[]): Uint8Array {
  return encodeMessage({ kind: 'response', wireVersion: 2, frames: frames as readonly ResponseFrame[] });
}
