/** Payloads of the response frames (part 1.5), except `COMMIT`, which has a file of its own. */
import { type ByteReader, type ByteWriter, decodeError, EncodeError } from './bytes.ts';
import type {
  ErrorFrame,
  LeaseFrame,
  OpResult,
  PushResultDetailsFrame,
  PushResultFrame,
  PushStatus,
  RespHeaderFrame,
  SegmentInlineFrame,
  SegmentRefFrame,
  SubEndFrame,
  SubStartFrame,
  SubStatus,
} from './frames.ts';
import {
  type FrameCodec,
  readOptI64,
  readOptJson,
  readOptStr,
  readScopeMap,
  writeNonEmpty,
  writeOptI64,
  writeOptJson,
  writeOptStr,
  writeScopeMap,
} from './request-codecs.ts';
import { detailsEntriesFault } from './result-details.ts';
import { checkSegment } from './segment.ts';

const PUSH_STATUSES: readonly PushStatus[] = ['applied', 'cached', 'rejected'];
const OP_STATUSES: readonly OpResult['status'][] = ['applied', 'conflict', 'error'];
const SUB_STATUSES: readonly SubStatus[] = ['active', 'revoked', 'reset'];
const MEDIA_TYPES: readonly SegmentRefFrame['mediaType'][] = ['rows', 'sqlite'];
/** `opIndex` and status. */
const OP_RESULT_BYTES_MIN = 5;
/** `opIndex` and an empty string. */
const DETAILS_ENTRY_BYTES_MIN = 8;
/** `SSG2`, and the row count 0 that ends a segment. */
const SEGMENT_MAGIC = [0x53, 0x53, 0x47, 0x32] as const;
const SEGMENT_END_BYTES = 4;

/** A `u8` enum whose first name is 1. */
function readName<N extends string>(reader: ByteReader, names: readonly N[]): N {
  const name = names[reader.u8() - 1];
  if (name === undefined) throw decodeError('an enum byte has no meaning');
  return name;
}

function writeName<N extends string>(writer: ByteWriter, names: readonly N[], name: N): void {
  const index = names.indexOf(name);
  if (index < 0) throw new EncodeError('an enum value has no byte');
  writer.u8(index + 1);
}

function readOptI32(reader: ByteReader): number | undefined {
  return reader.bool() ? reader.i32() : undefined;
}

function writeOptI32(writer: ByteWriter, value: number | undefined): void {
  writer.bool(value !== undefined);
  if (value !== undefined) writer.i32(value);
}

export const respHeaderCodec: FrameCodec<RespHeaderFrame> = {
  decode(reader, wireVersion) {
    const requiredSchemaVersion = readOptI32(reader);
    const latestSchemaVersion = readOptI32(reader);
    const logEpoch = wireVersion >= 2 ? reader.str() : undefined;
    const resetRequired = wireVersion >= 2 ? reader.bool() : undefined;
    return { type: 'RESP_HEADER', requiredSchemaVersion, latestSchemaVersion, logEpoch, resetRequired };
  },
  /** Wire 1 has no epoch: a header that carries one loses it there, so that a producer need not care. */
  encode(writer, frame, wireVersion) {
    writeOptI32(writer, frame.requiredSchemaVersion);
    writeOptI32(writer, frame.latestSchemaVersion);
    if (wireVersion < 2) return;
    const { logEpoch, resetRequired } = frame;
    if (logEpoch === undefined || resetRequired === undefined) {
      throw new EncodeError('a wire 2 header needs logEpoch and resetRequired');
    }
    writeNonEmpty(writer, logEpoch);
    writer.bool(resetRequired);
  },
};

export const leaseCodec: FrameCodec<LeaseFrame> = {
  decode(reader) {
    const leaseId = reader.str();
    const expiresAtMs = reader.i64();
    return { type: 'LEASE', leaseId, expiresAtMs };
  },
  encode(writer, frame) {
    writeNonEmpty(writer, frame.leaseId);
    writer.i64(frame.expiresAtMs);
  },
};

function readOpResult(reader: ByteReader): OpResult {
  const opIndex = reader.i32();
  const status = readName(reader, OP_STATUSES);
  if (status === 'applied') return { opIndex, status };
  const code = reader.str();
  const message = reader.str();
  if (status === 'error') return { opIndex, status, code, message, retryable: reader.bool() };
  const serverVersion = reader.i64();
  const serverRow = reader.blob();
  return { opIndex, status, code, message, serverVersion, serverRow };
}

function writeOpResult(writer: ByteWriter, result: OpResult): void {
  writer.i32(result.opIndex);
  writeName(writer, OP_STATUSES, result.status);
  if (result.status === 'applied') return;
  writer.str(result.code);
  writer.str(result.message);
  if (result.status === 'error') {
    writer.bool(result.retryable);
    return;
  }
  writer.i64(result.serverVersion);
  writer.blob(result.serverRow);
}

export const pushResultCodec: FrameCodec<PushResultFrame> = {
  decode(reader) {
    const clientCommitId = reader.str();
    const status = readName(reader, PUSH_STATUSES);
    const commitSeq = readOptI64(reader);
    if ((commitSeq !== undefined) !== (status !== 'rejected')) {
      throw decodeError('a push result has a commitSeq exactly when it is not rejected');
    }
    const count = reader.count(OP_RESULT_BYTES_MIN);
    const results: OpResult[] = [];
    for (let i = 0; i < count; i++) results.push(readOpResult(reader));
    return { type: 'PUSH_RESULT', clientCommitId, status, commitSeq, results };
  },
  encode(writer, frame) {
    const { status, commitSeq, results } = frame;
    if ((commitSeq !== undefined) !== (status !== 'rejected')) {
      throw new EncodeError('a push result has a commitSeq exactly when it is not rejected');
    }
    writer.str(frame.clientCommitId);
    writeName(writer, PUSH_STATUSES, status);
    writeOptI64(writer, commitSeq);
    writer.u32(results.length);
    for (const result of results) writeOpResult(writer, result);
  },
};

