/** Who else is here (§8.6): nothing of it is stored, and all of it is forgotten with the connection. */
import type { Clock } from '../protocol/clock.ts';
import type { PresenceData, PresenceRefusalCode, PresenceRefusalData } from '../protocol/control.ts';
import type { JsonObject } from '../protocol/errors.ts';
import { scopeKey as keyOf } from '../protocol/row-identity.ts';
import { ClientError } from './client-error.ts';
import { Listeners } from './listeners.ts';
import type { LocalStore } from './local-store.ts';

/** Another client on the same scope key. */
export interface PresencePeer {
  readonly actorId: string;
  readonly clientId: string;
  readonly doc: JsonObject;
}

export interface PresenceHandle {
  /** `project:p1`: prefix and value, as the schema's scope patterns have them. */
  readonly scopeKey: string;
  /** The others; the same frozen array until it changes. Empty while offline. */
  readonly peers: readonly PresencePeer[];
  /** Why the server did not take what was published last; `null` otherwise. */
  readonly refusal: PresenceRefusalCode | null;
  /**
   * Publishes, and publishes again after each reconnect, once a subscription covers the key. The newest document counts. Throws
   * `client.invalid_presence` for what is no JSON object.
   */
  set(doc: JsonObject): void;
  /** Takes it back. */
  clear(): void;
  /** Called after peers or the refusal changed. Returns the function that removes the listener. */
  onChange(listener: (peers: readonly PresencePeer[]) => void): () => void;
}

type Send = (scopeKey: string, doc: JsonObject | null) => void;

/** One key. */
class Room implements PresenceHandle {
  readonly scopeKey: string;
  readonly #listeners: Listeners<readonly PresencePeer[]>;
  readonly #publish: (room: Room) => void;
  readonly #peers = new Map<string, PresencePeer>();
  #frozen: readonly PresencePeer[] = Object.freeze([]);
  refusal: PresenceRefusalCode | null = null;
  /** What this client says of itself. */
  own: JsonObject | null = null;
  /** The server has `own`, or has nothing where it is `null`. */
  isTold = true;

  constructor(scopeKey: string, clock: Clock, publish: (room: Room) => void) {
    this.scopeKey = scopeKey;
    this.#listeners = new Listeners(clock);
    this.#publish = publish;
  }

  get peers(): readonly PresencePeer[] {
    return this.#frozen;
  }

  set(doc: JsonObject): void {
    this.own = copyOf(doc);
    this.isTold = false;
    this.#publish(this);
  }

  clear(): void {
    if (this.own === null) return;
    this.own = null;
    this.isTold = false;
    this.#publish(this);
  }

  onChange(listener: (peers: readonly PresencePeer[]) => void): () => void {
    return this.#listeners.add(listener);
  }

  take({ kind, actorId, clientId, doc }: PresenceData): void {
    const identity = JSON.stringify([actorId, clientId]);
    if (kind === 'leave' || doc === null) this.#peers.delete(identity);
    else this.#peers.set(identity, Object.freeze({ actorId, clientId, doc }));
    this.#changed();
  }

  refuse(error: PresenceRefusalCode): void {
    this.refusal = error;
    this.#changed();
  }

  /** Nobody is known to be here. */
  forget(): void {
    if (this.#peers.size === 0) return;
    this.#peers.clear();
    this.#changed();
  }

  #changed(): void {
    this.#frozen = Object.freeze([...this.#peers.values()]);
    this.#listeners.emit(this.#frozen);
  }
}

/** All keys of a client. */
export class PresenceRooms {
  readonly #store: LocalStore;
  readonly #clock: Clock;
  readonly #rooms = new Map<string, Room>();
  #send: Send | null = null;
  /** Keys that the server has this connection registered on, as far as is known here. */
  #held: ReadonlySet<string> = new Set();

  constructor(store: LocalStore, clock: Clock) {
    this.#store = store;
    this.#clock = clock;
  }

  /** Throws `client.invalid_presence` for a key that can be none. */
  open(scopeKey: string): PresenceHandle {
    if (typeof scopeKey !== 'string' || scopeKey === '') {
      throw new ClientError('client.invalid_presence', 'a scope key is a non-empty text such as project:p1');
    }
    return this.#room(scopeKey);
  }

  // The connection.

  /** Greeted; the joins of the others follow. */
  connected(send: Send): void {
    this.#send = send;
    this.registered();
  }

  /** At `hello`, and after each round that was served: keys may have been gained and lost. */
  registered(): void {
    this.#held = heldKeys(this.#store);
    for (const room of this.#rooms.values()) {
      if (this.#held.has(room.scopeKey)) this.#publish(room);
      else {
        room.forget();
        // The server has dropped it with the key.
        room.isTold = room.own === null;
      }
    }
  }

  received(data: PresenceData): void {
    this.#room(data.scopeKey).take(data);
  }

  refused({ scopeKey, error }: PresenceRefusalData): void {
    const room = this.#room(scopeKey);
    // A key that the server does not know yet is asked for again behind the next round.
    if (error === 'presence.forbidden') room.isTold = room.own === null;
    room.refuse(error);
  }

  disconnected(): void {
    this.#send = null;
    this.#held = new Set();
    for (const room of this.#rooms.values()) {
      room.isTold = room.own === null;
      room.forget();
    }
  }

  #publish(room: Room): void {
    if (room.isTold || this.#send === null || !this.#held.has(room.scopeKey)) return;
    room.isTold = true;
    room.refusal = null;
    this.#send(room.scopeKey, room.own);
  }

  #room(scopeKey: string): Room {
    let room = this.#rooms.get(scopeKey);
    if (room === undefined) {
      room = new Room(scopeKey, this.#clock, (changed) => this.#publish(changed));
      this.#rooms.set(scopeKey, room);
    }
    return room;
  }
}

function heldKeys(store: LocalStore): ReadonlySet<string> {
  const keys = new Set<string>();
  for (const { spec, effectiveScopes } of store.subscriptions.all()) {
    const { scopeByVariable } = store.table(spec.table);
    for (const [variable, values] of Object.entries(effectiveScopes ?? {})) {
      const scope = scopeByVariable.get(variable);
      if (scope !== undefined) for (const value of values) keys.add(keyOf(scope, value));
    }
  }
  return keys;
}

/** As the wire will have it, and nobody's to change afterwards. */
function copyOf(doc: JsonObject): JsonObject {
  const text: string | undefined = JSON.stringify(doc);
  const copy: unknown = text === undefined ? undefined : JSON.parse(text);
  if (typeof copy === 'object' && copy !== null && !Array.isArray(copy)) return copy as JsonObject;
  throw new ClientError('client.invalid_presence', 'a presence document is a JSON object');
}
