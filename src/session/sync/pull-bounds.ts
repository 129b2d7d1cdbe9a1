/** What one `PULL_HEADER` asks for, with defaults and silent clamps (§4.2, S-057). */
import type { PullHeaderFrame } from '../../protocol/frames.ts';
import type { Limits } from '../../protocol/limits.ts';

/** `by-size`: inline below `segmentInlineBytesMax`, else external (§5.7). */
export type SegmentDelivery = 'inline' | 'external' | 'by-size';

export interface PullBounds {
  /** Changes per incremental section. */
  readonly changesMax: number;
  /** Rows per bootstrap page. */
  readonly pageRowsMax: number;
  /** Bootstrap pages per section. */
  readonly pagesMax: number;
  readonly delivery: SegmentDelivery;
}

const ACCEPT_INLINE = 0b0001;
const ACCEPT_EXTERNAL = 0b0010;

/** False for a mask that takes no rows segment at all (S-024). */
export function acceptsRows(accept: number): boolean {
  return (accept & (ACCEPT_INLINE | ACCEPT_EXTERNAL)) !== 0;
}

/** The bits for images and signed URLs ask for nothing that must be sent (S-060). */
export function pullBounds(header: PullHeaderFrame, limits: Limits): PullBounds {
  return {
    changesMax: clamp(header.limitCommits, limits.pullChangesDefault, limits.pullChangesMax),
    pageRowsMax: clamp(header.limitSnapshotRows, limits.snapshotRowsDefault, limits.snapshotRowsMax),
    pagesMax: clamp(header.maxSnapshotPages, limits.snapshotPagesDefault, limits.snapshotPagesMax),
    delivery: delivery(header.accept),
  };
}

function clamp(asked: number, byDefault: number, max: number): number {
  return asked === 0 ? byDefault : Math.min(Math.max(asked, 1), max);
}

function delivery(accept: number): SegmentDelivery {
  if ((accept & ACCEPT_EXTERNAL) === 0) return 'inline';
  return (accept & ACCEPT_INLINE) === 0 ? 'external' : 'by-size';
}
