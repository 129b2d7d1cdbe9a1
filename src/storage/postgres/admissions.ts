/**
 * What `admit` reads, once for all rounds of a partition that begin while another read is on its way: a partition with many
 * busy clients costs a query per round trip, not per round.
 */
import type { Admission } from '../storage.ts';
import type { Sql } from './connections.ts';
import type { Names } from './names.ts';
import { selectAdmissions, toAdmissions } from './partitions.ts';

/** Clients that one query reads. */
const CLIENTS_MAX = 256;

interface Waiting {
  readonly clientId: string;
  readonly resolve: (admission: Admission | null) => void;
  readonly reject: (error: unknown) => void;
}

export class Admissions {
  readonly #read: Sql['run'];
  readonly #names: Names;
  /** By partition with a read on its way: those that came later, and so need the next one. */
  readonly #waiting = new Map<string, Waiting[]>();

  constructor(read: Sql['run'], names: Names) {
    this.#read = read;
    this.#names = names;
  }

  /** As of a moment after the call; `null` for a partition that is not known yet. */
  read(partition: string, clientId: string): Promise<Admission | null> {
    return new Promise((resolve, reject) => {
      const entry = { clientId, resolve, reject };
      const waiting = this.#waiting.get(partition);
      if (waiting !== undefined) {
        waiting.push(entry);
        return;
      }
      const first = [entry];
      this.#waiting.set(partition, first);
      void this.#drain(partition, first);
    });
  }

  /** Never rejects. */
  async #drain(partition: string, waiting: Waiting[]): Promise<void> {
    while (waiting.length > 0) await this.#answer(partition, waiting.splice(0, CLIENTS_MAX));
    this.#waiting.delete(partition);
  }

  async #answer(partition: string, group: readonly Waiting[]): Promise<void> {
    try {
      const clientIds = group.map(({ clientId }) => clientId);
      const [found] = await this.#read(selectAdmissions(this.#names, partition, clientIds));
      const admissions = toAdmissions(found?.rows ?? []);
      for (const [i, { resolve }] of group.entries()) resolve(admissions[i] ?? null);
    } catch (error) {
      for (const { reject } of group) reject(error);
    }
  }
}
