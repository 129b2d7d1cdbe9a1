/** The storage contract on SQLite: the embedded default, one file, nothing to install. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Clock } from '../../protocol/clock.ts';
import type { CompiledSchema } from '../../protocol/schema.ts';
import type {
  Activation,
  Checkpoint,
  CheckpointAdvance,
  CheckpointDeclaration,
  CheckpointStorage,
  ServeGate,
  SourceVerdict,
} from '../checkpoints.ts';
import { EnsuredSchema } from '../ensured-schema.ts';
import type { SegmentStore } from '../segments.ts';
import type {
  Admission,
  ClientUpdate,
  CursorUpdate,
  PartitionState,
  SnapshotReader,
  Storage,
  StorageTx,
} from '../storage.ts';
import { countRows, coverageSlice, readLogEnds, sourceVerdict } from './checkpoint-sources.ts';
import {
  activateCheckpoint,
  advanceCheckpoint,
  claimCheckpoint,
  installCheckpoint,
  listCheckpoints,
  readCheckpoints,
  readServeGate,
} from './checkpoints.ts';
import { bindClient, readBinding, saveClient, saveCursor } from './clients.ts';
import { SqliteConnections, type Synchronous } from './connections.ts';
import type { StatementObserver } from './driver.ts';
import { ensureSchema } from './ensure-schema.ts';
import { migrateStorage } from './migrations.ts';
import {
  createPartition,
  listPartitions,
  readAdmission,
  readState,
  rotateEpoch,
  touchPartition,
} from './partitions.ts';
import { type PruneRequest, pruneLog } from './pruning.ts';
import { SqliteSegmentStore } from './segments.ts';
import { guarded } from './sqlite-errors.ts';
import { SqliteSnapshotReader, SqliteTx } from './transaction.ts';
import { nextTurn } from './windows.ts';

export interface SqliteStorageOptions {
  /**
   * File of the database; `-wal` and `-shm` files stand beside it. `':memory:'` is a private file in the temporary folder
   * that nothing is synced to and that `close` removes: it behaves the same, with concurrent snapshots.
   */
  readonly path: string;
  readonly clock: Clock;
  /**
   * `FULL` (default): an acknowledged commit survives power loss. `NORMAL`: it survives a crash of the process, but the
   * last ones may be lost with the machine; the file stays consistent either way.
   */
  readonly synchronous?: 'FULL' | 'NORMAL';
  /** Snapshots open at once, each on a connection of its own; more wait in order. Default 16. */
  readonly readersMax?: number;
  /** How long the lock of another process is waited for before `sync.storage.busy`, in ms. Default 5,000. */
  readonly busyTimeoutMs?: number;
  /** Hears every statement that writes, before it runs; for plans. */
  readonly observe?: StatementObserver;
}

const READERS_MAX_DEFAULT = 16;
const BUSY_TIMEOUT_MS_DEFAULT = 5_000;
const IN_MEMORY = ':memory:';

/**
 * Opens or creates the database and its own tables; `ensureSchema` creates the schema's. Closing the storage closes the
 * segment store too. Several processes may share one file on one machine; network file systems are not supported.
 */
export async function openSqliteStorage(
  options: SqliteStorageOptions,
): Promise<{ readonly storage: Storage; readonly segments: SegmentStore }> {
  const folder = options.path === IN_MEMORY ? mkdtempSync(join(tmpdir(), 'tidegate-')) : null;
  const synchronous: Synchronous = folder === null ? (options.synchronous ?? 'FULL') : 'OFF';
  const release = (): void => {
    if (folder !== null) rmSync(folder, { recursive: true, force: true });
  };
  try {
    const connections = await SqliteConnections.open({
      path: folder === null ? options.path : join(folder, 'memory.db'),
      synchronous,
      readersMax: options.readersMax ?? READERS_MAX_DEFAULT,
      busyTimeoutMs: options.busyTimeoutMs ?? BUSY_TIMEOUT_MS_DEFAULT,
      clock: options.clock,
      observe: options.observe,
    });
    await migrateStorage(connections);
    return {
      storage: new SqliteStorage(connections, { clock: options.clock, release }),
      segments: new SqliteSegmentStore(connections),
    };
  } catch (error) {
    release();
    throw error;
  }
}

interface SqliteStorageDeps {
  readonly clock: Clock;
  /** Runs once, behind the last connection. */
  readonly release: () => void;
}

/**
 * Never call a write from inside `transaction`'s function, other than through its `tx`: there is one writer, and it would
 * wait for itself. Never wait for something slow inside `readSnapshot`'s: while it is open, the write-ahead log grows.
 */
class SqliteStorage implements Storage {
  readonly #connections: SqliteConnections;
  readonly #deps: SqliteStorageDeps;
  readonly #ensured = new EnsuredSchema();
  #closed: Promise<void> | null = null;

  constructor(connections: SqliteConnections, deps: SqliteStorageDeps) {
    this.#connections = connections;
    this.#deps = deps;
  }

  ensureSchema(schema: CompiledSchema, checkpoints: readonly CheckpointDeclaration[] = []): Promise<void> {
    const request = { schema, checkpoints };
    return this.#ensured.ensure(request, () =>
      ensureSchema(this.#connections, { ...request, nowMs: this.#deps.clock.nowMs() }),
    );
  }

