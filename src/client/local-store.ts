/** The client's memory as one thing: confirmed rows, optimistic layer, outbox and subscriptions, changed together. */
import type { Clock } from '../protocol/clock.ts';
import type { JsonObject } from '../protocol/errors.ts';
import type { CommitFrame, OpResult, PushResultFrame } from '../protocol/frames.ts';
import { rowIdOf } from '../protocol/row-identity.ts';
import type { CompiledSchema, CompiledTable } from '../protocol/schema.ts';
import { matchSegment, readSegmentBlocks } from '../protocol/segment.ts';
import { Changes } from './changes.ts';
import { ClientError, protocolViolation } from './client-error.ts';
import type { ClientLimits } from './client-limits.ts';
import { LocalView } from './local-view.ts';
import { type CommitOutcome, type Conflict, Outbox, type PendingCommit } from './outbox.ts';
import { Overlay } from './overlay.ts';
import { Replica, type RowArrival, type RowDeparture } from './replica.ts';
import { decodeRow, toRow } from './rows.ts';
import { type Subscription, SubscriptionSet } from './subscriptions.ts';

/** A decoded change, ready to be written. */
type RowChange = ({ readonly op: 'upsert' } & RowArrival) | ({ readonly op: 'delete' } & RowDeparture);

export interface LocalStoreParts {
  readonly schema: CompiledSchema;
  readonly clock: Clock;
  readonly limits: ClientLimits;
  /** Told after every change of the number of commits without an outcome. */
  readonly pendingChanged: (count: number) => void;
}

export class LocalStore {
  readonly schema: CompiledSchema;
  readonly changes: Changes;
  readonly replica: Replica;
  readonly overlay: Overlay;
  readonly outbox: Outbox;
  readonly subscriptions = new SubscriptionSet();
  readonly view: LocalView;
  readonly #limits: ClientLimits;
  #logEpoch: string | null = null;

  constructor({ schema, clock, limits, pendingChanged }: LocalStoreParts) {
    this.schema = schema;
    this.#limits = limits;
    this.changes = new Changes(clock);
    this.replica = new Replica(this.changes.touch);
    this.overlay = new Overlay(this.changes.touch);
    this.outbox = new Outbox(limits, pendingChanged);
    this.view = new LocalView(this);
  }

  /** The timeline that all rows and cursors belong to; `null` before the first contact (§2.1). */
  get logEpoch(): string | null {
    return this.#logEpoch;
  }

  /** Throws `client.unknown_table`. */
  table(name: string): CompiledTable {
    const table = this.schema.tableByName.get(name);
    if (table !== undefined) return table;
    throw new ClientError('client.unknown_table', `the schema has no table ${name}`);
  }

  /**
   * A first epoch is taken as it is. Another one means another timeline: rows, versions, cursors and scopes go, the outbox
   * stays and is replayed under the new epoch (§2.1).
   */
  acceptEpoch(logEpoch: string): void {
    if (this.#logEpoch !== null && this.#logEpoch !== logEpoch) {
      this.replica.clear();
      this.overlay.dropApplied();
      this.subscriptions.restartAll();
    }
    this.#logEpoch = logEpoch;
    this.changes.flush();
  }

  addCommit(commit: PendingCommit): void {
    this.outbox.add(commit);
    this.overlay.add(commit);
    this.changes.flush();
  }

