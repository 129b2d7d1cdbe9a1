/** Deltas (part 3, 3.5.1): what became ready for one cohort, encoded once; the same bytes go to every member. */
import { TAG_DELTA } from '../../protocol/control.ts';
import { END_FRAME, ENVELOPE_BYTES } from '../../protocol/frame-codecs.ts';
import { FrameWriter } from '../../protocol/frame-writer.ts';
import type { WireVersion } from '../../protocol/frames.ts';
import type { CohortRegistration } from './cohort-registration.ts';
import type { RingEntry } from './ring-entry.ts';

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
  /** Those that take sections, in subscription order. */
  readonly registrations: readonly CohortRegistration[];
  /** Bound of one message, tag byte excluded. */
  readonly bytesMax: number;
}

/** What a message holds for one registration. */
interface Section {
  readonly frames: Uint8Array[];
  lastSeq: number;
}

const TAG_BYTES = 1;
/** `SUB_END`: frame header, cursor, absent resume token. */
const SUB_END_BYTES = 5 + 8 + 1;

/**
 * As few messages as the size bound allows, cut between commits (3.5.4): sections in subscription order, each with its
 * commits in log order. A commit that is too large alone stands alone, without bytes. `entries` match the cohort.
 */
export function encodeDeltas(plan: DeltaPlan, entries: readonly RingEntry[]): DeltaMessage[] {
  const packer = new DeltaPacker(plan);
  for (const entry of entries) packer.add(entry);
  return packer.finish();
}

class DeltaPacker {
  readonly #plan: DeltaPlan;
  readonly #messages: DeltaMessage[] = [];
  /** By position of the registration. */
  readonly #sections: Section[];
  /** Of the commit that is being added. */
  readonly #frames: (Uint8Array | null)[];
  readonly #emptyBytes: number;
  #lengthBytes: number;
  #lastSeq = 0;

  constructor(plan: DeltaPlan) {
    this.#plan = plan;
    this.#sections = plan.registrations.map(() => ({ frames: [], lastSeq: 0 }));
    this.#frames = plan.registrations.map(() => null);
    this.#emptyBytes = ENVELOPE_BYTES + plan.header.length + END_FRAME.length;
    this.#lengthBytes = this.#emptyBytes;
  }

  add(entry: RingEntry): void {
    const { registrations, wireVersion, bytesMax } = this.#plan;
    for (let at = 0; at < registrations.length; at++) {
      this.#frames[at] = entry.frame(wireVersion, registrations[at]!.selects);
    }
    let addedBytes = this.#addedBytes();
    if (this.#lengthBytes + addedBytes > bytesMax) {
      this.#flush();
      addedBytes = this.#addedBytes();
    }
    if (this.#lengthBytes + addedBytes > bytesMax) this.#messages.push({ lastSeq: entry.seq, bytes: null });
    else this.#take(entry.seq, addedBytes);
  }

  finish(): DeltaMessage[] {
    this.#flush();
    return this.#messages;
  }

  /** Bytes that the commit adds to the message as it stands. */
  #addedBytes(): number {
    let bytes = 0;
    for (let at = 0; at < this.#frames.length; at++) {
      const frame = this.#frames[at];
      if (frame === null || frame === undefined) continue;
      bytes += frame.length;
      if (this.#sections[at]!.frames.length > 0) continue;
      bytes += this.#plan.registrations[at]!.startFrame.length + SUB_END_BYTES;
    }
    return bytes;
  }

  #take(seq: number, addedBytes: number): void {
    this.#lengthBytes += addedBytes;
    this.#lastSeq = seq;
    for (let at = 0; at < this.#frames.length; at++) {
      const frame = this.#frames[at];
      if (frame === null || frame === undefined) continue;
      const section = this.#sections[at]!;
      section.frames.push(frame);
      section.lastSeq = seq;
    }
  }

  #flush(): void {
    if (this.#lengthBytes === this.#emptyBytes) return;
    this.#messages.push({ lastSeq: this.#lastSeq, bytes: this.#assemble() });
    for (const section of this.#sections) section.frames.length = 0;
    this.#lengthBytes = this.#emptyBytes;
  }

  #assemble(): Uint8Array {
    const { wireVersion, header, registrations } = this.#plan;
    const writer = new FrameWriter(wireVersion, TAG_BYTES + this.#lengthBytes);
    writer.tag(TAG_DELTA);
    writer.envelope('response');
    writer.raw(header);
    for (let at = 0; at < registrations.length; at++) {
      const { frames, lastSeq } = this.#sections[at]!;
      if (frames.length === 0) continue;
      writer.raw(registrations[at]!.startFrame);
      for (const frame of frames) writer.raw(frame);
      writer.frame({ type: 'SUB_END', nextCursor: lastSeq });
    }
    writer.end();
    return writer.take();
  }
}
