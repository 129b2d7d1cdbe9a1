/** Bootstraps: pages at a pin, suspended and resumed, and what travels inline. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { SegmentRefFrame } from '../../src/protocol/frames.ts';
import { decodeSegment } from '../../src/protocol/segment.ts';
import { Latch } from '../support/intercepted-storage.ts';
import { PARTITION, SyncHarness, type SyncHarnessOptions, subscription } from '../support/sync-harness.ts';
import { changedRows, inlineRows, type Section, sectionOf, sectionsOf } from '../support/sync-sections.ts';

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
const FAT = 'x'.repeat(1_000);
const notes = (rest: Parameters<typeof subscription>[3] = {}) => subscription('n', 'notes', P1, rest);
const writeMany = (count: number, title?: string): Promise<number> =>
  h.commit(Array.from({ length: count }, (_, i) => h.note(`n${String(i).padStart(3, '0')}`, 'p1', title)));

async function pull(rest: Parameters<typeof subscription>[3] = {}, header: object = {}): Promise<Section> {
  const { frames } = await h.round({ pull: header, subscriptions: [notes(rest)] });
  return sectionOf(frames, 'n');
}

/** What a client sends after the section. */
const resume = ({ end }: Section) => ({ cursor: end.nextCursor, bootstrapState: end.bootstrapState });
const tokenOf = ({ end }: Section) => JSON.parse(end.bootstrapState!);

describe('pages', () => {
  test('S-068, S-072: at most so many pages of so many rows, the pin everywhere, no token at the end', async () => {
    await writeMany(14);
    const limits = { limitSnapshotRows: 2, maxSnapshotPages: 3 };
    const first = await pull({}, limits);
    expect(first.start).toMatchObject({ status: 'active', bootstrap: true, effectiveScopes: P1 });
    expect(first.segments.map((segment) => inlineRows({ ...first, segments: [segment] }))).toEqual([
      ['n000', 'n001'],
      ['n002', 'n003'],
      ['n004', 'n005'],
    ]);
    expect(first.end.nextCursor).toBe(1);
    expect(tokenOf(first)).toMatchObject({
      asOfCommitSeq: 1,
      tables: ['notes'],
      tableIndex: 0,
      rowCursor: 'n005',
    });
    const second = await pull(resume(first), limits);
    expect(inlineRows(second)).toHaveLength(6);
    expect(second.end.nextCursor).toBe(1);
    const third = await pull(resume(second), limits);
    expect(inlineRows(third)).toEqual(['n012', 'n013']);
    expect(third.end).toMatchObject({ nextCursor: 1, bootstrapState: undefined });
  });

  test('S-068: a table that ends with its page needs no further pull', async () => {
    await writeMany(4);
    const section = await pull({}, { limitSnapshotRows: 2, maxSnapshotPages: 2 });
    expect(inlineRows(section)).toHaveLength(4);
    expect(section.end.bootstrapState).toBeUndefined();
  });

  test('S-069: the pin stays while others write, and the log replays what came after it', async () => {
    await writeMany(4);
    const limits = { limitSnapshotRows: 2, maxSnapshotPages: 1 };
    const first = await pull({}, limits);
    await h.commit([h.note('n000', 'p1', 'changed'), h.delete('notes', 'n003'), h.note('n9', 'p1')]);
    const second = await pull(resume(first), { ...limits, maxSnapshotPages: 9 });
    expect(inlineRows(second)).toEqual(['n002', 'n9']);
    expect(second.end).toMatchObject({ nextCursor: 1, bootstrapState: undefined });
    const replay = await pull(resume(second));
    expect(replay.start.bootstrap).toBe(false);
    expect(changedRows(replay)).toEqual(['n000', '-n003', 'n9']);
  });

  test('a page is cut at its byte bound, at a row boundary, and may be one fat row', async () => {
    await reopen({ limits: { segmentBytesMax: 2_500, segmentBlockBytes: 1_500, segmentBlockRows: 2 } });
    await writeMany(5, FAT);
    const section = await pull();
    expect(section.segments.map((segment) => inlineRows({ ...section, segments: [segment] }).length)).toEqual(
      [3, 2],
    );
    await reopen({ limits: { segmentBytesMax: 100, segmentBlockBytes: 100 } });
    await writeMany(3, FAT);
    expect((await pull()).segments).toHaveLength(3);
  });

  test('decision 4: no rows give one empty segment, so that the client clears', async () => {
    await h.commit([h.note('a', 'p2')]);
    const section = await pull();
    expect(section.start.bootstrap).toBe(true);
    expect(section.segments).toHaveLength(1);
    expect(inlineRows(section)).toEqual([]);
    expect(section.end).toMatchObject({ nextCursor: 1, bootstrapState: undefined });
  });

  test('a partition without commits bootstraps to 0', async () => {
    const section = await pull();
    expect(section.segments).toHaveLength(1);
    expect(section.end.nextCursor).toBe(0);
    expect((await pull({ cursor: 0 })).start).toMatchObject({ status: 'active', bootstrap: false });
  });

  test('a resumed page without rows is no segment, and the end', async () => {
    await writeMany(3);
    const first = await pull({}, { limitSnapshotRows: 2, maxSnapshotPages: 1 });
    await h.commit([h.delete('notes', 'n002')]);
    const second = await pull(resume(first));
    expect(second.start).toMatchObject({ status: 'active', bootstrap: false });
    expect(second.segments).toEqual([]);
    expect(second.end).toMatchObject({ nextCursor: 1, bootstrapState: undefined });
    expect(changedRows(await pull(resume(second)))).toEqual(['-n002']);
  });

  test('a round that pushes pins at its own commits', async () => {
    const { frames } = await h.round({ pushes: [h.push([h.note('a', 'p1')])], subscriptions: [notes()] });
    expect(inlineRows(sectionOf(frames, 'n'))).toEqual(['a']);
    expect(sectionOf(frames, 'n').end.nextCursor).toBe(1);
  });
});

