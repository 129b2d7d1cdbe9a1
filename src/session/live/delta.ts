/** Deltas (part 3, 3.5.1): what became ready for one cohort, encoded once; the same bytes go to every member. */
import { TAG_DELTA } from '../../protocol/control.ts';
import { END_FRAME, ENVELOPE_BYTES, encodeEnvelope, encodeFrame } from '../../protocol/frame-codecs.ts';
import { FrameWriter } from '../../protocol/frame-writer.ts';
import type { WireVersion } from '../../protocol/frames.ts';
import type { CohortRegistration } from './cohort-registration.ts';
import type { RingEntry } from './commit-ring.ts';

/** The changes of one commit that match one registration, by position, in commit order. */
export interface MatchedPart {
  readonly registration: CohortRegistration;
  readonly entry: RingEntry;
  readonly changes: number[];
}

/** One commit with all that it means for a cohort. */
export interface MatchedCommit {
  readonly entry: RingEntry;
  readonly parts: MatchedPart[];
}

export interface DeltaMessage {
  /** Highest `commitSeq` in it. */
  readonly lastSeq: number;
  /** Channel tag included; `null` for a single commit over the size bound. */
  readonly bytes: Uint8Array | null;
}

export interface DeltaPlan {
  readonly wireVersion: WireVersion;
  /** Encoded `RESP_HEADER` of this wire version. */
  readonly header: Uint8Array;
  /** In subscription order. */
  readonly registrations: readonly CohortRegistration[];
  /** Bound of one message, tag byte excluded. */
  readonly bytesMax: number;
}

interface Section {
  readonly frames: Uint8Array[];
  lastSeq: number;
}

const TAG_BYTES = 1;
/** `SUB_END`: frame header, cursor, absent resume token. */
const SUB_END_BYTES = 5 + 8 + 1;

/**
 * As few messages as the size bound allows, cut between commits (3.5.4): sections in subscription order, each with its
 * commits in log order. A commit that is too large alone stands alone, without bytes.
 */
export function encodeDeltas(plan: DeltaPlan, commits: readonly MatchedCommit[]): DeltaMessage[] {
  const messages: DeltaMessage[] = [];
  const frameBytes = ENVELOPE_BYTES + plan.header.length + END_FRAME.length;
  let sections = new Map<CohortRegistration, Section>();
  let lengthBytes = frameBytes;
  let lastSeq = 0;
  const flush = (): void => {
    if (sections.size > 0) messages.push({ lastSeq, bytes: assemble(plan, sections, lengthBytes) });
    sections = new Map();
    lengthBytes = frameBytes;
  };
  for (const { entry, parts } of commits) {
    const frames = parts.map((part) => commitFrame(part, plan.wireVersion));
    let addedBytes = addition(parts, frames, sections);
    if (lengthBytes + addedBytes > plan.bytesMax) {
      flush();
      addedBytes = addition(parts, frames, sections);
    }
    if (lengthBytes + addedBytes > plan.bytesMax) {
      messages.push({ lastSeq: entry.seq, bytes: null });
      continue;
    }
    lengthBytes += addedBytes;
    lastSeq = entry.seq;
    parts.forEach((part, at) => {
      const section = sections.get(part.registration);
      if (section === undefined) {
        sections.set(part.registration, { frames: [frames[at]!], lastSeq });
      } else {
        section.frames.push(frames[at]!);
        section.lastSeq = lastSeq;
      }
    });
  }
  flush();
  return messages;
}

/** Bytes that a commit adds to a message which already has `sections`. */
function addition(
  parts: readonly MatchedPart[],
  frames: readonly Uint8Array[],
  sections: ReadonlyMap<CohortRegistration, Section>,
): number {
  let bytes = 0;
  for (let at = 0; at < parts.length; at++) {
    const { registration } = parts[at]!;
    bytes += frames[at]!.length;
    if (!sections.has(registration)) bytes += registration.startFrame.length + SUB_END_BYTES;
  }
  return bytes;
}

function assemble(
  plan: DeltaPlan,
  sections: ReadonlyMap<CohortRegistration, Section>,
  lengthBytes: number,
): Uint8Array {
  const bytes = new Uint8Array(TAG_BYTES + lengthBytes);
  let at = TAG_BYTES;
  const append = (piece: Uint8Array): void => {
    bytes.set(piece, at);
    at += piece.length;
  };
  bytes[0] = TAG_DELTA;
  append(encodeEnvelope(plan.wireVersion, 'response'));
  append(plan.header);
  for (const registration of plan.registrations) {
    const section = sections.get(registration);
    if (section === undefined) continue;
    append(registration.startFrame);
    for (const frame of section.frames) append(frame);
    append(encodeFrame(plan.wireVersion, { type: 'SUB_END', nextCursor: section.lastSeq }));
  }
  append(END_FRAME);
  return bytes;
}

/** A registration that takes the whole commit shares its frame with every other one that does. */
function commitFrame({ entry, changes }: MatchedPart, wireVersion: WireVersion): Uint8Array {
  const isWhole = changes.length === entry.commit.changes.length;
  const known = isWhole ? entry.wholeFrames[wireVersion - 1] : null;
  if (known !== null && known !== undefined) return known;
  const frame = encodeCommit(entry, changes, wireVersion);
  if (isWhole) entry.wholeFrames[wireVersion - 1] = frame.slice();
  return frame;
}

function encodeCommit(entry: RingEntry, changes: readonly number[], wireVersion: WireVersion): Uint8Array {
  const { commitSeq, createdAtMs, actorId } = entry.commit;
  const indexByTable = new Map<string, number>();
  for (const position of changes) {
    const { table } = entry.commit.changes[position]!;
    if (!indexByTable.has(table)) indexByTable.set(table, indexByTable.size);
  }
  const writer = new FrameWriter(wireVersion);
  writer.beginCommit({ commitSeq, createdAtMs, actorId, tables: [...indexByTable.keys()] });
  for (const position of changes) {
    writer.change(indexByTable.get(entry.commit.changes[position]!.table)!, entry.body(position));
  }
  writer.endCommit();
  return writer.take();
}
