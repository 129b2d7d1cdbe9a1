/** The subscriptions of this client: what is asked for, how far each one is, and what the server last echoed. */
import type { Clock } from '../protocol/clock.ts';
import type { ScopeMap } from '../protocol/frames.ts';
import { ClientError } from './client-error.ts';
import { Listeners } from './listeners.ts';
import { deferred } from './waiting.ts';

export interface SubscriptionSpec {
  /** Chosen by the client and only echoed; one (table, scopes, params) per id. */
  readonly id: string;
  readonly table: string;
  readonly scopes: ScopeMap;
  /** JSON text for the host's snapshot function. */
  readonly params: string | null;
}

/**
 * `waiting`: nothing received yet, or to be fetched anew after a reset. `bootstrapping`: some pages are here. `live`: has
 * everything up to its cursor. `revoked`: the server refuses it and its rows are gone; granted again, it starts over.
 */
export type SubscriptionState = 'waiting' | 'bootstrapping' | 'live' | 'revoked' | 'ended';

const NEVER_SYNCED = -1;

export class Subscription {
  readonly spec: SubscriptionSpec;
  readonly ready: Promise<void>;
  readonly #states: Listeners<SubscriptionState>;
  readonly #ready = deferred<void>();
  #state: SubscriptionState = 'waiting';
  #cursor = NEVER_SYNCED;
  #token: string | null = null;
  #effectiveScopes: ScopeMap | null = null;

  constructor(spec: SubscriptionSpec, clock: Clock) {
    this.spec = spec;
    this.#states = new Listeners(clock);
    this.ready = this.#ready.promise;
    // Whoever does not ask for `ready` learns of a refusal through `state`; it is no unhandled rejection.
    this.ready.catch(() => undefined);
  }

  get state(): SubscriptionState {
    return this.#state;
  }

  /** Last fully applied `commitSeq`; −1 before the first page. */
  get cursor(): number {
    return this.#cursor;
  }

  /** The server's resume token, returned to it unchanged (§4.7). */
  get token(): string | null {
    return this.#token;
  }

  /** The scopes that the server granted last; `null` before the first answer and after a revocation. */
  get effectiveScopes(): ScopeMap | null {
    return this.#effectiveScopes;
  }

  /** The next answer is the first page of a bootstrap, before which the rows of old are cleared (§5.6). */
  get fresh(): boolean {
    return this.#cursor < 0 && this.#token === null;
  }

  onState(listener: (state: SubscriptionState) => void): () => void {
    return this.#states.add(listener);
  }

  granted(effectiveScopes: ScopeMap): void {
    this.#effectiveScopes = effectiveScopes;
  }

  /** `SUB_END` of an active section. `token` present: more pages follow. */
  advance(cursor: number, token: string | null): void {
    this.#cursor = cursor;
    this.#token = token;
    this.#enter(token === null ? 'live' : 'bootstrapping');
    if (token === null) this.#ready.resolve();
  }

  /** The cursor is of no use any more: ask again from the start. The rows stay until the first page (§4.6). */
  restart(): void {
    this.#cursor = NEVER_SYNCED;
    this.#token = null;
    this.#enter('waiting');
  }

  revoke(): void {
    this.#cursor = NEVER_SYNCED;
    this.#token = null;
    this.#effectiveScopes = null;
    this.#ready.reject(new ClientError('sync.scope_revoked', 'the server does not grant this subscription'));
    this.#enter('revoked');
  }

  end(failure: ClientError): void {
    this.#ready.reject(failure);
    this.#enter('ended');
  }

  #enter(state: SubscriptionState): void {
    if (this.#state === state) return;
    this.#state = state;
    this.#states.emit(state);
  }
}

export class SubscriptionSet {
  readonly #byId = new Map<string, Subscription>();
  /** Grows when the list changes: the server has to be told (§8.7). */
  #revision = 0;
  #toldRevision: number | null = null;

  get revision(): number {
    return this.#revision;
  }

  /** The server has this list. */
  get isTold(): boolean {
    return this.#toldRevision === this.#revision;
  }

  /** A round with the list of that revision was served. */
  markTold(revision: number): void {
    this.#toldRevision = revision;
  }

  get size(): number {
    return this.#byId.size;
  }

  get(id: string): Subscription | undefined {
    return this.#byId.get(id);
  }

  all(): Iterable<Subscription> {
    return this.#byId.values();
  }

  add(subscription: Subscription): void {
    this.#byId.set(subscription.spec.id, subscription);
    this.#revision++;
  }

  /** False when it was not, or no longer, in the list. */
  remove(subscription: Subscription): boolean {
    if (this.#byId.get(subscription.spec.id) !== subscription) return false;
    this.#byId.delete(subscription.spec.id);
    this.#revision++;
    return true;
  }

  /** True when some subscription has pages to fetch. */
  get unfinished(): boolean {
    return this.#some(({ state }) => state === 'waiting' || state === 'bootstrapping');
  }

  /** What an ack may say: the lowest cursor of those that are live; `null` without one (part 3, 3.5.3). */
  get liveCursor(): number | null {
    let lowest: number | null = null;
    for (const { state, cursor } of this.#byId.values()) {
      if (state === 'live' && (lowest === null || cursor < lowest)) lowest = cursor;
    }
    return lowest;
  }

  /** Everything up to `seq` that the table's subscriptions will ever see is in the replica. */
  covers(table: string, seq: number): boolean {
    return !this.#some(
      ({ spec, state, cursor }) =>
        spec.table === table && state !== 'revoked' && (state !== 'live' || cursor < seq),
    );
  }

  /** Of another log epoch: the server forgot the list together with the cursors (§2.1). */
  restartAll(): void {
    this.#toldRevision = null;
    for (const subscription of this.#byId.values()) {
      if (subscription.state !== 'revoked') subscription.restart();
    }
  }

  #some(holds: (subscription: Subscription) => boolean): boolean {
    for (const subscription of this.#byId.values()) if (holds(subscription)) return true;
    return false;
  }
}
