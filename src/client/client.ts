/** The client: one replica in memory, one connection, and what an application does with both. */
import { isWellFormed } from '../protocol/bytes.ts';
import type { Clock, Random } from '../protocol/clock.ts';
import { compileSchema } from '../protocol/schema-compiler.ts';
import type { SchemaDocument } from '../protocol/schema-document.ts';
import { BROWSER_CLOCK, BROWSER_RANDOM } from './browser-clock.ts';
import type { TableChange } from './changes.ts';
import { ClientError } from './client-error.ts';
import { type ClientLimits, resolveClientLimits } from './client-limits.ts';
import { LocalStore } from './local-store.ts';
import { endpointsOf } from './mount-url.ts';
import { encodeCommit, type Mutation } from './mutation.ts';
import type { CommitOutcome } from './outbox.ts';
import { type PlatformOptions, resolvePlatform } from './platform.ts';
import { type PresenceHandle, PresenceRooms } from './presence.ts';
import type { Row } from './replica.ts';
import { SegmentSource } from './segment-source.ts';
import { Session } from './session.ts';
import { type ClientStatus, StatusBoard } from './status.ts';
import { type SubscribeRequest, type SubscriptionHandle, subscriptionSpec } from './subscription-handle.ts';
import { Subscription } from './subscriptions.ts';
import { type TokenOption, TokenSource } from './token-source.ts';

export interface ClientOptions extends PlatformOptions {
  /** The mount of the server: `https://host/prefix`. */
  readonly url: string;
  /** Stable id of this replica, bound to its actor at first contact. Default: a random one for each client. */
  readonly clientId?: string;
  /** The same document that the server runs with. */
  readonly schema: SchemaDocument;
  /** A function is asked for each connection, and again after a refusal. */
  readonly token?: TokenOption;
  readonly limits?: Partial<ClientLimits>;
  readonly clock?: Clock;
  readonly random?: Random;
}

/** Table name → the type of its rows. */
export type Tables = Readonly<Record<string, object>>;
type TableName<T extends Tables> = keyof T & string;

export type MutationOf<T extends Tables> = {
  [Name in TableName<T>]:
    | {
        readonly table: Name;
        readonly op: 'upsert';
        readonly row: T[Name];
        readonly baseVersion?: number;
      }
    | { readonly table: Name; readonly op: 'delete'; readonly rowId: string };
}[TableName<T>];

export interface SentCommit {
  readonly clientCommitId: string;
  /** Never rejects. Stays open while the client is offline. */
  readonly settled: Promise<CommitOutcome>;
}

/** `T` gives the rows their types; it is the application's promise about the schema, not checked at run time. */
export interface Client<T extends Tables = Readonly<Record<string, Row>>> {
  readonly clientId: string;
  readonly status: ClientStatus;
  /** Connects and stays connected. Between two attempts: tries at once. Throws `client.closed`. */
  connect(): void;
  /** Goes offline and keeps everything; writes wait in the outbox. */
  disconnect(): void;
  /** Ends everything that waits. Resolves when nothing runs any more. */
  close(): Promise<void>;
  /** Throws `client.invalid_subscription`, `client.unknown_table`, `client.subscriptions_full` or `client.closed`. */
  subscribe(request: SubscribeRequest<TableName<T>>): SubscriptionHandle;
  /**
   * Writes one commit: seen here at once, sent when possible, applied by the server whole or not at all. Throws
   * `client.invalid_mutation`, `client.unknown_table`, `client.commit_too_large`, `client.outbox_full` or `client.closed`; then
   * nothing was written.
   */
  mutate(mutations: readonly MutationOf<T>[]): SentCommit;
  /** The same frozen array until the table changes, in no particular order. */
  rows<Name extends TableName<T>>(table: Name): readonly Readonly<T[Name]>[];
  get<Name extends TableName<T>>(table: Name, rowId: string): Readonly<T[Name]> | undefined;
  /** `baseVersion` for a write that must not overwrite what is not seen here; 0 when the row does not exist. */
  version(table: TableName<T>, rowId: string): number;
  /** True while a local write decides what is seen of the row. */
  isPending(table: TableName<T>, rowId: string): boolean;
  /** Called after rows changed, at most once per commit or page. Returns the function that removes the listener. */
  onChange(table: TableName<T>, listener: (change: TableChange) => void): () => void;
  onStatus(listener: (status: ClientStatus) => void): () => void;
  /** Who else is on a scope key, such as `project:p1`, and what this client says there. Throws `client.invalid_presence`. */
  presence(scopeKey: string): PresenceHandle;
  /** Resolves once `holds` is true of the status. Rejects with `client.stopped` or `client.closed` when syncing stops before. */
  until(holds: (status: ClientStatus) => boolean): Promise<ClientStatus>;
}

/** Throws `client.invalid_options`, `client.no_websocket`, `SchemaError`, or `RangeError` for a limit. Does not connect. */
export function createClient<T extends Tables = Readonly<Record<string, Row>>>(
  options: ClientOptions,
): Client<T>;
export function createClient(options: ClientOptions): Client {
  return new ReplicaClient(options);
}

class ReplicaClient implements Client {
  readonly clientId: string;
  readonly #clock: Clock;
  readonly #random: Random;
  readonly #limits: ClientLimits;
  readonly #status: StatusBoard;
  readonly #store: LocalStore;
  readonly #presence: PresenceRooms;
  readonly #session: Session;
  #isClosed = false;

