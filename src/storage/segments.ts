/**
 * The segment store contract: immutable rows segments of bootstraps, shared by all clients that agree in every part of the
 * key (§5.1). No code here.
 *
 * MUST: bytes are stored plain under their content hash; what is known of a segment includes the log epoch, and a lookup
 * never crosses a partition or an epoch (S-033). Two scope sets may produce equal bytes, so one `segmentId` can have
 * several entries with different digests: authorization looks at all of them.
 */

/** All that must agree for a segment to be reused. */
export interface SegmentKey {
  readonly partition: string;
  readonly logEpoch: string;
  readonly table: string;
  readonly schemaVersion: number;
  readonly scopeDigest: string;
  /** Digest of the subscription's `params`; empty when there are none (2.24 decision 7). */
  readonly paramsDigest: string;
  readonly asOfCommitSeq: number;
  /** Start of the page, exclusive; `null` for the first page. */
  readonly rowCursor: string | null;
  readonly rowsMax: number;
}

export interface SegmentEntry extends SegmentKey {
  /** `sha256:` + 64 hex over the uncompressed bytes. */
  readonly segmentId: string;
  readonly byteLength: number;
  readonly rowCount: number;
  readonly nextRowCursor: string | null;
  readonly createdAtMs: number;
  readonly expiresAtMs: number;
}

export interface SegmentStore {
  /** An unexpired entry of the key, else `null`. */
  find(key: SegmentKey, nowMs: number): Promise<SegmentEntry | null>;
  /** Stores bytes and entry together. Storing an entry again renews its expiry. */
  put(entry: SegmentEntry, bytes: Uint8Array): Promise<void>;
  /** Every entry of the id in the partition, expired ones that were not swept yet included. */
  entries(partition: string, segmentId: string): Promise<readonly SegmentEntry[]>;
  /** The uncompressed bytes, or `null`. */
  read(partition: string, segmentId: string): Promise<Uint8Array | null>;
  /** Removes at most `max` entries expired before `expiredBeforeMs`, and bytes nobody refers to. Returns the number removed. */
  sweep(request: { readonly expiredBeforeMs: number; readonly max: number }): Promise<number>;
}