  /** Decodes everything before anything is written, so that a commit is seen whole or not at all. */
  applyCommits(commits: readonly CommitFrame[], holder: Subscription): void {
    const changes = commits.flatMap((commit) => this.#decodeCommit(commit, holder));
    for (const change of changes) {
      if (change.op === 'upsert') this.replica.arrive(change);
      else this.replica.depart(change);
    }
  }

  /** Throws `sync.schema_mismatch` when the columns differ from the schema, `sync.invalid_request` for broken bytes. */
  applySegments(segments: readonly Uint8Array[], holder: Subscription, pin: number): void {
    const arrivals = segments.flatMap((bytes) => this.#decodeSegment(bytes, holder, pin));
    for (const arrival of arrivals) this.replica.arrive(arrival);
  }

  /** `retry`: refused for a passing reason, the commit stays. A result of a commit that nobody waits for says nothing new. */
  settle(result: PushResultFrame, details: ReadonlyMap<number, JsonObject>): 'settled' | 'retry' {
    const commit = this.outbox.get(result.clientCommitId);
    if (commit === undefined) return 'settled';
    if (result.status === 'rejected') return this.#reject(commit, result.results, details);
    const commitSeq = result.commitSeq ?? 0;
    commit.commitSeq = commitSeq;
    this.overlay.markApplied(commit);
    this.outbox.settle(commit, { status: 'applied', commitSeq, replayed: result.status === 'cached' });
    return 'settled';
  }

  /** Drops a commit that the server will never take; the reason travels in the outcome. */
  reject(commit: PendingCommit, outcome: CommitOutcome): void {
    this.overlay.remove(commit);
    this.outbox.settle(commit, outcome);
  }

  /** What the replica shows by itself leaves the optimistic layer. */
  retireApplied(): void {
    this.overlay.retire((table, seq) => this.subscriptions.covers(table, seq));
  }

  /** The subscription's rows go, unless another one holds them. */
  release(subscription: Subscription): void {
    this.replica.departAll(subscription);
  }

  #decodeCommit(commit: CommitFrame, holder: Subscription): RowChange[] {
    const { commitSeq: seq, tables } = commit;
    return commit.changes.map((change): RowChange => {
      const { rowId } = change;
      const table = this.#tableOf(tables[change.tableIndex] ?? '');
      if (change.row === undefined) return { op: 'delete', table: table.name, rowId, holder };
      const row = decodeRow(table, change.row);
      return { op: 'upsert', table: table.name, rowId, row, version: change.rowVersion ?? 1, seq, holder };
    });
  }

  #decodeSegment(bytes: Uint8Array, holder: Subscription, seq: number): RowArrival[] {
    const { header, blocks } = readSegmentBlocks(bytes);
    const table = matchSegment(header, this.schema);
    const arrivals: RowArrival[] = [];
    for (const block of blocks) {
      for (const { serverVersion: version, values } of block) {
        const rowId = rowIdOf(table, values);
        arrivals.push({ table: table.name, rowId, row: toRow(table, values), version, seq, holder });
      }
    }
    return arrivals;
  }

  #reject(
    commit: PendingCommit,
    results: readonly OpResult[],
    details: ReadonlyMap<number, JsonObject>,
  ): 'settled' | 'retry' {
    const result = results.find(({ status }) => status !== 'applied');
    if (result === undefined || result.status === 'applied') {
      throw protocolViolation('a rejected commit without the record that ended it');
    }
    const { code, message, opIndex } = result;
    if (result.status === 'error' && result.retryable && commit.retries < this.#limits.commitRetriesMax) {
      commit.retries++;
      return 'retry';
    }
    const conflict = result.status === 'conflict' ? this.#conflict(commit, opIndex, result) : null;
    this.reject(commit, {
      status: 'rejected',
      code,
      message,
      opIndex,
      conflict,
      details: details.get(opIndex) ?? null,
    });
    return 'settled';
  }

  #conflict(
    commit: PendingCommit,
    opIndex: number,
    { serverVersion, serverRow }: { readonly serverVersion: number; readonly serverRow: Uint8Array },
  ): Conflict {
    const operation = commit.operations[opIndex];
    if (operation === undefined) throw protocolViolation('a result names an operation that was not sent');
    const { table, rowId } = operation;
    return { table, rowId, serverVersion, serverRow: decodeRow(this.#tableOf(table), serverRow) };
  }

  #tableOf(name: string): CompiledTable {
    const table = this.schema.tableByName.get(name);
    if (table === undefined) throw protocolViolation('a change is for a table that the schema does not have');
    return table;
  }
}