describe('tokens that cannot be resumed', () => {
  const EXPIRED = {
    start: { status: 'reset', reasonCode: 'sync.cursor_expired' },
    segments: [],
    commits: [],
  };
  const limits = { limitSnapshotRows: 2, maxSnapshotPages: 1 };

  test('S-070, decision 1: a pin that was pruned is reset, and the client comes back at -1', async () => {
    await writeMany(4);
    const first = await pull({}, limits);
    await h.commit([h.note('later', 'p1')]);
    await h.storage.pruneLog({ partition: PARTITION, horizon: 2, commitsMax: 10 });
    const reset = await pull(resume(first), limits);
    expect(reset).toMatchObject({ ...EXPIRED, end: { nextCursor: 1 } });
    expect((await pull({}, limits)).end.nextCursor).toBe(2);
  });

  test.each([
    ['{}', '{}'],
    ['no object', '[1]'],
    [
      'of another table',
      '{"asOfCommitSeq":1,"tables":["tasks"],"tableIndex":0,"rowCursor":"a","scopeDigest":"","paramsDigest":""}',
    ],
  ])('S-071, decision 1: a token that is unusable is reset: %s', async (_title, bootstrapState) => {
    await writeMany(4);
    for (const cursor of [1, -1]) {
      expect(await pull({ cursor, bootstrapState })).toMatchObject({
        ...EXPIRED,
        end: { nextCursor: cursor },
      });
    }
  });

  test('decision 6: other effective scopes, decision 7: other params', async () => {
    await writeMany(4);
    const wide = subscription('n', 'notes', { project: ['p1', 'p2'] });
    const { frames } = await h.round({ pull: limits, subscriptions: [wide] });
    const suspended = resume(sectionOf(frames, 'n'));
    h.grants.set('actor-1', P1);
    const narrowed = await h.round({ pull: limits, subscriptions: [{ ...wide, ...suspended }] });
    expect(sectionOf(narrowed.frames, 'n')).toMatchObject(EXPIRED);
    const first = await pull({ params: '{"a":1}' }, limits);
    expect(await pull({ ...resume(first), params: '{"a":2}' }, limits)).toMatchObject(EXPIRED);
    expect(inlineRows(await pull({ ...resume(first), params: '{"a":1}' }, limits))).toEqual(['n002', 'n003']);
  });

  test('S-073, decision 3: a cursor above the log is reset', async () => {
    await writeMany(1);
    expect(await pull({ cursor: 11 })).toMatchObject({ ...EXPIRED, end: { nextCursor: 11 } });
  });
});

