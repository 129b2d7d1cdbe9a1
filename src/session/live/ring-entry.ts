/** A released commit with what its cohorts share of its encoding. */
import { encodeChangeBody } from '../../protocol/commit-codec.ts';
import { FrameWriter } from '../../protocol/frame-writer.ts';
import type { WireVersion } from '../../protocol/frames.ts';
import type { LogChange, LogCommit } from '../../storage/storage.ts';

/** What a commit costs beside its payloads, roughly. */
const COMMIT_BYTES = 256;
const CHANGE_BYTES = 128;
/** Selections of more changes are not remembered; one that takes all of them always is. */
const MASK_CHANGES_MAX = 30;

/** Which changes of a commit, in commit order. Throws what `FrameWriter` throws for a commit that has no encoding. */
export type Selects = (change: LogChange) => boolean;

export class RingEntry {
  readonly commit: LogCommit;
  readonly bytes: number;
  /** `COMMIT` frames by selection: one that takes every change serves nearly everybody. */
  readonly #whole: (Uint8Array | null)[] = [null, null];
  #subsets: Map<number, Uint8Array> | null = null;
  #bodies: (Uint8Array | undefined)[] | null = null;

  constructor(commit: LogCommit) {
    this.commit = commit;
    this.bytes = commitBytes(commit);
  }

  get seq(): number {
    return this.commit.commitSeq;
  }

  /** The `COMMIT` frame of the selected changes; `null` for none. Made once for all who select the same. */
  frame(wireVersion: WireVersion, selects: Selects): Uint8Array | null {
    const { changes } = this.commit;
    return changes.length <= MASK_CHANGES_MAX
      ? this.#maskedFrame(wireVersion, selects)
      : this.#largeFrame(wireVersion, selects);
  }

  #maskedFrame(wireVersion: WireVersion, selects: Selects): Uint8Array | null {
    const { changes } = this.commit;
    let mask = 0;
    for (let position = 0; position < changes.length; position++) {
      if (selects(changes[position]!)) mask |= 1 << position;
    }
    if (mask === 0) return null;
    if (mask === (1 << changes.length) - 1) return this.#wholeFrame(wireVersion);
    this.#subsets ??= new Map();
    const key = mask * 2 + wireVersion - 1;
    let frame = this.#subsets.get(key);
    if (frame === undefined) {
      frame = this.#encode(wireVersion, positionsOf(mask));
      this.#subsets.set(key, frame);
    }
    return frame;
  }

  #largeFrame(wireVersion: WireVersion, selects: Selects): Uint8Array | null {
    const { changes } = this.commit;
    const positions: number[] = [];
    changes.forEach((change, position) => {
      if (selects(change)) positions.push(position);
    });
    if (positions.length === 0) return null;
    if (positions.length === changes.length) return this.#wholeFrame(wireVersion);
    return this.#encode(wireVersion, positions);
  }

  #wholeFrame(wireVersion: WireVersion): Uint8Array {
    const known = this.#whole[wireVersion - 1];
    if (known !== null && known !== undefined) return known;
    const frame = this.#encode(wireVersion, [...this.commit.changes.keys()]);
    this.#whole[wireVersion - 1] = frame;
    return frame;
  }

  #encode(wireVersion: WireVersion, positions: readonly number[]): Uint8Array {
    const { commitSeq, createdAtMs, actorId, changes } = this.commit;
    const indexByTable = new Map<string, number>();
    for (const position of positions) {
      const { table } = changes[position]!;
      if (!indexByTable.has(table)) indexByTable.set(table, indexByTable.size);
    }
    const writer = new FrameWriter(wireVersion);
    writer.beginCommit({ commitSeq, createdAtMs, actorId, tables: [...indexByTable.keys()] });
    for (const position of positions) {
      writer.change(indexByTable.get(changes[position]!.table)!, this.#body(position));
    }
    writer.endCommit();
    // Kept as long as the ring keeps the commit, so in memory of its own.
    return writer.take().slice();
  }

  /** Most commits have one change and one frame: bodies are kept for those that are cut in several ways. */
  #body(position: number): Uint8Array {
    const { changes } = this.commit;
    if (changes.length === 1) return encodeBody(changes[position]!);
    this.#bodies ??= [];
    const known = this.#bodies[position];
    if (known !== undefined) return known;
    const body = encodeBody(changes[position]!);
    this.#bodies[position] = body;
    return body;
  }
}

function encodeBody({ rowId, op, rowVersion, scopes, payload }: LogChange): Uint8Array {
  return encodeChangeBody({ rowId, op, rowVersion, scopes, row: payload });
}

function positionsOf(mask: number): number[] {
  const positions: number[] = [];
  for (let position = 0; position < MASK_CHANGES_MAX; position++) {
    if ((mask & (1 << position)) !== 0) positions.push(position);
  }
  return positions;
}

function commitBytes(commit: LogCommit): number {
  let bytes = COMMIT_BYTES;
  for (const change of commit.changes) bytes += CHANGE_BYTES + (change.payload?.length ?? 0);
  return bytes;
}
