/** The gateway under test, in a process of its own: `server.ts STORAGE_URL`. Says its URL over IPC, ends on disconnect. */
import { createGateway } from '../src/gateway/gateway.ts';
import { BENCH_SCHEMA } from './schema.ts';

const [, , storageUrl = 'sqlite::memory:'] = process.argv;
const bearer = /^Bearer (\w+)$/;

const gateway = await createGateway({
  schema: BENCH_SCHEMA,
  storage: { url: storageUrl },
  authenticate: async ({ headers }) => {
    const actorId = bearer.exec(headers.get('authorization') ?? '')?.[1];
    // The token names the partition.
    return actorId === undefined ? null : { actorId, partition: actorId, expiresAtMs: null, claims: {} };
  },
  resolveScopes: () => ({ project_id: ['*'] }),
});
const { port } = await gateway.listen({ port: 0, host: '127.0.0.1' });

process.on('message', (message) => {
  if (message === 'usage') process.send?.({ rssBytes: process.memoryUsage.rss(), cpu: process.cpuUsage() });
});
process.on('disconnect', () => {
  void gateway.close().then(() => process.exit(0));
});
process.send?.({ url: `http://127.0.0.1:${port}` });
