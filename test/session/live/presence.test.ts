/** Presence between sessions of one node (part 3, 3.10; SSP2 §8.6). */
import { describe, expect, test } from 'vitest';
import { parseServerControl } from '../../../src/protocol/control.ts';
import type { FakeConnection } from '../../support/fake-connection.ts';
import {
  type ConnectOptions,
  LiveHarness,
  note,
  registered,
  stored,
  TENANT,
} from './support/live-harness.ts';
import { requestBytes } from './support/scripted-rounds.ts';

const P1 = 'project:p1';
const P2 = 'project:p2';

/** What a connection heard of presence: `join p1 client-2 {"x":1}`, `refused p1 presence.forbidden`. */
function heard(connection: FakeConnection): string[] {
  return connection.sent.flatMap((message) => {
    if (typeof message !== 'string') return [];
    const control = parseServerControl(message);
    if (control.kind === 'presence') {
      const { scopeKey, kind, clientId, doc } = control.presence;
      return [`${kind} ${scopeKey.slice(8)} ${clientId} ${JSON.stringify(doc)}`];
    }
    return control.kind === 'presence-refusal'
      ? [`refused ${control.scopeKey.slice(8)} ${control.error}`]
      : [];
  });
}

function publish(connection: FakeConnection, scopeKey: string, doc: unknown): void {
  connection.text({ event: 'presence', data: { scopeKey, doc } });
}

class Room extends LiveHarness {
  constructor(limits: ConstructorParameters<typeof LiveHarness>[0] = {}) {
    super({ ...limits, presence: 'on' });
  }

  /** A live client on the projects. */
  enter(clientId: string, projects: readonly string[], rest: ConnectOptions = {}): Promise<FakeConnection> {
    const subscriptions = [stored('one', { project: projects })];
    return this.connectLive(subscriptions, { clientId, actorId: `actor of ${clientId}`, ...rest });
  }
}

test('R-039, R-041, R-042, R-046: join, update, leave, join; a late comer gets the joins, and nobody hears itself', async () => {
  const h = new Room();
  const a = await h.enter('a', ['p1']);
  const b = await h.enter('b', ['p1']);
  publish(a, P1, { at: 'top' });
  publish(a, P1, { at: 'end', nested: { x: 0.5 } });
  publish(a, P1, null);
  publish(a, P1, null);
  publish(a, P1, { at: 'top' });
  expect(heard(b)).toEqual([
    'join p1 a {"at":"top"}',
    'update p1 a {"at":"end","nested":{"x":0.5}}',
    'leave p1 a null',
    'join p1 a {"at":"top"}',
  ]);
  expect(heard(a)).toEqual([]);
  publish(b, P1, { who: 'b' });
  expect(heard(a)).toEqual(['join p1 b {"who":"b"}']);
  const subscriptions = [stored('one', { project: ['p1'] })];
  h.storage.record(TENANT, { clientId: 'c', actorId: 'actor of c', cursor: 0, subscriptions });
  const c = await h.connect({ clientId: 'c', actorId: 'actor of c' });
  expect(c.story[0]).toBe('hello');
  expect(heard(c).sort()).toEqual(['join p1 a {"at":"top"}', 'join p1 b {"who":"b"}']);
  expect([heard(a).length, heard(b).length]).toEqual([1, 4]);
  const data = (JSON.parse(b.sent[0] as string) as { data: object }).data;
  expect(Object.keys(data).sort()).toEqual(['actorId', 'clientId', 'doc', 'kind', 'scopeKey', 'timestamp']);
});

test('R-040: every way to end is a leave on each key', async () => {
  const h = new Room();
  const watcher = await h.enter('w', ['p1', 'p2']);
  const vanishing = await h.enter('a', ['p1', 'p2']);
  for (const key of [P1, P2]) publish(vanishing, key, { here: true });
  watcher.clear();
  vanishing.vanish();
  expect(heard(watcher)).toEqual(['leave p1 a null', 'leave p2 a null']);
  const broken = await h.enter('b', ['p1']);
  publish(broken, P1, {});
  broken.text({ event: 'presence', data: 3 });
  expect(broken.closed?.code).toBe(1008);
  const revoked = await h.enter('c', ['p1']);
  publish(revoked, P1, {});
  h.live.revokeActor(TENANT, 'actor of c');
  expect(heard(watcher).slice(2)).toEqual([
    'join p1 b {}',
    'leave p1 b null',
    'join p1 c {}',
    'leave p1 c null',
  ]);
});

