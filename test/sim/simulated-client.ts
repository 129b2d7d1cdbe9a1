/**
 * A client that believes nothing: it keeps what it was given and fails the moment that a delta jumps a commit, brings a
 * foreign change, or comes where none may (the promises of part 3, 3.5.2).
 */
import assert from 'node:assert/strict';
import { parseServerControl, TAG_DELTA, TAG_ROUND } from '../../src/protocol/control.ts';
import { decodeMessage } from '../../src/protocol/message.ts';
import type { LogCommit } from '../../src/storage/storage.ts';
import type { FakeConnection } from '../support/fake-connection.ts';

/** A subscription on one project of `notes`; `cursor` is how far the client has everything of it. */
export interface Held {
  readonly project: string;
  cursor: number;
}

/** What a simulated pull answers, as the text of its last chunk. */
export interface PullAnswer {
  readonly cursors: Readonly<Record<string, number>>;
}

export class SimulatedClient {
  readonly clientId: string;
  connection: FakeConnection | null = null;
  /** By subscription id. */
  held = new Map<string, Held>();
  /** A wake-up, a hello or a cut window asks for a pull; cleared when one starts. */
  wantsPull = false;
  isPulling = false;
  /**
   * The server's record is ahead of what arrived here (a response was lost on its way, 3.16 A-3): deltas are not to be
   * trusted until a pull over the socket was read.
   */
  isAhead = false;
  /**
   * A round that was lost may have changed the list at the server. Only a round over the socket says again which one this connection
   * is registered with; a pull by HTTP does not.
   */
  isListInDoubt = false;
  /** Snapshot of a pull by HTTP that is on its way. */
  httpPull: number | null = null;
  acks: number[] = [];
  readonly #log: readonly LogCommit[];
  #read = 0;
  #deltas = 0;

  constructor(clientId: string, log: readonly LogCommit[]) {
    this.clientId = clientId;
    this.#log = log;
  }

  get deltas(): number {
    return this.#deltas;
  }

  attach(connection: FakeConnection): void {
    this.connection = connection;
    this.#read = 0;
    // A round whose answer did not arrive is run again: the server may have recorded its list.
    this.wantsPull ||= this.isPulling || this.httpPull !== null;
    this.isListInDoubt ||= this.isPulling;
    this.isPulling = false;
    this.isAhead = false;
    this.httpPull = null;
    this.acks = [];
  }

  /** Reads the next message of the socket; false when there is none. */
  readOne(): boolean {
    const message = this.connection?.sent[this.#read];
    if (message === undefined) return false;
    this.#read++;
    if (typeof message === 'string') {
      this.#readText(message);
      return true;
    }
    assert.ok([TAG_DELTA, TAG_ROUND].includes(message[0]!), `tag ${message[0]}`);
    if (message[0] === TAG_DELTA) this.#readDelta(message.subarray(1));
    else this.#readRound(Buffer.from(message.subarray(1)).toString());
    return true;
  }

  /** After a pull: the minimum over the subscriptions, if there are any. */
  ackAfterPull(): void {
    const cursors = [...this.held.values()].map(({ cursor }) => cursor);
    if (cursors.length > 0) this.acks.push(Math.min(...cursors));
  }

  get hasEverything(): boolean {
    return [...this.held.values()].every(
      ({ project, cursor }) => this.#matching(project, cursor).length === 0,
    );
  }

  #readText(text: string): void {
    // The parser refuses reasons beyond the three and numbers that are no safe integers.
    const control = parseServerControl(text);
    assert.ok(['hello', 'wake-up', 'heartbeat'].includes(control.kind), control.kind);
    if (control.kind === 'wake-up') this.wantsPull = true;
    if (control.kind !== 'hello') return;
    const cursors = [...this.held.values()].map(({ cursor }) => cursor);
    this.isAhead = control.cursor > Math.min(...cursors);
    this.wantsPull ||= control.requiresSync || this.isAhead;
  }

  #readDelta(bytes: Uint8Array): void {
    // Sections for a list that it does not know are neither applied nor acked.
    if (this.isAhead || this.isListInDoubt) return;
    const { frames } = decodeMessage(bytes);
    let id = '';
    let seqs: number[] = [];
    let highest = 0;
    for (const frame of frames) {
      if (frame.type === 'SUB_START') {
        id = frame.id;
        seqs = [];
      } else if (frame.type === 'COMMIT') {
        seqs.push(frame.commitSeq);
        const held = this.#subscription(id);
        for (const { scopes } of frame.changes) assert.equal(scopes.project, held.project);
      } else if (frame.type === 'SUB_END') {
        this.#section(id, seqs, frame.nextCursor);
        highest = Math.max(highest, frame.nextCursor);
      }
    }
    this.#deltas++;
    this.acks.push(highest);
  }

  /** What it did not have yet must be all that there is between its cursor and the section's. */
  #section(id: string, seqs: readonly number[], nextCursor: number): void {
    const held = this.#subscription(id);
    const expected = this.#matching(held.project, held.cursor).filter((seq) => seq <= nextCursor);
    assert.deepEqual(
      seqs.filter((seq) => seq > held.cursor),
      expected,
      `${this.clientId} ${id} at ${held.cursor} got a delta up to ${nextCursor}`,
    );
    assert.deepEqual(
      [...seqs].sort((a, b) => a - b),
      seqs,
    );
    held.cursor = Math.max(held.cursor, nextCursor);
  }

  #readRound(text: string): void {
    if (!text.startsWith('{')) return;
    const { cursors } = JSON.parse(text) as PullAnswer;
    const before = this.held;
    this.held = new Map();
    for (const [id, cursor] of Object.entries(cursors)) {
      const known = before.get(id)?.cursor ?? -1;
      this.held.set(id, { project: id.slice(2), cursor: Math.max(known, cursor) });
    }
    this.isPulling = false;
    this.isAhead = false;
    this.isListInDoubt = false;
    this.ackAfterPull();
  }

  #subscription(id: string): Held {
    const held = this.held.get(id);
    if (held === undefined)
      throw new Error(`${this.clientId} got a section for ${id}, which it does not hold`);
    return held;
  }

  #matching(project: string, afterSeq: number): number[] {
    return this.#log
      .filter(
        ({ commitSeq, changes }) =>
          commitSeq > afterSeq && changes.some(({ scopes }) => scopes.project === project),
      )
      .map(({ commitSeq }) => commitSeq);
  }
}