describe('pullBytesMax', () => {
  test('every fresh section clears its client, and all of them end with every row', async () => {
    await reopen({ limits: { pullBytesMax: 3_000, segmentBytesMax: 3_000 } });
    await writeMany(8, FAT);
    const ids = ['a', 'b', 'c'];
    const ask = ids.map((id) => subscription(id, 'notes', P1));
    const held: Record<string, unknown[]> = { a: ['stale'], b: ['stale'], c: ['stale'] };
    for (let pulls = 0; ask.some(({ cursor, bootstrapState }) => cursor < 0 || bootstrapState); pulls++) {
      expect(pulls).toBeLessThan(20);
      const { frames, bytes } = await h.round({
        pull: { limitSnapshotRows: 2, maxSnapshotPages: 2 },
        subscriptions: ask,
      });
      expect(bytes.length).toBeLessThan(3_000 + 3_000 + 1_000);
      for (const section of sectionsOf(frames)) {
        const i = ids.indexOf(section.start.id);
        expect(section.start.bootstrap).toBe(section.segments.length > 0);
        // §5.6: cleared at the first page, only for a request at -1 without a token.
        const clears = ask[i]!.cursor < 0 && ask[i]!.bootstrapState === undefined;
        if (clears && section.segments.length > 0) held[section.start.id] = [];
        held[section.start.id]!.push(...inlineRows(section));
        ask[i] = { ...ask[i]!, ...resume(section) };
      }
    }
    const all = Array.from({ length: 8 }, (_, i) => `n00${i}`);
    expect(held).toEqual({ a: all, b: all, c: all });
  });

  test('an empty first page whose pin was pruned restarts silently: the client has cleared', async () => {
    await reopen({ limits: { pullBytesMax: 1_500, segmentBytesMax: 1_500 } });
    await writeMany(3, FAT);
    const ask = [subscription('a', 'notes', P1), notes()];
    const { frames } = await h.round({ pull: { limitSnapshotRows: 2 }, subscriptions: ask });
    const starved = sectionOf(frames, 'n');
    expect(tokenOf(starved)).toMatchObject({ rowCursor: null });
    await h.commit([h.note('later', 'p1')]);
    await h.storage.pruneLog({ partition: PARTITION, horizon: 2, commitsMax: 10 });
    const restarted = await pull(resume(starved), { limitSnapshotRows: 1, maxSnapshotPages: 1 });
    expect(restarted.start).toMatchObject({ status: 'active', bootstrap: true });
    expect(restarted.end.nextCursor).toBe(2);
  });
});

