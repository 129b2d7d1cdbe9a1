/** The commits of one transaction: gate, replays, rows, then every push in order over the overlay (architecture §3). */

import { isStorableText } from '../../storage/storable-values.ts';
import type { LogChange, NewCommit, PushResultRecord, StorageTx } from '../../storage/storage.ts';
import { StorageConstraintError, StorageError } from '../../storage/storage-error.ts';
import { findCulprit } from './constraint-culprit.ts';
import { askGate, type GateDeps } from './gate.ts';
import { Overlay } from './overlay.ts';
import { type CommitVerdict, type PushServices, runCommit } from './push.ts';
import type { TablePlan } from './push-plan.ts';
import type { PreparedCommit } from './push-prepare.ts';
import { errorRejection, invalidRejection, type Rejection, type RejectionRecord } from './push-rejection.ts';
import {
  answerBytes,
  answerOf,
  decodeStoredOutcome,
  encodeStoredOutcome,
  type StoredOutcome,
} from './stored-result.ts';
import type { PushOutcome, PushRequest } from './sync-deps.ts';
import { keyMoves, UniqueKeyLedger } from './unique-keys.ts';

export interface BatchServices extends PushServices, GateDeps {
  /** Version of the schema this process was started with. */
  readonly schemaVersion: number;
}

export interface BatchItem {
  readonly request: PushRequest;
  /** `idempotencyKey` of the commit. */
  readonly key: string;
  readonly commit: PreparedCommit;
}

/**
 * `joined`: one append for all. `one-by-one`: each commit under a savepoint of its own, after the database refused the joined
 * append, so that only the culprit is rejected.
 */
export type BatchMode = 'joined' | 'one-by-one';

/** `failed` ends the whole request: the rest of its commits must not run. */
export type Answer =
  | { readonly kind: 'answered'; readonly outcome: PushOutcome }
  | { readonly kind: 'failed'; readonly error: unknown };

export interface BatchResult {
  readonly logEpoch: string;
  /**
   * To the first of the items, at least one. A batch ends early when what it holds in memory passes `commitBatchBytesMax`: a
   * commit of a few bytes may touch a large row, or be answered with one. The rest is for the next batch.
   */
  readonly answers: readonly Answer[];
  readonly commits: readonly NewCommit[];
  readonly records: readonly PushResultRecord[];
  /** First outcomes only, no replays. */
  readonly rejected: readonly { readonly actorId: string; readonly record: RejectionRecord }[];
}

export interface BatchTask {
  readonly items: readonly BatchItem[];
  readonly mode: BatchMode;
  readonly nowMs: number;
}

/** Everything it appended is durable once the transaction has committed; nothing may be told before. */
export function runBatch(services: BatchServices, tx: StorageTx, task: BatchTask): Promise<BatchResult> {
  return new BatchRun(services, tx, task).run();
}

/** An idempotency record: of the storage, or of an earlier commit of this batch. */
interface KnownOutcome {
  /** `null`: unreadable. */
  readonly outcome: StoredOutcome | null;
  readonly contentHash: string;
  readonly schemaVersion: number;
}

/** An outcome that is not kept still answers the copies in its own request (S-128). */
interface PassedOutcome {
  readonly request: PushRequest;
  readonly contentHash: string;
  readonly outcome: StoredOutcome;
}

/** One text per pair, since a length says where the first part ends. */
export function idempotencyKey(clientId: string, { clientCommitId }: PreparedCommit): string {
  return `${clientId.length}:${clientId}${clientCommitId}`;
}

/** A failure that says nothing about the storage as a whole, so that the neighbours of its commit may go on. */
function isOfOneCommit(failure: unknown): boolean {
  return !(failure instanceof StorageError) || failure.code === 'sync.storage.failed';
}

/** Commits whose records and rows are read at first; twice as many each time while those are small. */
const READ_AHEAD_FIRST = 64;

class BatchRun {
  readonly #services: BatchServices;
  readonly #tx: StorageTx;
  readonly #task: BatchTask;
  readonly #overlay: Overlay;
  readonly #ledger = new UniqueKeyLedger();
  readonly #known = new Map<string, KnownOutcome>();
  readonly #passed = new Map<string, PassedOutcome>();
  readonly #failed = new Map<PushRequest, unknown>();
  readonly #rejected: { actorId: string; record: RejectionRecord }[] = [];
  /** Appended, and not yet appended. */
  readonly #commits: NewCommit[] = [];
  readonly #records: PushResultRecord[] = [];
  #pendingCommits: NewCommit[] = [];
  #pendingRecords: PushResultRecord[] = [];
  #nextSeq: number;
  /** Items whose records and rows are here. */
  #readThrough = 0;
  #readAhead = READ_AHEAD_FIRST;
  /** Bytes of rows and of answers that the batch holds. */
  #heldBytes = 0;

  constructor(services: BatchServices, tx: StorageTx, task: BatchTask) {
    this.#services = services;
    this.#tx = tx;
    this.#task = task;
    this.#overlay = new Overlay(tx);
    this.#nextSeq = tx.state.head + 1;
  }

