/** `tidegate serve` that refuses to start: code 3 and the phase, before any port is open (part 4, 4.2). */
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { openStorage } from '../../src/gateway/storage-option.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import type { CheckpointDeclaration } from '../../src/storage/checkpoints.ts';
import { type CliRun, newFolder, runProcess } from './support/cli-process.ts';
import { SCHEMA } from './support/requests.ts';

const TOTALS = { partition: 'tenant-1', name: 'totals', schemaVersion: SCHEMA.version };

interface Start {
  /** Of the database when the process starts. */
  readonly storedVersion: number;
  readonly pending: readonly CheckpointDeclaration[];
  readonly checkpoints: unknown;
}

async function serve({ storedVersion, pending, checkpoints }: Start): Promise<CliRun> {
  const folder = newFolder();
  const { storage, release } = await openStorage({ path: join(folder, 'app.db') }, createRealClock());
  await storage.ensureSchema(compileSchema({ ...SCHEMA, version: storedVersion }));
  for (const checkpoint of pending) await storage.declareCheckpoint({ ...checkpoint, nowMs: 0 });
  await release();
  const auth = { tokens: { secret: { actorId: 'ada', partition: 'tenant-1', scopes: {} } } };
  const config = { schema: SCHEMA, storage: 'sqlite:app.db', port: 0, auth, checkpoints };
  writeFileSync(join(folder, 'tidegate.json'), JSON.stringify(config));
  return runProcess(['serve', '--config', 'tidegate.json'], { folder });
}

test('4.5-10: a pending checkpoint that it does not declare, an empty list included', async () => {
  for (const checkpoints of [[], [{ ...TOTALS, name: 'another' }]]) {
    const { code, out, err } = await serve({ storedVersion: SCHEMA.version, pending: [TOTALS], checkpoints });
    expect(code).toBe(3);
    expect(out).not.toContain('listening');
    const [first, second] = err.split('\n');
    expect(first).toContain('not ready to serve (backfill_checkpoint)');
    expect(first).not.toMatch(/totals|tenant/);
    // The operator's own terminal: the cause with its code.
    expect(second).toContain('sync.storage.checkpoint_incomplete');
  }
});

test('a database of a newer version', async () => {
  const { code, err } = await serve({ storedVersion: SCHEMA.version + 1, pending: [], checkpoints: [] });
  expect(code).toBe(3);
  expect(err).toContain('not ready to serve (storage_migration)');
  expect(err).toContain('sync.storage.schema_newer');
});

test('declarations that cannot be meant are misuse', async () => {
  const start = { storedVersion: SCHEMA.version, pending: [] };
  for (const checkpoints of [
    'totals',
    [{ ...TOTALS, schemaVersion: 0 }],
    [{ name: 'totals' }],
    [{ ...TOTALS, extra: 1 }],
  ]) {
    const { code, err } = await serve({ ...start, checkpoints });
    expect(code).toBe(2);
    expect(err).toContain('checkpoints');
  }
});
