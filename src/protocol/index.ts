/** `tidegate/protocol`: the SSP2 wire layer. */

export { type BlobRef, blobRefText, isBlobId, parseBlobRef } from './blob-ref.ts';
export { ByteReader, ByteWriter, compareUtf16, EncodeError, isWellFormed } from './bytes.ts';
export { canonicalScopes, type HashHex, scopeDigest, scopeDigestInput } from './canonical-json.ts';
export type { Clock, Random, Timer } from './clock.ts';
export { CLOSE_CODES, type CloseCode, type ReconnectClass, reconnectClass } from './close-codes.ts';
export { type ChangeBody, type CommitHead, encodeChangeBody } from './commit-codec.ts';
export {
  type ClientControl,
  CONTROL_PROTOCOL_VERSION,
  encodeAck,
  encodeHeartbeat,
  encodeHello,
  encodePresence,
  encodePresencePublish,
  encodePresenceRefusal,
  encodeWakeUp,
  type HelloData,
  type PresenceData,
  type PresenceKind,
  type PresenceRefusalCode,
  type PresenceRefusalData,
  parseClientControl,
  parseServerControl,
  type ServerControl,
  TAG_DELTA,
  TAG_ROUND,
  type UnreadableControl,
  type WakeReason,
  type WakeUpData,
} from './control.ts';
export {
  ERROR_CATALOGUE,
  type ErrorBody,
  type ErrorCategory,
  type ErrorCode,
  type ErrorMeta,
  isErrorCode,
  type JsonObject,
  type JsonValue,
  type RecommendedAction,
  SyncError,
  type SyncErrorOptions,
} from './errors.ts';
export {
  END_FRAME,
  ENVELOPE_BYTES,
  encodeEnvelope,
  encodeFrame,
  FRAME_HEADER_BYTES,
  type KnownFrame,
} from './frame-codecs.ts';
export {
  type Field,
  FRAME_TABLE,
  type FrameName,
  type FrameSpec,
  frameSpec,
  isRegistered,
  type Layout,
  type MessageKind,
} from './frame-table.ts';
export { FrameWriter } from './frame-writer.ts';
export {
  type CommitChange,
  type CommitFrame,
  type ErrorFrame,
  FRAME_TYPES,
  type Frame,
  type LeaseFrame,
  type OpName,
  type OpResult,
  type PullHeaderFrame,
  type PushCommitFrame,
  type PushOperation,
  type PushResultDetailsFrame,
  type PushResultFrame,
  type PushStatus,
  type ReqHeaderFrame,
  type RequestFrame,
  type RespHeaderFrame,
  type ResponseFrame,
  type ScopeMap,
  type SegmentInlineFrame,
  type SegmentRefFrame,
  type StoredScopes,
  type SubEndFrame,
  type SubStartFrame,
  type SubStatus,
  type SubscriptionFrame,
  type SyncMessage,
  type UnknownFrame,
  type WireVersion,
} from './frames.ts';
export {
  FrameOrder,
  REQUEST_ORDER,
  RESPONSE_ORDER,
  type RequestState,
  type ResponseState,
} from './grammar.ts';
export { isJsonText } from './json-text.ts';
export { assertLimits, DEFAULT_LIMITS, type Limits } from './limits.ts';
export {
  type DecodedRequest,
  type DecodeOptions,
  decodeMessage,
  decodeRequest,
  type Envelope,
  encodeMessage,
  type MessageBounds,
  readEnvelope,
} from './message.ts';
export { renderAny, renderFrame, renderMessage } from './render.ts';
export { type ReadResult, ResponseReader } from './response-reader.ts';
export { normalizeResultDetails, parseResultDetails, type ResultDetails } from './result-details.ts';
export {
  COLUMN_TAGS,
  type CodecColumn,
  compileRowCodec,
  RowCodec,
  RowEncodeError,
  rowCodecOf,
} from './row-codec.ts';
export type {
  ColumnType,
  ColumnValue,
  CompiledColumn,
  CompiledIndex,
  CompiledSchema,
  CompiledScope,
  CompiledTable,
  RowValues,
} from './schema.ts';
export { type CompileOptions, compileSchema } from './schema-compiler.ts';
export {
  type BlockBounds,
  checkSegment,
  compareColumns,
  type DecodedSegment,
  decodeSegment,
  type FinishedSegment,
  matchSegment,
  readSegmentBlocks,
  type SegmentBlock,
  type SegmentHeader,
  type SegmentReader,
  type SegmentRow,
  SegmentWriter,
} from './segment.ts';
export { renderSegment } from './segment-render.ts';
export { MessageScanner, type ScannerBounds, type ScanResult } from './stream.ts';
export {
  CURRENT_WIRE_VERSION,
  isWireVersion,
  WIRE_HISTORY,
  WIRE_VERSION_MAX,
  WIRE_VERSION_MIN,
  type WireVersionEntry,
} from './version.ts';