  async admit(request: Parameters<Storage['admit']>[0]): Promise<Admission> {
    const { partition, clientId } = request;
    const known = await this.#connections.readNow((connection) =>
      readAdmission(connection, partition, clientId),
    );
    if (known !== null) return known;
    return this.#connections.writeNow('durable', (connection) => {
      createPartition(connection, request);
      return (
        readAdmission(connection, partition, clientId) ?? {
          state: readState(connection, partition),
          client: null,
          boundActorId: null,
        }
      );
    });
  }

  async bindClient(request: Parameters<Storage['bindClient']>[0]): Promise<string> {
    const { partition, clientId } = request;
    const bound = await this.#connections.readNow((connection) =>
      readBinding(connection, partition, clientId),
    );
    return bound ?? this.#connections.writeNow('durable', (connection) => bindClient(connection, request));
  }

  saveClient(update: ClientUpdate): Promise<void> {
    return this.#connections.writeNow('relaxed', (connection) => saveClient(connection, update));
  }

  async saveCursors(updates: readonly CursorUpdate[]): Promise<void> {
    if (updates.length === 0) return;
    await this.#connections.writeNow('relaxed', (connection) => {
      for (const update of updates) saveCursor(connection, update);
    });
  }

  async touchPartitions(seen: ReadonlyMap<string, number>): Promise<void> {
    if (seen.size === 0) return;
    await this.#connections.writeNow('relaxed', (connection) => {
      for (const [partition, seenAtMs] of seen) touchPartition(connection, partition, seenAtMs);
    });
  }

  readSnapshot<T>(partition: string, fn: (reader: SnapshotReader) => Promise<T>): Promise<T> {
    const { clock } = this.#deps;
    return this.#connections.snapshot(
      (connection) => readState(connection, partition),
      async (connection, state) => {
        const reader = new SqliteSnapshotReader({ connection, partition, clock }, state);
        try {
          return await fn(reader);
        } finally {
          reader.lifetime.end();
        }
      },
    );
  }

  transaction<T>(partition: string, fn: (tx: StorageTx) => Promise<T>): Promise<T> {
    const { clock } = this.#deps;
    return this.#connections.write('durable', async (connection) => {
      const state = guarded(() => readState(connection, partition));
      const tx = new SqliteTx({ connection, partition, clock }, state);
      try {
        return await fn(tx);
      } finally {
        tx.lifetime.end();
      }
    });
  }

  rotateEpoch(request: Parameters<Storage['rotateEpoch']>[0]): Promise<void> {
    return this.#connections.writeNow('durable', (connection) => rotateEpoch(connection, request));
  }

  pruneLog(request: PruneRequest): ReturnType<Storage['pruneLog']> {
    return this.#connections.writeNow('relaxed', (connection) => pruneLog(connection, request));
  }

  listPartitions(request: Parameters<Storage['listPartitions']>[0]): Promise<readonly PartitionState[]> {
    return this.#connections.readNow((connection) => listPartitions(connection, request));
  }

  declareCheckpoint(declared: Parameters<CheckpointStorage['declareCheckpoint']>[0]): Promise<void> {
    return this.#connections.writeNow('durable', (connection) => installCheckpoint(connection, declared));
  }

  readServeGate(partition: string, runningVersion: number): Promise<ServeGate> {
    return this.#connections.readNow((connection) => readServeGate(connection, partition, runningVersion));
  }

  readCheckpoints(partition: string): Promise<ReadonlyMap<string, Checkpoint>> {
    return this.#connections.readNow((connection) => readCheckpoints(connection, partition));
  }

  listCheckpoints(
    request: Parameters<CheckpointStorage['listCheckpoints']>[0],
  ): Promise<readonly Checkpoint[]> {
    return this.#connections.readNow((connection) => listCheckpoints(connection, request));
  }

  claimCheckpoint(declared: Parameters<CheckpointStorage['claimCheckpoint']>[0]): Promise<Checkpoint> {
    return this.#connections.writeNow('durable', (connection) => claimCheckpoint(connection, declared));
  }

  advanceCheckpoint(advance: CheckpointAdvance & { readonly partition: string }): Promise<boolean> {
    return this.#connections.writeNow('durable', (connection) =>
      advanceCheckpoint(connection, advance.partition, advance),
    );
  }

  countRows(request: Parameters<CheckpointStorage['countRows']>[0]): Promise<number> {
    return this.#connections.readNow((connection) => countRows(connection, request));
  }

  async sourceCoverageSeq(partition: string, tables: readonly string[]): Promise<number> {
    if (tables.length === 0) return 0;
    const { first, last } = await this.#connections.readNow((connection) =>
      readLogEnds(connection, partition),
    );
    for (let seq = last; seq >= first && seq > 0; ) {
      const { found, below } = await this.#connections.readNow((connection) =>
        coverageSlice(connection, { partition, tables, seq }),
      );
      if (found !== null) return found;
      seq = below;
      await nextTurn(this.#deps.clock);
    }
    return 0;
  }

  hasSourceChangesAbove(partition: string, tables: readonly string[], seq: number): Promise<SourceVerdict> {
    return this.#connections.readNow((connection) => sourceVerdict(connection, { partition, tables, seq }));
  }

  activateCheckpoint(request: Parameters<CheckpointStorage['activateCheckpoint']>[0]): Promise<Activation> {
    return this.#connections.writeNow('durable', (connection) => activateCheckpoint(connection, request));
  }

  /** Writes for real, without waiting for the disk: a full or read-only one is found out. */
  ping(): Promise<void> {
    return this.#connections.writeNow('relaxed', (connection) => {
      connection.run('UPDATE sync_storage_version SET version = version WHERE id = 1');
    });
  }

  close(): Promise<void> {
    this.#closed ??= this.#connections.close().finally(this.#deps.release);
    return this.#closed;
  }
}
