/** One connection in presence: the keys it holds, and what waits for it while it cannot take it (part 3, 3.10.3). */
import type { Timer } from '../../protocol/clock.ts';
import type { PresenceMessage, PresencePeer } from './presence.ts';
import type { PresenceEvent } from './presence-event.ts';
import type { PresenceRoom } from './presence-room.ts';

/** A publish that came too soon after the last: the newest one of the window (3.10.5). */
export interface PendingPublish {
  text: string | null;
  readonly timer: Timer;
}

interface HeldEvent {
  /** The consumer had heard of the peer before the first event that was held. */
  readonly isKnown: boolean;
  /** The newest. */
  readonly event: PresenceEvent;
}

/** What the held events come to; `null` for a peer that came and went unseen. */
function sumOf({ isKnown, event }: HeldEvent): PresenceEvent | null {
  if (event.kind === 'leave') return isKnown ? event : null;
  return event.as(isKnown ? 'update' : 'join');
}

export class PresenceMember {
  readonly peer: PresencePeer;
  /** Actor and client: the identity of 3.10.1-3, one text per pair since a length says where the first part ends. */
  readonly identity: string;
  rooms: ReadonlyMap<string, PresenceRoom> = new Map();
  /** By scope key, only where a rate cap is set. */
  readonly pending = new Map<string, PendingPublish>();
  /** Of its documents, over all keys. */
  ownedBytes = 0;
  isSuspended = false;
  /** Its own newest message per key, while it is not known which keys it keeps. */
  readonly waiting = new Map<string, PresenceMessage>();
  /** The newest event per key and peer; `null` while everything goes out at once. */
  #held: Map<string, Map<string, HeldEvent>> | null = null;

  constructor(peer: PresencePeer) {
    this.peer = peer;
    this.identity = `${peer.actorId.length}:${peer.actorId}${peer.clientId}`;
  }

  /** A slow consumer gets the newest state of each peer when it has room again, not the way there. */
  deliver(identity: string, event: PresenceEvent): void {
    if (!this.isSuspended && this.#held === null && !this.peer.isStalled) {
      this.peer.forwardPresence(event.text);
      return;
    }
    if (this.peer.isStalled) this.peer.awaitRoom();
    this.#held ??= new Map();
    const ofKey = this.#held.get(event.scopeKey) ?? new Map<string, HeldEvent>();
    const isKnown = ofKey.get(identity)?.isKnown ?? event.kind !== 'join';
    this.#held.set(event.scopeKey, ofKey.set(identity, { isKnown, event }));
  }

  /** What it lost is not told any more. */
  forget(scopeKey: string): void {
    this.#held?.delete(scopeKey);
    this.cancel(scopeKey);
  }

  cancel(scopeKey: string): void {
    this.pending.get(scopeKey)?.timer.cancel();
    this.pending.delete(scopeKey);
  }

  /** Sends what was held, until the buffer is full again. */
  flush(): void {
    if (this.isSuspended || this.#held === null) return;
    for (const [scopeKey, events] of this.#held) {
      for (const [identity, held] of events) {
        if (this.peer.isStalled) {
          this.peer.awaitRoom();
          return;
        }
        events.delete(identity);
        const event = sumOf(held);
        if (event !== null) this.peer.forwardPresence(event.text);
      }
      this.#held.delete(scopeKey);
    }
    this.#held = null;
  }

  end(): void {
    this.waiting.clear();
    for (const { timer } of this.pending.values()) timer.cancel();
    this.pending.clear();
    this.#held = null;
  }
}