test('R-037, R-038, R-044: a key that is not held: forbidden, to the publisher alone, also for a leave', async () => {
  const h = new Room();
  const a = await h.enter('a', ['p1']);
  const d = await h.enter('d', ['p2']);
  publish(a, P1, { secret: true });
  publish(d, P2, { secret: true });
  expect([heard(a), heard(d)]).toEqual([[], []]);
  publish(d, P1, {});
  publish(d, P1, null);
  publish(d, 'nothing of this kind', {});
  expect(heard(d)).toEqual([
    'refused p1 presence.forbidden',
    'refused p1 presence.forbidden',
    `refused ${'nothing of this kind'.slice(8)} presence.forbidden`,
  ]);
  expect(heard(a)).toEqual([]);
});

test('R-013: partitions never hear each other', async () => {
  const h = new Room();
  const a = await h.enter('a', ['p1']);
  const other = await h.enter('b', ['p1'], { partition: 'other' });
  publish(a, P1, {});
  publish(other, P1, {});
  expect([heard(a), heard(other)]).toEqual([[], []]);
});

describe('R-043: too large', () => {
  test('one document: the publisher hears it, the old document stays', async () => {
    const h = new Room();
    const a = await h.enter('a', ['p1']);
    const b = await h.enter('b', ['p1']);
    // {"text":"…"} takes 11 bytes, the letters two each and one: exactly the cap.
    const fitting = `${'é'.repeat((16_384 - 12) / 2)}x`;
    publish(a, P1, { text: fitting });
    const [join] = heard(b);
    expect(Buffer.byteLength(join!.slice('join p1 a '.length))).toBe(16_384);
    publish(a, P1, { text: `${fitting}x` });
    expect(heard(a)).toEqual(['refused p1 presence.too_large']);
    expect(heard(b)).toHaveLength(1);
    const late = await h.enter('c', ['p2', 'p1']);
    late.clear();
    publish(a, P1, { now: 'small' });
    expect(heard(late)).toEqual(['update p1 a {"now":"small"}']);
  });

  test('all documents of a connection together, where a replaced one makes room', async () => {
    const h = new Room({ limits: { presenceDocBytesMax: 100, presenceSessionBytesMax: 150 } });
    const a = await h.enter('a', ['p1', 'p2']);
    const doc = { text: 'x'.repeat(70) };
    publish(a, P1, doc);
    publish(a, P2, doc);
    expect(heard(a)).toEqual(['refused p2 presence.too_large']);
    publish(a, P1, { text: 'y' });
    publish(a, P2, doc);
    publish(a, P2, null);
    publish(a, P1, doc);
    expect(heard(a)).toHaveLength(1);
  });
});

test('R-045: a wrong shape closes and is never fanned out', async () => {
  for (const data of [3, null, {}, { scopeKey: '', doc: {} }, { scopeKey: P1 }, { scopeKey: P1, doc: [1] }]) {
    const h = new Room();
    const a = await h.enter('a', ['p1']);
    const b = await h.enter('b', ['p1']);
    a.text({ event: 'presence', data });
    expect(a.closed?.code).toBe(1008);
    expect(heard(b)).toEqual([]);
  }
});

