/** Appends frames to one buffer: the server's way to write a response piece by piece (§1.4) and deltas without detours. */
import { ByteWriter, EncodeError } from './bytes.ts';
import { type CommitHead, writeCommitHead } from './commit-codec.ts';
import { END_FRAME, writeEnvelope, writeFrame } from './frame-codecs.ts';
import type { MessageKind } from './frame-table.ts';
import { FRAME_TYPES, type Frame, type WireVersion } from './frames.ts';

const CAPACITY_BYTES = 1_024;

/** A `COMMIT` that is being written. */
interface OpenCommit {
  readonly lengthAt: number;
  readonly countAt: number;
  readonly tableCount: number;
  changes: number;
}

/**
 * Frame order is the caller's (`FrameOrder` in `grammar.ts` checks it). A frame that a reader would refuse throws
 * `EncodeError` and leaves nothing behind, so that `ERROR` and `END` may still follow.
 */
export class FrameWriter {
  readonly #wireVersion: WireVersion;
  #writer: ByteWriter;
  #commit: OpenCommit | null = null;

  constructor(wireVersion: WireVersion, capacityBytes = CAPACITY_BYTES) {
    this.#wireVersion = wireVersion;
    this.#writer = new ByteWriter(capacityBytes);
  }

  /** Bytes written and not yet taken. */
  get lengthBytes(): number {
    return this.#writer.length;
  }

  /** A channel tag of the socket (part 1.10), in front of what follows. */
  tag(tag: number): void {
    this.#between().u8(tag);
  }

  envelope(kind: MessageKind): void {
    writeEnvelope(this.#between(), this.#wireVersion, kind);
  }

  frame(frame: Frame): void {
    const writer = this.#between();
    const before = writer.length;
    try {
      writeFrame(writer, this.#wireVersion, frame);
    } catch (failure) {
      writer.truncate(before);
      throw failure;
    }
  }

  /** Frames that were encoded before, for the same wire version. */
  raw(encoded: Uint8Array): void {
    this.#between().raw(encoded);
  }

  /** Opens a `COMMIT`; `change` fills it and `endCommit` closes it. */
  beginCommit(head: CommitHead): void {
    const writer = this.#between();
    const before = writer.length;
    writer.u8(FRAME_TYPES.COMMIT);
    const lengthAt = writer.holeU32();
    try {
      writeCommitHead(writer, head);
    } catch (failure) {
      writer.truncate(before);
      throw failure;
    }
    this.#commit = { lengthAt, countAt: writer.holeU32(), tableCount: head.tables.length, changes: 0 };
  }

  /** `body` is what `encodeChangeBody` made; `tableIndex` counts in the tables of the open commit. */
  change(tableIndex: number, body: Uint8Array): void {
    const commit = this.#openCommit();
    if (tableIndex >= commit.tableCount) throw new EncodeError('a tableIndex names no table of its commit');
    this.#writer.u16(tableIndex);
    this.#writer.raw(body);
    commit.changes++;
  }

  endCommit(): void {
    const { countAt, lengthAt, changes } = this.#openCommit();
    const writer = this.#writer;
    writer.patchU32(countAt, changes);
    writer.patchU32(lengthAt, writer.length - lengthAt - 4);
    this.#commit = null;
  }

  end(): void {
    this.#between().raw(END_FRAME);
  }

  /** The bytes since the last `take`; writing goes on in a new buffer. Meant to be sent: `slice()` what is kept longer. */
  take(): Uint8Array {
    const bytes = this.#between().finish();
    this.#writer = new ByteWriter(CAPACITY_BYTES);
    return bytes;
  }

  /** The buffer, where no commit is open. */
  #between(): ByteWriter {
    if (this.#commit !== null) throw new EncodeError('a commit is still open');
    return this.#writer;
  }

  #openCommit(): OpenCommit {
    if (this.#commit === null) throw new EncodeError('no commit is open');
    return this.#commit;
  }
}
