/** The sessions of this process: how many, and which connection of a client is the newest (part 3, 3.13). */
import { encodeHeartbeat } from '../../protocol/control.ts';
import type { Session } from './session.ts';

/** What happens to the older connection of a client once a newer one sent its `hello`. */
export type DuplicateClients = 'replace' | 'keep';

export class SessionRegistry {
  readonly #duplicates: DuplicateClients;
  readonly #all = new Set<Session>();
  /** Newest greeted connection by client. */
  readonly #newest = new Map<string, Session>();
  #generation = 0;
  #heartbeatMs = -1;
  #heartbeat = '';
  #whenEmpty: (() => void)[] = [];

  constructor(duplicates: DuplicateClients) {
    this.#duplicates = duplicates;
  }

  get count(): number {
    return this.#all.size;
  }

  /** Made once for all sessions that are due at the same time. */
  heartbeatText(nowMs: number): string {
    if (nowMs !== this.#heartbeatMs) {
      this.#heartbeatMs = nowMs;
      this.#heartbeat = encodeHeartbeat(nowMs);
    }
    return this.#heartbeat;
  }

  all(): readonly Session[] {
    return [...this.#all];
  }

  /** Returns the connection's generation: a later one is newer. */
  add(session: Session): number {
    this.#all.add(session);
    return ++this.#generation;
  }

  /** True when a newer connection of the same client was greeted already. */
  isReplaced(session: Session): boolean {
    const newest = this.#newest.get(clientKey(session));
    return newest !== undefined && newest.generation > session.generation;
  }

  /** `hello` is out: an older connection of the same client has to go. */
  greeted(session: Session): void {
    if (this.#duplicates === 'keep') return;
    const key = clientKey(session);
    const older = this.#newest.get(key);
    this.#newest.set(key, session);
    older?.replaced();
  }

  /** Compares the connection, not its name: an older one that ends late must not remove the newer. */
  remove(session: Session): void {
    this.#all.delete(session);
    const key = clientKey(session);
    if (this.#newest.get(key) === session) this.#newest.delete(key);
    if (this.#all.size > 0) return;
    const waiting = this.#whenEmpty;
    this.#whenEmpty = [];
    for (const resolve of waiting) resolve();
  }

  empty(): Promise<void> {
    if (this.#all.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#whenEmpty.push(resolve));
  }
}

function clientKey({ partition, actorId, clientId }: Session): string {
  return JSON.stringify([partition, actorId, clientId]);
}