describe('delivery', () => {
  const REF: Partial<SegmentRefFrame> = { type: 'SEGMENT_REF', mediaType: 'rows', table: 'notes' };

  test('S-059: bit 0 alone is all inline, bit 1 alone all references, both by size', async () => {
    await reopen({ limits: { segmentInlineBytesMax: 3_000 } });
    await writeMany(3, FAT);
    const types = async (accept: number, limitSnapshotRows: number) => {
      return (await pull({}, { accept, limitSnapshotRows })).segments.map(({ type }) => type);
    };
    expect(await types(0b01, 3)).toEqual(['SEGMENT_INLINE']);
    expect(await types(0b10, 3)).toEqual(['SEGMENT_REF']);
    expect(await types(0b10, 2)).toEqual(['SEGMENT_REF', 'SEGMENT_REF']);
    expect(await types(0b11, 3)).toEqual(['SEGMENT_REF']);
    expect(await types(0b11, 2)).toEqual(['SEGMENT_INLINE', 'SEGMENT_INLINE']);
  });

  test('S-059, decision 4: with bit 1 alone an empty table is a reference too', async () => {
    const { segments } = await pull({}, { accept: 0b10 });
    expect(segments).toMatchObject([{ ...REF, rowCount: 0 }]);
    const bytes = await h.segments.read(PARTITION, (segments[0] as SegmentRefFrame).segmentId);
    expect(decodeSegment(bytes!).blocks).toEqual([]);
  });

  test('S-060: no image without bit 2, no URL without bit 3, and none with them', async () => {
    await writeMany(2);
    for (const accept of [0b0010, 0b0110, 0b1010, 0b1110]) {
      const { segments } = await pull({}, { accept });
      expect(segments).toMatchObject([{ ...REF, url: undefined, urlExpiresAtMs: undefined }]);
    }
  });

  test('S-083, §5.4: a descriptor says pin, digest, length and its place among the pages', async () => {
    await writeMany(5);
    await h.commit([h.note('other', 'p2')]);
    const { segments, end } = await pull({}, { accept: 0b10, limitSnapshotRows: 2 });
    const digest = '5a993aa4d503af6f5dc77acc12ad399ff2e9d933c393f4de6af5f6aef4fa2977';
    const common = { ...REF, asOfCommitSeq: end.nextCursor, scopeDigest: digest };
    expect(segments).toMatchObject([
      { ...common, rowCount: 2, rowCursor: undefined, nextRowCursor: 'n001' },
      { ...common, rowCount: 2, rowCursor: 'n001', nextRowCursor: 'n003' },
      { ...common, rowCount: 1, rowCursor: 'n003', nextRowCursor: undefined },
    ]);
    for (const segment of segments as SegmentRefFrame[]) {
      const bytes = await h.segments.read(PARTITION, segment.segmentId);
      expect(bytes).toHaveLength(segment.byteLength);
    }
  });

  describe('a reference leaves only after its segment can be fetched', () => {
    let latch: Latch;
    const reopenWithHeldPuts = async (limits: SyncHarnessOptions['limits'] = {}): Promise<void> => {
      latch = new Latch();
      await reopen({
        limits,
        wrapSegments: (segments) => ({
          find: (key, nowMs) => segments.find(key, nowMs),
          entries: (partition, id) => segments.entries(partition, id),
          read: (partition, id) => segments.read(partition, id),
          sweep: (request) => segments.sweep(request),
          put: (entry, bytes) => latch.opened.then(() => segments.put(entry, bytes)),
        }),
      });
      await writeMany(3, FAT);
    };

    test('in the last chunk', async () => {
      await reopenWithHeldPuts();
      let ended = false;
      const section = pull({}, { accept: 0b10 }).finally(() => {
        ended = true;
      });
      await h.clock.settle();
      expect(ended).toBe(false);
      latch.open();
      const [ref] = (await section).segments as SegmentRefFrame[];
      expect(await h.segments.read(PARTITION, ref!.segmentId)).not.toBeNull();
    });

    test('in an earlier one', async () => {
      await reopenWithHeldPuts({ responseChunkBytes: 1 });
      const header = { accept: 0b10, limitSnapshotRows: 1 };
      const generator = await h.start({ pull: header, subscriptions: [notes()] });
      const texts: string[] = [];
      const consume = async (): Promise<void> => {
        for (let step = await generator.next(); !step.done; step = await generator.next()) {
          texts.push(Buffer.from(step.value).toString('latin1'));
        }
      };
      const consumed = consume();
      await h.clock.settle();
      expect(texts.length).toBeGreaterThan(0);
      expect(texts.join('')).not.toContain('sha256:');
      latch.open();
      await consumed;
      expect(texts.join('').split('sha256:')).toHaveLength(4);
    });
  });
});
