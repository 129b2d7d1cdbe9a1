/** The storage contract on PostgreSQL: for production, with any number of gateways on one database. */
import type { CompiledSchema } from '../../protocol/schema.ts';
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
import { insertBinding, saveClient, saveCursors, selectBinding } from './clients.ts';
import type { PgConnections } from './connections.ts';
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
  selectAdmission,
  selectPartitions,
  selectState,
  toAdmission,
  toStates,
  touchPartitions,
  unknownPartition,
} from './partitions.ts';
import { type PruneRequest, pruneLog } from './pruning.ts';
import { PgSegmentStore } from './segments.ts';
import { PgSnapshotReader, PgTx } from './transaction.ts';
import { toText } from './wire-values.ts';

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

  constructor({ connections, names }: Opened) {
    this.#connections = connections;
    this.#names = names;
  }

  ensureSchema(schema: CompiledSchema): Promise<void> {
    return ensureSchema(this.#connections, this.#names, schema);
  }

  async admit(request: Parameters<Storage['admit']>[0]): Promise<Admission> {
    const { partition, clientId } = request;
    const select = selectAdmission(this.#names, partition, clientId);
    const [found] = await this.#connections.read(select);
    const known = toAdmission(found?.rows);
    if (known !== null) return known;
    const created = await this.#connections.write(
      'durable',
      ...insertPartition(this.#names, request),
      select,
    );
    const admission = toAdmission(created.at(-1)?.rows);
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

  /** Writes for real, without waiting for the disk: a server that is read-only since a failover is found out. */
  async ping(): Promise<void> {
    const text = `UPDATE ${this.#names.storageVersion} SET version = version WHERE id = 1`;
    await this.#connections.write('relaxed', { text });
  }

  close(): Promise<void> {
    return this.#connections.close();
  }
}
