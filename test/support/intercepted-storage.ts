/** A storage whose calls a test sees, holds or fails before they happen. */
import type { SnapshotReader, Storage } from '../../src/storage/storage.ts';

export interface StorageCall {
  /** `reader`: inside a snapshot. */
  readonly on: 'storage' | 'reader';
  readonly method: string;
  readonly args: readonly unknown[];
}

/** Runs before the real call; a throw takes its place. */
export type Intercept = (call: StorageCall) => void | Promise<void>;

function intercepted<T extends object>(target: T, on: StorageCall['on'], intercept: Intercept): T {
  return new Proxy(target, {
    get(inner, name) {
      const member: unknown = Reflect.get(inner, name, inner);
      if (typeof member !== 'function') return member;
      return async (...args: unknown[]) => {
        await intercept({ on, method: String(name), args });
        return member.apply(inner, args);
      };
    },
  });
}

export function interceptStorage(storage: Storage, intercept: Intercept): Storage {
  const outer = intercepted(storage, 'storage', intercept);
  return new Proxy(outer, {
    get(inner, name) {
      if (name !== 'readSnapshot') return Reflect.get(inner, name, inner);
      return async <T>(partition: string, fn: (reader: SnapshotReader) => Promise<T>): Promise<T> => {
        await intercept({ on: 'storage', method: 'readSnapshot', args: [partition] });
        return storage.readSnapshot(partition, (reader) => fn(intercepted(reader, 'reader', intercept)));
      };
    },
  });
}

/** A promise that a test resolves. */
export class Latch {
  readonly opened: Promise<void>;
  #open: () => void = () => undefined;

  constructor() {
    this.opened = new Promise((resolve) => {
      this.#open = resolve;
    });
  }

  open(): void {
    this.#open();
  }
}
