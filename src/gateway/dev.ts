/** `tidegate dev`: a gateway to try things on, with an embedded database, a schema, two users, and at first a demo. Never for production. */
import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { createStaticTokens } from './auth.ts';
import { type CliIo, EXIT, type ExitCode } from './cli-io.ts';
import { runDemo } from './demo/demo.ts';
import { styleOf } from './demo/demo-command.ts';
import { DEV_SCHEMA } from './dev-schema.ts';
import { DEV_TOKENS } from './dev-tokens.ts';
import { createGateway } from './gateway.ts';
import { LOCAL_ORIGINS } from './origins.ts';
import { createPinoLogger } from './pino-logger.ts';

export interface DevSettings {
  readonly host: string;
  readonly port: number;
  readonly logLevel: string;
}

const FOLDER = '.tidegate';

/** What to type depends on how this program runs: out of a checkout, or as an installed package. */
const HOW = import.meta.url.endsWith('.ts')
  ? { client: './src/client/index.ts', run: 'npx tsx', demo: 'npm run demo' }
  : { client: 'tidegate/client', run: 'node', demo: 'npx tidegate demo' };
const RULE = '-'.repeat(72);

export async function dev(settings: DevSettings, io: CliIo): Promise<ExitCode> {
  if (io.env.NODE_ENV === 'production') {
    io.stderr('tidegate dev has fixed, public tokens and refuses to run with NODE_ENV=production.\n');
    io.stderr('Use tidegate serve --config FILE.\n');
    return EXIT.misused;
  }
  const folder = join(io.workingFolder, FOLDER);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'dev-schema.json'), `${JSON.stringify(DEV_SCHEMA, null, 2)}\n`);
  const path = join(folder, 'dev.db');
  const isFirstStart = !existsSync(path);
  const gateway = await createGateway({
    schema: DEV_SCHEMA,
    storage: { path, synchronous: 'NORMAL' },
    ...createStaticTokens(DEV_TOKENS),
    // Pages of other development servers on this machine may connect; others must not, the tokens are public.
    allowedOrigins: [LOCAL_ORIGINS],
    logger: createPinoLogger(settings.logLevel, 'stderr'),
  });
  try {
    const { url } = await gateway.listen({ host: settings.host, port: settings.port });
    const stopped = io.untilStopped();
    // Whoever starts it for the first time sees it work; the demo leaves nothing behind.
    if (isFirstStart) await runDemo({ url, write: io.stdout, style: styleOf(io) });
    io.stdout(welcome(url));
    await stopped;
    io.stdout('\nstopping\n');
  } finally {
    await gateway.close();
  }
  return EXIT.ok;
}

function welcome(url: string): string {
  return `Tidegate is running for development.

  HTTP rounds   POST ${url}/sync
  Realtime      ${url.replace(/^http/, 'ws')}/realtime?clientId=<id>&token=<token>
  Health        ${url}/healthz  ${url}/readyz
  Database      ./${FOLDER}/dev.db
  Schema        ./${FOLDER}/dev-schema.json   (projects, tasks, comments; scope project:{project_id})
  Tokens        dev-ada   every project
                dev-ben   the project "shared" only

Try it: save the lines between the rules as try.mjs here, run \`${HOW.run} try.mjs\` in one terminal and
\`TOKEN=dev-ben ${HOW.run} try.mjs\` in another.

${RULE}
${snippet(url)}${RULE}

Two clients that share a list, as at the first start: ${HOW.demo}
Stop with Ctrl+C.
`;
}

function snippet(url: string): string {
  return `import { readFileSync } from 'node:fs';
import { createClient } from '${HOW.client}';
import WebSocket from 'ws';

const schema = JSON.parse(readFileSync('./${FOLDER}/dev-schema.json', 'utf8'));
const token = process.env.TOKEN ?? 'dev-ada';
const client = createClient({ url: '${url}', token, schema, webSocket: WebSocket });
const subscription = client.subscribe({ table: 'tasks', scopes: { project_id: 'shared' } });
client.onChange('tasks', () => process.stdout.write(JSON.stringify(client.rows('tasks')) + '\\n'));
client.connect();
await subscription.ready;
const task = { id: crypto.randomUUID(), project_id: 'shared', title: 'from ' + token, done: false, position: 1 };
client.mutate([{ table: 'tasks', op: 'upsert', row: task }]);
`;
}
