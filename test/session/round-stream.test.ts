/** How a response leaves: piece by piece, never held back by a slow part or a slow reader, and how it fails. */

import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SyncError } from '../../src/protocol/errors.ts';
import { errorStream } from '../../src/session/sync/error-stream.ts';
import { StorageError } from '../../src/storage/storage-error.ts';
import { type Intercept, interceptStorage, Latch } from '../support/intercepted-storage.ts';
import { storageAnswers } from '../support/storage-under-test.ts';
import {
  decodeResponse,
  PARTITION,
  SyncHarness,
  type SyncHarnessOptions,
  subscription,
} from '../support/sync-harness.ts';
import { changedRows, sectionOf, sectionsOf } from '../support/sync-sections.ts';

let h: SyncHarness;
let intercept: Intercept;
const open = async (options: SyncHarnessOptions = {}): Promise<void> => {
  h = await SyncHarness.open({
    wrapStorage: (storage) => interceptStorage(storage, (call) => intercept(call)),
    ...options,
  });
};
beforeEach(async () => {
  intercept = () => undefined;
  await open();
});
afterEach(() => h.close());

const P1 = { project: ['p1'] };
const notes = (id: string, cursor: number) => subscription(id, 'notes', P1, { cursor });
const tasks = (id: string, cursor: number) => subscription(id, 'tasks', P1, { cursor });
const task = (id: string) => h.upsert('tasks', { id, project: 'p1', owner: 'o', done: false });

/** Lets reads of one table wait for the latch. */
const holdReadsOf = (table: string, latch: Latch): Intercept => {
  return ({ on, args }) => {
    const [query] = args as readonly { readonly table?: { readonly name: string } }[];
    return on === 'reader' && query?.table?.name === table ? latch.opened : undefined;
  };
};

type Generator = Awaited<ReturnType<SyncHarness['start']>>;

async function firstChunk(generator: Generator): Promise<Uint8Array> {
  const step = await generator.next();
  if (step.done) throw new Error('the round had only one chunk');
  return step.value;
}

const textOf = (chunk: Uint8Array): string => Buffer.from(chunk).toString('latin1');

describe('S-008, R-065: incremental production', () => {
  test('the first section leaves while a later one is not ready', async () => {
    const first = await h.commit([h.note('a', 'p1')]);
    await h.commit([task('t')]);
    const latch = new Latch();
    intercept = holdReadsOf('tasks', latch);
    const generator = await h.start({ subscriptions: [notes('n', first - 1), tasks('t', first)] });
    const early = await firstChunk(generator);
    expect(textOf(early)).toContain('title of a');
    latch.open();
    const { frames } = await h.drain(generator, [early]);
    expect(sectionsOf(frames).map(changedRows)).toEqual([['a'], ['t']]);
  });

  test('S-014: results of the pushes leave before the pull reads', async () => {
    const latch = new Latch();
    intercept = holdReadsOf('notes', latch);
    const pushes = [h.push([h.note('a', 'p1')], 'mine')];
    const generator = await h.start({ pushes, subscriptions: [notes('n', 0)] });
    const early = await firstChunk(generator);
    expect(textOf(early)).toContain('mine');
    latch.open();
    const { frames } = await h.drain(generator, [early]);
    expect(changedRows(sectionOf(frames, 'n'))).toEqual(['a']);
  });

  test('S-014: they leave before the first read, even where reading blocks', async () => {
    const order: string[] = [];
    intercept = ({ method }) => {
      if (method === 'readWindow') order.push('read');
    };
    const pushes = [h.push([h.note('a', 'p1')], 'mine')];
    const generator = await h.start({ pushes, subscriptions: [notes('n', 0)] });
    const early = await firstChunk(generator);
    order.push('chunk');
    await h.drain(generator, [early]);
    expect(order).toEqual(['chunk', 'read']);
  });

  test('S-008, R-065: a small response is one chunk, unless a read makes the reader wait', async () => {
    await h.commit([h.note('a', 'p1')]);
    const { chunks } = await h.round({ subscriptions: [notes('n', 0), tasks('t', 0)] });
    // What was written leaves before a read that takes more than a turn, as every read over a network does; `h.round` counts the
    // chunks before the last.
    expect(chunks.length).toBeLessThanOrEqual(storageAnswers() === 'at once' ? 0 : 1);
  });

  test('S-008: a large response leaves in chunks of the named size', async () => {
    await h.close();
    await open({ limits: { responseChunkBytes: 4_096 } });
    for (let i = 0; i < 20; i++) await h.commit([h.note(`n${i}`, 'p1', 'x'.repeat(1_000))]);
    const { chunks, frames } = await h.round({ subscriptions: [notes('n', 0)] });
    expect(sectionOf(frames, 'n').commits).toHaveLength(20);
    expect(chunks.length).toBeGreaterThan(3);
    for (const chunk of chunks) expect(chunk.length).toBeLessThan(4_096 + 2_000);
  });

  test('the snapshot is over before a slow reader has taken a byte more than the first chunk', async () => {
    await h.close();
    await open({ limits: { responseChunkBytes: 4_096 } });
    for (let i = 0; i < 20; i++) await h.commit([h.note(`n${i}`, 'p1', 'x'.repeat(1_000))]);
    const over = new Latch();
    const { storage } = h;
    const deps = {
      ...h.deps,
      storage: new Proxy(storage, {
        get(target, name) {
          if (name !== 'readSnapshot') return Reflect.get(target, name, target);
          return async (...args: Parameters<typeof storage.readSnapshot>) => {
            const result = await storage.readSnapshot(...args);
            over.open();
            return result;
          };
        },
      }),
    };
    const slow = await h.start({ subscriptions: [notes('n', 0)] }, deps);
    const early = await firstChunk(slow);
    await over.opened;
    const { frames } = await h.drain(slow, [early]);
    expect(sectionOf(frames, 'n').commits).toHaveLength(20);
  });
});

