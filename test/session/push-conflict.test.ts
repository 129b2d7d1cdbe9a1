/** The conflict table of part 2.15, versions, and what is disclosed. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { PushHarness, rejection, verdict } from './support/push-harness.ts';

let host: PushHarness;

beforeEach(async () => {
  host = await PushHarness.open();
});

afterEach(async () => {
  await host.close();
});

describe('the nine rows of the conflict table (S-122)', () => {
  test('upsert without baseVersion, row absent: inserted at version 1', async () => {
    const outcome = await host.push(host.task('t1', { title: 'new' }));
    expect(outcome.result).toMatchObject({ status: 'applied', commitSeq: 1 });
    expect((await host.stored('tasks', 't1'))!.serverVersion).toBe(1);
  });

  test('upsert without baseVersion, row present: last write wins, version + 1', async () => {
    await host.push(host.task('t1', { title: 'old' }));
    expect(verdict(await host.push(host.task('t1', { title: 'new' })))).toBe('applied');
    expect(await host.row('tasks', 't1')).toMatchObject({ title: 'new' });
    expect((await host.stored('tasks', 't1'))!.serverVersion).toBe(2);
  });

  test('upsert with baseVersion 0, row absent: inserted at version 1', async () => {
    expect(verdict(await host.push(host.task('t1', {}, 0)))).toBe('applied');
    expect((await host.stored('tasks', 't1'))!.serverVersion).toBe(1);
  });

  test('upsert with baseVersion 0, a visible insert won: conflict with its version and row', async () => {
    await host.push(host.task('t1', { title: 'winner' }));
    const record = rejection(await host.push(host.task('t1', { title: 'loser' }, 0)));
    expect(record).toMatchObject({ status: 'conflict', code: 'sync.version_conflict', serverVersion: 1 });
    const { payload } = (await host.stored('tasks', 't1'))!;
    expect(record.status === 'conflict' && record.serverRow).toEqual(payload);
  });

  test('upsert with baseVersion 0, the winner lies in a foreign scope: forbidden, nothing shown (S-123)', async () => {
    await host.push(host.task('t1', { project_id: 'p2', title: 'foreign' }));
    const outcome = await host.pushAs({ allowed: { project_id: ['p1'] } }, host.task('t1', {}, 0));
    expect(rejection(outcome)).toEqual({
      opIndex: 0,
      status: 'error',
      code: 'sync.forbidden',
      message: 'the actor may not write this row',
      retryable: false,
    });
  });

  test('upsert with the row’s version: applied, version + 1', async () => {
    await host.push(host.task('t1'));
    await host.push(host.task('t1', { title: 'second' }, 1));
    expect(verdict(await host.push(host.task('t1', { title: 'third' }, 2)))).toBe('applied');
    expect((await host.stored('tasks', 't1'))!.serverVersion).toBe(3);
  });

  test('upsert with another version, older or newer: conflict', async () => {
    await host.push(host.task('t1'));
    await host.push(host.task('t1', { title: 'second' }));
    for (const baseVersion of [1, 3, -1]) {
      const record = rejection(await host.push(host.task('t1', { title: 'stale' }, baseVersion)));
      expect(record).toMatchObject({ opIndex: 0, status: 'conflict', serverVersion: 2 });
    }
    expect(await host.row('tasks', 't1')).toMatchObject({ title: 'second' });
  });

  test('upsert with a version, row absent: row_missing', async () => {
    for (const baseVersion of [1, 7, -1]) {
      expect(rejection(await host.push(host.task('t1', {}, baseVersion)))).toMatchObject({
        status: 'error',
        code: 'sync.row_missing',
        retryable: false,
      });
    }
    expect(await host.stored('tasks', 't1')).toBeNull();
  });

  test('delete, row absent: applied with a commitSeq, no authorization, no change (S-125)', async () => {
    const outcome = await host.pushAs({ allowed: {} }, host.delete('tasks', 'nobody'));
    expect(outcome.result).toMatchObject({
      status: 'applied',
      commitSeq: 1,
      results: [{ opIndex: 0, status: 'applied' }],
    });
    expect(await host.log()).toMatchObject([{ commitSeq: 1, changes: [] }]);
    expect(host.published).toMatchObject([{ commitSeq: 1, changes: [] }]);
  });

  test('delete, row present: no version check, authorized by the stored row', async () => {
    await host.push(host.task('t1'));
    await host.push(host.task('t2', { project_id: 'p2' }));
    const mine = { allowed: { project_id: ['p1'] } };
    const stale = { ...host.delete('tasks', 't1'), baseVersion: 99 };
    expect(verdict(await host.pushAs(mine, stale))).toBe('applied');
    expect(verdict(await host.pushAs(mine, host.delete('tasks', 't2')))).toBe('sync.forbidden');
    expect(await host.stored('tasks', 't1')).toBeNull();
    expect(await host.stored('tasks', 't2')).not.toBeNull();
  });
});

test('a stale push on a foreign row shows nothing of it (S-124)', async () => {
  await host.push(host.task('t1', { project_id: 'p2', title: 'secret' }));
  for (const baseVersion of [0, 1, 5]) {
    const outcome = await host.pushAs({ allowed: { project_id: ['p1'] } }, host.task('t1', {}, baseVersion));
    expect(rejection(outcome)).toMatchObject({ status: 'error', code: 'sync.forbidden' });
    expect(JSON.stringify(outcome)).not.toContain('secret');
  }
});

test('server_version starts at 1 and rises by 1 with each applied upsert, from 1 again after a delete (S-034)', async () => {
  const versions: (number | undefined)[] = [];
  for (let i = 0; i < 5; i++) await host.push(host.task('t1', { points: i }));
  await host.push(host.delete('tasks', 't1'), host.task('t1'), host.task('t1', { points: 9 }));
  for (const { changes } of await host.log()) versions.push(...changes.map(({ rowVersion }) => rowVersion));
  expect(versions).toEqual([1, 2, 3, 4, 5, undefined, 1, 2]);
});

test('changes carry the scopes of the row after an upsert and before a delete (S-042)', async () => {
  await host.push(host.upsert('notes', { id: 7, org: 'o1', team: 2 }));
  await host.push(host.delete('notes', '7'));
  const scopes = (await host.log()).flatMap(({ changes }) => changes.map((change) => change.scopes));
  expect(scopes).toEqual([
    { org: 'o1', team_id: '2' },
    { org: 'o1', team_id: '2' },
  ]);
});

test('the log holds who, when and the pushed bytes, in a buffer of their own', async () => {
  const whole = new Uint8Array(4_096);
  const operation = host.task('t1', { title: 'verbatim' });
  whole.set(operation.payload!, 100);
  const view = whole.subarray(100, 100 + operation.payload!.length);
  await host.push({ ...operation, payload: view });
  const [commit] = host.published;
  expect(commit).toMatchObject({ actorId: 'ada', clientId: 'client-1', createdAtMs: host.clock.nowMs() });
  expect(commit!.changes[0]!.payload).toEqual(view);
  expect(commit!.changes[0]!.payload!.buffer).not.toBe(whole.buffer);
  expect((await host.stored('tasks', 't1'))!.payload).toEqual(view);
});

describe('authorization (§3.4)', () => {
  test('an existing row is authorized by the stored row, never by the payload (S-050)', async () => {
    await host.push(host.task('t1', { project_id: 'p2' }));
    const outcome = await host.pushAs(
      { allowed: { project_id: ['p1'] } },
      host.task('t1', { project_id: 'p1' }),
    );
    expect(verdict(outcome)).toBe('sync.forbidden');
    expect(await host.row('tasks', 't1')).toMatchObject({ project_id: 'p2' });
  });

  test('every declared variable must be held, and have a value (S-051)', async () => {
    const note = host.upsert('notes', { id: 1, org: 'o1', team: 1 });
    expect(verdict(await host.pushAs({ allowed: { org: ['o1'] } }, note))).toBe('sync.forbidden');
    expect(verdict(await host.pushAs({ allowed: { org: ['o1'], team_id: ['2'] } }, note))).toBe(
      'sync.forbidden',
    );
    expect(verdict(await host.pushAs({ allowed: { org: ['*'], team_id: ['1'] } }, note))).toBe('applied');
    expect(verdict(await host.push(host.upsert('notes', { id: 2, org: 'o1', team: null })))).toBe(
      'sync.forbidden',
    );
    const everything = { allowed: { project_id: ['*'] } };
    expect(verdict(await host.pushAs(everything, host.task('t1', { project_id: null })))).toBe(
      'sync.forbidden',
    );
    expect(verdict(await host.pushAs(everything, host.task('t1', { project_id: '' })))).toBe(
      'sync.forbidden',
    );
  });

  test('a denial rolls back the good operations beside it (S-052)', async () => {
    const outcome = await host.pushAs(
      { allowed: { project_id: ['p1'] } },
      host.task('t1'),
      host.task('t2', { project_id: 'p2' }),
      host.task('t3'),
    );
    expect(rejection(outcome)).toMatchObject({ opIndex: 1, code: 'sync.forbidden' });
    expect(await host.log()).toEqual([]);
    expect(await host.stored('tasks', 't1')).toBeNull();
  });

  test.each([
    ['without baseVersion', undefined],
    ['with baseVersion', 1],
  ])('an update keeps the stored scope columns, %s (S-053)', async (_name, baseVersion) => {
    await host.push(host.upsert('notes', { id: 1, org: 'o1', team: 1, text: 'old' }));
    const moved = { id: 1, org: 'o2', team: null, text: 'new' };
    expect(verdict(await host.push(host.upsert('notes', moved, baseVersion)))).toBe('applied');
    expect(await host.row('notes', '1')).toEqual({ id: 1, org: 'o1', team: 1, doc: null, text: 'new' });
    const [, update] = await host.log();
    expect(update!.changes[0]!.scopes).toEqual({ org: 'o1', team_id: '1' });
    expect(host.decode('notes', update!.changes[0]!.payload!)).toMatchObject({ org: 'o1', team: 1 });
  });

  test('a row that was deleted in the same commit is inserted again under the payload’s scopes', async () => {
    await host.push(host.task('t1', { project_id: 'p1' }));
    const [deletion, insertion] = [host.delete('tasks', 't1'), host.task('t1', { project_id: 'p2' })];
    const denied = await host.pushAs({ allowed: { project_id: ['p1'] } }, deletion, insertion);
    expect(rejection(denied)).toMatchObject({ opIndex: 1, code: 'sync.forbidden' });
    expect(await host.row('tasks', 't1')).toMatchObject({ project_id: 'p1' });
    expect(verdict(await host.push(deletion, insertion))).toBe('applied');
    expect(await host.row('tasks', 't1')).toMatchObject({ project_id: 'p2' });
  });

  test('a resolver that threw rejects every operation, and the rejection is not kept (decision 13)', async () => {
    const commit = host.commit(host.delete('tasks', 'nobody'));
    const [denied] = await host.send({ commits: [commit], grant: { kind: 'denied' } });
    expect(rejection(denied!)).toMatchObject({ code: 'sync.forbidden', retryable: false });
    const [later] = await host.send({ commits: [commit] });
    expect(verdict(later!)).toBe('applied');
  });
});
