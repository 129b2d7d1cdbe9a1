import type { AddressInfo } from 'node:net';
import { fileURLToPath } from 'node:url';
import { expect, onTestFinished, test } from 'vitest';
import { startHost } from '../../examples/embed-in-http-server.ts';
import { runStory } from '../../examples/online-backfill/main.ts';
import { runTwoClients } from '../../examples/two-clients.ts';
import { resolveConfig } from '../../src/gateway/config.ts';
import { readConfigFile } from '../../src/gateway/config-file.ts';
import { createGateway } from '../../src/gateway/gateway.ts';
import { gatewayOptions } from '../../src/gateway/serve.ts';
import { call, json } from './support/http-client.ts';
import { RoundSocket } from './support/round-socket.ts';

test('examples/two-clients.ts: what one writes, the other sees', async () => {
  const lines: string[] = [];
  await runTwoClients((line) => lines.push(line));
  expect(lines).toContain('ada sees at once: write it once');
  expect(lines).toContain('the server says: applied');
  expect(lines).toContain('ben sees: write it once');
});

test('examples/embed-in-http-server.ts: pages of the host, a ticket opens one socket', async () => {
  const host = await startHost(0);
  onTestFinished(() => host.close());
  const { port } = host.server.address() as AddressInfo;
  const url = `http://127.0.0.1:${port}`;
  expect((await call(`${url}/`)).body.toString()).toContain('A page of the host');
  const headers = { authorization: 'Bearer session-of-ada' };
  const { ticket } = json(await call(`${url}/tickets`, { method: 'POST', headers })) as { ticket: string };
  const address = `ws://127.0.0.1:${port}/sync-api/realtime?clientId=c1&ticket=${ticket}`;
  const socket = new RoundSocket(address);
  expect(await socket.control('hello')).toMatchObject({ actorId: 'ada' });
  await expect(new RoundSocket(address).control('hello')).rejects.toThrow();
  socket.end();
});

test('examples/host-config.ts is a configuration that starts', async () => {
  const path = fileURLToPath(new URL('../../examples/host-config.ts', import.meta.url));
  const file = await readConfigFile(path);
  const flags = { '--storage': 'sqlite::memory:' };
  const config = resolveConfig({ flags, env: {}, file, workingFolder: '/' });
  const gateway = await createGateway(await gatewayOptions(config));
  await gateway.close();
});

test('examples/online-backfill: fenced, waited, interrupted, activated, continued', async () => {
  const lines: string[] = [];
  const { summaries, expected, statesOfBen } = await runStory((line) => lines.push(line));
  expect(summaries).toEqual(expected);
  expect(summaries).toHaveLength(3);
  const story = lines.join('\n');
  for (const part of [
    '/readyz says 503',
    'sync.storage.writer_fence_rejected',
    'server-upgrading, 1 commit waits in her outbox',
    'was interrupted after 600 rows: cancelled',
    'activated after 1200 rows',
    'schema-floor',
  ]) {
    expect(story).toContain(part);
  }
  // From the refusal on he is never without his connection.
  const waiting = statesOfBen.indexOf('server-upgrading');
  expect(waiting).toBeGreaterThan(-1);
  expect(statesOfBen.slice(waiting)).not.toContain('connecting');
  expect(statesOfBen.slice(waiting)).not.toContain('offline');
  expect(statesOfBen.at(-1)).toBe('live');
}, 60_000);
