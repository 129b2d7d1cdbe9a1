/**
 * The frames of SSP2 as values (protocol part 1.2 to 1.5). Field names and order are those of the specification.
 * i64 values are safe integers; `json` fields are the verbatim text; row bytes are opaque row-codec bytes.
 */

export type WireVersion = 1 | 2;
export type OpName = 'upsert' | 'delete';
/** Variable → values, as requested, allowed or effective. */
export type ScopeMap = Readonly<Record<string, readonly string[]>>;
/** Variable → the one stored value of a row or change. */
export type StoredScopes = Readonly<Record<string, string>>;

export const FRAME_TYPES = {
  END: 0x00,
  REQ_HEADER: 0x01,
  PUSH_COMMIT: 0x02,
  PULL_HEADER: 0x03,
  SUBSCRIPTION: 0x04,
  RESP_HEADER: 0x10,
  PUSH_RESULT: 0x11,
  SUB_START: 0x12,
  COMMIT: 0x13,
  SEGMENT_REF: 0x14,
  SEGMENT_INLINE: 0x15,
  SUB_END: 0x16,
  LEASE: 0x19,
  PUSH_RESULT_DETAILS: 0x1b,
  ERROR: 0x1f,
} as const;

export interface ReqHeaderFrame {
  readonly type: 'REQ_HEADER';
  readonly clientId: string;
  readonly schemaVersion: number;
  /** Wire 2 only. */
  readonly logEpoch?: string;
}

export interface PushOperation {
  readonly table: string;
  readonly rowId: string;
  readonly op: OpName;
  readonly baseVersion?: number;
  /** Row-codec bytes; present exactly when `op` is upsert. */
  readonly payload?: Uint8Array;
  /** Why a dialect that names its columns could not make the row: `payload` is no row then. Never on the wire. */
  readonly payloadFault?: string;
}

export interface PushCommitFrame {
  readonly type: 'PUSH_COMMIT';
  readonly clientCommitId: string;
  readonly operations: readonly PushOperation[];
}

export interface PullHeaderFrame {
  readonly type: 'PULL_HEADER';
  readonly limitCommits: number;
  readonly limitSnapshotRows: number;
  readonly maxSnapshotPages: number;
  /** Bit 0 inline rows, 1 external rows, 2 sqlite, 3 signed URLs. */
  readonly accept: number;
}

export interface SubscriptionFrame {
  readonly type: 'SUBSCRIPTION';
  readonly id: string;
  readonly table: string;
  readonly scopes: ScopeMap;
  readonly params?: string;
  readonly cursor: number;
  readonly bootstrapState?: string;
}

export interface RespHeaderFrame {
  readonly type: 'RESP_HEADER';
  readonly requiredSchemaVersion?: number;
  readonly latestSchemaVersion?: number;
  /** Wire 2 only, both or neither. */
  readonly logEpoch?: string;
  readonly resetRequired?: boolean;
}

export interface LeaseFrame {
  readonly type: 'LEASE';
  readonly leaseId: string;
  readonly expiresAtMs: number;
}

export type PushStatus = 'applied' | 'cached' | 'rejected';

export type OpResult =
  | { readonly opIndex: number; readonly status: 'applied' }
  | {
      readonly opIndex: number;
      readonly status: 'conflict';
      readonly code: string;
      readonly message: string;
      readonly serverVersion: number;
      readonly serverRow: Uint8Array;
    }
  | {
      readonly opIndex: number;
      readonly status: 'error';
      readonly code: string;
      readonly message: string;
      readonly retryable: boolean;
    };

export interface PushResultFrame {
  readonly type: 'PUSH_RESULT';
  readonly clientCommitId: string;
  readonly status: PushStatus;
  /** Present exactly when applied or cached. */
  readonly commitSeq?: number;
  readonly results: readonly OpResult[];
}

export interface PushResultDetailsFrame {
  readonly type: 'PUSH_RESULT_DETAILS';
  readonly clientCommitId: string;
  readonly entries: readonly { readonly opIndex: number; readonly detailsJson: string }[];
}

export type SubStatus = 'active' | 'revoked' | 'reset';

export interface SubStartFrame {
  readonly type: 'SUB_START';
  readonly id: string;
  readonly status: SubStatus;
  readonly reasonCode: string;
  readonly effectiveScopes: ScopeMap;
  readonly bootstrap: boolean;
}

export interface CommitChange {
  readonly tableIndex: number;
  readonly rowId: string;
  readonly op: OpName;
  /** `rowVersion` and `row` are present exactly when `op` is upsert. */
  readonly rowVersion?: number;
  readonly scopes: StoredScopes;
  readonly row?: Uint8Array;
}

export interface CommitFrame {
  readonly type: 'COMMIT';
  readonly commitSeq: number;
  readonly createdAtMs: number;
  readonly actorId: string;
  readonly tables: readonly string[];
  readonly changes: readonly CommitChange[];
}

export interface SegmentRefFrame {
  readonly type: 'SEGMENT_REF';
  readonly segmentId: string;
  readonly mediaType: 'rows' | 'sqlite';
  readonly table: string;
  readonly byteLength: number;
  readonly rowCount: number;
  readonly asOfCommitSeq: number;
  readonly scopeDigest: string;
  readonly rowCursor?: string;
  readonly nextRowCursor?: string;
  /** Both or neither. */
  readonly url?: string;
  readonly urlExpiresAtMs?: number;
}

export interface SegmentInlineFrame {
  readonly type: 'SEGMENT_INLINE';
  /** One whole rows segment, magic included. */
  readonly payload: Uint8Array;
}

export interface SubEndFrame {
  readonly type: 'SUB_END';
  readonly nextCursor: number;
  readonly bootstrapState?: string;
}

export interface ErrorFrame {
  readonly type: 'ERROR';
  readonly code: string;
  readonly message: string;
  readonly category: string;
  readonly retryable: boolean;
  readonly recommendedAction: string;
  readonly details?: string;
}

/** A frame the wire version defines no layout for; kept byte for byte at its place (part 1.2 rule 6). */
export interface UnknownFrame {
  readonly type: 'UNKNOWN';
  readonly frameType: number;
  readonly payload: Uint8Array;
}

export type RequestFrame =
  | ReqHeaderFrame
  | PushCommitFrame
  | PullHeaderFrame
  | SubscriptionFrame
  | UnknownFrame;

export type ResponseFrame =
  | RespHeaderFrame
  | LeaseFrame
  | PushResultFrame
  | PushResultDetailsFrame
  | SubStartFrame
  | CommitFrame
  | SegmentRefFrame
  | SegmentInlineFrame
  | SubEndFrame
  | ErrorFrame
  | UnknownFrame;

export type Frame = RequestFrame | ResponseFrame;

/** A whole message; `END` is implied and not part of `frames`. */
export type SyncMessage =
  | { readonly kind: 'request'; readonly wireVersion: WireVersion; readonly frames: readonly RequestFrame[] }
  | {
      readonly kind: 'response';
      readonly wireVersion: WireVersion;
      readonly frames: readonly ResponseFrame[];
    };
