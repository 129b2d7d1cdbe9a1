/**
 * A shared list in the terminal. Start `npm run dev`, then in two terminals:
 *
 *   npx tsx examples/node-client/main.ts dev-ada
 *   npx tsx examples/node-client/main.ts dev-ben
 *
 * Type a title to add a task, a number to tick it, `off` and `on` to leave and to return, `quit` to end.
 */
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import WebSocket from 'ws';
import { createClient } from '../../src/client/index.ts';
import { DEV_SCHEMA } from '../../src/gateway/dev-schema.ts';

interface Task {
  readonly id: string;
  readonly project_id: string;
  readonly title: string;
  readonly done: boolean;
  readonly position: number;
}

export interface ListOptions {
  readonly url: string;
  readonly token: string;
  /** Lines as a person types them. */
  readonly input: NodeJS.ReadableStream;
  readonly print: (text: string) => void;
}

/** Resolves when the input has ended or said `quit`. */
export async function runList({ url, token, input, print }: ListOptions): Promise<void> {
  const client = createClient<{ tasks: Task }>({ url, token, schema: DEV_SCHEMA, webSocket: WebSocket });

  const tasks = (): Task[] =>
    [...client.rows('tasks')].sort((a, b) => a.position - b.position || (a.id < b.id ? -1 : 1));

  const show = (): void => {
    const lines = tasks().map(({ id, title, done }, index) => {
      const mark = client.isPending('tasks', id) ? '~' : ' ';
      return `${mark}${index + 1}. [${done ? 'x' : ' '}] ${title}\n`;
    });
    print(`\n${lines.join('')}(${client.status.state}, ${client.status.pendingCommits} waiting)\n`);
  };

  const write = async (row: Task, baseVersion: number): Promise<void> => {
    const outcome = await client.mutate([{ table: 'tasks', op: 'upsert', row, baseVersion }]).settled;
    if (outcome.status !== 'rejected') return;
    const kept = outcome.conflict === null ? '' : `; the server has "${outcome.conflict.serverRow.title}"`;
    print(`not taken (${outcome.code})${kept}\n`);
  };

  const obey = async (text: string): Promise<void> => {
    const task = tasks()[Number(text) - 1];
    if (text === 'off') client.disconnect();
    else if (text === 'on') client.connect();
    else if (task !== undefined) await write({ ...task, done: !task.done }, client.version('tasks', task.id));
    else if (text !== '') {
      const id = crypto.randomUUID();
      await write({ id, project_id: 'shared', title: text, done: false, position: tasks().length }, 0);
    }
  };

  client.onChange('tasks', show);
  client.onStatus(show);
  client.subscribe({ table: 'tasks', scopes: { project_id: 'shared' } });
  client.connect();
  for await (const line of createInterface({ input })) {
    if (line.trim() === 'quit') break;
    void obey(line.trim());
  }
  await client.close();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [token = 'dev-ada', url = 'http://127.0.0.1:8787'] = process.argv.slice(2);
  await runList({ url, token, input: process.stdin, print: (text) => process.stdout.write(text) });
}
