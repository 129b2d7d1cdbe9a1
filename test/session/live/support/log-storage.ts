/** A storage in memory with the parts that the realtime side uses, whose calls a test can hold, fail and count. */
import { NO_PENDING } from '../../../../src/storage/pending-checkpoints.ts';
import type {
  Admission,
  ClientRecord,
  ClientUpdate,
  CursorUpdate,
  LogChange,
  LogCommit,
  LogRead,
  PartitionState,
  SnapshotReader,
  Storage,
} from '../../../../src/storage/storage.ts';
import { StorageError } from '../../../../src/storage/storage-error.ts';

/** `admitReply`: after the reading was taken, before the caller gets it. */
export type HeldCall =
  | 'admit'
  | 'admitReply'
  | 'readSnapshot'
  | 'readCommits'
  | 'saveCursors'
  | 'touchPartitions';

interface Partition {
  logEpoch: string;
  horizon: number;
  readonly commits: LogCommit[];
  readonly clients: Map<string, ClientRecord>;
  readonly bindings: Map<string, string>;
}

const NO_CLIENT = { updatedAtMs: 0, cursor: -1, subscriptions: [] } as const;

export class LogStorage implements Storage {
  readonly partitions = new Map<string, Partition>();
  readonly calls: Record<HeldCall, number> = {
    admit: 0,
    admitReply: 0,
    readSnapshot: 0,
    readCommits: 0,
    saveCursors: 0,
    touchPartitions: 0,
  };
  /** What `saveCursors` was given, one entry per call. */
  readonly saved: (readonly CursorUpdate[])[] = [];
  readonly touched: ReadonlyMap<string, number>[] = [];
  readonly #gates = new Map<HeldCall, Promise<void>>();
  readonly #failures = new Map<HeldCall, number>();

  // The test's side.

  partition(name: string): Partition {
    let partition = this.partitions.get(name);
    if (partition === undefined) {
      const fresh = { commits: [], clients: new Map(), bindings: new Map() };
      partition = { logEpoch: `epoch-of-${name}`, horizon: 0, ...fresh };
      this.partitions.set(name, partition);
    }
    return partition;
  }

  head(name: string): number {
    return this.partition(name).commits.length;
  }

  append(name: string, changes: readonly LogChange[], actorId = 'writer'): LogCommit {
    const { commits } = this.partition(name);
    const commitSeq = commits.length + 1;
    const commit = {
      commitSeq,
      createdAtMs: 1_000 + commitSeq,
      actorId,
      clientId: 'writer-client',
      clientCommitId: `c-${commitSeq}`,
      changes,
    };
    commits.push(commit);
    return commit;
  }

  record(name: string, record: Partial<ClientRecord> & { readonly clientId: string }): void {
    const { clients, bindings } = this.partition(name);
    const whole = { actorId: 'actor-1', wireVersion: 2, schemaVersion: 1, ...NO_CLIENT, ...record } as const;
    clients.set(record.clientId, whole);
    bindings.set(record.clientId, whole.actorId);
  }

  /** Calls wait until the returned function is called. */
  hold(call: HeldCall): () => void {
    let open!: () => void;
    const passed = new Promise<void>((resolve) => {
      open = resolve;
    });
    this.#gates.set(call, passed);
    return () => {
      if (this.#gates.get(call) === passed) this.#gates.delete(call);
      open();
    };
  }

  /** Calls from now on do not wait; those that do already stay. */
  pass(call: HeldCall): void {
    this.#gates.delete(call);
  }

  /** The next `times` calls fail. */
  fail(call: HeldCall, times = 1): void {
    this.#failures.set(call, times);
  }

  async #enter(call: HeldCall): Promise<void> {
    this.calls[call]++;
    await this.#gates.get(call);
    const failures = this.#failures.get(call) ?? 0;
    if (failures === 0) return;
    this.#failures.set(call, failures - 1);
    throw new StorageError('sync.storage.unavailable', 'the database is away');
  }

