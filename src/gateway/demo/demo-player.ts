/** One person of the demo: a client of this library, the shared list, and waits that end. */
import { WebSocket } from 'ws';
import { type Client, createClient, type SentCommit } from '../../client/client.ts';
import type { SubscriptionHandle } from '../../client/subscription-handle.ts';
import type { Clock } from '../../protocol/clock.ts';
import { DEV_SCHEMA } from '../dev-schema.ts';

/** A row of the development schema's table `tasks`. */
export interface DemoTask {
  readonly id: string;
  readonly project_id: string;
  readonly title: string;
  readonly done: boolean;
  readonly position: number;
}

/** Both development users may see it. */
export const SHARED_PROJECT = 'shared';
const WAIT_MS_MAX = 5_000;

/** The demo did not go as it should; the message is for people. */
export class DemoFailure extends Error {
  override readonly name = 'DemoFailure';
}

export interface DemoPlayerParts {
  readonly name: string;
  readonly token: string;
  readonly url: string;
  readonly clock: Clock;
  /** Only rows whose id begins so belong to this demo. */
  readonly idPrefix: string;
}

export class DemoPlayer {
  readonly name: string;
  readonly client: Client<{ readonly tasks: DemoTask }>;
  readonly #subscription: SubscriptionHandle;
  readonly #clock: Clock;
  readonly #idPrefix: string;

  constructor({ name, token, url, clock, idPrefix }: DemoPlayerParts) {
    this.name = name;
    this.#clock = clock;
    this.#idPrefix = idPrefix;
    this.client = createClient({ url, token, schema: DEV_SCHEMA, webSocket: WebSocket });
    this.#subscription = this.client.subscribe({ table: 'tasks', scopes: { project_id: SHARED_PROJECT } });
  }

  async join(): Promise<void> {
    this.client.connect();
    await this.#bounded(this.#subscription.ready, `${this.name} found no gateway that lets them in`);
  }

  get tasks(): readonly DemoTask[] {
    const own = this.client.rows('tasks').filter(({ id }) => id.startsWith(this.#idPrefix));
    return own.sort((a, b) => a.position - b.position || (a.id < b.id ? -1 : 1));
  }

  task(id: string): DemoTask {
    const found = this.client.get('tasks', id);
    if (found === undefined) throw new DemoFailure(`${this.name} does not see a task that was written`);
    return found;
  }

  add(id: string, title: string): SentCommit {
    const position = this.tasks.length;
    const row = { id, project_id: SHARED_PROJECT, title, done: false, position };
    return this.client.mutate([{ table: 'tasks', op: 'upsert', row }]);
  }

  /** A write that must not overwrite what is not seen here. */
  edit(id: string, change: Partial<DemoTask>, baseVersion = this.client.version('tasks', id)): SentCommit {
    return this.client.mutate([
      { table: 'tasks', op: 'upsert', row: { ...this.task(id), ...change }, baseVersion },
    ]);
  }

  /** Resolves at the moment this side shows the task so. */
  sees(id: string, holds: (task: DemoTask) => boolean): Promise<void> {
    return this.until(() => {
      const task = this.client.get('tasks', id);
      return task !== undefined && holds(task);
    });
  }

  async until(holds: () => boolean): Promise<void> {
    let remove = (): void => undefined;
    const seen = new Promise<void>((resolve) => {
      const judge = (): void => {
        if (holds()) resolve();
      };
      const removers = [this.client.onChange('tasks', judge), this.client.onStatus(judge)];
      remove = () => {
        for (const each of removers) each();
      };
      judge();
    });
    try {
      await this.#bounded(seen, `${this.name} waited in vain`);
    } finally {
      remove();
    }
  }

  async #bounded<T>(work: Promise<T>, complaint: string): Promise<T> {
    let giveUp: (failure: DemoFailure) => void = () => undefined;
    const late = new Promise<never>((_resolve, reject) => {
      giveUp = reject;
    });
    const timer = this.#clock.after(WAIT_MS_MAX, () => {
      const { lastError } = this.client.status;
      giveUp(new DemoFailure(lastError === null ? complaint : `${complaint}: ${lastError.message}`));
    });
    try {
      return await Promise.race([work, late]);
    } finally {
      timer.cancel();
    }
  }
}
