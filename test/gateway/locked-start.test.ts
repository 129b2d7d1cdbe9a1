/** A gateway that starts while another process holds the database waits for it; it does not end without a word. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import Database from 'better-sqlite3';
import { expect, onTestFinished, test } from 'vitest';

const START = `
import { createGateway } from './src/gateway/gateway.ts';
process.stdout.write('starting\\n');
const gateway = await createGateway({
  schema: { version: 1, tables: [] },
  storage: { path: process.argv[1] },
  authenticate: () => null,
  resolveScopes: () => ({}),
});
process.stdout.write('started\\n');
await gateway.close();
`;

test('a start that waits for the lock of another process outlives the wait', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-locked-'));
  const path = join(folder, 'app.db');
  const holder = new Database(path);
  onTestFinished(() => {
    holder.close();
    rmSync(folder, { recursive: true, force: true });
  });
  holder.pragma('journal_mode = WAL');
  holder.exec('BEGIN IMMEDIATE');
  const child = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '--eval', START, path], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  expect((await lines.next()).value).toBe('starting');
  // Long enough for the event loop of the other process to run dry, were there nothing to hold it.
  await Promise.race([exited, once(AbortSignal.timeout(500), 'abort')]);
  holder.exec('COMMIT');
  expect((await lines.next()).value).toBe('started');
  expect((await exited)[0]).toBe(0);
});
