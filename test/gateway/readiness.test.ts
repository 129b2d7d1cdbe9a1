/** What `/readyz` says of a storage that fails, hangs or was migrated by somebody else, and what the log says of it. */
import { expect, onTestFinished, test } from 'vitest';
import type { GatewayLogger } from '../../src/gateway/logger.ts';
import { ReadinessProbe } from '../../src/gateway/readiness.ts';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import { NOTHING_DECLARED } from '../../src/session/sync/declarations.ts';
import { openSqliteStorage } from '../../src/storage/sqlite/sqlite-storage.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { StorageError } from '../../src/storage/storage-error.ts';
import { interceptStorage, Latch } from '../support/intercepted-storage.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { call } from './support/http-client.ts';
import { startGateway } from './support/live-gateway.ts';
import { SCHEMA } from './support/requests.ts';

async function openMemory() {
  const opened = await openSqliteStorage({ path: ':memory:', clock: createRealClock() });
  onTestFinished(() => opened.storage.close());
  await opened.storage.ensureSchema(compileSchema(SCHEMA));
  return opened;
}

function recordingLogger(): { readonly lines: string[]; readonly logger: GatewayLogger } {
  const lines: string[] = [];
  const at = (level: string) => (_fields: object, message: string) => void lines.push(`${level} ${message}`);
  return {
    lines,
    logger: { debug: at('debug'), info: at('info'), warn: at('warn'), error: at('error') },
  };
}

function probeOf(storage: Storage) {
  const { lines, logger } = recordingLogger();
  const clock = new ManualClock();
  const limits = { readinessTimeoutMs: 2_000 };
  const parts = { storage, schemaVersion: SCHEMA.version, declarations: NOTHING_DECLARED };
  return { probe: new ReadinessProbe({ ...parts, limits, clock, logger }), clock, lines };
}

const DOWN = { status: 'unavailable', phase: 'storage', pending: [] };

test('a storage that fails: 503 with its phase, and a line when that changes, not per probe', async () => {
  const { storage } = await openMemory();
  let isDown = false;
  const { probe, lines } = probeOf(
    interceptStorage(storage, ({ method }) => {
      if (isDown && method === 'ping') throw new StorageError('sync.storage.unavailable', 'away');
    }),
  );
  expect(await probe.ask()).toEqual({ status: 'ready' });
  isDown = true;
  for (let n = 0; n < 3; n++) expect(await probe.ask()).toEqual(DOWN);
  isDown = false;
  for (let n = 0; n < 3; n++) expect(await probe.ask()).toEqual({ status: 'ready' });
  expect(lines).toEqual(['error the storage does not answer', 'info the storage answers again']);
});

test('a storage that hangs: each probe is answered in time, and the storage is asked once', async () => {
  const { storage } = await openMemory();
  const latch = new Latch();
  let asked = 0;
  const { probe, clock, lines } = probeOf(
    interceptStorage(storage, async ({ method }) => {
      if (method !== 'ping') return;
      asked++;
      await latch.opened;
    }),
  );
  const first = probe.ask();
  clock.advance(1_999);
  const second = probe.ask();
  clock.advance(1);
  expect(await first).toEqual(DOWN);
  clock.advance(1_999);
  expect(await second).toEqual(DOWN);
  expect(asked).toBe(1);
  latch.open();
  // The late answer itself tells nobody that the storage is up again.
  await clock.settle();
  expect(lines).toEqual(['error the storage does not answer']);
  expect(await probe.ask()).toEqual({ status: 'ready' });
  expect(lines).toEqual(['error the storage does not answer', 'info the storage answers again']);
});

test('another process has migrated the database: not ready, in phase storage_migration', async () => {
  const opened = await openMemory();
  const live = await startGateway({ storage: opened, operatorToken: 'operator' });
  const readyz = (headers = {}) => call(`${live.url}/readyz`, { headers });
  expect((await readyz()).status).toBe(200);
  await opened.storage.ensureSchema(compileSchema({ ...SCHEMA, version: SCHEMA.version + 1 }));
  const answer = await readyz({ authorization: 'Bearer operator' });
  expect([answer.status, answer.headers['retry-after']]).toEqual([503, '1']);
  expect(JSON.parse(answer.body.toString())).toEqual({ status: 'unavailable', phase: 'storage_migration' });
});
