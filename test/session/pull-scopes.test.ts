/** What a grant makes of a subscription: active, narrowed, revoked; windows by inclusion (§3.2, §3.3, §4.8). */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { loadRegistrations } from '../../src/session/sync/registrations.ts';
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

  test.each([
    ['values that are no list', { project: 'x' }],
    ['values that are no texts', { project: ['x', 7] }],
    ['nothing', undefined],
  ])('the resolver answers with %s', async (_title, grant) => {
    const hooks = { ...h.deps.hooks, resolveScopes: () => grant as never };
    const spec = { subscriptions: [subscription('s', 'notes', { project: ['x'] })] };
    const { frames } = await h.drain(await h.start(spec, { ...h.deps, hooks }));
    expect(sectionsOf(frames)).toMatchObject([REVOKED]);
    expect(h.events).toContainEqual(expect.objectContaining({ type: 'host.failed', hook: 'resolveScopes' }));
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

describe('a grant that shrinks and grows again (decision 1: changed scopes)', () => {
  const scopes = { project: ['p1', 'p2'] };
  const ask = async (cursor: number, id = 's') => {
    const { frames, outcome } = await h.round({
      subscriptions: [subscription(id, 'notes', scopes, { cursor })],
    });
    return { ...sectionOf(frames, id), outcome };
  };

  test('is narrowed while it is small, and reset when it grows: rows were missed meanwhile', async () => {
    await h.commit([h.note('a', 'p1')]);
    expect(inlineRows(await ask(-1))).toEqual(['a']);
    h.grants.set('actor-1', { project: ['p2'] });
    await h.commit([h.delete('notes', 'a')], { actorId: 'ann', clientId: 'ann-1' });
    expect(await ask(1)).toMatchObject({
      start: { status: 'active', effectiveScopes: { project: ['p2'] } },
      end: { nextCursor: 2 },
    });
    expect((await ask(2)).start.status).toBe('active');
    h.grants.set('actor-1', { project: ['*'] });
    const grown = await ask(2);
    expect(grown).toMatchObject({
      start: { status: 'reset', reasonCode: 'sync.cursor_expired' },
      end: { nextCursor: 2 },
    });
    expect(grown.outcome).toMatchObject({ registrations: [{ state: 'reset' }] });
    // A lost answer changes nothing.
    expect((await ask(2)).start.status).toBe('reset');
    expect(inlineRows(await ask(-1))).toEqual([]);
    expect((await ask(2)).start.status).toBe('active');
  });

  test('a connect takes it for reset, so that no delta passes the gap', async () => {
    h.grants.set('actor-1', { project: ['p2'] });
    await ask(0);
    const record = (await h.clientRecord())!;
    const load = (project: string[]) =>
      loadRegistrations({ record, grant: { kind: 'granted', allowed: { project } }, schema: h.schema });
    expect(load(['p1', 'p2'])).toMatchObject([{ state: 'reset', caughtUp: false }]);
    expect(load(['p2'])).toMatchObject([{ state: 'live', caughtUp: true }]);
  });

  test('other scopes under the same id are another subscription', async () => {
    h.grants.set('actor-1', { project: ['p2'] });
    await ask(0);
    h.grants.set('actor-1', { project: ['p1', 'p2'] });
    const other = subscription('s', 'notes', { project: ['p1'] }, { cursor: 0 });
    const { frames } = await h.round({ subscriptions: [other] });
    expect(sectionOf(frames, 's').start.status).toBe('active');
  });
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