  async run(): Promise<BatchResult> {
    const { items } = this.#task;
    const { logEpoch } = this.#tx.state;
    this.#askGate();
    const answers: Answer[] = [];
    while (answers.length < items.length && !(answers.length > 0 && this.#isFull)) {
      if (answers.length === this.#readThrough) await this.#read();
      const answer = await this.#answer(items[answers.length]!);
      if (answer.kind === 'answered') this.#heldBytes += answerBytes(answer.outcome);
      answers.push(answer);
    }
    await this.#flush('last');
    return {
      logEpoch,
      answers,
      commits: this.#commits,
      records: this.#records,
      rejected: this.#rejected,
    };
  }

  /** Part 4, 4.3: once per transaction, for every request that was admitted with an epoch of its own. */
  #askGate(): void {
    const { state } = this.#tx;
    for (const { request } of this.#task.items) {
      if (this.#failed.has(request)) continue;
      const expect = { partition: state.partition, logEpoch: request.logEpoch };
      const refusal = askGate(state, expect, this.#services);
      if (refusal !== null) this.#failed.set(request, refusal);
    }
  }

  get #isFull(): boolean {
    return this.#heldBytes > this.#services.limits.commitBatchBytesMax;
  }

  /**
   * Records and rows of the next items. Nobody knows their size before, so they come in slices. Asked for at once, which costs
   * one round trip; the price is rows of replays that nobody needs.
   */
  async #read(): Promise<void> {
    const slice = this.#task.items.slice(this.#readThrough, this.#readThrough + this.#readAhead);
    await Promise.all([this.#readRecords(slice), this.#loadRows(slice)]);
    this.#readThrough += slice.length;
    this.#readAhead *= 2;
  }

  async #readRecords(items: readonly BatchItem[]): Promise<void> {
    const keys = new Map<string, { clientId: string; clientCommitId: string }>();
    for (const item of items) {
      const { clientCommitId } = item.commit;
      if (this.#failed.has(item.request) || !isStorableText(clientCommitId)) continue;
      // An earlier commit of this batch had the key.
      if (this.#known.has(item.key)) continue;
      keys.set(item.key, { clientId: item.request.clientId, clientCommitId });
    }
    if (keys.size === 0) return;
    const records = await this.#tx.readResults([...keys.values()]);
    for (const [index, key] of [...keys.keys()].entries()) {
      const record = records[index] ?? null;
      if (record === null) continue;
      const { contentHash, schemaVersion } = record;
      this.#known.set(key, { outcome: decodeStoredOutcome(record.result), contentHash, schemaVersion });
    }
  }

  async #loadRows(items: readonly BatchItem[]): Promise<void> {
    const wanted = new Map<TablePlan, Set<string>>();
    for (const item of items) {
      if (this.#failed.has(item.request) || this.#known.has(item.key)) continue;
      for (const { plan, rowId } of item.commit.operations) {
        const rowIds = wanted.get(plan);
        if (rowIds === undefined) wanted.set(plan, new Set([rowId]));
        else rowIds.add(rowId);
      }
    }
    this.#heldBytes += await this.#overlay.load(wanted);
  }

  async #answer(item: BatchItem): Promise<Answer> {
    const { request, commit } = item;
    if (this.#failed.has(request)) return { kind: 'failed', error: this.#failed.get(request) };
    const { clientCommitId } = commit;
    const replay = this.#replay(item);
    if (replay !== null) {
      return { kind: 'answered', outcome: answerOf(replay, { clientCommitId, appliedAs: 'cached' }) };
    }
    try {
      const outcome = this.#task.mode === 'joined' ? await this.#join(item) : await this.#runAlone(item);
      return { kind: 'answered', outcome: answerOf(outcome, { clientCommitId, appliedAs: 'applied' }) };
    } catch (failure) {
      if (this.#task.mode === 'joined' || !isOfOneCommit(failure)) throw failure;
      this.#overlay.undoTo(0);
      this.#failed.set(request, failure);
      return { kind: 'failed', error: failure };
    }
  }

  /** What a key that was used before answers; `null` for a commit that has to run. */
  #replay(item: BatchItem): StoredOutcome | null {
    const { request, commit } = item;
    if (!isStorableText(commit.clientCommitId)) {
      return this.#refuse(item, invalidRejection(0, 'the clientCommitId cannot be stored', 'passing'));
    }
    const known = this.#known.get(item.key);
    if (known === undefined) {
      const passed = this.#passed.get(item.key);
      return passed?.request === request && passed.contentHash === commit.contentHash ? passed.outcome : null;
    }
    // A commit re-encoded for a newer schema has the same key and other bytes (part 2.24 decision 19).
    if (known.schemaVersion === this.#services.schemaVersion && known.contentHash !== commit.contentHash) {
      const reuse = 'the clientCommitId was used before for a commit with other content';
      return this.#refuse(item, invalidRejection(0, reuse, 'passing'));
    }
    return known.outcome ?? this.#refuse(item, errorRejection(0, 'sync.idempotency_cache_miss', 'passing'));
  }

  async #join(item: BatchItem): Promise<StoredOutcome> {
    const mark = this.#overlay.mark;
    const verdict = await this.#run(item);
    if (verdict.kind === 'rejected') {
      this.#overlay.undoTo(mark);
      return this.#reject(item, verdict.rejection);
    }
    if (this.#services.plan.hasUniqueIndexes) await this.#separateKeys(mark);
    const landing = this.#landing(item, verdict.changes);
    this.#pendingCommits.push(landing.commit);
    this.#pendingRecords.push(landing.record);
    return this.#applied(item, landing);
  }

  /** What this commit took or freed must not meet the opposite of an earlier one in one append. */
  async #separateKeys(mark: number): Promise<void> {
    const moves = keyMoves(this.#overlay.entriesSince(mark));
    if (this.#ledger.clashes(moves)) {
      const entries = this.#overlay.undoTo(mark);
      await this.#flush();
      this.#overlay.redo(entries);
    }
    this.#ledger.admit(moves);
  }

  async #runAlone(item: BatchItem): Promise<StoredOutcome> {
    let changes: readonly LogChange[] = [];
    try {
      const outcome = await this.#tx.savepoint(async () => {
        const verdict = await this.#run(item);
        if (verdict.kind === 'rejected') return verdict.rejection;
        changes = verdict.changes;
        const landing = this.#landing(item, changes);
        await this.#tx.append({
          commits: [landing.commit],
          rows: this.#overlay.writes(),
          results: [landing.record],
        });
        return landing;
      });
      if ('lifetime' in outcome) {
        this.#overlay.undoTo(0);
        return this.#reject(item, outcome);
      }
      this.#overlay.settle();
      this.#commits.push(outcome.commit);
      this.#records.push(outcome.record);
      return this.#applied(item, outcome);
    } catch (failure) {
      if (!(failure instanceof StorageConstraintError)) throw failure;
      const { commit } = this.#landing(item, changes);
      const opIndex = await findCulprit({ tx: this.#tx, overlay: this.#overlay, commit });
      return this.#reject(item, errorRejection(opIndex, 'sync.constraint_violation'));
    }
  }

  #run({ request, commit }: BatchItem): Promise<CommitVerdict> {
    return runCommit({
      services: this.#services,
      tx: this.#tx,
      overlay: this.#overlay,
      request,
      commit,
      commitSeq: this.#nextSeq,
    });
  }

