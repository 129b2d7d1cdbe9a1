/** The storage contract on PostgreSQL: for production, with any number of gateways on one database. */
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
import { Admissions } from './admissions.ts';
import { selectCoverage, selectRowCount, selectVerdict, toVerdict } from './checkpoint-sources.ts';
import {
  activateCheckpoint,
  advanceStatement,
  claimCheckpoint,
  installCheckpoints,
  selectCheckpoints,
  selectCheckpointsAfter,
  selectServeGate,
  toCheckpoint,
  toServeGate,
} from './checkpoints.ts';
import { insertBinding, saveClient, saveCursors, selectBinding } from './clients.ts';
import { INDEX_PLANS_ONLY, type PgConnections } from './connections.ts';
import { ensureSchema } from './ensure-schema.ts';
import { migrateStorage } from './migrations.ts';
import type { Names } from './names.ts';
import { type Opened, type PostgresStorageOptions, resolveOptions } from './options.ts';
import {
  insertPartition,
  lockPartition,
  readLockedState,
  readStateRow,
  rotateEpoch,
  selectPartitions,
  selectState,
  toStates,
  touchPartitions,
  unknownPartition,
} from './partitions.ts';
import { type PruneRequest, pruneLog } from './pruning.ts';
import { PgSegmentStore } from './segments.ts';
import { PgSnapshotReader, PgTx } from './transaction.ts';
import { toInteger, toText } from './wire-values.ts';

/**
 * Connects and brings the storage's own tables up to date; `ensureSchema` does so for the schema's. Where they are, neither
 * needs more than the rights to read and write rows. Closing the storage closes the segment store too.
 */
export async function openPostgresStorage(
  options: PostgresStorageOptions,
): Promise<{ readonly storage: Storage; readonly segments: SegmentStore }> {
  const opened = resolveOptions(options);
  try {
    await migrateStorage(opened.connections, opened.names);
  } catch (error) {
    await opened.connections.close();
    throw error;
  }
  return {
    storage: new PostgresStorage(opened),
    segments: new PgSegmentStore(opened.connections, opened.names),
  };
}

class PostgresStorage implements Storage {
  readonly #connections: PgConnections;
  readonly #names: Names;
  readonly #clock: Clock;
  readonly #admissions: Admissions;
  readonly #ensured = new EnsuredSchema();

  constructor({ connections, names, clock }: Opened) {
    this.#connections = connections;
    this.#names = names;
    this.#clock = clock;
    this.#admissions = new Admissions(connections.read.bind(connections), names);
  }

  ensureSchema(schema: CompiledSchema, checkpoints: readonly CheckpointDeclaration[] = []): Promise<void> {
    const request = { schema, checkpoints };
    return this.#ensured.ensure(request, () =>
      ensureSchema(this.#connections, this.#names, { ...request, nowMs: this.#clock.nowMs() }),
    );
  }

  async admit(request: Parameters<Storage['admit']>[0]): Promise<Admission> {
    const { partition, clientId } = request;
    const known = await this.#admissions.read(partition, clientId);
    if (known !== null) return known;
    await this.#connections.write('durable', ...insertPartition(this.#names, request));
    const admission = await this.#admissions.read(partition, clientId);
    if (admission === null) throw unknownPartition();
    return admission;
  }

  async bindClient(request: Parameters<Storage['bindClient']>[0]): Promise<string> {
    const select = selectBinding(this.#names, request);
    const [found] = await this.#connections.read(select);
    const bound = found?.rows[0];
    if (bound !== undefined) return toText(bound[0]);
    const results = await this.#connections.write('durable', insertBinding(this.#names, request), select);
    return toText(results.at(-1)?.rows[0]?.[0]);
  }

  async saveClient(update: ClientUpdate): Promise<void> {
    await this.#connections.write('relaxed', saveClient(this.#names, update));
  }

  /** Each partition is a transaction of its own, so that none touches two. */
  async saveCursors(updates: readonly CursorUpdate[]): Promise<void> {
    for (const statement of saveCursors(this.#names, updates)) {
      await this.#connections.write('relaxed', statement);
    }
  }

  async touchPartitions(seen: ReadonlyMap<string, number>): Promise<void> {
    if (seen.size > 0) await this.#connections.write('relaxed', touchPartitions(this.#names, seen));
  }

  readSnapshot<T>(partition: string, fn: (reader: SnapshotReader) => Promise<T>): Promise<T> {
    const names = this.#names;
    return this.#connections.snapshot([selectState(names, partition)], async (sql, [state]) => {
      const reader = new PgSnapshotReader({ sql, names, partition }, readStateRow(state?.rows));
      try {
        return await fn(reader);
      } finally {
        reader.lifetime.end();
      }
    });
  }

