/**
 * The `COMMIT` frame (§4.5). Beside the codec stands the server's hot path: the body of a change, which is all of it
 * but the frame-local table index, is encoded once per commit and copied into the frame of every cohort.
 */
import { type ByteReader, ByteWriter, decodeError, EncodeError } from './bytes.ts';
import type { CommitChange, CommitFrame, StoredScopes } from './frames.ts';
import {
  type FrameCodec,
  readOp,
  readOptI64,
  readStrings,
  writeOp,
  writeOptI64,
  writeStrings,
} from './request-codecs.ts';

/** A change without its place in a frame's table dictionary. */
export type ChangeBody = Omit<CommitChange, 'tableIndex'>;
/** The part of a `COMMIT` in front of its changes. */
export type CommitHead = Pick<CommitFrame, 'commitSeq' | 'createdAtMs' | 'actorId' | 'tables'>;

/** Table index, empty row id, op byte, absent version, empty map, absent row. */
const CHANGE_BYTES_MIN = 13;
/** Room for the fixed fields and a short id and scope, so that a body rarely grows its buffer. */
const BODY_BYTES_SLACK = 96;

function readStoredScopes(reader: ByteReader): StoredScopes {
  return reader.map(4, readStr);
}

function readStr(reader: ByteReader): string {
  return reader.str();
}

function writeStr(writer: ByteWriter, text: string): void {
  writer.str(text);
}

function readChange(reader: ByteReader, tableCount: number): CommitChange {
  const tableIndex = reader.u16();
  if (tableIndex >= tableCount) throw decodeError('a tableIndex names no table of its commit');
  const rowId = reader.str();
  const op = readOp(reader);
  const rowVersion = readOptI64(reader);
  const scopes = readStoredScopes(reader);
  const row = reader.bool() ? reader.blob() : undefined;
  const upsert = op === 'upsert';
  if ((rowVersion !== undefined) !== upsert || (row !== undefined) !== upsert) {
    throw decodeError('a change has rowVersion and row exactly when it is an upsert');
  }
  return { tableIndex, rowId, op, rowVersion, scopes, row };
}

function writeChangeBody(writer: ByteWriter, change: ChangeBody): void {
  const { op, rowVersion, row } = change;
  const upsert = op === 'upsert';
  if ((rowVersion !== undefined) !== upsert || (row !== undefined) !== upsert) {
    throw new EncodeError('a change has rowVersion and row exactly when it is an upsert');
  }
  writer.str(change.rowId);
  writeOp(writer, op);
  writeOptI64(writer, rowVersion);
  writer.map(change.scopes, writeStr);
  writer.bool(row !== undefined);
  if (row !== undefined) writer.blob(row);
}

/** Writes the fields up to `changes`; the count of changes follows. */
export function writeCommitHead(writer: ByteWriter, head: CommitHead): void {
  writer.i64(head.commitSeq);
  writer.i64(head.createdAtMs);
  writer.str(head.actorId);
  writeStrings(writer, head.tables);
}

/** The bytes of one change behind its `tableIndex`, for `FrameWriter.change`; in memory of their own, fit to be kept. */
export function encodeChangeBody(change: ChangeBody): Uint8Array {
  const writer = new ByteWriter((change.row?.length ?? 0) + BODY_BYTES_SLACK);
  writeChangeBody(writer, change);
  return writer.finishExact();
}

export const commitCodec: FrameCodec<CommitFrame> = {
  decode(reader) {
    const commitSeq = reader.i64();
    const createdAtMs = reader.i64();
    const actorId = reader.str();
    const tables = readStrings(reader);
    const count = reader.count(CHANGE_BYTES_MIN);
    const changes: CommitChange[] = [];
    for (let i = 0; i < count; i++) changes.push(readChange(reader, tables.length));
    return { type: 'COMMIT', commitSeq, createdAtMs, actorId, tables, changes };
  },
  encode(writer, frame) {
    const { tables, changes } = frame;
    writeCommitHead(writer, frame);
    writer.u32(changes.length);
    for (const change of changes) {
      if (change.tableIndex >= tables.length)
        throw new EncodeError('a tableIndex names no table of its commit');
      writer.u16(change.tableIndex);
      writeChangeBody(writer, change);
    }
  },
};
