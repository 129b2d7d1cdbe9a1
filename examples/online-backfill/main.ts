/**
 * A derived table is added while clients stay connected (docs/BACKFILL.md): `npx tsx examples/online-backfill/main.ts`.
 * Version 1 runs with data and a client; version 2 starts beside it; the old process is fenced, clients wait, the backfill is
 * interrupted, goes on, activates; the clients continue.
 */
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import Database from 'better-sqlite3';
import WebSocket from 'ws';
import { type Client, createClient } from '../../src/client/index.ts';
import { createGateway, type Gateway, type SchemaDocument } from '../../src/index.ts';
import { CHECKPOINT, PARTITION, PROJECTS, summarize, tokens, VERSION_1, VERSION_2 } from './app.ts';

interface Task {
  readonly id: string;
  readonly project_id: string;
  readonly title: string;
  readonly done: boolean;
}
interface Summary {
  readonly project_id: string;
  readonly open: number;
  readonly done: number;
}
type Tables = { readonly tasks: Task; readonly summaries: Summary };

const TASKS = 1_200;
const TASKS_PER_COMMIT = 200;
/** Clients of this story ask again soon. */
const LIMITS = { backoffFirstMs: 100, backoffMaxMs: 400 };

export interface Story {
  /** As every client that may see it saw it in the end. */
  readonly summaries: readonly Summary[];
  /** Counted from the tasks themselves. */
  readonly expected: readonly Summary[];
  readonly statesOfBen: readonly string[];
}

export async function runStory(print: (line: string) => void): Promise<Story> {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-story-'));
  const path = join(folder, 'app.db');
  const startMs = performance.now();
  const tell = (who: string, what: string): void => {
    print(`${`+${Math.round(performance.now() - startMs)} ms`.padStart(9)}  ${who.padEnd(9)} ${what}`);
  };
  const old = fork(fileURLToPath(new URL('old-version.ts', import.meta.url)), [path], {
    execArgv: ['--import', import.meta.resolve('tsx')],
  });
  const closing: (() => Promise<unknown>)[] = [];
  try {
    const [oldUrl] = (await once(old, 'message')) as [string];
    tell('version 1', 'serves');
    return await tellStory({ oldUrl, path, tell, closing });
  } finally {
    for (const close of closing.toReversed()) await close();
    if (old.exitCode === null) {
      old.disconnect();
      await once(old, 'exit');
    }
    rmSync(folder, { recursive: true, force: true });
  }
}

interface Stage {
  readonly oldUrl: string;
  readonly path: string;
  readonly tell: (who: string, what: string) => void;
  readonly closing: (() => Promise<unknown>)[];
}

async function tellStory({ oldUrl, path, tell, closing }: Stage): Promise<Story> {
  const join = (actorId: string, url: string, schema: SchemaDocument): Client<Tables> => {
    const token = `token-of-${actorId}`;
    const client = createClient<Tables>({ url, schema, token, webSocket: WebSocket, limits: LIMITS });
    closing.push(() => client.close());
    client.subscribe({ table: 'tasks', scopes: { project_id: PROJECTS } });
    if (schema.version === 2) client.subscribe({ table: 'summaries', scopes: { project_id: PROJECTS } });
    client.connect();
    return client;
  };

  const ada = join('ada', oldUrl, VERSION_1);
  await addTasks(ada);
  tell('ada', `is live on version 1 and has written ${TASKS} tasks`);

  const gateway = await createGateway({
    schema: VERSION_2,
    storage: { path },
    checkpoints: [CHECKPOINT],
    // Small batches, so that there is something to interrupt.
    limits: { backfillBatchRowsMax: 100 },
    ...tokens(),
  });
  closing.push(() => gateway.close());
  const { url } = await gateway.listen({ port: 0 });
  tell(
    'version 2',
    'started: one transaction stored the version, declared the checkpoint and raised the fence',
  );
  tell('version 2', `/readyz says ${(await fetch(`${url}/readyz`)).status} while the checkpoint is pending`);

  tell('database', `refuses a program that writes the log by itself: ${refusalOfOldWriter(path)}`);
  await write(ada, 'late', false);
  tell(
    'ada',
    `wrote at version 1: ${ada.status.state}, ${ada.status.pendingCommits} commit waits in her outbox`,
  );

  const ben = join('ben', url, VERSION_2);
  const statesOfBen: string[] = [];
  ben.onStatus(({ state }) => void (statesOfBen.at(-1) === state || statesOfBen.push(state)));
  await ben.until(({ state }) => state === 'server-upgrading');
  await write(ben, 'early', true);
  tell(
    'ben',
    `has the new application: ${ben.status.state}, connected, ${ben.status.pendingCommits} commit waits`,
  );

  await interruptedBackfill(gateway, tell);

  await ben.until(({ state, pendingCommits }) => state === 'live' && pendingCommits === 0);
  tell('ben', `is live on the connection he had: ${JSON.stringify(ben.rows('summaries').map(text))}`);

  const eve = join('eve', url, VERSION_1);
  const stopped = await until(eve, ({ state }) => state === 'stopped');
  tell('eve', `still has the old application: ${stopped.stopReason?.kind}, she has to load the new one`);
  return {
    summaries: sorted(ben.rows('summaries')),
    expected: counted(ben.rows('tasks'), ['early']),
    statesOfBen: [...statesOfBen],
  };
}

