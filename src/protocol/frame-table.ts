/**
 * The frame registry and every frame's layout as data (part 1.2, 1.4, 1.5). The codecs are written by hand; the
 * renderer follows this table, a test drives a second, generic codec from it, and another pins its hash to the wire history.
 */
import { FRAME_TYPES, type WireVersion } from './frames.ts';

export type FrameName = keyof typeof FRAME_TYPES;
export type MessageKind = 'request' | 'response';

export type Layout =
  | 'u16'
  | 'i32'
  | 'i64'
  | 'bool'
  | 'str'
  | 'bytes'
  | 'json'
  /** The rest of the payload, without a length of its own. */
  | 'rest'
  /** A `u8` bitmask with bits 0 to 3. */
  | 'mask4'
  | { readonly opt: Layout }
  | { readonly list: Layout }
  | { readonly map: Layout }
  | { readonly record: readonly Field[] }
  /** A `u8`: 1 is the first name. */
  | { readonly names: readonly string[] }
  /** The same, and the fields of the chosen name follow. */
  | { readonly choice: readonly (readonly [name: string, fields: readonly Field[]])[] };

export interface Field {
  readonly name: string;
  readonly layout: Layout;
  /** First wire version that has the field. */
  readonly since?: WireVersion;
}

export interface FrameSpec {
  readonly name: FrameName;
  readonly type: number;
  readonly in: MessageKind | 'both';
  readonly fields: readonly Field[];
}

const field = (name: string, layout: Layout): Field => ({ name, layout });
const opt = (layout: Layout): Layout => ({ opt: layout });
const records = (...fields: readonly Field[]): Layout => ({ list: { record: fields } });

const OPERATION = { names: ['upsert', 'delete'] } as const;
const SCOPE_MAP: Layout = { map: { list: 'str' } };

function frame(name: FrameName, kind: FrameSpec['in'], ...fields: readonly Field[]): FrameSpec {
  return { name, type: FRAME_TYPES[name], in: kind, fields };
}

export const FRAME_TABLE: readonly FrameSpec[] = [
  frame('END', 'both'),
  frame('REQ_HEADER', 'request', field('clientId', 'str'), field('schemaVersion', 'i32'), {
    name: 'logEpoch',
    layout: opt('str'),
    since: 2,
  }),
  frame(
    'PUSH_COMMIT',
    'request',
    field('clientCommitId', 'str'),
    field(
      'operations',
      records(
        field('table', 'str'),
        field('rowId', 'str'),
        field('op', OPERATION),
        field('baseVersion', opt('i64')),
        field('payload', opt('bytes')),
      ),
    ),
  ),
  frame(
    'PULL_HEADER',
    'request',
    field('limitCommits', 'i32'),
    field('limitSnapshotRows', 'i32'),
    field('maxSnapshotPages', 'i32'),
    field('accept', 'mask4'),
  ),
  frame(
    'SUBSCRIPTION',
    'request',
    field('id', 'str'),
    field('table', 'str'),
    field('scopes', SCOPE_MAP),
    field('params', opt('json')),
    field('cursor', 'i64'),
    field('bootstrapState', opt('json')),
  ),
  frame(
    'RESP_HEADER',
    'response',
    field('requiredSchemaVersion', opt('i32')),
    field('latestSchemaVersion', opt('i32')),
    { name: 'logEpoch', layout: 'str', since: 2 },
    { name: 'resetRequired', layout: 'bool', since: 2 },
  ),
  frame(
    'PUSH_RESULT',
    'response',
    field('clientCommitId', 'str'),
    field('status', { names: ['applied', 'cached', 'rejected'] }),
    field('commitSeq', opt('i64')),
    field(
      'results',
      records(
        field('opIndex', 'i32'),
        field('status', {
          choice: [
            ['applied', []],
            [
              'conflict',
              [
                field('code', 'str'),
                field('message', 'str'),
                field('serverVersion', 'i64'),
                field('serverRow', 'bytes'),
              ],
            ],
            ['error', [field('code', 'str'), field('message', 'str'), field('retryable', 'bool')]],
          ],
        }),
      ),
    ),
  ),
  frame(
    'SUB_START',
    'response',
    field('id', 'str'),
    field('status', { names: ['active', 'revoked', 'reset'] }),
    field('reasonCode', 'str'),
    field('effectiveScopes', SCOPE_MAP),
    field('bootstrap', 'bool'),
  ),
  frame(
    'COMMIT',
    'response',
    field('commitSeq', 'i64'),
    field('createdAtMs', 'i64'),
    field('actorId', 'str'),
    field('tables', { list: 'str' }),
    field(
      'changes',
      records(
        field('tableIndex', 'u16'),
        field('rowId', 'str'),
        field('op', OPERATION),
        field('rowVersion', opt('i64')),
        field('scopes', { map: 'str' }),
        field('row', opt('bytes')),
      ),
    ),
  ),
  frame(
    'SEGMENT_REF',
    'response',
    field('segmentId', 'str'),
    field('mediaType', { names: ['rows', 'sqlite'] }),
    field('table', 'str'),
    field('byteLength', 'i64'),
    field('rowCount', 'i64'),
    field('asOfCommitSeq', 'i64'),
    field('scopeDigest', 'str'),
    field('rowCursor', opt('str')),
    field('nextRowCursor', opt('str')),
    field('url', opt('str')),
    field('urlExpiresAtMs', opt('i64')),
  ),
  frame('SEGMENT_INLINE', 'response', field('payload', 'rest')),
  frame('SUB_END', 'response', field('nextCursor', 'i64'), field('bootstrapState', opt('json'))),
  frame('LEASE', 'response', field('leaseId', 'str'), field('expiresAtMs', 'i64')),
  frame(
    'PUSH_RESULT_DETAILS',
    'response',
    field('clientCommitId', 'str'),
    // A `str` in the protocol; its text is checked as JSON and rendered parsed (part 1.17 W-h).
    field('entries', records(field('opIndex', 'i32'), field('detailsJson', 'json'))),
  ),
  frame(
    'ERROR',
    'response',
    field('code', 'str'),
    field('message', 'str'),
    field('category', 'str'),
    field('retryable', 'bool'),
    field('recommendedAction', 'str'),
    field('details', opt('json')),
  ),
];

const SPEC_BY_TYPE: readonly (FrameSpec | undefined)[] = Array.from({ length: 256 }, (_, type) =>
  FRAME_TABLE.find((spec) => spec.type === type),
);

/** The frame of a type number; `undefined` = unknown to both wire versions, reserved types included (part 1.2 rule 5). */
export function frameSpec(type: number): FrameSpec | undefined {
  return SPEC_BY_TYPE[type];
}

/** Both wire versions register the same types; a later one that does not needs the version here. */
export function isRegistered(_wireVersion: WireVersion, type: number): boolean {
  return SPEC_BY_TYPE[type] !== undefined;
}
