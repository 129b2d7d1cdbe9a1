/** The request map of a round (§5.3), both ways, and what of it only this dialect has. */
import { decodeError } from '../bytes.ts';
import { SyncError } from '../errors.ts';
import { type Field, FRAME_TABLE, type FrameName } from '../frame-table.ts';
import type {
  PullHeaderFrame,
  PushCommitFrame,
  PushOperation,
  ReqHeaderFrame,
  SubscriptionFrame,
} from '../frames.ts';
import type { Limits } from '../limits.ts';
import { type DecodedRequest, tooBig } from '../message.ts';
import { RowEncodeError } from '../row-codec.ts';
import type { CompiledSchema } from '../schema.ts';
import {
  countFields,
  type Fields,
  type RowReader,
  type RowWriter,
  readFields,
  writeFields,
} from './fields.ts';
import { encodeRow, writeRow } from './rows.ts';
import { isMap, type MsgpackMap, type MsgpackValue } from './value.ts';
import type { MsgpackWriter } from './writer.ts';

/** `accept` bit 4: rows segments arrive as `ROWS` frames. */
export const ACCEPT_ROWS = 0b1_0000;
const ACCEPT_INLINE = 0b0001;
const ACCEPT_EXTERNAL = 0b0010;
const ACCEPT_DEFAULT = ACCEPT_INLINE | ACCEPT_ROWS;

export interface MsgpackRequest {
  /** As the session core works on it; bit 4 of `accept` is taken out. */
  readonly request: DecodedRequest;
  readonly segments: 'as-rows' | 'as-segments';
}

const fieldsOf = (name: FrameName): readonly Field[] =>
  FRAME_TABLE.find((spec) => spec.name === name)!.fields;
const HEADER = fieldsOf('REQ_HEADER');
const COMMIT = fieldsOf('PUSH_COMMIT');
const PULL: readonly Field[] = fieldsOf('PULL_HEADER').map((field) => ({
  ...field,
  layout: { opt: field.layout },
}));
const SUBSCRIPTION = fieldsOf('SUBSCRIPTION');
const NO_ROWS: RowReader = { read: () => new Uint8Array(0) };

/**
 * Throws `sync.invalid_request` or `sync.empty_commit`, as the decoder of SSP2 does. A row that its table cannot hold is not
 * a fault of the request: the operation carries it, and the commit is answered like one with unreadable row bytes.
 */
export function readRequest(
  value: MsgpackValue | undefined,
  { schema, limits }: { schema: CompiledSchema; limits: Pick<Limits, 'framesMax'> },
): MsgpackRequest {
  if (!isMap(value)) throw decodeError('req is not a map');
  const header = {
    ...readFields(value, { fields: HEADER, rows: NO_ROWS, also: ['push', 'pull'] }),
    type: 'REQ_HEADER',
  } as Fields & ReqHeaderFrame;
  if (header.clientId === '') throw decodeError('clientId is empty');
  if (header.schemaVersion < 1) throw decodeError('schemaVersion is below 1');
  const pushes = listOf('push', value.push ?? null);
  const pullMap = value.pull ?? null;
  if (pullMap !== null && !isMap(pullMap)) throw decodeError('pull is not a map');
  const subscriptions = pullMap === null ? [] : listOf('subscriptions', pullMap.subscriptions ?? null);
  if (pushes.length === 0 && pullMap === null) throw decodeError('a request has neither push nor pull');
  assertFrames(2 + pushes.length + (pullMap === null ? 0 : 1) + subscriptions.length, limits.framesMax);
  const pull = pullMap === null ? null : readPull(pullMap);
  return {
    request: {
      wireVersion: 2,
      header,
      pushes: pushes.map((commit) => readCommit(commit, { schema, header })),
      pull: pull?.header ?? null,
      subscriptions: subscriptions.map(readSubscription),
      unknown: [],
    },
    segments: pull?.segments ?? 'as-segments',
  };
}

/** The bound of SSP2, for the frames that the request stands for. */
function assertFrames(frames: number, framesMax: number): void {
  if (frames > framesMax) throw tooBig('framesMax', framesMax);
}

function listOf(name: string, value: MsgpackValue): readonly MsgpackValue[] {
  if (value === null) return [];
  if (!Array.isArray(value)) throw decodeError(`${name} is not an array`);
  return value;
}

function readPull(map: MsgpackMap): { header: PullHeaderFrame; segments: MsgpackRequest['segments'] } {
  const record = readFields(map, { fields: PULL, rows: NO_ROWS, also: ['subscriptions'] });
  const { limitCommits, limitSnapshotRows, maxSnapshotPages, accept } = record as {
    readonly [name in 'limitCommits' | 'limitSnapshotRows' | 'maxSnapshotPages' | 'accept']?: number;
  };
  const asked = accept ?? ACCEPT_DEFAULT;
  const asRows = (asked & ACCEPT_ROWS) !== 0;
  const header: PullHeaderFrame = {
    type: 'PULL_HEADER',
    limitCommits: limitCommits ?? 0,
    limitSnapshotRows: limitSnapshotRows ?? 0,
    maxSnapshotPages: maxSnapshotPages ?? 0,
    // A client without a segment decoder has no use for a descriptor: every page comes inline and is unpacked here.
    accept: asRows ? (asked & ~(ACCEPT_ROWS | ACCEPT_EXTERNAL)) | ACCEPT_INLINE : asked,
  };
  return { header, segments: asRows ? 'as-rows' : 'as-segments' };
}

