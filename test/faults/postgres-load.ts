/**
 * A gateway on a PostgreSQL of its own while the database fails under it: clients push without pause and keep an account of
 * every commit, a subscriber records what it is told, and afterwards log, rows, account and subscriber must agree.
 */

import { createGateway, type Gateway } from '../../src/gateway/gateway.ts';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { openPostgresStorage } from '../../src/storage/postgres/postgres-storage.ts';
import { call } from '../gateway/support/http-client.ts';
import { gatewayOptions } from '../gateway/support/live-gateway.ts';
import { ada, frameOf, frames, postSync } from '../gateway/support/requests.ts';
import { RoundSocket } from '../gateway/support/round-socket.ts';
import { PostgresCluster } from '../support/postgres-cluster.ts';
import { runSql } from '../support/postgres-server.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';

const WRITERS = 6;
/** Short, so that a fault ends in a test's time; the pool is smaller than the load. */
const PATIENCE = {
  writersMax: 3,
  readersMax: 3,
  acquireTimeoutMs: 400,
  connectTimeoutMs: 1_000,
  statementTimeoutMs: 600,
  lockTimeoutMs: 300,
};

export class PostgresLoad {
  readonly cluster: PostgresCluster;
  readonly proxy: TcpProxy;
  readonly url: string;
  /** commitSeq by clientCommitId, as answered. */
  readonly answered = new Map<string, number>();
  /** Answers other than a result: status and body. */
  readonly refusals: { readonly status: number; readonly body: string }[] = [];
  readonly #gateway: Gateway;
  readonly #close: () => Promise<void>;
  #isRunning = true;
  #writers: Promise<unknown> = Promise.resolve();
  #watcher: RoundSocket | null = null;
  readonly #seen: { readonly commitSeq: number; readonly rowId: string }[] = [];
  #listeners: (() => void)[] = [];

  private constructor(
    parts: {
      readonly cluster: PostgresCluster;
      readonly proxy: TcpProxy;
      readonly gateway: Gateway;
      readonly url: string;
    },
    close: () => Promise<void>,
  ) {
    this.cluster = parts.cluster;
    this.proxy = parts.proxy;
    this.#gateway = parts.gateway;
    this.url = parts.url;
    this.#close = close;
  }

  static async start(): Promise<PostgresLoad> {
    const cluster = await PostgresCluster.start();
    const proxy = await TcpProxy.start({ target: cluster.port });
    const connection = new URL(cluster.url);
    connection.port = String(proxy.port);
    const opened = await openPostgresStorage({
      connection: connection.href,
      clock: createRealClock(),
      ...PATIENCE,
    });
    const gateway = await createGateway(gatewayOptions({ storage: opened }));
    const { url } = await gateway.listen({ port: 0 });
    const load = new PostgresLoad({ cluster, proxy, gateway, url }, async () => {
      await gateway.close();
      await opened.storage.close();
      await proxy.close();
      await cluster.dispose();
    });
    await load.#begin();
    return load;
  }

  /** Runs while commits are being answered: waits until `count` more were. */
  async moreAnswers(count: number): Promise<void> {
    const goal = this.answered.size + count;
    while (this.answered.size < goal) await new Promise<void>((resolve) => this.#listeners.push(resolve));
  }

  /** Resolves once `/readyz` answers with this status; `/healthz` must answer 200 all the time. */
  async untilReadiness(status: number): Promise<void> {
    for (;;) {
      if ((await call(`${this.url}/healthz`)).status !== 200)
        throw new Error('the process says it is not alive');
      if ((await call(`${this.url}/readyz`)).status === status) return;
    }
  }

  sql(text: string) {
    const url = new URL(this.cluster.url);
    url.searchParams.set('options', '-c default_transaction_read_only=off');
    return runSql(url.href, text);
  }

  /** Stops the writers; every commit that was sent has been answered then. */
  async settle(): Promise<void> {
    this.#isRunning = false;
    await this.#writers;
  }

  /** Throws at the first thing that is not as it must be. */
  async check(): Promise<{ readonly commits: number }> {
    const log = await this.sql(
      'SELECT commit_seq, client_commit_id FROM tidegate.sync_commits ORDER BY commit_seq',
    );
    for (const [i, row] of log.entries()) {
      if (Number(row.commit_seq) !== i + 1) throw new Error(`hole: ${row.commit_seq} at place ${i + 1}`);
    }
    const seqOf = new Map(log.map((row) => [row.client_commit_id, Number(row.commit_seq)]));
    if (seqOf.size !== log.length) throw new Error('a commit is in the log twice');
    if (seqOf.size !== this.answered.size)
      throw new Error(`${this.answered.size} answered, ${seqOf.size} in the log`);
    for (const [id, seq] of this.answered) {
      if (seqOf.get(id) !== seq)
        throw new Error(`${id} was answered with ${seq}, the log has ${seqOf.get(id)}`);
    }
    const rows = await this.sql('SELECT _sync_row_id FROM tidegate.notes');
    if (rows.length !== log.length) throw new Error(`${rows.length} rows of ${log.length} commits`);
    await this.#checkWatcher(log.length);
    await this.#checkSessions();
    return { commits: log.length };
  }

  async close(): Promise<void> {
    this.#isRunning = false;
    this.#watcher?.end();
    await this.#close();
    // `settle` throws what they failed with; after a fault that did not end they may wait for a gateway that is gone.
    await this.#writers.catch(() => undefined);
  }

  async #begin(): Promise<void> {
    const query = new URLSearchParams({ clientId: 'watcher', token: 'token-ada' });
    const watcher = new RoundSocket(`${this.url.replace('http:', 'ws:')}/realtime?${query}`);
    this.#watcher = watcher;
    await watcher.control('hello');
    const pulled = await watcher.round(ada.pull({ clientId: 'watcher' }));
    watcher.ack(frameOf(pulled, 'SUB_END').nextCursor);
    this.#writers = Promise.all(Array.from({ length: WRITERS }, (_, i) => this.#write(`writer-${i}`)));
    // Its failure is thrown by `settle`.
    this.#writers.catch(() => undefined);
  }