  /** What an applied commit appends. */
  #landing(item: BatchItem, changes: readonly LogChange[]): Landing {
    const { request, commit } = item;
    const outcome: StoredOutcome = {
      status: 'applied',
      commitSeq: this.#nextSeq,
      operations: commit.operationCount,
    };
    const newCommit: NewCommit = {
      commitSeq: this.#nextSeq,
      createdAtMs: this.#task.nowMs,
      actorId: request.who.actorId,
      clientId: request.clientId,
      clientCommitId: commit.clientCommitId,
      changes,
      writerVersion: this.#services.schemaVersion,
    };
    return { outcome, commit: newCommit, record: this.#recordOf(item, outcome) };
  }

  #applied(item: BatchItem, { outcome }: Landing): StoredOutcome {
    this.#nextSeq++;
    this.#remember(item, outcome);
    return outcome;
  }

  /** The commit's writes are out of the overlay. */
  #reject(item: BatchItem, rejection: Rejection): StoredOutcome {
    const outcome = this.#refuse(item, rejection);
    if (rejection.lifetime === 'stored') {
      this.#pendingRecords.push(this.#recordOf(item, outcome));
      this.#remember(item, outcome);
    } else {
      const { request, commit } = item;
      this.#passed.set(item.key, { request, contentHash: commit.contentHash, outcome });
    }
    return outcome;
  }

  /** For the copies further down in the batch. */
  #remember({ key, commit }: BatchItem, outcome: StoredOutcome): void {
    const { contentHash } = commit;
    this.#known.set(key, { outcome, contentHash, schemaVersion: this.#services.schemaVersion });
  }

  #refuse({ request }: BatchItem, { record, detailsJson }: Rejection): StoredOutcome {
    this.#rejected.push({ actorId: request.who.actorId, record });
    return { status: 'rejected', record, detailsJson };
  }

  #recordOf({ request, commit }: BatchItem, outcome: StoredOutcome): PushResultRecord {
    return {
      clientId: request.clientId,
      clientCommitId: commit.clientCommitId,
      result: encodeStoredOutcome(outcome),
      contentHash: commit.contentHash,
      schemaVersion: this.#services.schemaVersion,
      recordedAtMs: this.#task.nowMs,
    };
  }

  async #flush(place?: 'last'): Promise<void> {
    const commits = this.#pendingCommits;
    const results = this.#pendingRecords;
    if (commits.length > 0 || results.length > 0) {
      await this.#tx.append({ commits, rows: this.#overlay.writes(), results }, place);
    }
    this.#overlay.settle();
    this.#ledger.clear();
    this.#commits.push(...commits);
    this.#records.push(...results);
    this.#pendingCommits = [];
    this.#pendingRecords = [];
  }
}

interface Landing {
  readonly outcome: StoredOutcome;
  readonly commit: NewCommit;
  readonly record: PushResultRecord;
}