  transaction<T>(partition: string, fn: (tx: StorageTx) => Promise<T>): Promise<T> {
    const names = this.#names;
    return this.#connections.transaction(lockPartition(names, partition), async (sql, opened) => {
      const tx = new PgTx({ sql, names, partition }, readLockedState(opened));
      try {
        return await fn(tx);
      } finally {
        tx.lifetime.end();
      }
    });
  }

  async rotateEpoch(request: Parameters<Storage['rotateEpoch']>[0]): Promise<void> {
    const results = await this.#connections.write('durable', ...rotateEpoch(this.#names, request));
    if (results[0]?.rows.length !== 1) throw unknownPartition();
  }

  pruneLog(request: PruneRequest): ReturnType<Storage['pruneLog']> {
    return pruneLog(this.#connections, this.#names, request);
  }

  async listPartitions(
    request: Parameters<Storage['listPartitions']>[0],
  ): Promise<readonly PartitionState[]> {
    const [found] = await this.#connections.read(selectPartitions(this.#names, request));
    return toStates(found?.rows ?? []);
  }

  async declareCheckpoint(declared: Parameters<CheckpointStorage['declareCheckpoint']>[0]): Promise<void> {
    await this.#connections.write('durable', ...installCheckpoints(this.#names, [declared], declared.nowMs));
  }

  async readServeGate(partition: string, runningVersion: number): Promise<ServeGate> {
    const [found] = await this.#connections.read(selectServeGate(this.#names, partition, runningVersion));
    return toServeGate(found?.rows[0]);
  }

  async readCheckpoints(partition: string): Promise<ReadonlyMap<string, Checkpoint>> {
    const [found] = await this.#connections.read(selectCheckpoints(this.#names, partition));
    return new Map((found?.rows ?? []).map(toCheckpoint).map((checkpoint) => [checkpoint.name, checkpoint]));
  }

  async listCheckpoints(
    request: Parameters<CheckpointStorage['listCheckpoints']>[0],
  ): Promise<readonly Checkpoint[]> {
    const [found] = await this.#connections.read(selectCheckpointsAfter(this.#names, request));
    return (found?.rows ?? []).map(toCheckpoint);
  }

  claimCheckpoint(declared: Parameters<CheckpointStorage['claimCheckpoint']>[0]): Promise<Checkpoint> {
    return claimCheckpoint(this.#connections, this.#names, declared);
  }

  async advanceCheckpoint(advance: CheckpointAdvance & { readonly partition: string }): Promise<boolean> {
    const statement = advanceStatement(this.#names, advance.partition, advance);
    const [advanced] = await this.#connections.write('durable', statement);
    return advanced?.rows.length === 1;
  }

  async countRows(request: Parameters<CheckpointStorage['countRows']>[0]): Promise<number> {
    const [counted] = await this.#connections.read(selectRowCount(this.#names, request));
    return toInteger(counted?.rows[0]?.[0]);
  }

  async sourceCoverageSeq(partition: string, tables: readonly string[]): Promise<number> {
    const results = await this.#connections.read(
      ...INDEX_PLANS_ONLY,
      selectCoverage(this.#names, partition, tables),
    );
    const row = results.at(-1)?.rows[0];
    return row === undefined ? 0 : toInteger(row[0]);
  }

  async hasSourceChangesAbove(
    partition: string,
    tables: readonly string[],
    seq: number,
  ): Promise<SourceVerdict> {
    const results = await this.#connections.read(
      ...INDEX_PLANS_ONLY,
      selectVerdict(this.#names, { partition, tables, seq }),
    );
    return toVerdict(results.at(-1)?.rows[0], seq);
  }

  activateCheckpoint(request: Parameters<CheckpointStorage['activateCheckpoint']>[0]): Promise<Activation> {
    return activateCheckpoint(this.#connections, this.#names, request);
  }

  /** Writes for real, without waiting for the disk: a server that is read-only since a failover is found out. */
  async ping(): Promise<void> {
    const text = `UPDATE ${this.#names.storageVersion} SET version = version WHERE id = 1`;
    await this.#connections.write('relaxed', { text });
  }

  close(): Promise<void> {
    return this.#connections.close();
  }
}