  async #write(clientId: string): Promise<void> {
    for (let i = 0; this.#isRunning; i++) await this.#push(clientId, `${clientId}-${i}`);
  }

  /** The same bytes again until they are answered, also after the load was stopped. */
  async #push(clientId: string, rowId: string): Promise<void> {
    const request = ada.push({ clientId, rowId, clientCommitId: rowId });
    for (let tries = 1; ; tries++) {
      const { status, body } = await postSync(this.url, request);
      const result = status === 200 ? frames(body).find((frame) => frame.type === 'PUSH_RESULT') : undefined;
      if (result === undefined) {
        this.refusals.push({ status, body: Buffer.from(body).toString('latin1') });
        continue;
      }
      if (result.commitSeq === undefined) throw new Error(`${rowId}: ${JSON.stringify(result)}`);
      if (result.status === 'cached' && tries === 1) throw new Error(`${rowId} was cached at its first push`);
      this.answered.set(rowId, result.commitSeq);
      for (const listener of this.#listeners.splice(0)) listener();
      return;
    }
  }

  /** By deltas and, where it was woken, by pulls: each commit once, in order. */
  async #checkWatcher(commits: number): Promise<void> {
    const watcher = this.#watcher!;
    if (watcher.closed !== null) throw new Error(`the subscriber was closed with ${watcher.closed.code}`);
    const take = (bytes: Uint8Array): void => {
      for (const frame of frames(bytes)) {
        if (frame.type !== 'COMMIT') continue;
        const last = this.#seen.at(-1)?.commitSeq ?? 0;
        if (frame.commitSeq !== last + 1)
          throw new Error(`the subscriber saw ${frame.commitSeq} after ${last}`);
        this.#seen.push({ commitSeq: frame.commitSeq, rowId: frame.changes[0]!.rowId });
      }
    };
    for (const delta of watcher.deltas) take(delta);
    while (this.#seen.length < commits) {
      const cursor = this.#seen.length;
      take(await watcher.round(ada.pull({ clientId: 'watcher', cursor })));
      if (this.#seen.length === cursor) throw new Error(`the subscriber gets nothing after ${cursor}`);
    }
    for (const { commitSeq, rowId } of this.#seen) {
      if (this.answered.get(rowId) !== commitSeq)
        throw new Error(`the subscriber saw ${rowId} at ${commitSeq}`);
    }
  }

  /** No transaction is left open, and no more sessions than the pools may have. */
  async #checkSessions(): Promise<void> {
    const ours = `SELECT state FROM pg_stat_activity WHERE application_name = 'tidegate'`;
    for (;;) {
      const sessions = await this.sql(ours);
      if (sessions.length > PATIENCE.writersMax + PATIENCE.readersMax)
        throw new Error(`${sessions.length} sessions`);
      if (sessions.every(({ state }) => state === 'idle')) break;
    }
    const { commitQueueDepth, httpRounds } = this.#gateway.stats();
    if (commitQueueDepth !== 0 || httpRounds !== 0) throw new Error('work is left over');
  }
}
