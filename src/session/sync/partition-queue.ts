/** The pushes of one partition that wait for a transaction, in order. */
import type { PushCommitFrame } from '../../protocol/frames.ts';
import type { Limits } from '../../protocol/limits.ts';
import { answerBytes } from './stored-result.ts';
import type { PushOutcome, PushRequest } from './sync-deps.ts';

/** Bytes that an operation holds in memory beside its texts and payload, roughly. */
const OPERATION_OVERHEAD_BYTES = 128;

function commitBytes({ operations }: PushCommitFrame): number {
  let bytes = 0;
  for (const { table, rowId, payload } of operations) {
    bytes += OPERATION_OVERHEAD_BYTES + table.length + rowId.length + (payload?.length ?? 0);
  }
  return bytes;
}

/** A request with the answers it has so far. Its commits may be spread over several batches. */
export class WaitingRequest {
  readonly request: PushRequest;
  readonly commitBytes: readonly number[];
  readonly bytes: number;
  /** Commits that a batch has taken. */
  taken = 0;
  /** All answers, or the failure that ended the request. */
  readonly outcomes: Promise<readonly PushOutcome[]>;
  /** Of the rows in the answers so far. */
  answerBytes = 0;
  readonly #answers: PushOutcome[] = [];
  #resolve: (outcomes: readonly PushOutcome[]) => void = () => undefined;
  #reject: (error: unknown) => void = () => undefined;
  isSettled = false;

  constructor(request: PushRequest) {
    this.request = request;
    this.commitBytes = request.commits.map(commitBytes);
    this.bytes = this.commitBytes.reduce((sum, bytes) => sum + bytes, 0);
    this.outcomes = new Promise((resolve, reject) => {
      this.#resolve = resolve;
      this.#reject = reject;
    });
  }

  get left(): number {
    return this.request.commits.length - this.taken;
  }

  /** Adds the answer to the next commit; returns how many commits that ends. */
  answer(outcome: PushOutcome): number {
    this.#answers.push(outcome);
    this.answerBytes += answerBytes(outcome);
    if (this.#answers.length === this.request.commits.length) {
      this.isSettled = true;
      this.#resolve(this.#answers);
    }
    return 1;
  }

  /** Ends the request; returns how many of its commits had no answer. */
  fail(error: unknown): number {
    this.isSettled = true;
    this.#reject(error);
    return this.request.commits.length - this.#answers.length;
  }
}

/** One commit of a batch. */
export interface Slot {
  readonly entry: WaitingRequest;
  readonly index: number;
}

export class PartitionQueue {
  readonly #waiting: WaitingRequest[] = [];
  #commits = 0;
  #bytes = 0;

  get hasWaiting(): boolean {
    return this.#waiting.length > 0;
  }

  /** A request that alone exceeds the bounds is let in when nobody waits: it could never be served otherwise. */
  hasRoom(entry: WaitingRequest, limits: Limits): boolean {
    if (!this.hasWaiting) return true;
    return (
      this.#commits + entry.left <= limits.commitQueueCommitsMax &&
      this.#bytes + entry.bytes <= limits.commitQueueBytesMax
    );
  }

  add(entry: WaitingRequest): void {
    this.#waiting.push(entry);
    this.#commits += entry.left;
    this.#bytes += entry.bytes;
  }

  /** The next batch: at least one commit, in order; a request that does not fit is continued by the batch after. */
  take(limits: Limits): Slot[] {
    const slots: Slot[] = [];
    let bytes = 0;
    let exhausted = 0;
    for (const entry of this.#waiting) {
      while (entry.left > 0) {
        bytes += entry.commitBytes[entry.taken]!;
        const isFull = slots.length >= limits.commitBatchCommitsMax || bytes > limits.commitBatchBytesMax;
        if (isFull && slots.length > 0) break;
        this.#commits--;
        this.#bytes -= entry.commitBytes[entry.taken]!;
        slots.push({ entry, index: entry.taken });
        entry.taken++;
      }
      if (entry.left > 0) break;
      exhausted++;
    }
    this.#waiting.splice(0, exhausted);
    return slots;
  }

  /** Commits that a batch took and did not get to, in the order of `take`: they are the next ones again. */
  putBack(slots: readonly Pick<Slot, 'entry'>[]): void {
    for (const { entry } of slots.toReversed()) {
      entry.taken--;
      const bytes = entry.commitBytes[entry.taken]!;
      this.#commits++;
      this.#bytes += bytes;
      if (this.#waiting[0] !== entry) this.#waiting.unshift(entry);
    }
  }

  /** Forgets what is left of a request that failed: a later commit of it may build on one that did not land. */
  drop(entry: WaitingRequest): void {
    const at = this.#waiting.indexOf(entry);
    if (at === -1) return;
    this.#waiting.splice(at, 1);
    for (const bytes of entry.commitBytes.slice(entry.taken)) this.#bytes -= bytes;
    this.#commits -= entry.left;
  }
}