async function addTasks(client: Client<Tables>): Promise<void> {
  for (let from = 0; from < TASKS; from += TASKS_PER_COMMIT) {
    const rows = Array.from({ length: TASKS_PER_COMMIT }, (_, i) => from + i).map((n) => ({
      id: `task-${String(n).padStart(4, '0')}`,
      project_id: PROJECTS[n % PROJECTS.length]!,
      title: `Task ${n}`,
      done: n % 4 === 0,
    }));
    const { settled } = client.mutate(rows.map((row) => ({ table: 'tasks', op: 'upsert', row })));
    const { status } = await settled;
    if (status !== 'applied') throw new Error(`the first tasks were ${status}`);
  }
}

/** Resolves once it waits, not once it is stored. */
async function write(client: Client<Tables>, id: string, done: boolean): Promise<void> {
  client.mutate([{ table: 'tasks', op: 'upsert', row: { id, project_id: 'apollo', title: id, done } }]);
  await client.until(({ state, pendingCommits }) => state === 'server-upgrading' && pendingCommits > 0);
}

/** What a build does that is older than the gate: nothing but the database can stop it. */
function refusalOfOldWriter(path: string): string {
  const database = new Database(path, { timeout: 5_000 });
  try {
    database.exec(
      `INSERT INTO sync_commits (partition, commit_seq, client_id, client_commit_id, actor_id, created_at_ms)
       VALUES ('${PARTITION}', 1000000, 'old', 'old-1', 'ada', 0)`,
    );
    return 'no, it let it in';
  } catch (refusal) {
    return refusal instanceof Error ? refusal.message : String(refusal);
  } finally {
    database.close();
  }
}

async function interruptedBackfill(gateway: Gateway, tell: Stage['tell']): Promise<void> {
  const request = { partition: PARTITION, name: CHECKPOINT.name, sources: ['tasks'], batch: summarize };
  const interrupt = new AbortController();
  const first = await gateway.runBackfill({
    ...request,
    signal: interrupt.signal,
    onProgress: ({ observedRows }) => void (observedRows >= TASKS / 2 && interrupt.abort()),
  });
  tell('backfill', `was interrupted after ${first.observedRows} rows: ${first.status}`);
  const second = await gateway.runBackfill(request);
  tell('backfill', `went on behind them: ${second.status} after ${second.observedRows} rows`);
}

async function until(client: Client<Tables>, holds: (status: Client<Tables>['status']) => boolean) {
  if (holds(client.status)) return client.status;
  return new Promise<Client<Tables>['status']>((resolve) => {
    const remove = client.onStatus((status) => {
      if (!holds(status)) return;
      remove();
      resolve(status);
    });
  });
}

const text = ({ project_id, open, done }: Summary): string => `${project_id}: ${open} open, ${done} done`;

function sorted(summaries: readonly Summary[]): readonly Summary[] {
  return [...summaries].sort((a, b) => (a.project_id < b.project_id ? -1 : 1));
}

/** `except`: written after the activation. From then on the application itself keeps the summaries. */
function counted(tasks: readonly Task[], except: readonly string[]): readonly Summary[] {
  return PROJECTS.map((project_id) => {
    const own = tasks.filter((task) => task.project_id === project_id && !except.includes(task.id));
    const done = own.filter((task) => task.done).length;
    return { project_id, open: own.length - done, done };
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { summaries, expected } = await runStory((line) => process.stdout.write(`${line}\n`));
  const isRight = JSON.stringify(summaries) === JSON.stringify(expected);
  process.stdout.write(isRight ? 'the summaries are right\n' : 'the summaries are WRONG\n');
  process.exitCode = isRight ? 0 : 1;
}
