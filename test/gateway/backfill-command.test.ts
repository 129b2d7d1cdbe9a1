/** `tidegate backfill` as an operator runs it, on both storages: real processes, interrupted, and run again. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { openStorage } from '../../src/gateway/storage-option.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { admitTo, write } from '../contract/storage/fixture.ts';
import { DOCUMENT_2, SCHEMA_1, SCHEMA_2, task } from '../session/support/backfill-fixture.ts';
import { newFolder, runProcess } from './support/cli-process.ts';
import { DATABASES } from './support/new-database.ts';

const BIN = fileURLToPath(new URL('../../src/gateway/bin.ts', import.meta.url));

/** The totals by project, computed anew from the tasks of the projects in each batch. `hold` prints and waits in the first batch. */
function configModule(storage: string, extra = ''): string {
  return `
export default {
  schema: ${JSON.stringify(DOCUMENT_2)},
  storage: ${JSON.stringify(storage)},
  authenticate: async () => null,
  resolveScopes: () => ({}),
  ${extra}
  backfills: {
    totals: {
      sources: ['tasks'],
      batch: async ({ rows, reader }) => {
        if (process.env.HOLD_AT === rows[0]?.rowId) {
          process.stderr.write('held\\n');
          await new Promise((resolve) => process.once('SIGINT', resolve));
        }
        const projects = [...new Set(rows.map(({ scopes }) => scopes.project))];
        return Promise.all(projects.map(async (project) => {
          const found = await reader.scanRows({ table: 'tasks', scopeFilter: { project: [project] }, limit: 1000 });
          const points = found.reduce((sum, { row }) => sum + row.points, 0);
          return { table: 'totals', rowId: project, row: { project, tasks: found.length, points } };
        }));
      },
    },
  },
};
`;
}

async function prepare(storage: Storage, partitions: readonly string[]): Promise<void> {
  await storage.ensureSchema(SCHEMA_1);
  for (const partition of partitions) {
    await admitTo(storage, partition);
    await write(
      storage,
      partition,
      Array.from({ length: 40 }, (_, n) => task(`t${String(n).padStart(2, '0')}`, `p${n % 4}`, n)),
    );
  }
  await storage.ensureSchema(
    SCHEMA_2,
    partitions.map((partition) => ({ partition, name: 'totals', schemaVersion: 2 })),
  );
}

describe.each(DATABASES)('%s', (_name, makeUrl) => {
  test('two partitions at a time, lines for a log, and nothing left to do', async () => {
    const folder = newFolder();
    const url = await makeUrl(folder);
    writeFileSync(join(folder, 'app.mjs'), configModule(url));
    const { storage, release } = await openStorage({ url }, createRealClock());
    onTestFinished(release);
    const partitions = ['a', 'b', 'c'];
    await prepare(storage, partitions);
    const run = (...args: readonly string[]) =>
      runProcess(['backfill', '--config', 'app.mjs', ...args], { folder });

    const one = await run('--partition', 'b');
    expect(one).toMatchObject({ code: 0, err: '' });
    expect(one.out).toContain('"b" "totals" (1 of 1): begins, 40 source rows\n');
    expect(one.out).toContain('"b" "totals" (1 of 1): activated, 40 source rows seen, 4 rows written\n');
    expect(one.out).toMatch(/follow, 40\/40 rows, \d+\/s, watermark \d+ of \d+, /);
    expect((await storage.readCheckpoints('a')).get('totals')!.state).toBe('declared');

    expect(await run('--name', 'other')).toMatchObject({
      code: 0,
      out: expect.stringMatching(/nothing to do/),
    });
    expect(await run('--concurrency', '2')).toMatchObject({ code: 0 });
    for (const partition of partitions) {
      expect((await storage.readCheckpoints(partition)).get('totals')!.state).toBe('activated');
    }
    expect(await run()).toEqual({
      code: 0,
      out: 'nothing to do: no backfill of this schema version is pending\n',
      err: '',
    });
  });

  test('SIGINT ends it behind the batch that runs, and the next run goes on from there', async () => {
    const folder = newFolder();
    const url = await makeUrl(folder);
    writeFileSync(join(folder, 'app.mjs'), configModule(url));
    const { storage, release } = await openStorage({ url }, createRealClock());
    onTestFinished(release);
    await prepare(storage, ['a']);
    const child = spawn(
      process.execPath,
      [
        '--import',
        import.meta.resolve('tsx'),
        BIN,
        'backfill',
        '--config',
        'app.mjs',
        '--limit-backfill-batch-rows-max',
        '10',
      ],
      { cwd: folder, env: { PATH: process.env.PATH, HOLD_AT: 't10' }, stdio: ['ignore', 'pipe', 'pipe'] },
    );
    onTestFinished(() => void child.kill('SIGKILL'));
    let err = '';
    await new Promise<void>((resolve) => {
      child.stderr.on('data', (chunk: Buffer) => {
        err += chunk.toString();
        if (err.includes('held')) resolve();
      });
    });
    child.kill('SIGINT');
    const [code] = await once(child, 'exit');
    expect(code).toBe(1);
    const stopped = (await storage.readCheckpoints('a')).get('totals')!;
    expect(stopped).toMatchObject({ state: 'backfilling', observedRows: 20 });
    expect(stopped.scan).toMatchObject({ table: 'tasks', afterRowId: 't19' });
    const again = await runProcess(['backfill', '--config', 'app.mjs'], { folder });
    expect(again).toMatchObject({ code: 0 });
    expect((await storage.readCheckpoints('a')).get('totals')!).toMatchObject({
      state: 'activated',
      observedRows: 40,
    });
  });
});

