/** Counts what is under way, so that a shutdown can wait for it (architecture §6, drain). */
export interface InFlight {
  readonly count: number;
  /** Returns the function that ends it; calling that twice counts once. */
  begin(): () => void;
  /** Resolves when nothing is under way. */
  idle(): Promise<void>;
}

export function createInFlight(): InFlight {
  let count = 0;
  let waiting: (() => void)[] = [];
  const end = (): void => {
    count -= 1;
    if (count > 0) return;
    const released = waiting;
    waiting = [];
    for (const release of released) release();
  };
  return {
    get count() {
      return count;
    },
    begin() {
      count += 1;
      let running = true;
      return () => {
        if (!running) return;
        running = false;
        end();
      };
    },
    idle: () => (count === 0 ? Promise.resolve() : new Promise((resolve) => waiting.push(resolve))),
  };
}