describe('order of a response', () => {
  test('S-012, S-013, S-014, R-070: results in order, sections in request order, never mixed', async () => {
    const start = await h.commit([h.note('a', 'p1')]);
    const pushes = [
      h.push([h.note('b', 'p1')], 'first'),
      h.push([h.upsert('tasks', { id: 't', project: 'p1', owner: 'o', done: true }, 9)], 'second'),
      h.push([h.note('c', 'p1')], 'third'),
    ];
    const subscriptions = [tasks('z', -1), notes('a', start), notes('m', -1)];
    const { frames } = await h.round({ pushes, subscriptions });
    const results = frames.filter((frame) => frame.type === 'PUSH_RESULT');
    expect(results.map(({ clientCommitId, status }) => [clientCommitId, status])).toEqual([
      ['first', 'applied'],
      ['second', 'rejected'],
      ['third', 'applied'],
    ]);
    const sections = sectionsOf(frames);
    expect(sections.map(({ start: { id } }) => id)).toEqual(['z', 'a', 'm']);
    for (const { commits, segments } of sections) expect(commits.length * segments.length).toBe(0);
    expect(changedRows(sections[1]!)).toEqual(['b', 'c']);
  });

  test('S-014: details stand right behind their result', async () => {
    const { result, details } = {
      result: {
        type: 'PUSH_RESULT',
        clientCommitId: 'x',
        status: 'rejected',
        results: [{ opIndex: 0, status: 'error', code: 'host.no', message: 'no', retryable: false }],
      } as const,
      details: {
        type: 'PUSH_RESULT_DETAILS',
        clientCommitId: 'x',
        entries: [{ opIndex: 0, detailsJson: '{"reason":"why"}' }],
      } as const,
    };
    const applied = { ...result, clientCommitId: 'y', status: 'applied', commitSeq: 1, results: [] } as const;
    const outcomes = [
      { result, details },
      { result: applied, details: null },
    ];
    const deps = { ...h.deps, commits: { ...h.deps.commits, depth: 0, push: async () => outcomes } };
    const pushes = [h.push([h.note('b', 'p1')], 'x'), h.push([h.note('c', 'p1')], 'y')];
    const { frames } = await h.drain(await h.start({ pushes }, deps));
    expect(frames.slice(1)).toMatchObject([
      { type: 'PUSH_RESULT', clientCommitId: 'x' },
      { type: 'PUSH_RESULT_DETAILS', clientCommitId: 'x' },
      { type: 'PUSH_RESULT', clientCommitId: 'y' },
    ]);
  });

  test('S-014: results larger than a chunk are all there', async () => {
    const title = 'x'.repeat(40_000);
    await h.commit([h.note('a', 'p1', title)]);
    const stale = (id: string) =>
      h.push([h.upsert('notes', { id: 'a', project: 'p1', title: '', rank: 0 }, 9)], id);
    const { frames, chunks } = await h.round({ pushes: ['1', '2', '3', '4'].map(stale) });
    expect(frames.slice(1)).toMatchObject(
      ['1', '2', '3', '4'].map((clientCommitId) => ({ clientCommitId, results: [{ status: 'conflict' }] })),
    );
    expect(chunks.length).toBeGreaterThan(0);
  });

  test('S-168: a push-only round is whole, and a retry takes no commitSeq', async () => {
    const pushes = [h.push([h.note('a', 'p1')], 'again')];
    const first = await h.round({ pushes });
    const second = await h.round({ pushes });
    expect(first.frames[1]).toMatchObject({ status: 'applied', commitSeq: 1 });
    expect(second.frames[1]).toMatchObject({ status: 'cached', commitSeq: 1 });
    expect(second.frames).toHaveLength(2);
    expect((await h.readState()).head).toBe(1);
    expect(second.outcome).toMatchObject({ kind: 'served', registrations: null });
  });
});