  constructor(options: ClientOptions) {
    this.#clock = options.clock ?? BROWSER_CLOCK;
    this.#random = options.random ?? BROWSER_RANDOM;
    this.#limits = resolveClientLimits(options.limits);
    this.clientId = options.clientId ?? this.#random.id();
    if (this.clientId === '' || !isWellFormed(this.clientId)) {
      throw new ClientError('client.invalid_options', 'clientId is empty or holds a lone surrogate');
    }
    const status = new StatusBoard(this.#clock);
    this.#status = status;
    this.#store = new LocalStore({
      schema: compileSchema(options.schema),
      clock: this.#clock,
      limits: this.#limits,
      pendingChanged: (pendingCommits) => status.update({ pendingCommits }),
    });
    this.#presence = new PresenceRooms(this.#store, this.#clock);
    this.#session = this.#createSession(options);
  }

  get status(): ClientStatus {
    return this.#status.current;
  }

  connect(): void {
    this.#assertOpen();
    this.#session.start();
  }

  disconnect(): void {
    if (this.#isClosed) return;
    void this.#session.stop();
    this.#status.enter('offline');
  }

  async close(): Promise<void> {
    const stopped = this.#session.stop();
    if (!this.#isClosed) {
      this.#isClosed = true;
      this.#store.outbox.settleAll({ status: 'unknown', reason: 'closed' });
      const failure = closedError();
      for (const subscription of this.#store.subscriptions.all()) subscription.end(failure);
      this.#status.stop({ kind: 'closed' });
    }
    await stopped;
  }

  subscribe(request: SubscribeRequest): SubscriptionHandle {
    this.#assertOpen();
    const { subscriptions } = this.#store;
    const spec = subscriptionSpec(request, this.#store.table(request.table), this.#random.id());
    if (subscriptions.get(spec.id) !== undefined) {
      throw new ClientError('client.invalid_subscription', `there is a subscription ${spec.id} already`);
    }
    const { subscriptionsMax } = this.#limits;
    if (subscriptions.size >= subscriptionsMax) {
      throw new ClientError('client.subscriptions_full', 'there are too many subscriptions', {
        details: { subscriptionsMax },
      });
    }
    const subscription = new Subscription(spec, this.#clock);
    subscriptions.add(subscription);
    this.#session.nudge();
    return this.#handle(subscription);
  }

  mutate(mutations: readonly Mutation[]): SentCommit {
    this.#assertOpen();
    const commit = encodeCommit(mutations, {
      store: this.#store,
      random: this.#random,
      limits: this.#limits,
    });
    this.#store.addCommit(commit);
    this.#session.nudge();
    return { clientCommitId: commit.frame.clientCommitId, settled: commit.outcome.promise };
  }

  rows(table: string): readonly Row[] {
    return this.#store.view.rows(this.#store.table(table).name);
  }

  get(table: string, rowId: string): Row | undefined {
    return this.#store.view.get(this.#store.table(table).name, rowId);
  }

  version(table: string, rowId: string): number {
    return this.#store.view.version(this.#store.table(table).name, rowId);
  }

  isPending(table: string, rowId: string): boolean {
    return this.#store.view.isPending(this.#store.table(table).name, rowId);
  }

  onChange(table: string, listener: (change: TableChange) => void): () => void {
    return this.#store.changes.onChange(this.#store.table(table).name, listener);
  }

  onStatus(listener: (status: ClientStatus) => void): () => void {
    return this.#status.onChange(listener);
  }

  presence(scopeKey: string): PresenceHandle {
    return this.#presence.open(scopeKey);
  }

  until(holds: (status: ClientStatus) => boolean): Promise<ClientStatus> {
    return this.#status.until(holds);
  }

  #createSession(options: ClientOptions): Session {
    const platform = resolvePlatform(options);
    const endpoints = endpointsOf(options.url);
    const clock = this.#clock;
    const limits = this.#limits;
    const tokens = new TokenSource(options.token, { clock, timeoutMs: limits.tokenTimeoutMs });
    return new Session({
      clientId: this.clientId,
      endpoints,
      webSocket: platform.webSocket,
      tokens,
      segments: new SegmentSource({
        endpoints,
        download: platform.download,
        tokens,
        clock,
        timeoutMs: limits.segmentTimeoutMs,
      }),
      store: this.#store,
      presence: this.#presence,
      status: this.#status,
      clock,
      random: this.#random,
      limits,
    });
  }

  #handle(subscription: Subscription): SubscriptionHandle {
    return {
      id: subscription.spec.id,
      table: subscription.spec.table,
      get state() {
        return subscription.state;
      },
      get effectiveScopes() {
        return subscription.effectiveScopes;
      },
      ready: subscription.ready,
      onState: (listener) => subscription.onState(listener),
      unsubscribe: () => this.#unsubscribe(subscription),
    };
  }

  #unsubscribe(subscription: Subscription): void {
    const store = this.#store;
    if (!store.subscriptions.remove(subscription)) return;
    store.release(subscription);
    store.retireApplied();
    store.changes.flush();
    subscription.end(new ClientError('client.unsubscribed', 'the subscription was given up'));
    this.#session.nudge();
  }

  #assertOpen(): void {
    if (this.#isClosed) throw closedError();
  }
}

function closedError(): ClientError {
  return new ClientError('client.closed', 'the client was closed');
}
