/** Everybody on one scope key of one partition: who listens, and whose document stands there (part 3, 3.10.1). */
import type { PresenceKind } from '../../protocol/control.ts';
import { PresenceEvent } from './presence-event.ts';
import type { PresenceMember } from './presence-member.ts';

export interface StoredDocument {
  /** Its connection; another one of the same identity takes over by publishing (3.10.4-6). */
  owner: PresenceMember;
  text: string;
}

export class PresenceRoom {
  readonly scopeKey: string;
  readonly #listeners = new Set<PresenceMember>();
  /** By identity, actor and client. */
  readonly #documents = new Map<string, StoredDocument>();

  constructor(scopeKey: string) {
    this.scopeKey = scopeKey;
  }

  get isEmpty(): boolean {
    return this.#listeners.size === 0;
  }

  /** In one step with the snapshot, so that each peer is reported once (3.10.4-3). */
  enter(member: PresenceMember, timestamp: number): void {
    this.#listeners.add(member);
    for (const [identity, { owner, text }] of this.#documents) {
      if (identity === member.identity) continue;
      member.deliver(identity, this.#event('join', owner, { text, timestamp }));
    }
  }

  /** Its document goes with it, unless another connection of the same identity has taken over. */
  leave(member: PresenceMember, timestamp: number): void {
    this.#listeners.delete(member);
    this.clear(member, timestamp);
  }

  publish(
    member: PresenceMember,
    { text, timestamp }: { readonly text: string; readonly timestamp: number },
  ): void {
    const stored = this.#documents.get(member.identity);
    if (stored === undefined) this.#documents.set(member.identity, { owner: member, text });
    else {
      stored.owner.ownedBytes -= Buffer.byteLength(stored.text);
      stored.owner = member;
      stored.text = text;
    }
    member.ownedBytes += Buffer.byteLength(text);
    this.#fan(stored === undefined ? 'join' : 'update', member, { text, timestamp });
  }

  clear(member: PresenceMember, timestamp: number): void {
    const stored = this.#documents.get(member.identity);
    if (stored === undefined || stored.owner !== member) return;
    this.#documents.delete(member.identity);
    member.ownedBytes -= Buffer.byteLength(stored.text);
    this.#fan('leave', member, { text: null, timestamp });
  }

  /** Bytes of the member's own document. */
  bytesOf(member: PresenceMember): number {
    const stored = this.#documents.get(member.identity);
    return stored === undefined || stored.owner !== member ? 0 : Buffer.byteLength(stored.text);
  }

  /** Encoded once, to everybody but the connections of the same identity. */
  #fan(kind: PresenceKind, from: PresenceMember, document: Encoded): void {
    const event = this.#event(kind, from, document);
    for (const listener of this.#listeners) {
      if (listener.identity !== from.identity) listener.deliver(from.identity, event);
    }
  }

  #event(kind: PresenceKind, { peer }: PresenceMember, { text, timestamp }: Encoded): PresenceEvent {
    const { actorId, clientId } = peer;
    return new PresenceEvent({ scopeKey: this.scopeKey, kind, actorId, clientId, docText: text, timestamp });
  }
}

interface Encoded {
  readonly text: string | null;
  readonly timestamp: number;
}
