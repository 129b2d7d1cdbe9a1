/** Incremental sections: the right commits, whole, in order, and a cursor that loses none. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { PARTITION, SyncHarness, type SyncHarnessOptions, subscription } from '../support/sync-harness.ts';
import { changedRows, sectionOf, sectionsOf } from '../support/sync-sections.ts';

let h: SyncHarness;
const open = async (options: SyncHarnessOptions = {}): Promise<void> => {
  h = await SyncHarness.open(options);
};
const reopen = async (options: SyncHarnessOptions): Promise<void> => {
  await h.close();
  await open(options);
};
beforeEach(() => open());
afterEach(() => h.close());

const P1 = { project: ['p1'] };
const notes = (cursor: number, id = 'n') => subscription(id, 'notes', P1, { cursor });
const write = (...ids: string[]): Promise<number> => h.commit(ids.map((id) => h.note(id, 'p1')));

async function pull(cursor: number, limits: object = {}) {
  const { frames } = await h.round({ pull: limits, subscriptions: [notes(cursor)] });
  return sectionOf(frames, 'n');
}

describe('the window', () => {
  test('S-061: oldest first, the cursor exclusive', async () => {
    for (const id of ['a', 'b', 'c']) await write(id);
    const section = await pull(1);
    expect(section.commits.map(({ commitSeq }) => commitSeq)).toEqual([2, 3]);
    expect(section.start).toMatchObject({ status: 'active', reasonCode: '', bootstrap: false });
    expect(section.start.effectiveScopes).toEqual(P1);
    expect(section.end).toMatchObject({ nextCursor: 3, bootstrapState: undefined });
  });

  test('S-062: the cursor passes what does not match', async () => {
    await write('a');
    for (let i = 0; i < 3; i++) await h.commit([h.note(`q${i}`, 'p2')]);
    expect((await pull(1)).end.nextCursor).toBe(4);
    expect((await pull(1)).commits).toEqual([]);
    expect((await pull(0)).end.nextCursor).toBe(4);
  });

  test('S-047: exactly the matching changes, for one, two and several values', async () => {
    const task = (id: string, project: string, owner: string) =>
      h.upsert('tasks', { id, project, owner, done: false });
    await h.commit([
      task('1', 'p1', 'ann'),
      task('2', 'p1', 'bob'),
      task('3', 'p2', 'ann'),
      h.note('n', 'p1'),
      task('4', 'p2', 'bob'),
      task('5', 'p3', 'ann'),
    ]);
    const ask = async (scopes: Record<string, string[]>) => {
      const { frames } = await h.round({
        subscriptions: [subscription('t', 'tasks', scopes, { cursor: 0 })],
      });
      return changedRows(sectionOf(frames, 't'));
    };
    expect(await ask({ project: ['p1'] })).toEqual(['1', '2']);
    expect(await ask({ project: ['p1'], owner: ['ann'] })).toEqual(['1']);
    expect(await ask({ project: ['p1', 'p2'], owner: ['ann', 'ann'] })).toEqual(['1', '3']);
    expect(await ask({ owner: ['bob', 'nobody'] })).toEqual(['2', '4']);
    expect(await ask({ project: ['p1', 'p2'], owner: ['ann', 'bob'] })).toEqual(['1', '2', '3', '4']);
  });

  test('decision 6: a COMMIT holds one table, in a dictionary of its own', async () => {
    await h.commit([
      h.note('n', 'p1'),
      h.upsert('tasks', { id: 't', project: 'p1', owner: 'o', done: true }),
    ]);
    const { commits } = await pull(0);
    expect(commits).toMatchObject([{ tables: ['notes'], changes: [{ tableIndex: 0, rowId: 'n' }] }]);
  });

  test('S-042: a delete carries the scopes the row had, an upsert row and version', async () => {
    await write('a');
    await h.commit([h.upsert('notes', { id: 'a', project: 'p1', title: 'new', rank: 2 }, 1)]);
    await h.commit([h.delete('notes', 'a')]);
    const changes = (await pull(0)).commits.flatMap((commit) => commit.changes);
    expect(changes).toMatchObject([
      { op: 'upsert', rowVersion: 1, scopes: P1_STORED },
      { op: 'upsert', rowVersion: 2, scopes: P1_STORED },
      { op: 'delete', rowVersion: undefined, row: undefined, scopes: P1_STORED },
    ]);
    expect(changes[1]?.row).toEqual(h.payload('notes', { id: 'a', project: 'p1', title: 'new', rank: 2 }));
  });

  test('S-125: the delete of an absent row is in no pull', async () => {
    expect(await h.commit([h.delete('notes', 'nothing')])).toBe(1);
    const section = await pull(0);
    expect(section.commits).toEqual([]);
    expect(section.end.nextCursor).toBe(1);
  });

  test('the pusher and the time of the commit', async () => {
    h.clock.advance(1_234);
    await h.commit([h.note('a', 'p1')], { actorId: 'ann' });
    expect((await pull(0)).commits).toMatchObject([{ actorId: 'ann', createdAtMs: h.clock.nowMs() }]);
  });
});
const P1_STORED = { project: 'p1' };

describe('limitCommits', () => {
  test('S-058: counts changes and splits no commit', async () => {
    await write('a', 'b', 'c', 'd', 'e');
    await write('f');
    await write('g', 'h');
    const whole = await pull(0, { limitCommits: 2 });
    expect(whole.commits.map(({ changes }) => changes.length)).toEqual([5]);
    expect(whole.end.nextCursor).toBe(1);
    const exact = await pull(1, { limitCommits: 3 });
    expect(exact.end.nextCursor).toBe(3);
    const cut = await pull(1, { limitCommits: 2 });
    expect(changedRows(cut)).toEqual(['f']);
    expect(cut.end.nextCursor).toBe(2);
  });

  test('S-062, R-077: a cut ends at the last whole commit and is not caught up', async () => {
    for (const id of ['a', 'b', 'c']) await write(id);
    const { outcome, frames } = await h.round({ pull: { limitCommits: 1 }, subscriptions: [notes(0)] });
    expect(sectionOf(frames, 'n').end.nextCursor).toBe(1);
    expect(outcome).toMatchObject({ snapshotHead: 3, registrations: [{ nextCursor: 1, caughtUp: false }] });
  });

  test('S-058: read in slices, the limit still holds over the section', async () => {
    await reopen({ limits: { windowSliceBytes: 1 } });
    await write('a', 'b');
    await write('c', 'd');
    await write('e', 'f');
    const cut = await pull(0, { limitCommits: 3 });
    expect(changedRows(cut)).toEqual(['a', 'b']);
    expect(cut.end.nextCursor).toBe(1);
    const two = await pull(0, { limitCommits: 4 });
    expect(changedRows(two)).toEqual(['a', 'b', 'c', 'd']);
    expect(two.end.nextCursor).toBe(2);
    expect((await pull(0)).end.nextCursor).toBe(3);
  });

  test('R-081, 3.8.2: far behind is replayed in slices until all is there, deletes included', async () => {
    for (let i = 0; i < 30; i++) await write(`n${i % 10}`);
    await h.commit([h.delete('notes', 'n3')]);
    const seen: string[] = [];
    let cursor = 0;
    for (let pulls = 0; cursor < 31; pulls++) {
      expect(pulls).toBeLessThan(10);
      const section = await pull(cursor, { limitCommits: 7 });
      expect(section.segments).toEqual([]);
      seen.push(...changedRows(section));
      cursor = section.end.nextCursor;
    }
    expect(seen).toHaveLength(31);
    expect(seen.at(-1)).toBe('-n3');
  });
});

describe('S-066: the horizon', () => {
  test('below it reset, with the cursor echoed and no data; at it incremental', async () => {
    for (const id of ['a', 'b', 'c', 'd']) await write(id);
    await h.storage.pruneLog({ partition: PARTITION, horizon: 2, commitsMax: 10 });
    const expired = await pull(1);
    expect(expired).toMatchObject({
      start: { status: 'reset', reasonCode: 'sync.cursor_expired', effectiveScopes: {}, bootstrap: false },
      commits: [],
      segments: [],
      end: { nextCursor: 1, bootstrapState: undefined },
    });
    expect(changedRows(await pull(2))).toEqual(['c', 'd']);
    expect((await pull(-1)).start).toMatchObject({ status: 'active', bootstrap: true });
  });

  test('decision 1: a cursor above the log is reset', async () => {
    await write('a');
    expect((await pull(11)).start).toMatchObject({ status: 'reset', reasonCode: 'sync.cursor_expired' });
    expect((await pull(11)).end.nextCursor).toBe(11);
  });
});

describe('pullBytesMax', () => {
  const FAT = 'x'.repeat(1_000);

  test('the first section with work always moves, later ones keep their cursor, and all ends well', async () => {
    await reopen({ limits: { pullBytesMax: 2_500, windowSliceBytes: 2_500 } });
    for (let i = 0; i < 6; i++) await h.commit([h.note(`n${i}`, 'p1', FAT)]);
    const cursors = { a: 0, b: 0 };
    const seen: Record<string, string[]> = { a: [], b: [] };
    for (let pulls = 0; cursors.a < 6 || cursors.b < 6; pulls++) {
      expect(pulls).toBeLessThan(12);
      const { frames, bytes } = await h.round({
        subscriptions: [notes(cursors.a, 'a'), notes(cursors.b, 'b')],
      });
      expect(bytes.length).toBeLessThan(5_000);
      const delivered = sectionsOf(frames).map((section) => {
        const id = section.start.id as 'a' | 'b';
        expect(section.start.status).toBe('active');
        expect(section.end.nextCursor).toBeGreaterThanOrEqual(cursors[id]);
        cursors[id] = section.end.nextCursor;
        seen[id]!.push(...changedRows(section));
        return section.commits.length;
      });
      expect(delivered.reduce((sum, count) => sum + count, 0)).toBeGreaterThan(0);
    }
    const all = ['n0', 'n1', 'n2', 'n3', 'n4', 'n5'];
    expect(seen).toEqual({ a: all, b: all });
  });

  test('one commit above every bound goes whole and alone', async () => {
    await reopen({ limits: { pullBytesMax: 100, windowSliceBytes: 10 } });
    await h.commit([h.note('a', 'p1', FAT), h.note('b', 'p1', FAT)]);
    await h.commit([h.note('c', 'p1', FAT)]);
    const section = await pull(0);
    expect(changedRows(section)).toEqual(['a', 'b']);
    expect(section.end.nextCursor).toBe(1);
  });
});
