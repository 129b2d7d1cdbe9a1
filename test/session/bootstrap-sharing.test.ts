/** One build for all who need the same page, through the store and among rounds of one moment. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { SegmentRefFrame } from '../../src/protocol/frames.ts';
import { DEFAULT_LIMITS } from '../../src/protocol/limits.ts';
import { SegmentBuilds } from '../../src/session/sync/segment-builds.ts';
import { BuiltPage } from '../../src/session/sync/segment-page.ts';
import type { SegmentKey, SegmentStore } from '../../src/storage/segments.ts';
import { type Intercept, interceptStorage, Latch } from '../support/intercepted-storage.ts';
import { PARTITION, SyncHarness, sha256, subscription } from '../support/sync-harness.ts';
import { inlineRows, sectionOf, sectionsOf } from '../support/sync-sections.ts';

const P1 = { project: ['p1'] };
const ALL = ['n0', 'n1', 'n2', 'n3', 'n4'];

describe('rounds', () => {
  let h: SyncHarness;
  let intercept: Intercept;
  let pageReads: number;
  beforeEach(async () => {
    pageReads = 0;
    intercept = () => undefined;
    h = await SyncHarness.open({
      limits: { segmentInlineBytesMax: 200 },
      wrapStorage: (storage) =>
        interceptStorage(storage, (call) => {
          if (call.method === 'readRowPage') pageReads++;
          return intercept(call);
        }),
    });
    await h.commit(ALL.map((id) => h.note(id, 'p1')));
  });
  afterEach(async () => {
    expect(h.deps.segmentBuilds.inFlight).toBe(0);
    await h.close();
  });

  const built = (): number => h.events.filter(({ type }) => type === 'segment.built').length;
  const pull = async (client: string, accept = 0b10, more: object = {}) => {
    const spec = { clientId: client, pull: { accept, limitSnapshotRows: 2, ...more } };
    const { frames } = await h.round({ ...spec, subscriptions: [subscription('s', 'notes', P1)] });
    return sectionOf(frames, 's');
  };
  const idsOf = (segments: readonly object[]) =>
    (segments as readonly SegmentRefFrame[]).map(({ segmentId }) => segmentId);

  test('storm: 50 clients at once make exactly one build of each page', async () => {
    await h.admit();
    const clients = Array.from({ length: 50 }, (_, i) => `client-${i}`);
    const sections = await Promise.all(clients.map((client) => pull(client)));
    expect(built()).toBe(3);
    expect(pageReads).toBe(3);
    for (const section of sections) {
      expect(idsOf(section.segments)).toEqual(idsOf(sections[0]!.segments));
      expect(section.end).toMatchObject({ nextCursor: 1, bootstrapState: undefined });
    }
  });

  test('storm of clients that take inline segments only', async () => {
    await h.admit();
    const clients = Array.from({ length: 10 }, (_, i) => `client-${i}`);
    const sections = await Promise.all(clients.map((client) => pull(client, 0b01)));
    for (const section of sections) expect(inlineRows(section)).toEqual(ALL);
    expect(built()).toBeLessThan(30);
  });

  test('§5.1: a stored page is not read again', async () => {
    const first = await pull('a');
    expect([built(), pageReads]).toEqual([3, 3]);
    const second = await pull('b');
    expect(second.segments).toEqual(first.segments);
    expect([built(), pageReads]).toEqual([3, 3]);
  });

  test('a resumed bootstrap finds stored pages from its place on', async () => {
    await pull('a');
    const paged = await pull('b', 0b10, { maxSnapshotPages: 1 });
    const rest = { cursor: paged.end.nextCursor, bootstrapState: paged.end.bootstrapState };
    const { frames } = await h.round({
      clientId: 'b',
      pull: { accept: 0b10, limitSnapshotRows: 2 },
      subscriptions: [subscription('s', 'notes', P1, rest)],
    });
    expect(sectionOf(frames, 's').segments).toHaveLength(2);
    expect([built(), pageReads]).toEqual([3, 3]);
  });

  test('a small page that the store has is still inline for who takes both', async () => {
    const small = await pull('a', 0b10, { limitSnapshotRows: 1 });
    expect((small.segments[0] as SegmentRefFrame).byteLength).toBeLessThan(200);
    const both = await pull('b', 0b11, { limitSnapshotRows: 1, maxSnapshotPages: 9 });
    expect(inlineRows(both)).toEqual(ALL);
  });

  test('other rows per page, scopes, params and pins share nothing', async () => {
    await pull('a');
    await pull('b', 0b10, { limitSnapshotRows: 3 });
    expect(built()).toBe(5);
    const ask = async (scopes: Record<string, string[]>, params?: string) => {
      await h.round({
        pull: { accept: 0b10, limitSnapshotRows: 9 },
        subscriptions: [subscription('s', 'notes', scopes, params === undefined ? {} : { params })],
      });
    };
    await ask(P1);
    await ask({ project: ['p1', 'p2'] });
    await ask(P1, '{"part":1}');
    await ask(P1, '{"part":2}');
    expect(built()).toBe(9);
    await ask(P1, '{"part":2}');
    expect(built()).toBe(9);
    await h.commit([h.note('n0', 'p1', 'again')]);
    await ask(P1);
    expect(built()).toBe(10);
  });

  test('S-033: a segment of another epoch is not reused', async () => {
    await pull('a');
    await h.storage.rotateEpoch({ partition: PARTITION, logEpoch: 'rotated' });
    await pull('a');
    expect(built()).toBe(6);
  });

  test('a segment about to expire is built again', async () => {
    await pull('a');
    h.clock.advance(DEFAULT_LIMITS.segmentTtlMs * (7 / 8) - 1);
    await pull('b');
    expect(built()).toBe(3);
    h.clock.advance(1);
    await pull('c');
    expect(built()).toBe(6);
  });

  test('a builder that fails lets the next one build', async () => {
    await h.admit();
    let failing = true;
    const latch = new Latch();
    intercept = async ({ method }) => {
      if (method !== 'readRowPage' || !failing) return;
      await latch.opened;
      failing = false;
      throw new Error('the disk is gone');
    };
    const first = pull('a').catch((error: unknown) => error);
    await h.clock.settle();
    const second = pull('b');
    await h.clock.settle();
    latch.open();
    expect(await first).toMatchObject({ message: 'the disk is gone' });
    expect((await second).segments).toHaveLength(3);
  });

  test('a builder that fails in the turn in which the next one came', async () => {
    await h.admit();
    let failures = 1;
    intercept = ({ method }) => {
      if (method === 'readRowPage' && failures-- > 0) throw new Error('the disk is gone');
    };
    const settled = await Promise.allSettled([pull('a'), pull('b')]);
    // Whoever built first failed; the other one was not told of it, and built.
    expect(settled.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected']);
  });

  test('rounds that want the same tables in opposite order do not wait for each other', async () => {
    await h.commit(['a', 'b'].map((id) => h.upsert('tasks', { id, project: 'p1', owner: 'o', done: false })));
    const logEpoch = await h.admit();
    const both = [subscription('n', 'notes', P1), subscription('t', 'tasks', P1)];
    const spec = { logEpoch, pull: { accept: 0b10 } };
    const results = await Promise.all([
      h.round({ ...spec, clientId: 'x', subscriptions: both }),
      h.round({ ...spec, clientId: 'y', subscriptions: [...both].reverse() }),
    ]);
    for (const { frames } of results) {
      expect(sectionsOf(frames).map(({ segments }) => segments.length)).toEqual([1, 1]);
    }
  });

  test('a failure to store fails the round before its reference leaves', async () => {
    const failing: SegmentStore = Object.assign(Object.create(h.segments), {
      find: (...args: Parameters<SegmentStore['find']>) => h.segments.find(...args),
      put: () => Promise.reject(new Error('no space')),
    });
    const spec = { pull: { accept: 0b10 }, subscriptions: [subscription('s', 'notes', P1)] };
    const generator = await h.start(spec, { ...h.deps, segments: failing });
    await expect(generator.next()).rejects.toThrow('no space');
    expect(await h.clientRecord()).toBeNull();
  });
});

describe('SegmentBuilds', () => {
  const KEY: SegmentKey = {
    partition: 'p',
    logEpoch: 'e',
    table: 't',
    schemaVersion: 1,
    scopeDigest: 'd',
    paramsDigest: '',
    asOfCommitSeq: 1,
    rowCursor: null,
    rowsMax: 10,
  };
  const page = (stored: Promise<void>) =>
    new BuiltPage(
      { key: KEY, bytes: new Uint8Array(3), rowCount: 0, nextRowCursor: null },
      {
        sha256,
        limits: DEFAULT_LIMITS,
        clock: {
          nowMs: () => 0,
          monotonicMs: () => 0,
          after: () => ({ cancel: () => undefined }),
          nextTurn: () => undefined,
        },
        segments: {
          put: () => stored,
          find: async () => null,
          entries: async () => [],
          read: async () => null,
          sweep: async () => 0,
        },
      },
    );
  const nothing = async () => null;

  test('every part of the key tells flights apart', () => {
    const builds = new SegmentBuilds();
    const others: Partial<SegmentKey>[] = [
      { partition: 'q' },
      { logEpoch: 'f' },
      { table: 'u' },
      { schemaVersion: 2 },
      { scopeDigest: 'x' },
      { paramsDigest: 'x' },
      { asOfCommitSeq: 2 },
      { rowCursor: '' },
      { rowsMax: 11 },
    ];
    for (const other of [{}, ...others]) expect(builds.begin({ ...KEY, ...other })).not.toBeNull();
    expect(builds.begin({ ...KEY })).toBeNull();
    expect(builds.inFlight).toBe(10);
  });

  test('a page on its way to the store stays shared until it is there', async () => {
    const builds = new SegmentBuilds();
    let done: () => void = () => undefined;
    const stored = new Promise<void>((resolve) => {
      done = resolve;
    });
    builds.begin(KEY)!.built(page(stored), 'external');
    const late = await builds.lookup({ key: KEY, find: nothing, whenBusy: 'wait' });
    expect(late.kind).toBe('page');
    done();
    await stored;
    await Promise.resolve();
    expect(builds.inFlight).toBe(0);
  });

  test('whoever does not wait is told that the page is busy', async () => {
    const builds = new SegmentBuilds();
    const claim = builds.begin(KEY)!;
    expect(await builds.lookup({ key: KEY, find: nothing, whenBusy: 'skip' })).toEqual({ kind: 'busy' });
    claim.abandon();
    claim.built(page(Promise.resolve()), 'inline');
    expect(builds.inFlight).toBe(0);
  });

  test('a lookup that fails gives its claim back', async () => {
    const builds = new SegmentBuilds();
    const find = () => Promise.reject(new Error('no store'));
    await expect(builds.lookup({ key: KEY, find, whenBusy: 'wait' })).rejects.toThrow('no store');
    expect(builds.inFlight).toBe(0);
  });
});