test('a projection without a new schema version is declared first, where that is asked for', async () => {
  const folder = newFolder();
  const url = `sqlite:${join(folder, 'app.db')}`;
  const checkpoints = `checkpoints: [{ partition: 'a', name: 'totals', schemaVersion: 2 }],`;
  writeFileSync(join(folder, 'app.mjs'), configModule(url, checkpoints));
  const { storage, release } = await openStorage({ url }, createRealClock());
  onTestFinished(release);
  await storage.ensureSchema(SCHEMA_2);
  await admitTo(storage, 'a');
  await write(storage, 'a', [task('t1', 'p1', 5)]);
  const run = (...args: readonly string[]) =>
    runProcess(['backfill', '--config', 'app.mjs', ...args], { folder });
  expect((await run()).out).toMatch(/nothing to do/);
  expect(await run('--declare')).toMatchObject({ code: 0 });
  expect((await storage.readCheckpoints('a')).get('totals')).toMatchObject({ state: 'activated' });
});

test('what cannot be meant is misuse (code 2), and nothing is claimed', async () => {
  const folder = newFolder();
  const url = `sqlite:${join(folder, 'app.db')}`;
  const { storage, release } = await openStorage({ url }, createRealClock());
  onTestFinished(release);
  await prepare(storage, ['a']);
  const config = configModule(url);
  const cases: readonly (readonly [string, readonly string[], RegExp])[] = [
    [
      config.replace('totals: {', 'ranks: {'),
      [],
      /checkpoint totals is pending, and the configuration has no backfills.totals/,
    ],
    [config.replace("sources: ['tasks']", "sources: 'tasks'"), [], /backfills.totals in .* must be/],
    [
      config.replace("sources: ['tasks']", "sources: ['tasks'], table: 1"),
      [],
      /backfills.totals in .* must be/,
    ],
    [config, ['--concurrency', '0'], /--concurrency/],
  ];
  for (const [text, args, message] of cases) {
    writeFileSync(join(folder, 'app.mjs'), text);
    const { code, err } = await runProcess(['backfill', '--config', 'app.mjs', ...args], { folder });
    expect(err).toMatch(message);
    expect(code).toBe(2);
  }
  expect((await storage.readCheckpoints('a')).get('totals')!.ownerEpoch).toBe(0);
});

test('a database at another version: the backfill says so and changes nothing', async () => {
  const folder = newFolder();
  const url = `sqlite:${join(folder, 'app.db')}`;
  const { storage, release } = await openStorage({ url }, createRealClock());
  onTestFinished(release);
  await prepare(storage, ['a']);
  const older = configModule(url).replace('"version":2', '"version":3');
  writeFileSync(join(folder, 'app.mjs'), older);
  // Checkpoints of version 2 are none of a backfill of version 3.
  expect((await runProcess(['backfill', '--config', 'app.mjs'], { folder })).out).toMatch(/nothing to do/);
});
