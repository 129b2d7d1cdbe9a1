/**
 * Who is here, and what they say of themselves (part 3, 3.10): never stored, gone with the process. A document belongs to a
 * connection and a scope key that it is registered on; an event for a key reaches the connections registered on it and nobody
 * else. Of this process: peers at other nodes are not seen.
 */
import type { Clock } from '../../protocol/clock.ts';
import { encodePresenceRefusal, type PresenceRefusalCode } from '../../protocol/control.ts';
import type { Limits } from '../../protocol/limits.ts';
import { scopeKey } from '../../protocol/row-identity.ts';
import type { CompiledSchema } from '../../protocol/schema.ts';
import type { Presence, PresenceMessage, PresencePeer, PresenceScope } from './presence.ts';
import { PresenceMember } from './presence-member.ts';
import { PresenceRoom } from './presence-room.ts';

export interface PresenceDeps {
  readonly schema: CompiledSchema;
  readonly clock: Clock;
  readonly limits: Pick<Limits, 'presenceDocBytesMax' | 'presenceSessionBytesMax' | 'presenceIntervalMs'>;
}

export class PresenceHub implements Presence {
  readonly #deps: PresenceDeps;
  readonly #members = new Map<PresencePeer, PresenceMember>();
  /** By partition, by scope key. */
  readonly #rooms = new Map<string, Map<string, PresenceRoom>>();
  /** Cohorts share their list of registrations, and so their keys. */
  readonly #keys = new WeakMap<readonly PresenceScope[], ReadonlySet<string>>();

  constructor(deps: PresenceDeps) {
    this.#deps = deps;
  }

  registered(peer: PresencePeer, registrations: readonly PresenceScope[]): void {
    const member = this.#members.get(peer) ?? new PresenceMember(peer);
    this.#members.set(peer, member);
    const keys = this.#keysOf(registrations);
    const timestamp = this.#deps.clock.nowMs();
    const before = member.rooms;
    // Nothing is delivered to it for a key that it is about to lose.
    member.rooms = new Map([...keys].map((key) => [key, before.get(key) ?? this.#room(peer.partition, key)]));
    for (const [key, room] of before) {
      if (keys.has(key)) continue;
      member.forget(key);
      room.leave(member, timestamp);
      this.#sweep(peer.partition, room);
    }
    member.isSuspended = false;
    member.flush();
    for (const [key, room] of member.rooms) {
      if (!before.has(key)) room.enter(member, timestamp);
    }
    const waiting = [...member.waiting.values()];
    member.waiting.clear();
    for (const message of waiting) this.received(peer, message);
  }

  suspended(peer: PresencePeer): void {
    const member = this.#members.get(peer);
    if (member !== undefined) member.isSuspended = true;
  }

  drained(peer: PresencePeer): void {
    this.#members.get(peer)?.flush();
  }

  received(peer: PresencePeer, message: PresenceMessage): void {
    const member = this.#members.get(peer);
    const room = member?.rooms.get(message.scopeKey);
    if (member === undefined || room === undefined) {
      this.#refuse(peer, message.scopeKey, 'presence.forbidden');
      return;
    }
    if (member.isSuspended) {
      member.waiting.set(message.scopeKey, message);
      return;
    }
    if (message.kind === 'presence-leave') {
      member.cancel(room.scopeKey);
      room.clear(member, this.#deps.clock.nowMs());
      return;
    }
    if (this.#isTooLarge(member, room, Buffer.byteLength(message.docText))) {
      this.#refuse(peer, room.scopeKey, 'presence.too_large');
      return;
    }
    this.#publish(member, room, message.docText);
  }

  closed(peer: PresencePeer): void {
    const member = this.#members.get(peer);
    if (member === undefined) return;
    this.#members.delete(peer);
    member.end();
    const timestamp = this.#deps.clock.nowMs();
    for (const room of member.rooms.values()) {
      room.leave(member, timestamp);
      this.#sweep(peer.partition, room);
    }
  }

  /** Over its own cap, or with the others of the connection, sent or waiting for their window's end, over that of a session. */
  #isTooLarge(member: PresenceMember, room: PresenceRoom, bytes: number): boolean {
    const { presenceDocBytesMax, presenceSessionBytesMax } = this.#deps.limits;
    let others = member.ownedBytes - room.bytesOf(member);
    for (const [key, { text }] of member.pending) {
      if (text === null || key === room.scopeKey) continue;
      // Of the two the larger: the older one stands until the newer one goes out.
      others += Math.max(0, Buffer.byteLength(text) - (member.rooms.get(key)?.bytesOf(member) ?? 0));
    }
    return bytes > presenceDocBytesMax || others + bytes > presenceSessionBytesMax;
  }

  /** The first goes out at once; what comes within the interval is one event at its end, with the newest (3.10.5). */
  #publish(member: PresenceMember, room: PresenceRoom, text: string): void {
    const { clock, limits } = this.#deps;
    const pending = member.pending.get(room.scopeKey);
    if (pending !== undefined) {
      pending.text = text;
      return;
    }
    room.publish(member, { text, timestamp: clock.nowMs() });
    if (limits.presenceIntervalMs > 0) this.#openWindow(member, room);
  }

  #openWindow(member: PresenceMember, room: PresenceRoom): void {
    const { clock, limits } = this.#deps;
    const timer = clock.after(limits.presenceIntervalMs, () => {
      const { text } = member.pending.get(room.scopeKey)!;
      member.pending.delete(room.scopeKey);
      if (text === null) return;
      if (!member.isSuspended) this.#publish(member, room, text);
      // What came since the suspension is newer.
      else if (!member.waiting.has(room.scopeKey)) {
        member.waiting.set(room.scopeKey, publishOf(room.scopeKey, text));
      }
    });
    member.pending.set(room.scopeKey, { text: null, timer });
  }

  #refuse(peer: PresencePeer, key: string, error: PresenceRefusalCode): void {
    peer.forwardPresence(
      encodePresenceRefusal({ scopeKey: key, error, timestamp: this.#deps.clock.nowMs() }),
    );
  }

  #keysOf(registrations: readonly PresenceScope[]): ReadonlySet<string> {
    const known = this.#keys.get(registrations);
    if (known !== undefined) return known;
    const keys = new Set<string>();
    for (const { table, effective } of registrations) {
      const scopes = this.#deps.schema.tableByName.get(table)?.scopeByVariable;
      for (const [variable, values] of Object.entries(effective)) {
        const scope = scopes?.get(variable);
        if (scope === undefined) continue;
        for (const value of values) keys.add(scopeKey(scope, value));
      }
    }
    this.#keys.set(registrations, keys);
    return keys;
  }

  #room(partition: string, key: string): PresenceRoom {
    let rooms = this.#rooms.get(partition);
    if (rooms === undefined) {
      rooms = new Map();
      this.#rooms.set(partition, rooms);
    }
    let room = rooms.get(key);
    if (room === undefined) {
      room = new PresenceRoom(key);
      rooms.set(key, room);
    }
    return room;
  }

  #sweep(partition: string, room: PresenceRoom): void {
    if (!room.isEmpty) return;
    const rooms = this.#rooms.get(partition);
    rooms?.delete(room.scopeKey);
    if (rooms?.size === 0) this.#rooms.delete(partition);
  }
}

/** As it came; nobody looks into the document any more. */
function publishOf(key: string, docText: string): PresenceMessage {
  return { kind: 'presence-publish', scopeKey: key, doc: {}, docText };
}
