/**
 * A gateway on a PostgreSQL of its own while the database fails under it: clients push without pause and keep an account of
 * every commit, subscribers record what they are told, and afterwards log, rows, account and subscribers must agree.
 */

import { createGateway, type Gateway } from '../../src/gateway/gateway.ts';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { openPostgresStorage } from '../../src/storage/postgres/postgres-storage.ts';
import { call } from '../gateway/support/http-client.ts';
import { gatewayOptions } from '../gateway/support/live-gateway.ts';
import { ada, frames, postSync } from '../gateway/support/requests.ts';
import { PostgresCluster } from '../support/postgres-cluster.ts';
import { runSql } from '../support/postgres-server.ts';
import { TcpProxy } from '../support/tcp-proxy.ts';
import { LoadWatcher } from './load-watcher.ts';

const WRITERS = 6;
const PROJECTS = ['shared', 'other'];
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
  /** Answers other than a result: status, and body as it came. */
  readonly refusals: { readonly status: number; readonly body: string }[] = [];
  readonly watchers: readonly LoadWatcher[];
  readonly #gateway: Gateway;
  readonly #close: () => Promise<void>;
  #isRunning = true;
  #writers: Promise<unknown> = Promise.resolve();
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
    this.watchers = [
      { clientId: 'watcher-of-all', projects: PROJECTS },
      { clientId: 'watcher-of-one', projects: [PROJECTS[1]!] },
      { clientId: 'watcher-that-moves', projects: PROJECTS },
    ].map((of) => new LoadWatcher(parts.url, of));
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

  /** Resolves once `/readyz` answers so; `/healthz` must answer 200 all the time. */
  async untilReadiness(expected: 'ready' | 'storage'): Promise<void> {
    for (;;) {
      if ((await call(`${this.url}/healthz`)).status !== 200)
        throw new Error('the process says it is not alive');
      const { status, body } = await call(`${this.url}/readyz`);
      const said = JSON.parse(body.toString()) as { readonly status: string; readonly phase?: string };
      if (status !== (said.status === 'ready' ? 200 : 503)) throw new Error(`${status} with ${said.status}`);
      if ((said.phase ?? said.status) === expected) return;
    }
  }

  /** One subscriber changes its network. */
  async moveOne(): Promise<void> {
    await this.watchers[2]!.reopen();
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
      `SELECT c.commit_seq, c.client_commit_id, changed.row_id, encode(changed.payload, 'hex') AS payload,
         changed.scopes->>'project' AS project
       FROM tidegate.sync_commits AS c JOIN tidegate.sync_changes AS changed USING (partition, commit_seq)
       ORDER BY c.commit_seq`,
    );
    for (const [i, row] of log.entries()) {
      if (Number(row.commit_seq) !== i + 1) throw new Error(`hole: ${row.commit_seq} at place ${i + 1}`);
    }
    const seqOf = new Map(log.map((row) => [String(row.client_commit_id), Number(row.commit_seq)]));
    if (seqOf.size !== log.length) throw new Error('a commit is in the log twice');
    if (seqOf.size !== this.answered.size)
      throw new Error(`${this.answered.size} answered, ${seqOf.size} in the log`);
    for (const [id, seq] of this.answered) {
      if (seqOf.get(id) !== seq)
        throw new Error(`${id} was answered with ${seq}, the log has ${seqOf.get(id)}`);
    }
    await this.#checkRows();
    for (const watcher of this.watchers) {
      const own = log.filter(({ project }) => watcher.projects.includes(String(project)));
      await watcher.catchUp(own.map(({ commit_seq }) => Number(commit_seq)));
      const expected = new Map(own.map(({ row_id, payload }) => [String(row_id), String(payload)]));
      for (const [rowId, payload] of expected) {
        if (watcher.rows.get(rowId) !== payload)
          throw new Error(`${watcher.clientId} holds another ${rowId}`);
      }
    }
    await this.#checkSessions();
    return { commits: log.length };
  }

  async close(): Promise<void> {
    this.#isRunning = false;
    for (const watcher of this.watchers) watcher.end();
    await this.#close();
    // `settle` throws what they failed with; after a fault that did not end they may wait for a gateway that is gone.
    await this.#writers.catch(() => undefined);
  }

  async #begin(): Promise<void> {
    for (const watcher of this.watchers) await watcher.open();
    this.#writers = Promise.all(Array.from({ length: WRITERS }, (_, i) => this.#write(`writer-${i}`)));
    // Its failure is thrown by `settle`.
    this.#writers.catch(() => undefined);
  }

  /** Every third commit is an update of the row before. */
  async #write(clientId: string): Promise<void> {
    for (let i = 0; this.#isRunning; i++) {
      const nth = i % 3 === 2 ? i - 1 : i;
      const rowId = `${clientId}-${nth}`;
      const project = PROJECTS[nth % 2 === 0 ? 0 : 1]!;
      await this.#push({ clientId, rowId, project, title: `at ${i}`, clientCommitId: `${clientId}-c${i}` });
    }
  }

  /** The same bytes again until they are answered, also after the load was stopped. */
  async #push(push: Parameters<typeof ada.push>[0] & { readonly clientCommitId: string }): Promise<void> {
    const request = ada.push(push);
    const id = push.clientCommitId;
    for (let tries = 1; ; tries++) {
      const { status, body } = await postSync(this.url, request);
      const result = status === 200 ? frames(body).find((frame) => frame.type === 'PUSH_RESULT') : undefined;
      if (result === undefined) {
        this.refusals.push({ status, body: Buffer.from(body).toString('latin1') });
        continue;
      }
      if (result.commitSeq === undefined) throw new Error(`${id}: ${JSON.stringify(result)}`);
      if (result.status === 'cached' && tries === 1) throw new Error(`${id} was cached at its first push`);
      this.answered.set(id, result.commitSeq);
      for (const listener of this.#listeners.splice(0)) listener();
      return;
    }
  }

  /** Each row of the table is what the last commit of the log made of it. */
  async #checkRows(): Promise<void> {
    const [found] = await this.sql(
      `WITH last AS (
         SELECT DISTINCT ON (row_id) row_id, payload, row_version FROM tidegate.sync_changes
         WHERE tbl = 'notes' ORDER BY row_id, commit_seq DESC)
       SELECT count(*) FILTER (WHERE stored._sync_row_id IS NULL OR last.row_id IS NULL
           OR stored._sync_payload <> last.payload OR stored._sync_server_version <> last.row_version) AS wrong,
         count(*) AS rows
       FROM last FULL JOIN tidegate.notes AS stored ON stored._sync_row_id = last.row_id`,
    );
    if (Number(found?.wrong) !== 0 || Number(found?.rows) === 0)
      throw new Error(`${found?.wrong} wrong rows`);
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
