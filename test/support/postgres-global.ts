/**
 * One PostgreSQL server per test run, started when the first test file asks for it: a run of other files costs nothing. Test
 * files run in processes of their own, so they ask over a socket. `TIDEGATE_TEST_PG_URL` names another server instead.
 */
import { createServer } from 'node:net';
import type { TestProject } from 'vitest/node';
import { PostgresCluster } from './postgres-cluster.ts';

declare module 'vitest' {
  export interface ProvidedContext {
    /** Where `serverUrl` asks. */
    readonly postgresPort: number;
  }
}

/** How an answer that is a failure begins; an address never does. */
export const FAILURE = '!';

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  let cluster: Promise<PostgresCluster> | null = null;
  const broker = createServer((socket) => {
    cluster ??= PostgresCluster.start();
    cluster.then(
      ({ url }) => socket.end(url),
      (error: unknown) => socket.end(`${FAILURE}${error}`),
    );
    // A test file that is stopped while it waits.
    socket.on('error', () => socket.destroy());
  });
  await new Promise<void>((resolve, reject) => {
    broker.once('error', reject);
    broker.listen(0, '127.0.0.1', resolve);
  });
  const address = broker.address();
  project.provide('postgresPort', typeof address === 'object' && address !== null ? address.port : 0);
  return async () => {
    broker.close();
    await cluster?.then(
      (started) => started.dispose(),
      () => undefined,
    );
  };
}
