/** A bus between nodes of one test that loses, repeats and reorders notices when told to. */
import type { Bus, Notice } from '../../../../src/session/live/bus.ts';

export type Fate = 'deliver' | 'lose' | 'hold';

interface Subscriber {
  readonly node: number;
  readonly receive: (notice: Notice) => void;
}

export class LossyBus {
  readonly #subscribers = new Set<Subscriber>();
  readonly #reconnects = new Map<() => void, number>();
  /** Notices on their way, by receiver. */
  readonly held: { readonly to: number; readonly notice: Notice }[] = [];
  readonly announced: Notice[] = [];
  /** Asked for each notice and receiver. */
  fate: (notice: Notice, to: number) => Fate = () => 'deliver';
  #nodes = 0;

  /** The end of one node. */
  connect(): Bus {
    const node = this.#nodes++;
    return {
      announce: (notice) => {
        this.announced.push(notice);
        for (let to = 0; to < this.#nodes; to++) {
          if (to === node) continue;
          const fate = this.fate(notice, to);
          if (fate === 'deliver') this.deliver(notice, to);
          else if (fate === 'hold') this.held.push({ to, notice });
        }
      },
      subscribe: (receive) => {
        const subscriber = { node, receive };
        this.#subscribers.add(subscriber);
        return () => void this.#subscribers.delete(subscriber);
      },
      onReconnect: (run) => {
        this.#reconnects.set(run, node);
        return () => void this.#reconnects.delete(run);
      },
      close: async () => undefined,
    };
  }

  deliver(notice: Notice, to: number): void {
    for (const { node, receive } of this.#subscribers) {
      if (node === to) receive(notice);
    }
  }

  /** Delivers what is held, in the order of `order`, or as it came. */
  release(order: (held: number) => number = () => 0): void {
    while (this.held.length > 0) {
      const [next] = this.held.splice(order(this.held.length), 1);
      this.deliver(next!.notice, next!.to);
    }
  }

  reconnect(): void {
    for (const run of this.#reconnects.keys()) run();
  }
}