describe('registrations that change', () => {
  const roundWith = async (
    h: Room,
    connection: FakeConnection,
    clientId: string,
    projects: readonly string[],
  ) => {
    connection.round(requestBytes(clientId));
    await h.settle();
    h.rounds.last.pulled([registered('one', { project: projects })], 0);
    await h.settle();
  };

  test('R-047: a key lost at a round end: leave to the peers, silence for the loser', async () => {
    const h = new Room();
    const a = await h.enter('a', ['p1', 'p2']);
    const b = await h.enter('b', ['p1', 'p2']);
    publish(a, P1, {});
    publish(b, P1, { b: 1 });
    a.clear();
    await roundWith(h, a, 'a', ['p2']);
    expect(heard(b).at(-1)).toBe('leave p1 a null');
    publish(b, P1, { b: 2 });
    publish(b, P1, null);
    expect(heard(a)).toEqual([]);
    publish(b, P2, { b: 3 });
    expect(heard(a)).toEqual(['join p2 b {"b":3}']);
  });

  test('R-046: a key gained at a round end brings its joins, to nobody else', async () => {
    const h = new Room();
    const a = await h.enter('a', ['p1']);
    const b = await h.enter('b', ['p2']);
    publish(a, P1, { a: 1 });
    await roundWith(h, b, 'b', ['p1']);
    expect(heard(b)).toEqual(['join p1 a {"a":1}']);
    expect(heard(a)).toEqual([]);
  });

  test('R-050: a round with the same keys changes nothing, and both directions still work', async () => {
    const h = new Room();
    const a = await h.enter('a', ['p1']);
    const b = await h.enter('b', ['p1']);
    publish(a, P1, { n: 1 });
    await roundWith(h, a, 'a', ['p1']);
    expect(heard(b)).toEqual(['join p1 a {"n":1}']);
    publish(a, P1, { n: 2 });
    publish(b, P1, {});
    expect(heard(b).at(-1)).toBe('update p1 a {"n":2}');
    expect(heard(a)).toEqual(['join p1 b {}']);
  });

  test('R-047: scopes taken away: nothing of a key arrives from the signal on; a key that is kept catches up', async () => {
    const h = new Room();
    const a = await h.enter('a', ['p1', 'p2']);
    const b = await h.enter('b', ['p1', 'p2']);
    publish(b, P2, { b: 0 });
    publish(a, P1, { a: 1 });
    a.clear();
    b.clear();
    h.grants.set('actor of a', { project: ['p2'] });
    h.live.scopesChanged(TENANT, 'actor of a');
    publish(b, P1, { b: 1 });
    publish(b, P2, { b: 2 });
    publish(b, P2, { b: 3 });
    // What it says meanwhile waits too.
    publish(a, P1, { a: 2 });
    publish(a, P2, { a: 3 });
    expect([heard(a), heard(b)]).toEqual([[], []]);
    await h.settle();
    // A subscription that lost one of its values is narrowed to the others.
    expect(heard(b)).toEqual(['leave p1 a null', 'join p2 a {"a":3}']);
    expect(heard(a)).toEqual(['update p2 b {"b":3}', 'refused p1 presence.forbidden']);
    publish(b, P1, { b: 4 });
    expect(heard(a)).toHaveLength(2);
  });
});

test('R-048: two connections of one client are one peer; the newest document stands, and the old close says nothing', async () => {
  const h = new Room({ duplicateClients: 'keep' });
  const b = await h.enter('b', ['p1']);
  const old = await h.enter('a', ['p1']);
  publish(old, P1, { from: 'old' });
  const next = await h.enter('a', ['p1']);
  expect(heard(next)).toEqual([]);
  publish(next, P1, { from: 'new' });
  // The old one has nothing any more that it could take back.
  publish(old, P1, null);
  old.vanish();
  expect(heard(b)).toEqual(['join p1 a {"from":"old"}', 'update p1 a {"from":"new"}']);
  expect(heard(old)).toEqual([]);
  next.vanish();
  expect(heard(b).at(-1)).toBe('leave p1 a null');
});

