/** Generated frames and messages: whatever the tables of part 1.4 and 1.5 allow, in an order that part 1.3 allows. */
import fc from 'fast-check';
import type {
  CommitFrame,
  ErrorFrame,
  OpResult,
  PullHeaderFrame,
  PushCommitFrame,
  PushOperation,
  PushResultDetailsFrame,
  PushResultFrame,
  ReqHeaderFrame,
  RequestFrame,
  RespHeaderFrame,
  ResponseFrame,
  ScopeMap,
  SegmentInlineFrame,
  SegmentRefFrame,
  StoredScopes,
  SubEndFrame,
  SubStartFrame,
  SubscriptionFrame,
  SyncMessage,
  UnknownFrame,
  WireVersion,
} from '../../src/protocol/frames.ts';
import { vector } from './vectors.ts';

const SEGMENTS = [vector('segment', 'rows-two-blocks'), vector('segment', 'crdt-column')];

/** Well-formed text, awkward characters included. */
export const text = fc.oneof(
  fc.string({ maxLength: 12 }),
  fc.string({ unit: 'grapheme', maxLength: 40 }),
  fc.constantFrom('', '\u0000', '\uFEFFx', '\uFF5E', '\u{1F600}', '__proto__', 'constructor', 'p1'),
);
const nonEmpty = text.filter((value) => value !== '');
export const i32 = fc.integer({ min: -0x8000_0000, max: 0x7fff_ffff });
export const i64 = fc.oneof(
  fc.maxSafeInteger(),
  fc.integer({ min: -1, max: 100 }),
  fc.constantFrom(Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER, 0x1_0000_0000, -0x1_0000_0000),
);
const bytes = fc.uint8Array({ maxLength: 40 });
const option = <T>(value: fc.Arbitrary<T>): fc.Arbitrary<T | undefined> =>
  fc.option(value, { nil: undefined });

/** JSON as a foreign author may write it: spaced, escaped, its keys in any order. */
export const jsonText = fc
  .tuple(fc.jsonValue({ maxDepth: 2 }), fc.constantFrom(0, 1, 3), fc.constantFrom('', ' ', '\n\t'))
  .map(([value, indent, around]) => around + JSON.stringify(value, null, indent) + around);

function map<T>(value: fc.Arbitrary<T>): fc.Arbitrary<Readonly<Record<string, T>>> {
  const entries = fc.uniqueArray(fc.tuple(text, value), { selector: ([key]) => key, maxLength: 4 });
  return entries.map((pairs) => Object.assign(Object.create(null), Object.fromEntries(pairs)));
}

const scopeMap: fc.Arbitrary<ScopeMap> = map(fc.array(text, { maxLength: 3 }));
const storedScopes: fc.Arbitrary<StoredScopes> = map(text);

const operation: fc.Arbitrary<PushOperation> = fc.oneof(
  fc.record({
    table: text,
    rowId: text,
    op: fc.constant('upsert' as const),
    baseVersion: option(i64),
    payload: bytes,
  }),
  fc.record({ table: text, rowId: text, op: fc.constant('delete' as const), baseVersion: option(i64) }),
);

export function reqHeader(wireVersion: WireVersion): fc.Arbitrary<ReqHeaderFrame> {
  return fc.record({
    type: fc.constant('REQ_HEADER' as const),
    clientId: nonEmpty,
    schemaVersion: fc.integer({ min: 1, max: 0x7fff_ffff }),
    logEpoch: wireVersion === 1 ? fc.constant(undefined) : option(nonEmpty),
  });
}

export const pushCommit: fc.Arbitrary<PushCommitFrame> = fc.record({
  type: fc.constant('PUSH_COMMIT' as const),
  clientCommitId: nonEmpty,
  operations: fc.array(operation, { minLength: 1, maxLength: 4 }),
});

export const pullHeader: fc.Arbitrary<PullHeaderFrame> = fc.record({
  type: fc.constant('PULL_HEADER' as const),
  limitCommits: i32,
  limitSnapshotRows: i32,
  maxSnapshotPages: i32,
  accept: fc.integer({ min: 0, max: 15 }),
});

export const subscription: fc.Arbitrary<SubscriptionFrame> = fc.record({
  type: fc.constant('SUBSCRIPTION' as const),
  id: text,
  table: text,
  scopes: scopeMap,
  params: option(jsonText),
  cursor: i64,
  bootstrapState: option(jsonText),
});

