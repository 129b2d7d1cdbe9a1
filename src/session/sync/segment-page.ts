/** One page of a bootstrap as its section delivers it, whoever built it (§4.7, §5.1). */
import type { SegmentRefFrame } from '../../protocol/frames.ts';
import type { SegmentEntry, SegmentKey } from '../../storage/segments.ts';
import type { SyncDeps } from './sync-deps.ts';

export interface SegmentPage {
  readonly key: SegmentKey;
  /** `sha256:` + 64 hex over the bytes. */
  readonly segmentId: string;
  readonly byteLength: number;
  readonly rowCount: number;
  /** Start of the next page; `null` after the last row of the table. */
  readonly nextRowCursor: string | null;
  /** The segment, or `null` when only the store holds it. Shared between rounds: read only. */
  readonly bytes: Uint8Array | null;
  /** Resolves when the segment can be downloaded. A reference must not leave before. */
  stored(): Promise<void>;
}

/** What an entry of the store says; its bytes stay there. */
export function storedPage(entry: SegmentEntry): SegmentPage {
  const { segmentId, byteLength, rowCount, nextRowCursor } = entry;
  return {
    key: entry,
    segmentId,
    byteLength,
    rowCount,
    nextRowCursor,
    bytes: null,
    stored: () => Promise.resolve(),
  };
}

type StoreDeps = Pick<SyncDeps, 'segments' | 'limits' | 'clock' | 'sha256'>;

/** Bytes in memory. Hashing and storing happen at most once, and only for a page that leaves as a reference. */
export class BuiltPage implements SegmentPage {
  readonly key: SegmentKey;
  readonly bytes: Uint8Array;
  readonly rowCount: number;
  readonly nextRowCursor: string | null;
  readonly #deps: StoreDeps;
  #segmentId: string | null = null;
  #storing: Promise<void> | null = null;

  constructor(content: Pick<BuiltPage, 'key' | 'bytes' | 'rowCount' | 'nextRowCursor'>, deps: StoreDeps) {
    this.key = content.key;
    this.bytes = content.bytes;
    this.rowCount = content.rowCount;
    this.nextRowCursor = content.nextRowCursor;
    this.#deps = deps;
  }

  get byteLength(): number {
    return this.bytes.length;
  }

  get segmentId(): string {
    this.#segmentId ??= `sha256:${this.#deps.sha256(this.bytes)}`;
    return this.#segmentId;
  }

  stored(): Promise<void> {
    this.#storing ??= this.#store();
    return this.#storing;
  }

  async #store(): Promise<void> {
    const { segments, clock, limits } = this.#deps;
    const createdAtMs = clock.nowMs();
    const entry: SegmentEntry = {
      ...this.key,
      segmentId: this.segmentId,
      byteLength: this.byteLength,
      rowCount: this.rowCount,
      nextRowCursor: this.nextRowCursor,
      createdAtMs,
      expiresAtMs: createdAtMs + limits.segmentTtlMs,
    };
    await segments.put(entry, this.bytes);
  }
}

/** The descriptor without `url`: it is fetched at the direct endpoint (§5.4, S-083). */
export function refFrame(page: SegmentPage): SegmentRefFrame {
  const { key, segmentId, byteLength, rowCount, nextRowCursor } = page;
  const { table, asOfCommitSeq, scopeDigest, rowCursor } = key;
  return {
    type: 'SEGMENT_REF',
    segmentId,
    mediaType: 'rows',
    table,
    byteLength,
    rowCount,
    asOfCommitSeq,
    scopeDigest,
    ...(rowCursor === null ? {} : { rowCursor }),
    ...(nextRowCursor === null ? {} : { nextRowCursor }),
  };
}
