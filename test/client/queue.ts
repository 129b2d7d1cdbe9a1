/** What arrives is kept until it is asked for; who asks too early waits. */
export class Queue<T> {
  readonly #items: T[] = [];
  readonly #waiters: ((item: T) => void)[] = [];

  get size(): number {
    return this.#items.length;
  }

  push(item: T): void {
    const waiter = this.#waiters.shift();
    if (waiter === undefined) this.#items.push(item);
    else waiter(item);
  }

  next(): Promise<T> {
    const item = this.#items.shift();
    if (item !== undefined) return Promise.resolve(item);
    return new Promise((resolve) => this.#waiters.push(resolve));
  }
}
