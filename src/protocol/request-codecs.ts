/** Payloads of the request frames (part 1.4), field by field. */
import { type ByteReader, type ByteWriter, decodeError, EncodeError } from './bytes.ts';
import { SyncError } from './errors.ts';
import type {
  OpName,
  PullHeaderFrame,
  PushCommitFrame,
  PushOperation,
  ReqHeaderFrame,
  ScopeMap,
  SubscriptionFrame,
  WireVersion,
} from './frames.ts';

/**
 * One frame's payload. `decode` reads from a reader that ends where the payload ends, and leaves it to the caller to see
 * that nothing is left over; `encode` writes the payload without its header.
 */
export interface FrameCodec<F> {
  decode(reader: ByteReader, wireVersion: WireVersion): F;
  encode(writer: ByteWriter, frame: F, wireVersion: WireVersion): void;
}

/** Bits 0 to 3 of `accept`. */
const ACCEPT_MASK = 0b1111;
/** Smallest operation: two empty strings, the op byte, two absent fields. */
const OPERATION_BYTES_MIN = 11;
const STR_BYTES_MIN = 4;

export function readOp(reader: ByteReader): OpName {
  const byte = reader.u8();
  if (byte === 1) return 'upsert';
  if (byte === 2) return 'delete';
  throw decodeError('an op is neither upsert nor delete');
}

export function writeOp(writer: ByteWriter, op: OpName): void {
  if (op !== 'upsert' && op !== 'delete') throw new EncodeError('an op is neither upsert nor delete');
  writer.u8(op === 'upsert' ? 1 : 2);
}

export function readOptI64(reader: ByteReader): number | undefined {
  return reader.bool() ? reader.i64() : undefined;
}

export function writeOptI64(writer: ByteWriter, value: number | undefined): void {
  writer.bool(value !== undefined);
  if (value !== undefined) writer.i64(value);
}

export function readOptStr(reader: ByteReader): string | undefined {
  return reader.bool() ? reader.str() : undefined;
}

export function writeOptStr(writer: ByteWriter, value: string | undefined): void {
  writer.bool(value !== undefined);
  if (value !== undefined) writer.str(value);
}

export function readOptJson(reader: ByteReader): string | undefined {
  return reader.bool() ? reader.json() : undefined;
}

export function writeOptJson(writer: ByteWriter, value: string | undefined): void {
  writer.bool(value !== undefined);
  if (value !== undefined) writer.json(value);
}

export function readStrings(reader: ByteReader): string[] {
  const count = reader.count(STR_BYTES_MIN);
  const items: string[] = [];
  for (let i = 0; i < count; i++) items.push(reader.str());
  return items;
}

export function writeStrings(writer: ByteWriter, items: readonly string[]): void {
  writer.u32(items.length);
  for (const item of items) writer.str(item);
}

export function readScopeMap(reader: ByteReader): ScopeMap {
  return reader.map(STR_BYTES_MIN, readStrings);
}

export function writeScopeMap(writer: ByteWriter, scopes: ScopeMap): void {
  writer.map(scopes, writeStrings);
}

/** Refuses an empty string that the protocol calls non-empty. */
export function writeNonEmpty(writer: ByteWriter, text: string): void {
  if (text === '') throw new EncodeError('an id that must not be empty is empty');
  writer.str(text);
}

export const reqHeaderCodec: FrameCodec<ReqHeaderFrame> = {
  decode(reader, wireVersion) {
    const clientId = reader.str();
    if (clientId === '') throw decodeError('clientId is empty');
    const schemaVersion = reader.i32();
    if (schemaVersion < 1) throw decodeError('schemaVersion is below 1');
    const logEpoch = wireVersion >= 2 ? readOptStr(reader) : undefined;
    return { type: 'REQ_HEADER', clientId, schemaVersion, logEpoch };
  },
  encode(writer, frame, wireVersion) {
    if (frame.schemaVersion < 1) throw new EncodeError('schemaVersion is below 1');
    writeNonEmpty(writer, frame.clientId);
    writer.i32(frame.schemaVersion);
    if (wireVersion < 2) return;
    if (frame.logEpoch === '') throw new EncodeError('logEpoch is empty');
    writeOptStr(writer, frame.logEpoch);
  },
};

function readOperation(reader: ByteReader): PushOperation {
  const table = reader.str();
  const rowId = reader.str();
  const op = readOp(reader);
  const baseVersion = readOptI64(reader);
  const payload = reader.bool() ? reader.blob() : undefined;
  if ((payload !== undefined) !== (op === 'upsert')) {
    throw decodeError('an operation has a payload exactly when it is an upsert');
  }
  return { table, rowId, op, baseVersion, payload };
}

function writeOperation(writer: ByteWriter, operation: PushOperation): void {
  const { payload } = operation;
  writer.str(operation.table);
  writer.str(operation.rowId);
  writeOp(writer, operation.op);
  writeOptI64(writer, operation.baseVersion);
  if ((payload !== undefined) !== (operation.op === 'upsert')) {
    throw new EncodeError('an operation has a payload exactly when it is an upsert');
  }
  writer.bool(payload !== undefined);
  if (payload !== undefined) writer.blob(payload);
}

export const pushCommitCodec: FrameCodec<PushCommitFrame> = {
  decode(reader) {
    const clientCommitId = reader.str();
    if (clientCommitId === '') throw decodeError('clientCommitId is empty');
    const count = reader.count(OPERATION_BYTES_MIN);
    if (count === 0) throw new SyncError('sync.empty_commit', 'a commit has no operations');
    const operations: PushOperation[] = [];
    for (let i = 0; i < count; i++) operations.push(readOperation(reader));
    return { type: 'PUSH_COMMIT', clientCommitId, operations };
  },
  encode(writer, frame) {
    if (frame.operations.length === 0) throw new EncodeError('a commit has no operations');
    writeNonEmpty(writer, frame.clientCommitId);
    writer.u32(frame.operations.length);
    for (const operation of frame.operations) writeOperation(writer, operation);
  },
};

export const pullHeaderCodec: FrameCodec<PullHeaderFrame> = {
  decode(reader) {
    const limitCommits = reader.i32();
    const limitSnapshotRows = reader.i32();
    const maxSnapshotPages = reader.i32();
    const accept = reader.u8();
    if (accept > ACCEPT_MASK) throw decodeError('accept has reserved bits set');
    return { type: 'PULL_HEADER', limitCommits, limitSnapshotRows, maxSnapshotPages, accept };
  },
  encode(writer, frame) {
    if (frame.accept > ACCEPT_MASK) throw new EncodeError('accept has reserved bits set');
    writer.i32(frame.limitCommits);
    writer.i32(frame.limitSnapshotRows);
    writer.i32(frame.maxSnapshotPages);
    writer.u8(frame.accept);
  },
};

export const subscriptionCodec: FrameCodec<SubscriptionFrame> = {
  decode(reader) {
    const id = reader.str();
    const table = reader.str();
    const scopes = readScopeMap(reader);
    const params = readOptJson(reader);
    const cursor = reader.i64();
    const bootstrapState = readOptJson(reader);
    return { type: 'SUBSCRIPTION', id, table, scopes, params, cursor, bootstrapState };
  },
  encode(writer, frame) {
    writer.str(frame.id);
    writer.str(frame.table);
    writeScopeMap(writer, frame.scopes);
    writeOptJson(writer, frame.params);
    writer.i64(frame.cursor);
    writeOptJson(writer, frame.bootstrapState);
  },
};