describe('failures', () => {
  test('S-018, R-070: a coded failure after the first chunk ends the stream with ERROR and END', async () => {
    const first = await h.commit([h.note('a', 'p1')]);
    await h.commit([task('t')]);
    const latch = new Latch();
    intercept = async (call) => {
      await holdReadsOf('tasks', latch)(call);
      if (call.method === 'readWindow' && JSON.stringify(call.args).includes('"tasks"')) {
        throw new SyncError('sync.rate_limited', 'later', { details: { retryAfterMs: 5 } });
      }
    };
    const subscriptions = [notes('n', first - 1), tasks('t', first), notes('last', 0)];
    const generator = await h.start({ subscriptions });
    const early = await firstChunk(generator);
    latch.open();
    const { frames, outcome } = await h.drain(generator, [early]);
    expect(outcome).toMatchObject({ kind: 'failed', error: { code: 'sync.rate_limited' } });
    expect(sectionsOf(frames).map(({ start: { id } }) => id)).toEqual(['n']);
    expect(frames.at(-1)).toMatchObject({
      type: 'ERROR',
      code: 'sync.rate_limited',
      category: 'rate-limited',
      retryable: true,
      recommendedAction: 'retryLater',
      details: '{"retryAfterMs":5}',
    });
  });

  test('before the first chunk any failure is thrown, whatever was written', async () => {
    await h.commit([h.note('a', 'p1')]);
    intercept = ({ method }) => {
      if (method === 'readRowPage') throw new SyncError('sync.rate_limited', 'later');
    };
    const generator = await h.start({ subscriptions: [notes('n', 0), notes('b', -1)] });
    await expect(generator.next()).rejects.toMatchObject({ code: 'sync.rate_limited' });
    expect(await h.clientRecord()).toBeNull();
  });

  test('a failure without a code is thrown at any point, and told to the operator', async () => {
    await h.commit([h.note('a', 'p1')]);
    const latch = new Latch();
    intercept = async (call) => {
      await holdReadsOf('tasks', latch)(call);
      if (call.method === 'readRowPage') throw new StorageError('sync.storage.unavailable', 'gone');
    };
    const generator = await h.start({ subscriptions: [notes('n', 0), tasks('t', -1)] });
    await firstChunk(generator);
    latch.open();
    await expect(generator.next()).rejects.toMatchObject({ code: 'sync.storage.unavailable' });
    expect(h.events).toContainEqual(
      expect.objectContaining({ type: 'storage.failed', partition: PARTITION }),
    );
    expect(await h.clientRecord()).toBeNull();
  });

  test('a client record that cannot be stored withholds END', async () => {
    intercept = ({ method }) => {
      if (method === 'saveClient') throw new StorageError('sync.storage.unavailable', 'gone');
    };
    const generator = await h.start({ subscriptions: [notes('n', -1)] });
    await expect(generator.next()).rejects.toMatchObject({ code: 'sync.storage.unavailable' });
  });

  test('R-056, R-057: the error stream', () => {
    const error = new SyncError('sync.unknown_table', 'no such table');
    const frames = decodeResponse(errorStream(error, { wireVersion: 2, logEpoch: 'e' }));
    expect(frames).toMatchObject([
      { type: 'RESP_HEADER', logEpoch: 'e', resetRequired: false },
      { type: 'ERROR', code: 'sync.unknown_table', recommendedAction: 'regenerateClient' },
    ]);
    const wire1 = decodeResponse(errorStream(error, { wireVersion: 1, logEpoch: 'e' }));
    expect(wire1[0]).toMatchObject({ type: 'RESP_HEADER', logEpoch: undefined });
  });
});

