/** A subscriber under load: what it is told, by deltas and by pulls, must be every commit of its projects once and in order. */
import { ada, frameOf, frames } from '../gateway/support/requests.ts';
import { RoundSocket } from '../gateway/support/round-socket.ts';

export class LoadWatcher {
  readonly clientId: string;
  readonly projects: readonly string[];
  readonly #url: string;
  #socket: RoundSocket | null = null;
  /** Deltas of the open socket that were taken. */
  #taken = 0;
  readonly seqs: number[] = [];
  readonly rows = new Map<string, string>();

  constructor(
    url: string,
    { clientId, projects }: { readonly clientId: string; readonly projects: readonly string[] },
  ) {
    this.#url = url;
    this.clientId = clientId;
    this.projects = projects;
  }

  async open(): Promise<void> {
    const query = new URLSearchParams({ clientId: this.clientId, token: 'token-ada' });
    const socket = new RoundSocket(`${this.#url.replace('http:', 'ws:')}/realtime?${query}`);
    await socket.control('hello');
    this.#socket = socket;
    this.#taken = 0;
    const pulled = await socket.round(this.#pull());
    this.#take(pulled);
    socket.ack(frameOf(pulled, 'SUB_END').nextCursor);
  }

  /** As a phone that changes its network: the old connection is never told. What it brought counts. */
  async reopen(): Promise<void> {
    this.#takeDeltas();
    this.#socket?.end();
    for (;;) {
      try {
        await this.open();
        return;
      } catch {
        // The database is away, and with it the greeting; asked again until it is back.
      }
    }
  }

  /** Pulls until it has what is expected of it. */
  async catchUp(expected: readonly number[]): Promise<void> {
    const socket = this.#socket!;
    if (socket.closed !== null) throw new Error(`${this.clientId} was closed with ${socket.closed.code}`);
    this.#takeDeltas();
    while (this.seqs.length < expected.length) {
      const before = this.seqs.length;
      this.#take(await socket.round(this.#pull()));
      if (this.seqs.length === before)
        throw new Error(`${this.clientId} gets nothing after ${this.seqs.at(-1)}`);
    }
    for (const [nth, seq] of expected.entries()) {
      if (this.seqs[nth] !== seq) throw new Error(`${this.clientId} saw ${this.seqs[nth]} instead of ${seq}`);
    }
    if (this.seqs.length !== expected.length) throw new Error(`${this.clientId} saw too many commits`);
  }

  end(): void {
    this.#socket?.end();
  }

  #pull(): Uint8Array {
    const { clientId, projects } = this;
    return ada.pull({ clientId, projects, cursor: this.seqs.at(-1) ?? 0 });
  }

  #takeDeltas(): void {
    const deltas = this.#socket?.deltas ?? [];
    for (; this.#taken < deltas.length; this.#taken++) this.#take(deltas[this.#taken]!);
  }

  /** A delta that a pull has overtaken holds nothing new; one that leaves something out is a fault. */
  #take(bytes: Uint8Array): void {
    for (const frame of frames(bytes)) {
      if (frame.type !== 'COMMIT') continue;
      const last = this.seqs.at(-1) ?? 0;
      if (frame.commitSeq <= last) continue;
      this.seqs.push(frame.commitSeq);
      for (const { rowId, row } of frame.changes) this.rows.set(rowId, Buffer.from(row!).toString('hex'));
    }
  }
}
