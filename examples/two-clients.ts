/** A gateway and two clients in one process: what one writes, the other sees. `npx tsx examples/two-clients.ts` */
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import WebSocket from 'ws';
import { createClient } from '../src/client/index.ts';
import { createGateway, createStaticTokens, type SchemaDocument } from '../src/index.ts';

interface Task {
  readonly id: string;
  readonly project_id: string;
  readonly title: string;
  readonly done: boolean;
  readonly position: number;
}
type Tables = { readonly tasks: Task };

const schema = JSON.parse(readFileSync(new URL('./schema.json', import.meta.url), 'utf8')) as SchemaDocument;

const tokens = createStaticTokens(
  new Map(
    ['ada', 'ben'].map((actorId) => [
      `token-of-${actorId}`,
      { actorId, partition: 'acme', scopes: { project_id: ['p1'] }, expiresAtMs: null },
    ]),
  ),
);

export async function runTwoClients(print: (line: string) => void): Promise<void> {
  const gateway = await createGateway({ schema, storage: { path: ':memory:' }, ...tokens });
  const { url } = await gateway.listen({ port: 0 });
  const connect = async (actorId: string) => {
    const client = createClient<Tables>({ url, schema, token: `token-of-${actorId}`, webSocket: WebSocket });
    const tasks = client.subscribe({ table: 'tasks', scopes: { project_id: 'p1' } });
    client.connect();
    await tasks.ready;
    return client;
  };
  const [ada, ben] = await Promise.all([connect('ada'), connect('ben')]);

  const seenByBen = new Promise<void>((resolve) => {
    ben.onChange('tasks', () => {
      const [task] = ben.rows('tasks');
      print(`ben sees: ${task?.title}`);
      resolve();
    });
  });
  const row = { id: 't1', project_id: 'p1', title: 'write it once', done: false, position: 1 };
  const { settled } = ada.mutate([{ table: 'tasks', op: 'upsert', row }]);
  print(`ada sees at once: ${ada.get('tasks', 't1')?.title}`);
  print(`the server says: ${(await settled).status}`);
  await seenByBen;

  await Promise.all([ada.close(), ben.close()]);
  await gateway.close();
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  await runTwoClients((line) => process.stdout.write(`${line}\n`));
}