/** What binds the frame to its `PUSH_RESULT` is checked where both are at hand (`detailsFault`). */
export const pushResultDetailsCodec: FrameCodec<PushResultDetailsFrame> = {
  decode(reader) {
    const clientCommitId = reader.str();
    const count = reader.count(DETAILS_ENTRY_BYTES_MIN);
    const entries: { opIndex: number; detailsJson: string }[] = [];
    for (let i = 0; i < count; i++) entries.push({ opIndex: reader.i32(), detailsJson: reader.str() });
    const fault = detailsEntriesFault(entries);
    if (fault !== null) throw decodeError(fault);
    return { type: 'PUSH_RESULT_DETAILS', clientCommitId, entries };
  },
  encode(writer, frame) {
    const fault = detailsEntriesFault(frame.entries);
    if (fault !== null) throw new EncodeError(fault);
    writer.str(frame.clientCommitId);
    writer.u32(frame.entries.length);
    for (const { opIndex, detailsJson } of frame.entries) {
      writer.i32(opIndex);
      writer.str(detailsJson);
    }
  },
};

export const subStartCodec: FrameCodec<SubStartFrame> = {
  decode(reader) {
    const id = reader.str();
    const status = readName(reader, SUB_STATUSES);
    const reasonCode = reader.str();
    const effectiveScopes = readScopeMap(reader);
    const bootstrap = reader.bool();
    return { type: 'SUB_START', id, status, reasonCode, effectiveScopes, bootstrap };
  },
  encode(writer, frame) {
    writer.str(frame.id);
    writeName(writer, SUB_STATUSES, frame.status);
    writer.str(frame.reasonCode);
    writeScopeMap(writer, frame.effectiveScopes);
    writer.bool(frame.bootstrap);
  },
};

export const segmentRefCodec: FrameCodec<SegmentRefFrame> = {
  decode(reader) {
    const segmentId = reader.str();
    const mediaType = readName(reader, MEDIA_TYPES);
    const table = reader.str();
    const byteLength = reader.i64();
    const rowCount = reader.i64();
    const asOfCommitSeq = reader.i64();
    const scopeDigest = reader.str();
    const rowCursor = readOptStr(reader);
    const nextRowCursor = readOptStr(reader);
    const url = readOptStr(reader);
    const urlExpiresAtMs = readOptI64(reader);
    if ((url === undefined) !== (urlExpiresAtMs === undefined)) {
      throw decodeError('url and urlExpiresAtMs do not stand together');
    }
    return {
      type: 'SEGMENT_REF',
      segmentId,
      mediaType,
      table,
      byteLength,
      rowCount,
      asOfCommitSeq,
      scopeDigest,
      rowCursor,
      nextRowCursor,
      url,
      urlExpiresAtMs,
    };
  },
  encode(writer, frame) {
    if ((frame.url === undefined) !== (frame.urlExpiresAtMs === undefined)) {
      throw new EncodeError('url and urlExpiresAtMs do not stand together');
    }
    writer.str(frame.segmentId);
    writeName(writer, MEDIA_TYPES, frame.mediaType);
    writer.str(frame.table);
    writer.i64(frame.byteLength);
    writer.i64(frame.rowCount);
    writer.i64(frame.asOfCommitSeq);
    writer.str(frame.scopeDigest);
    writeOptStr(writer, frame.rowCursor);
    writeOptStr(writer, frame.nextRowCursor);
    writeOptStr(writer, frame.url);
    writeOptI64(writer, frame.urlExpiresAtMs);
  },
};

export const segmentInlineCodec: FrameCodec<SegmentInlineFrame> = {
  decode(reader) {
    const payload = reader.raw(reader.remaining);
    checkSegment(payload);
    return { type: 'SEGMENT_INLINE', payload };
  },
  /** The segment writer answers for the inside; a page is not walked again for each response that carries it. */
  encode(writer, frame) {
    const { payload } = frame;
    const ends = payload.subarray(-SEGMENT_END_BYTES).every((byte) => byte === 0);
    if (!SEGMENT_MAGIC.every((byte, i) => payload[i] === byte) || !ends) {
      throw new EncodeError('an inline payload is not a rows segment');
    }
    writer.raw(payload);
  },
};

export const subEndCodec: FrameCodec<SubEndFrame> = {
  decode(reader) {
    const nextCursor = reader.i64();
    const bootstrapState = readOptJson(reader);
    return { type: 'SUB_END', nextCursor, bootstrapState };
  },
  encode(writer, frame) {
    writer.i64(frame.nextCursor);
    writeOptJson(writer, frame.bootstrapState);
  },
};

export const errorCodec: FrameCodec<ErrorFrame> = {
  decode(reader) {
    const code = reader.str();
    const message = reader.str();
    const category = reader.str();
    const retryable = reader.bool();
    const recommendedAction = reader.str();
    const details = readOptJson(reader);
    return { type: 'ERROR', code, message, category, retryable, recommendedAction, details };
  },
  encode(writer, frame) {
    writer.str(frame.code);
    writer.str(frame.message);
    writer.str(frame.category);
    writer.bool(frame.retryable);
    writer.str(frame.recommendedAction);
    writeOptJson(writer, frame.details);
  },
};
