/** What a grant makes of a subscription: active, narrowed, revoked; windows by inclusion (§3.2, §3.3, §4.8). */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SyncHarness, subscription } from '../support/sync-harness.ts';
import { changedRows, inlineRows, sectionOf, sectionsOf } from '../support/sync-sections.ts';

let h: SyncHarness;
beforeEach(async () => {
  h = await SyncHarness.open();
});
afterEach(() => h.close());

const letter = (id: string, team: string, person: string) => h.upsert('letters', { id, team, person });

const REVOKED = {
  start: { status: 'revoked', reasonCode: 'sync.scope_revoked', effectiveScopes: {}, bootstrap: false },
  commits: [],
  segments: [],
  end: { bootstrapState: undefined },
};

describe('S-046: what revokes', () => {
  const cases: readonly (readonly [string, object | Error])[] = [
    ['a requested key is lost', { owner: ['o'] }],
    ['one of two requested keys is lost', { project: ['p1'], owner: ['x'] }],
    ['no value of a key is left', { project: ['p9'], owner: ['*'] }],
    ['the resolver throws', new Error('the directory is down')],
    ['the resolver answers with no map', Object.assign([], { length: 0 })],
    ['the resolver answers with values that are no list', { project: 'p1', owner: 'o' }],
  ];

  test.each(cases)('%s: no data, and S-049 the cursor unchanged', async (_title, grant) => {
    await h.commit([h.upsert('tasks', { id: 't', project: 'p1', owner: 'o', done: false })]);
    h.grants.set('actor-1', grant as Error);
    const scopes = { project: ['p1'], owner: ['o'] };
    const cursors = [-1, 0, 1];
    const { frames } = await h.round({
      subscriptions: cursors.map((cursor) => subscription(`s${cursor}`, 'tasks', scopes, { cursor })),
    });
    const sections = sectionsOf(frames);
    for (const section of sections) expect(section).toMatchObject(REVOKED);
    expect(sections.map(({ end }) => end.nextCursor)).toEqual(cursors);
  });

  test('an empty scope map is revoked', async () => {
    const { frames } = await h.round({ subscriptions: [subscription('s', 'notes', {})] });
    expect(sectionsOf(frames)).toMatchObject([REVOKED]);
  });

  test('a throwing resolver is told to the operator, and refuses pushes as well', async () => {
    h.grants.set('actor-1', new Error('down'));
    const { frames } = await h.round({
      pushes: [h.push([h.note('a', 'p1')])],
      subscriptions: [subscription('s', 'notes', { project: ['p1'] })],
    });
    expect(frames[1]).toMatchObject({ status: 'rejected', results: [{ code: 'sync.forbidden' }] });
    expect(sectionsOf(frames)).toMatchObject([REVOKED]);
    expect(h.events).toContainEqual(expect.objectContaining({ type: 'host.failed', hook: 'resolveScopes' }));
    expect(h.resolved).toBe(1);
  });
});

test('S-049: revoked wins over reset and over a token (decision 1)', async () => {
  await h.commit([h.note('a', 'p1')]);
  h.grants.set('actor-1', { project: ['p2'] });
  const bootstrapState = '{"asOfCommitSeq":1,"tables":["notes"],"tableIndex":0,"rowCursor":"a"}';
  const scopes = { project: ['p1'] };
  const { frames } = await h.round({
    subscriptions: [
      subscription('a', 'notes', scopes, { cursor: 99 }),
      subscription('b', 'notes', scopes, { cursor: 1, bootstrapState }),
    ],
  });
  expect(sectionsOf(frames).map(({ start }) => start.status)).toEqual(['revoked', 'revoked']);
});

test('a key that keeps some values is narrowed, and the echo says so', async () => {
  await h.commit([h.note('a', 'p1'), h.note('b', 'p2'), h.note('c', 'p3')]);
  h.grants.set('actor-1', { project: ['p1', 'p3'] });
  const scopes = { project: ['p3', 'p2', 'p1', 'p3'] };
  const { frames } = await h.round({ subscriptions: [subscription('s', 'notes', scopes)] });
  expect(sectionOf(frames, 's').start.effectiveScopes).toEqual({ project: ['p3', 'p1'] });
  expect(inlineRows(sectionOf(frames, 's'))).toEqual(['a', 'c']);
});

describe('S-048: parents and children', () => {
  test('variables are independent: a foreign child needs its own parent', async () => {
    await h.commit([letter('own', 't1', 'me'), letter('foreign', 't2', 'you')]);
    h.grants.set('actor-1', { team: ['t1'], person: ['*'] });
    const ask = async (scopes: Record<string, string[]>, cursor: number) => {
      const { frames } = await h.round({ subscriptions: [subscription('s', 'letters', scopes, { cursor })] });
      return sectionOf(frames, 's');
    };
    // The fence (`requiredScopes`) makes every subscription ask for a team, and the grant has only the own one.
    expect(inlineRows(await ask({ team: ['t1'], person: ['you', 'me'] }, -1))).toEqual(['own']);
    expect(changedRows(await ask({ team: ['t1', 't2'], person: ['you'] }, 0))).toEqual([]);
    expect(await ask({ team: ['t2'], person: ['you'] }, 0)).toMatchObject(REVOKED);
  });
});

describe('S-074, §4.8: windows', () => {
  test('shrink and return: no tombstone, no revocation, nothing remembered', async () => {
    await h.commit([h.note('a', 'p1'), h.note('b', 'p2')]);
    const window = (project: string, cursor = -1) =>
      subscription(`w:${project}`, 'notes', { project: [project] }, { cursor });
    const both = await h.round({ subscriptions: [window('p1'), window('p2')] });
    expect(sectionsOf(both.frames).map((section) => inlineRows(section))).toEqual([['a'], ['b']]);
    await h.commit([h.delete('notes', 'a')]);
    const one = await h.round({ subscriptions: [window('p2', 1)] });
    expect(sectionsOf(one.frames)).toMatchObject([{ start: { id: 'w:p2', status: 'active' }, commits: [] }]);
    const again = await h.round({ subscriptions: [window('p2', 2), window('p1')] });
    expect(sectionsOf(again.frames)).toMatchObject([
      { start: { status: 'active', bootstrap: false } },
      { start: { status: 'active', bootstrap: true }, end: { nextCursor: 2 } },
    ]);
    expect(inlineRows(sectionOf(again.frames, 'w:p1'))).toEqual([]);
  });
});
