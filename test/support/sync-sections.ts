/** A response taken apart by subscription, and the rows a client would hold after it. */
import type {
  CommitFrame,
  ResponseFrame,
  SegmentInlineFrame,
  SegmentRefFrame,
  SubEndFrame,
  SubStartFrame,
} from '../../src/protocol/frames.ts';
import { decodeSegment } from '../../src/protocol/segment.ts';

export interface Section {
  readonly start: SubStartFrame;
  readonly commits: readonly CommitFrame[];
  readonly segments: readonly (SegmentInlineFrame | SegmentRefFrame)[];
  readonly end: SubEndFrame;
}

/** In response order. */
export function sectionsOf(frames: readonly ResponseFrame[]): Section[] {
  const sections: Section[] = [];
  let open: { start: SubStartFrame; commits: CommitFrame[]; segments: Section['segments'][number][] } | null =
    null;
  for (const frame of frames) {
    if (frame.type === 'SUB_START') open = { start: frame, commits: [], segments: [] };
    else if (frame.type === 'COMMIT') open!.commits.push(frame);
    else if (frame.type === 'SEGMENT_INLINE' || frame.type === 'SEGMENT_REF') open!.segments.push(frame);
    else if (frame.type === 'SUB_END') sections.push({ ...open!, end: frame });
  }
  return sections;
}

export function sectionOf(frames: readonly ResponseFrame[], id: string): Section {
  const section = sectionsOf(frames).find(({ start }) => start.id === id);
  if (section === undefined) throw new Error(`no section ${id}`);
  return section;
}

/** `rowId`s of a section's changes, in order, deletes with a minus in front. */
export function changedRows({ commits }: Section): string[] {
  return commits.flatMap(({ changes }) =>
    changes.map(({ rowId, op }) => (op === 'delete' ? `-${rowId}` : rowId)),
  );
}

/** The values of a column over all inline segments of a section; every test table's key is `id`. */
export function inlineRows({ segments }: Section, column = 'id'): unknown[] {
  return segments.flatMap((segment) => {
    if (segment.type !== 'SEGMENT_INLINE') throw new Error('a segment is external');
    const { columns, blocks } = decodeSegment(segment.payload);
    const index = columns.findIndex(({ name }) => name === column);
    return blocks.flat().map(({ values }) => values[index]);
  });
}
