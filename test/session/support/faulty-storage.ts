/** Real storages with a seam: transactions that a test holds, or lets fail in a given way. */
import type { Storage, StorageTx } from '../../../src/storage/storage.ts';
import {
  type ConstraintKind,
  StorageConstraintError,
  StorageError,
} from '../../../src/storage/storage-error.ts';

/** The object with some members replaced; all others work on the object itself. */
export function overridden<T extends object>(target: T, members: Partial<T>): T {
  return new Proxy(target, {
    get(_target, name) {
      if (Object.hasOwn(members, name)) return Reflect.get(members, name);
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === 'function' ? value.bind(target) : value;
    },
  });
}

export type Transaction = (tx: StorageTx) => Promise<unknown>;

export function withTx(storage: Storage, change: (tx: StorageTx) => StorageTx): Storage {
  return overridden(storage, {
    transaction: (partition, fn) => storage.transaction(partition, (tx) => fn(change(tx))),
  });
}

/**
 * `lost-before` and `lost-after`: the answer to COMMIT is lost, and it had not landed, or had. `busy`: nothing landed, may
 * succeed later. `down`: nothing landed, not worth another try. `constraint`: the first append of the transaction is refused.
 */
export type Fault = 'none' | 'lost-before' | 'lost-after' | 'busy' | 'down' | 'constraint' | 'defect';

export class FaultyStorage {
  readonly storage: Storage;
  /** Partition of every transaction that was begun. */
  readonly begun: string[] = [];
  /** One per transaction to come, by partition. */
  readonly #faults = new Map<string, Fault[]>();
  readonly #held = new Map<string, (() => void)[]>();
  #holding = new Set<string>();

  constructor(real: Storage) {
    this.storage = overridden(real, {
      transaction: async (partition, fn) => {
        this.begun.push(partition);
        if (this.#holding.has(partition)) await this.#release(partition);
        const fault = this.#faults.get(partition)?.shift() ?? 'none';
        return runWith(fault, real, { partition, fn });
      },
    });
  }

  fail(partition: string, ...faults: Fault[]): void {
    this.#faults.set(partition, faults);
  }

  /** Transactions of the partition stop before they begin, until `release`. */
  hold(partition: string): void {
    this.#holding.add(partition);
  }

  release(partition: string): void {
    this.#holding.delete(partition);
    for (const go of this.#held.get(partition) ?? []) go();
    this.#held.delete(partition);
  }

  #release(partition: string): Promise<void> {
    return new Promise((resolve) => {
      const held = this.#held.get(partition) ?? [];
      this.#held.set(partition, [...held, resolve]);
    });
  }
}

interface Call<T> {
  readonly partition: string;
  readonly fn: (tx: StorageTx) => Promise<T>;
}

class RolledBack extends Error {}

async function runWith<T>(fault: Fault, real: Storage, { partition, fn }: Call<T>): Promise<T> {
  if (fault === 'busy') throw new StorageError('sync.storage.busy', 'busy', { retryable: true });
  if (fault === 'down') throw new StorageError('sync.storage.unavailable', 'down');
  if (fault === 'constraint') return real.transaction(partition, (tx) => fn(refusing(tx, 'unique')));
  if (fault === 'defect') {
    return real.transaction(partition, (tx) =>
      fn(overridden(tx, { append: () => Promise.reject(new TypeError()) })),
    );
  }
  if (fault === 'none') return real.transaction(partition, fn);
  if (fault === 'lost-after') await real.transaction(partition, fn);
  else await rolledBack(real, { partition, fn });
  throw new StorageError('sync.storage.outcome_unknown', 'lost', { outcome: 'unknown', retryable: true });
}

async function rolledBack<T>(real: Storage, { partition, fn }: Call<T>): Promise<void> {
  try {
    await real.transaction(partition, async (tx) => {
      await fn(tx);
      throw new RolledBack();
    });
  } catch (failure) {
    if (!(failure instanceof RolledBack)) throw failure;
  }
}

function refusing(tx: StorageTx, kind: ConstraintKind): StorageTx {
  return overridden(tx, { append: () => Promise.reject(new StorageConstraintError(kind, null)) });
}