function readSubscription(value: MsgpackValue): SubscriptionFrame {
  if (!isMap(value)) throw decodeError('a subscription is not a map');
  const record = readFields(value, { fields: SUBSCRIPTION, rows: NO_ROWS });
  return { ...record, type: 'SUBSCRIPTION' } as Fields & SubscriptionFrame;
}

interface CommitContext {
  readonly schema: CompiledSchema;
  readonly header: ReqHeaderFrame;
}

function readCommit(value: MsgpackValue, context: CommitContext): PushCommitFrame {
  if (!isMap(value)) throw decodeError('a commit is not a map');
  // Per row one at most, in the order of the operations.
  const faults: (string | undefined)[] = [];
  const rows: RowReader = {
    read: (row, { table }) => {
      const { payload, fault } = readPayload(row, String(table), context);
      faults.push(fault);
      return payload;
    },
  };
  const record = readFields(value, { fields: COMMIT, rows });
  const commit = { ...record, type: 'PUSH_COMMIT' } as Fields & PushCommitFrame;
  if (commit.clientCommitId === '') throw decodeError('clientCommitId is empty');
  if (commit.operations.length === 0) throw new SyncError('sync.empty_commit', 'a commit has no operations');
  let upserts = 0;
  const operations = commit.operations.map((operation): PushOperation => {
    if ((operation.payload !== undefined) !== (operation.op === 'upsert')) {
      throw decodeError('an operation has a payload exactly when it is an upsert');
    }
    const payloadFault = operation.payload === undefined ? undefined : faults[upserts++];
    return payloadFault === undefined ? operation : { ...operation, payloadFault };
  });
  return { ...commit, operations };
}

/** What no row codec takes for a row: a table has at least its primary key, and so a null bitmap. */
const UNREADABLE = new Uint8Array(0);

/** A table or a schema version that is not served is answered before the row is looked at. */
function readPayload(
  row: MsgpackMap,
  name: string,
  { schema, header }: CommitContext,
): { payload: Uint8Array; fault?: string } {
  const table = schema.tableByName.get(name);
  if (table === undefined || header.schemaVersion !== schema.version) return { payload: UNREADABLE };
  try {
    return { payload: encodeRow(table, row) };
  } catch (failure) {
    if (failure instanceof RowEncodeError) return { payload: UNREADABLE, fault: failure.message };
    throw failure;
  }
}

/** What a client asks for; `accept` may hold bit 4. */
export interface RequestParts {
  readonly header: ReqHeaderFrame;
  readonly pushes: readonly PushCommitFrame[];
  readonly pull: Partial<PullHeaderFrame> | null;
  readonly subscriptions: readonly SubscriptionFrame[];
}

/** Writes the request map. Throws `EncodeError`, or `sync.invalid_request` for a payload that is no row of its table. */
export function writeRequest(writer: MsgpackWriter, parts: RequestParts, schema: CompiledSchema): void {
  const { header, pushes, pull, subscriptions } = parts;
  const rows: RowWriter = {
    write: (target, row, { table }) =>
      writeRow(target, schema.tableByName.get(String(table)) ?? NO_TABLE, row),
  };
  writer.map(countFields(HEADER, { ...header }) + (pushes.length > 0 ? 1 : 0) + (pull === null ? 0 : 1));
  writeFields(writer, { fields: HEADER, record: { ...header }, rows });
  if (pushes.length > 0) {
    writer.str('push');
    writer.array(pushes.length);
    for (const commit of pushes) writeMap(writer, { fields: COMMIT, record: { ...commit }, rows });
  }
  if (pull === null) return;
  writer.str('pull');
  writer.map(countFields(PULL, { ...pull }) + 1);
  writeFields(writer, { fields: PULL, record: { ...pull }, rows });
  writer.str('subscriptions');
  writer.array(subscriptions.length);
  for (const subscription of subscriptions) {
    writeMap(writer, { fields: SUBSCRIPTION, record: { ...subscription }, rows });
  }
}

/** Takes only the row without columns, which no operation carries. */
const NO_TABLE = { columns: [] };

function writeMap(
  writer: MsgpackWriter,
  parts: { readonly fields: readonly Field[]; readonly record: Fields; readonly rows: RowWriter },
): void {
  writer.map(countFields(parts.fields, parts.record));
  writeFields(writer, parts);
}
