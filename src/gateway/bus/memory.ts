/** The bus of one process: a gateway alone has nobody to tell, several in one process tell each other. */
import type { Bus, Notice } from '../../session/live/bus.ts';

export interface MemoryBusNetwork {
  /** A node of its own. */
  join(): Bus;
}

type Receiver = (notice: Notice) => void;

/** `onFailure` hears of subscribers that throw, which they must not. */
export function createMemoryBusNetwork(onFailure: (failure: unknown) => void): MemoryBusNetwork {
  const nodes = new Set<MemoryBus>();
  return {
    join: () => {
      const node = new MemoryBus(nodes, onFailure);
      nodes.add(node);
      return node;
    },
  };
}

class MemoryBus implements Bus {
  readonly #nodes: Set<MemoryBus>;
  readonly #onFailure: (failure: unknown) => void;
  readonly #receivers = new Set<Receiver>();

  constructor(nodes: Set<MemoryBus>, onFailure: (failure: unknown) => void) {
    this.#nodes = nodes;
    this.#onFailure = onFailure;
  }

  announce(notice: Notice): void {
    if (!this.#nodes.has(this) || this.#nodes.size === 1) return;
    // Never inside the announcer's own call: a receiver's work is not the writer's to wait for.
    queueMicrotask(() => {
      for (const node of this.#nodes) if (node !== this) node.#receive(notice);
    });
  }

  subscribe(receive: Receiver): () => void {
    // Wrapped, so that one function subscribed twice is two subscriptions.
    const receiver: Receiver = (notice) => receive(notice);
    this.#receivers.add(receiver);
    return () => {
      this.#receivers.delete(receiver);
    };
  }

  /** Memory has no outages. */
  onReconnect(_run: () => void): () => void {
    return () => undefined;
  }

  async close(): Promise<void> {
    this.#nodes.delete(this);
    this.#receivers.clear();
  }

  #receive(notice: Notice): void {
    for (const receive of [...this.#receivers]) {
      try {
        receive(notice);
      } catch (failure) {
        this.#onFailure(failure);
      }
    }
  }
}