export function respHeader(wireVersion: WireVersion): fc.Arbitrary<RespHeaderFrame> {
  const wire2 = wireVersion === 2;
  return fc.record({
    type: fc.constant('RESP_HEADER' as const),
    requiredSchemaVersion: option(i32),
    latestSchemaVersion: option(i32),
    logEpoch: wire2 ? nonEmpty : fc.constant(undefined),
    resetRequired: wire2 ? fc.boolean() : fc.constant(undefined),
  });
}

export const lease = fc.record({
  type: fc.constant('LEASE' as const),
  leaseId: nonEmpty,
  expiresAtMs: i64,
});

const opResult: fc.Arbitrary<OpResult> = fc.oneof(
  fc.record({ opIndex: i32, status: fc.constant('applied' as const) }),
  fc.record({
    opIndex: i32,
    status: fc.constant('conflict' as const),
    code: text,
    message: text,
    serverVersion: i64,
    serverRow: bytes,
  }),
  fc.record({
    opIndex: i32,
    status: fc.constant('error' as const),
    code: text,
    message: text,
    retryable: fc.boolean(),
  }),
);

export const pushResult: fc.Arbitrary<PushResultFrame> = fc.oneof(
  fc.record({
    type: fc.constant('PUSH_RESULT' as const),
    clientCommitId: text,
    status: fc.constantFrom('applied' as const, 'cached' as const),
    commitSeq: i64,
    results: fc.array(opResult, { maxLength: 4 }),
  }),
  fc.record({
    type: fc.constant('PUSH_RESULT' as const),
    clientCommitId: text,
    status: fc.constant('rejected' as const),
    results: fc.array(opResult, { maxLength: 4 }),
  }),
);

const DETAILS = [
  '{"reason":"over-quota"}',
  ' {"references":{"invoice":"i-1"}, "fieldPaths":["a.b_1","_c"]}',
  '{"requiredAction":"pay_first","reason":"x"}',
];

const detailsEntry = fc.constantFrom(...DETAILS);

/** A rejected result and the details that may stand behind it. */
const resultWithDetails: fc.Arbitrary<readonly [PushResultFrame, PushResultDetailsFrame]> = fc
  .tuple(text, fc.nat(1_000), detailsEntry, fc.array(opResult, { maxLength: 2 }))
  .map(([clientCommitId, opIndex, detailsJson, others]) => {
    const error = { opIndex, status: 'error', code: 'host.no', message: '', retryable: false } as const;
    const results = [...others, error];
    const result = { type: 'PUSH_RESULT', clientCommitId, status: 'rejected', results } as const;
    return [result, { type: 'PUSH_RESULT_DETAILS', clientCommitId, entries: [{ opIndex, detailsJson }] }];
  });

export const subStart: fc.Arbitrary<SubStartFrame> = fc.record({
  type: fc.constant('SUB_START' as const),
  id: text,
  status: fc.constantFrom('active' as const, 'revoked' as const, 'reset' as const),
  reasonCode: text,
  effectiveScopes: scopeMap,
  bootstrap: fc.boolean(),
});

function change(tableCount: number): fc.Arbitrary<CommitFrame['changes'][number]> {
  const tableIndex = fc.nat(tableCount - 1);
  return fc.oneof(
    fc.record({
      tableIndex,
      rowId: text,
      op: fc.constant('upsert' as const),
      rowVersion: i64,
      scopes: storedScopes,
      row: bytes,
    }),
    fc.record({ tableIndex, rowId: text, op: fc.constant('delete' as const), scopes: storedScopes }),
  );
}

export const commit: fc.Arbitrary<CommitFrame> = fc.array(text, { maxLength: 3 }).chain((tables) =>
  fc.record({
    type: fc.constant('COMMIT' as const),
    commitSeq: i64,
    createdAtMs: i64,
    actorId: text,
    tables: fc.constant(tables),
    changes: tables.length === 0 ? fc.constant([]) : fc.array(change(tables.length), { maxLength: 5 }),
  }),
);

export const segmentRef: fc.Arbitrary<SegmentRefFrame> = fc
  .record({
    type: fc.constant('SEGMENT_REF' as const),
    segmentId: text,
    mediaType: fc.constantFrom('rows' as const, 'sqlite' as const),
    table: text,
    byteLength: i64,
    rowCount: i64,
    asOfCommitSeq: i64,
    scopeDigest: text,
    rowCursor: option(text),
    nextRowCursor: option(text),
    signed: option(fc.record({ url: text, urlExpiresAtMs: i64 })),
  })
  .map(({ signed, ...frame }) => ({ ...frame, ...signed }));

export const segmentInline: fc.Arbitrary<SegmentInlineFrame> = fc.record({
  type: fc.constant('SEGMENT_INLINE' as const),
  payload: fc.constantFrom(...SEGMENTS),
});

