/** `tidegate rotate-epoch` as an operator runs it after a restore, also beside gateways that serve (§2.1, part 2.4). */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { openStorage } from '../../src/gateway/storage-option.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { startRig } from '../client/gateway-rig.ts';
import { task, titles } from '../client/harness.ts';
import { createTestDatabase } from '../support/postgres-server.ts';
import { newFolder, runProcess } from './support/cli-process.ts';

interface Target {
  readonly folder: string;
  readonly url: string;
}

async function sqliteTarget(): Promise<Target> {
  const folder = newFolder();
  return { folder, url: `sqlite:${join(folder, 'app.db')}` };
}

async function postgresTarget(): Promise<Target> {
  const database = await createTestDatabase();
  onTestFinished(() => database.drop());
  return { folder: newFolder(), url: database.url };
}

function rotate({ folder, url }: Target, ...args: readonly string[]) {
  return runProcess(['rotate-epoch', ...args], { folder, env: { TIDEGATE_STORAGE: url } });
}

async function storageOf({ url }: Target): Promise<Storage> {
  const { storage, release } = await openStorage({ url }, createRealClock());
  onTestFinished(release);
  return storage;
}

async function epochs(storage: Storage): Promise<Map<string, string>> {
  const states = await storage.listPartitions({ afterPartition: null, max: 1_000 });
  return new Map(states.map(({ partition, logEpoch }) => [partition, logEpoch]));
}

const admit = (storage: Storage, partition: string) =>
  storage.admit({ partition, clientId: 'c', newLogEpoch: `first of ${partition}`, nowMs: 1 });

describe.each([
  ['SQLite', sqliteTarget],
  ['PostgreSQL', postgresTarget],
])('%s', (_name, makeTarget) => {
  test('S-032: one partition gets a new epoch, old and new are printed, the others keep theirs', async () => {
    const target = await makeTarget();
    const storage = await storageOf(target);
    await admit(storage, 'acme "1"');
    await admit(storage, 'other');
    const { code, out, err } = await rotate(target, '--partition', 'acme "1"');
    expect({ code, err }).toEqual({ code: 0, err: '' });
    const after = await epochs(storage);
    const next = after.get('acme "1"')!;
    expect(out).toBe(`"acme \\"1\\"": first of acme "1" -> ${next}\n`);
    expect(next.length).toBeGreaterThanOrEqual(16);
    expect(after.get('other')).toBe('first of other');
  });

  test('S-032: --all rotates every partition, over several pages, each to an epoch of its own', async () => {
    const target = await makeTarget();
    const storage = await storageOf(target);
    const names = Array.from({ length: 300 }, (_, i) => `p${i}`);
    for (const name of names) await admit(storage, name);
    const { code, out } = await rotate(target, '--all');
    expect(code).toBe(0);
    const after = await epochs(storage);
    const expected = names.toSorted().map((name) => `"${name}": first of ${name} -> ${after.get(name)}\n`);
    expect(out).toBe(expected.join(''));
    expect(new Set(after.values()).size).toBe(300);
  });

  test('an unknown partition is an error with its code; a database without one has nothing to do', async () => {
    const target = await makeTarget();
    await storageOf(target);
    expect(await rotate(target, '--partition', 'nobody')).toEqual({
      code: 1,
      out: '',
      err: 'tidegate: sync.storage.unknown_partition: the partition was never admitted\n',
    });
    expect(await rotate(target, '--all')).toEqual({
      code: 0,
      out: 'nothing to do: the database knows no partition\n',
      err: '',
    });
  });

  test('S-031, S-032: a gateway that serves meanwhile ends the sessions, and its client ends in sync in the new epoch', async () => {
    const target = await makeTarget();
    const rig = await startRig({ storage: { url: target.url }, limits: { headPollMs: 50 } });
    const ada = rig.client();
    const tasks = ada.client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
    ada.client.connect();
    await tasks.ready;
    await ada.client.mutate([{ table: 'tasks', op: 'upsert', row: task('a') }]).settled;
    await ada.until(() => ada.client.status.state === 'live' && ada.taps.length === 1);

    const { code, out } = await rotate(target, '--all');
    expect({ code, out }).toEqual({ code: 0, out: expect.stringMatching(/^"p1": \S+ -> \S+\n$/) });
    // The socket of the old epoch was closed and another one opened, without anything that the client did.
    await ada.until(() => ada.taps.length > 1 && ada.client.status.state === 'live');
    expect(ada.client.rows('tasks')).toEqual([task('a')]);

    const ben = rig.client({ token: 'ben' });
    const same = ben.client.subscribe({ id: 's1', table: 'tasks', scopes: { list: 'l1' } });
    ben.client.connect();
    await same.ready;
    const written = ben.client.mutate([{ table: 'tasks', op: 'upsert', row: task('b') }]);
    expect(await written.settled).toMatchObject({ status: 'applied' });
    await ada.until(() => ada.client.rows('tasks').length === 2);
    expect(titles(ada.client)).toEqual(titles(ben.client));
  });
});

test('misuse: no database file is made, and it must be said which partition', async () => {
  const target = await sqliteTarget();
  const absent = await rotate(target, '--all');
  expect(absent).toMatchObject({ code: 2, err: expect.stringContaining('there is no database') });
  expect(existsSync(join(target.folder, 'app.db'))).toBe(false);
  for (const args of [[], ['--all', '--partition', 'p']]) {
    const run = await rotate(target, ...args);
    expect(run).toMatchObject({ code: 2, err: expect.stringContaining('either --partition or --all') });
  }
});