describe('readers that leave', () => {
  test('an abort ends production and is thrown', async () => {
    await h.commit([h.note('a', 'p1')]);
    const latch = new Latch();
    intercept = holdReadsOf('notes', latch);
    const abort = new AbortController();
    const generator = await h.start({ subscriptions: [notes('n', -1)], signal: abort.signal });
    const step = generator.next().catch((error: unknown) => error);
    await h.clock.settle();
    abort.abort(new Error('the socket is gone'));
    latch.open();
    expect(await step).toMatchObject({ message: 'the socket is gone' });
    expect(await h.clientRecord()).toBeNull();
    expect(h.deps.segmentBuilds.inFlight).toBe(0);
  });

  test('an abort before the pushes keeps them from running', async () => {
    const spec = { pushes: [h.push([h.note('a', 'p1')])], signal: AbortSignal.abort(new Error('gone')) };
    const generator = await h.start(spec);
    await expect(generator.next()).rejects.toThrow('gone');
    expect((await h.readState()).head).toBe(0);
  });

  test('after an abort nothing leaves, not even what was produced before', async () => {
    await h.close();
    await open({ limits: { responseChunkBytes: 1_000 } });
    for (let i = 0; i < 5; i++) await h.commit([h.note(`n${i}`, 'p1', 'x'.repeat(1_000))]);
    const abort = new AbortController();
    const generator = await h.start({ subscriptions: [notes('n', 0)], signal: abort.signal });
    await firstChunk(generator);
    await h.clock.settle();
    abort.abort(new Error('the grant ended'));
    await expect(generator.next()).rejects.toThrow('the grant ended');
    expect(await h.clientRecord()).toBeNull();
  });

  test('an abort ends even one long page', async () => {
    await h.close();
    await open({ limits: { segmentBlockRows: 1, responseChunkBytes: 1_000 } });
    await h.commit(Array.from({ length: 50 }, (_, i) => h.note(`n${i}`, 'p1', 'x'.repeat(1_000))));
    const abort = new AbortController();
    let reads = 0;
    intercept = ({ method }) => {
      if (method === 'readRowPage' && ++reads === 3) abort.abort(new Error('gone'));
    };
    const generator = await h.start({ subscriptions: [notes('n', -1)], signal: abort.signal });
    await expect(generator.next()).rejects.toThrow('gone');
    expect(reads).toBeLessThan(6);
  });

  test('a consumer that stops ends the reading', async () => {
    await h.close();
    await open({ limits: { responseChunkBytes: 1_000 } });
    await h.commit(Array.from({ length: 50 }, (_, i) => h.note(`n${i}`, 'p1', 'x'.repeat(1_000))));
    let reads = 0;
    intercept = ({ method }) => {
      if (method === 'readRowPage') reads++;
    };
    const pull = { limitSnapshotRows: 1, maxSnapshotPages: 50 };
    const generator = await h.start({ pull, subscriptions: [notes('n', -1)] });
    await firstChunk(generator);
    await generator.return({ kind: 'header-only', wireVersion: 2, finalChunk: new Uint8Array() });
    expect(reads).toBeLessThan(50);
  });

  test('a consumer that stops lets production stop, and nothing is recorded', async () => {
    await h.commit([h.note('a', 'p1')]);
    const latch = new Latch();
    intercept = holdReadsOf('tasks', latch);
    const generator = await h.start({ subscriptions: [notes('n', -1), tasks('t', -1)] });
    await firstChunk(generator);
    const returned = generator.return({ kind: 'header-only', wireVersion: 2, finalChunk: new Uint8Array() });
    latch.open();
    expect((await returned).done).toBe(true);
    expect(await h.clientRecord()).toBeNull();
    expect(h.deps.segmentBuilds.inFlight).toBe(0);
  });
});

describe('part 4, 4.3: the serve gate of the pull half', () => {
  test('a rotation between admission and snapshot refuses before a byte leaves', async () => {
    await h.commit([h.note('a', 'p1')]);
    const { storage } = h;
    intercept = async ({ method, on }) => {
      if (on !== 'storage' || method !== 'readSnapshot') return;
      intercept = () => undefined;
      await storage.rotateEpoch({ partition: PARTITION, logEpoch: 'rotated' });
    };
    const generator = await h.start({ logEpoch: 'id-1', subscriptions: [notes('n', -1)] });
    await expect(generator.next()).rejects.toMatchObject({
      code: 'sync.schema_not_ready',
      details: { logEpochChanged: true },
    });
    expect(await h.clientRecord()).toBeNull();
    expect(h.deps.segmentBuilds.inFlight).toBe(0);
  });

  test('a refusal after the pushes replaces the whole response; the retry is cached', async () => {
    const logEpoch = await h.admit();
    let isOlder = true;
    intercept = ({ method }) => {
      if (method === 'state' && isOlder) throw new SyncError('sync.schema_not_ready', 'not ready');
    };
    const spec = { logEpoch, pushes: [h.push([h.note('a', 'p1')], 'mine')], subscriptions: [notes('n', 0)] };
    const generator = await h.start(spec);
    await expect(generator.next()).rejects.toMatchObject({ code: 'sync.schema_not_ready' });
    expect(h.published.map(({ commitSeq }) => commitSeq)).toEqual([1]);
    isOlder = false;
    const { frames } = await h.round(spec);
    expect(frames[1]).toMatchObject({ status: 'cached', commitSeq: 1 });
    expect(h.published).toHaveLength(1);
  });
});