export const subEnd: fc.Arbitrary<SubEndFrame> = fc.record({
  type: fc.constant('SUB_END' as const),
  nextCursor: i64,
  bootstrapState: option(jsonText),
});

export const error: fc.Arbitrary<ErrorFrame> = fc.record({
  type: fc.constant('ERROR' as const),
  code: text,
  message: text,
  category: text,
  retryable: fc.boolean(),
  recommendedAction: text,
  details: option(jsonText),
});

/** Reserved types and types that nobody ever named. */
export const UNKNOWN_TYPES = [0x05, 0x17, 0x18, 0x1a, 0x1c, 0x1d, 0x1e, 0x20, 0x2f, 0x80, 0xff];

export const unknown: fc.Arbitrary<UnknownFrame> = fc.record({
  type: fc.constant('UNKNOWN' as const),
  frameType: fc.constantFrom(...UNKNOWN_TYPES),
  payload: bytes,
});

const wireVersion = fc.constantFrom<WireVersion>(1, 2);

/** Strews unknown frames behind the header and, unless it is an `ERROR`, behind every later frame. */
function strewn<F extends { readonly type: string }>(
  frames: fc.Arbitrary<readonly F[]>,
): fc.Arbitrary<(F | UnknownFrame)[]> {
  const strew = fc.array(fc.tuple(fc.nat(), unknown), { maxLength: 3 });
  return fc.tuple(frames, strew).map(([known, extras]) => {
    const mixed: (F | UnknownFrame)[] = [...known];
    for (const [at, extra] of extras) {
      const open = mixed.length - (mixed.at(-1)?.type === 'ERROR' ? 1 : 0);
      mixed.splice(open < 1 ? mixed.length : 1 + (at % open), 0, extra);
    }
    return mixed;
  });
}

const pull = fc
  .tuple(pullHeader, fc.array(subscription, { maxLength: 3 }))
  .map(([header, subscriptions]): RequestFrame[] => [header, ...subscriptions]);

export const request: fc.Arbitrary<SyncMessage> = wireVersion.chain((version) => {
  const pushes = fc.array(pushCommit, { minLength: 1, maxLength: 3 });
  const content = fc.oneof<fc.Arbitrary<RequestFrame[]>[]>(
    pushes,
    pull,
    fc.tuple(pushes, pull).map(([first, second]) => [...first, ...second]),
  );
  const known = fc.tuple(reqHeader(version), content).map(([header, rest]) => [header, ...rest]);
  return strewn<RequestFrame>(known).map((frames) => ({ kind: 'request', wireVersion: version, frames }));
});

const section: fc.Arbitrary<ResponseFrame[]> = fc
  .tuple(
    subStart,
    fc.oneof<fc.Arbitrary<ResponseFrame[]>[]>(
      fc.array(commit, { maxLength: 3 }),
      fc.array(fc.oneof(segmentRef, segmentInline), { maxLength: 3 }),
    ),
    subEnd,
  )
  .map(([start, inside, end]) => [start, ...inside, end]);

const results: fc.Arbitrary<ResponseFrame[]> = fc
  .array(fc.oneof(fc.tuple(pushResult), resultWithDetails), { maxLength: 3 })
  .map((groups) => groups.flatMap((group) => [...group]));

export const response: fc.Arbitrary<SyncMessage> = wireVersion.chain((version) => {
  const whole = fc
    .tuple(respHeader(version), option(lease), results, fc.array(section, { maxLength: 3 }))
    .map(([header, leased, pushed, sections]): ResponseFrame[] => [
      header,
      ...(leased === undefined ? [] : [leased]),
      ...pushed,
      ...sections.flat(),
    ]);
  // An ERROR may cut the response anywhere behind its header.
  const cut = fc
    .tuple(whole, fc.nat(), error)
    .map(([frames, at, failure]) => [...frames.slice(0, 1 + (at % frames.length)), failure]);
  const known = fc.oneof({ weight: 3, arbitrary: whole }, { weight: 1, arbitrary: cut });
  return strewn(known).map((frames) => ({ kind: 'response', wireVersion: version, frames }));
});

export const message: fc.Arbitrary<SyncMessage> = fc.oneof(request, response);

/** One frame of each kind, for a wire version. */
export function knownFrames(version: WireVersion): readonly fc.Arbitrary<RequestFrame | ResponseFrame>[] {
  return [
    reqHeader(version),
    pushCommit,
    pullHeader,
    subscription,
    respHeader(version),
    lease,
    pushResult,
    resultWithDetails.map(([, details]) => details),
    subStart,
    commit,
    segmentRef,
    segmentInline,
    subEnd,
    error,
  ];
}