describe('R-049: a rate cap', () => {
  const LIMITS = { presenceIntervalMs: 100 };

  test('50 publishes in one window: the first at once, one update with the last at its end', async () => {
    const h = new Room({ limits: LIMITS });
    const a = await h.enter('a', ['p1', 'p2']);
    const b = await h.enter('b', ['p1', 'p2']);
    for (let n = 0; n < 50; n++) publish(a, P1, { n });
    publish(a, P2, { other: 'key' });
    expect(heard(b)).toEqual(['join p1 a {"n":0}', 'join p2 a {"other":"key"}']);
    h.clock.advance(99);
    expect(heard(b)).toHaveLength(2);
    h.clock.advance(1);
    expect(heard(b).slice(2)).toEqual(['update p1 a {"n":49}']);
    publish(a, P1, { n: 50 });
    expect(heard(b)).toHaveLength(3);
    h.clock.advance(100);
    expect(heard(b).at(-1)).toBe('update p1 a {"n":50}');
    h.clock.advance(100);
    publish(a, P1, { n: 51 });
    expect(heard(b).at(-1)).toBe('update p1 a {"n":51}');
    expect(heard(a)).toEqual([]);
  });

  test('a leave, the loss of the key and the end cancel what waits', async () => {
    const h = new Room({ limits: LIMITS });
    const b = await h.enter('b', ['p1']);
    const a = await h.enter('a', ['p1']);
    publish(a, P1, { n: 1 });
    publish(a, P1, { n: 2 });
    publish(a, P1, null);
    h.clock.advance(1_000);
    expect(heard(b)).toEqual(['join p1 a {"n":1}', 'leave p1 a null']);
    publish(a, P1, { n: 3 });
    publish(a, P1, { n: 4 });
    a.vanish();
    h.clock.advance(1_000);
    expect(heard(b).slice(2)).toEqual(['join p1 a {"n":3}', 'leave p1 a null']);
  });

  test.each([
    ['publish', { n: 3 }, 'update p1 a {"n":3}'],
    ['leave', null, 'leave p1 a null'],
  ])(
    'R-047: a %s while scopes are found out is newer than what the window held',
    async (_kind, newest, told) => {
      const h = new Room({ limits: LIMITS });
      const b = await h.enter('b', ['p1']);
      const a = await h.enter('a', ['p1']);
      publish(a, P1, { n: 1 });
      publish(a, P1, { n: 2 });
      h.live.scopesChanged(TENANT, 'actor of a');
      publish(a, P1, newest);
      h.clock.advance(100);
      await h.settle();
      h.clock.advance(1_000);
      expect(heard(b)).toEqual(['join p1 a {"n":1}', told]);
    },
  );

  test('R-043: what waits for the end of a window counts against the cap of the connection', async () => {
    const h = new Room({ limits: { ...LIMITS, presenceDocBytesMax: 40, presenceSessionBytesMax: 60 } });
    const b = await h.enter('b', ['p1', 'p2']);
    const a = await h.enter('a', ['p1', 'p2']);
    for (const key of [P1, P2]) publish(a, key, {});
    const text = 'x'.repeat(26);
    publish(a, P1, { text });
    publish(a, P2, { text });
    expect(heard(a)).toEqual(['refused p2 presence.too_large']);
    // A newer one makes room before the older one has gone out.
    publish(a, P1, { text: '' });
    publish(a, P2, { text });
    h.clock.advance(100);
    expect(heard(a)).toHaveLength(1);
    expect(heard(b).slice(2)).toEqual(['update p1 a {"text":""}', `update p2 a {"text":"${text}"}`]);
  });
});

test('a slow consumer gets the newest state of each peer when it has room, not the way there', async () => {
  const h = new Room({ limits: { outboxBytesHigh: 300, outboxBytesLow: 0, deltaBytesMax: 300 } });
  const slow = await h.enter('s', ['p1']);
  const a = await h.enter('a', ['p1']);
  const b = await h.enter('b', ['p1']);
  slow.stall();
  for (let n = 0; n < 40; n++) {
    publish(a, P1, { n });
    publish(b, P1, { n });
  }
  publish(b, P1, null);
  const c = await h.enter('c', ['p1']);
  publish(c, P1, { came: true });
  publish(c, P1, { came: 'late' });
  const d = await h.enter('d', ['p1']);
  publish(d, P1, { came: true });
  d.vanish();
  const before = heard(slow).length;
  expect(before).toBeLessThan(6);
  slow.drain();
  await h.settle();
  expect(heard(slow).slice(before).sort()).toEqual([
    'join p1 c {"came":"late"}',
    'leave p1 b null',
    'update p1 a {"n":39}',
  ]);
  publish(a, P1, { n: 40 });
  expect(heard(slow).at(-1)).toBe('update p1 a {"n":40}');
});

test('B.16c: who ignores presence sees the same deltas, no wake-up, and cursors are untouched', async () => {
  const h = new Room();
  const a = await h.enter('a', ['p1']);
  const b = await h.enter('b', ['p1']);
  publish(a, P1, {});
  h.commit([note('p1')]);
  expect(b.story.filter((what) => !what.includes('presence'))).toEqual([expect.stringMatching(/^delta/)]);
});
