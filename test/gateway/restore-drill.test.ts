/** What an operator does after restoring a backup (§2.1, part 2.4), on files and sockets as in production. */
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { createGateway } from '../../src/gateway/gateway.ts';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { openSqliteStorage } from '../../src/storage/sqlite/sqlite-storage.ts';
import { connectTo, gatewayOptions, startGateway } from './support/live-gateway.ts';
import { ada, encodeRequest, frameOf, frames, postSync } from './support/requests.ts';

function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-drill-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

async function serve(path: string) {
  const gateway = await createGateway(gatewayOptions({ storage: { path } }));
  const { url } = await gateway.listen({ port: 0 });
  return { gateway, url };
}

const epochRequest = (logEpoch: string): Uint8Array =>
  encodeRequest({ logEpoch }, [
    { type: 'PULL_HEADER', limitCommits: 0, limitSnapshotRows: 0, maxSnapshotPages: 0, accept: 3 },
  ]);

async function currentEpoch(url: string): Promise<string> {
  const answer = await postSync(url, epochRequest('of no partition'));
  return frameOf(answer.body, 'RESP_HEADER').logEpoch!;
}

test('S-030, S-031: a restored database is rotated before it serves; the first request is told to reset, held sockets end', async () => {
  const folder = newFolder();
  const [live, backup] = [join(folder, 'live.db'), join(folder, 'backup.db')];
  const first = await serve(live);
  await postSync(first.url, ada.push({ rowId: 'r1' }));
  const before = await currentEpoch(first.url);
  await first.gateway.close();
  copyFileSync(live, backup);

  const old = await serve(live);
  onTestFinished(() => old.gateway.close());
  await postSync(old.url, ada.push({ rowId: 'lost by the restore' }));
  const held = await connectTo(old.url, { clientId: 'held' });
  // Fence: whoever still sees the old timeline is ended before the restored one takes traffic.
  await old.gateway.rotateEpoch('tenant-1');
  expect((await held.untilClosed()).code).toBe(1012);

  const restored = await serve(backup);
  onTestFinished(() => restored.gateway.close());
  await restored.gateway.rotateEpoch('tenant-1');
  const answer = frames((await postSync(restored.url, epochRequest(before))).body);
  expect(answer).toHaveLength(1);
  expect(answer[0]).toMatchObject({ type: 'RESP_HEADER', resetRequired: true });
  const after = await currentEpoch(restored.url);
  expect(after).not.toBe(before);
  expect(after).not.toBe(await currentEpoch(old.url));
  expect(after.length).toBeGreaterThanOrEqual(16);
});

test('R-034, S-066: over the socket a cursor below the horizon is reset, one at it goes on', async () => {
  const opened = await openSqliteStorage({ path: ':memory:', clock: createRealClock() });
  onTestFinished(() => opened.storage.close());
  const live = await startGateway({ storage: opened });
  const socket = await live.connect({ clientId: 'reader' });
  for (const rowId of ['a', 'b', 'c']) {
    await postSync(live.url, ada.push({ clientId: 'writer', rowId }));
  }
  await opened.storage.pruneLog({ partition: 'tenant-1', horizon: 2, commitsMax: 10 });

  const below = await socket.round(ada.pull({ clientId: 'reader', cursor: 1 }));
  expect(frameOf(below, 'SUB_START')).toMatchObject({ status: 'reset', reasonCode: 'sync.cursor_expired' });
  expect(frameOf(below, 'SUB_END').nextCursor).toBe(1);

  const at = await socket.round(ada.pull({ clientId: 'reader', cursor: 2 }));
  expect(frameOf(at, 'SUB_START').status).toBe('active');
  expect(frames(at).filter((frame) => frame.type === 'COMMIT')).toHaveLength(1);
});