  // The contract.

  async admit(request: { partition: string; clientId: string }): Promise<Admission> {
    await this.#enter('admit');
    const { clients, bindings } = this.partition(request.partition);
    const admission = {
      state: this.#state(request.partition),
      client: clients.get(request.clientId) ?? null,
      boundActorId: bindings.get(request.clientId) ?? null,
    };
    await this.#enter('admitReply');
    return admission;
  }

  async readSnapshot<T>(partition: string, fn: (reader: SnapshotReader) => Promise<T>): Promise<T> {
    await this.#enter('readSnapshot');
    return fn(this.#reader(partition));
  }

  async saveClient(update: ClientUpdate): Promise<void> {
    const { partition, logEpoch, subscriptions, nowMs, ...rest } = update;
    const { clients, logEpoch: current } = this.partition(partition);
    if (logEpoch !== current) return;
    const known = clients.get(update.clientId);
    if (known === undefined && subscriptions === null) return;
    const kept = known?.subscriptions ?? [];
    const cursor = known?.cursor ?? -1;
    const record = { ...rest, cursor, subscriptions: subscriptions ?? kept, updatedAtMs: nowMs };
    this.record(partition, record);
  }

  async saveCursors(updates: readonly CursorUpdate[]): Promise<void> {
    await this.#enter('saveCursors');
    this.saved.push(updates);
    for (const { partition, clientId, mode, cursor } of updates) {
      const { clients } = this.partition(partition);
      const record = clients.get(clientId);
      if (record === undefined) continue;
      clients.set(clientId, { ...record, cursor: mode === 'set' ? cursor : Math.max(record.cursor, cursor) });
    }
  }

  async touchPartitions(seen: ReadonlyMap<string, number>): Promise<void> {
    await this.#enter('touchPartitions');
    this.touched.push(seen);
  }

  async rotateEpoch({ partition, logEpoch }: { partition: string; logEpoch: string }): Promise<void> {
    const held = this.partition(partition);
    held.logEpoch = logEpoch;
    held.clients.clear();
  }

  ensureSchema = done;
  ping = done;
  close = done;
  bindClient = notUsed;
  transaction = notUsed;
  pruneLog = notUsed;
  listPartitions = notUsed;
  declareCheckpoint = notUsed;
  readServeGate = notUsed;
  readCheckpoints = notUsed;
  listCheckpoints = notUsed;
  claimCheckpoint = notUsed;
  advanceCheckpoint = notUsed;
  countRows = notUsed;
  sourceCoverageSeq = notUsed;
  hasSourceChangesAbove = notUsed;
  activateCheckpoint = notUsed;

  #state(name: string): PartitionState {
    const { logEpoch, horizon, commits } = this.partition(name);
    const head = commits.length;
    return {
      partition: name,
      head,
      horizon,
      logEpoch,
      epochRequired: false,
      storedSchemaVersion: 1,
      pending: NO_PENDING,
      newestCheckpointVersion: 0,
    };
  }

  #reader(name: string): SnapshotReader {
    // What is read is what was there when the snapshot was taken.
    const state = this.#state(name);
    const { commits, horizon } = this.partition(name);
    const log = commits.slice(horizon);
    const clients = new Map(this.partition(name).clients);
    return {
      state: async () => state,
      readClient: async (clientId) => clients.get(clientId) ?? null,
      readCommits: async ({ afterSeq, throughSeq, commitsMax }: LogRead) => {
        await this.#enter('readCommits');
        return log
          .filter(({ commitSeq }) => commitSeq > afterSeq && commitSeq <= throughSeq)
          .slice(0, commitsMax);
      },
      readWindow: notUsed,
      readRowPage: notUsed,
      readRow: notUsed,
    };
  }
}

async function done(): Promise<void> {
  // Nothing to prepare or to release.
}

function notUsed(): Promise<never> {
  return Promise.reject(new Error('the realtime side has no business here'));
}
