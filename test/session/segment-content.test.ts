/** The bytes of a rows segment as a strict reader sees them (§5.1, §5.2). */
import { afterEach, beforeEach, expect, test } from 'vitest';
import type { SegmentRefFrame } from '../../src/protocol/frames.ts';
import { checkSegment, decodeSegment, matchSegment } from '../../src/protocol/segment.ts';
import { PARTITION, SyncHarness, sha256, subscription } from '../support/sync-harness.ts';
import { sectionOf } from '../support/sync-sections.ts';

let h: SyncHarness;
beforeEach(async () => {
  h = await SyncHarness.open({ limits: { segmentBlockRows: 2 } });
});
afterEach(() => h.close());

async function segmentOf(table: string, scopes: Record<string, string[]>) {
  const spec = { pull: { accept: 0b10 }, subscriptions: [subscription('s', table, scopes)] };
  const ref = sectionOf((await h.round(spec)).frames, 's').segments[0] as SegmentRefFrame;
  return { ref, bytes: (await h.segments.read(PARTITION, ref.segmentId))! };
}

test('S-075: the id is the hash of the uncompressed bytes', async () => {
  await h.commit([h.note('a', 'p1')]);
  const { ref, bytes } = await segmentOf('notes', { project: ['p1'] });
  expect(ref.segmentId).toBe(`sha256:${sha256(bytes)}`);
});

test('S-076, S-034: strict decoding, exact versions, payloads verbatim, blocks as bounded', async () => {
  await h.commit(['a', 'b', 'c', 'd', 'e'].map((id) => h.note(id, 'p1')));
  await h.commit([h.note('c', 'p1', 'again')]);
  const { bytes } = await segmentOf('notes', { project: ['p1'] });
  checkSegment(bytes);
  const { blocks } = decodeSegment(bytes);
  expect(blocks.map((rows) => rows.length)).toEqual([2, 2, 1]);
  const rows = blocks.flat();
  expect(rows.map(({ serverVersion }) => serverVersion)).toEqual([1, 1, 2, 1, 1]);
  expect(rows[2]!.payload).toEqual(
    h.payload('notes', { id: 'c', project: 'p1', title: 'again', rank: null }),
  );
});

test('S-077: the column table is the schema of the table', async () => {
  await h.commit([h.upsert('tasks', { id: 't', project: 'p1', owner: 'o', done: true })]);
  const { bytes } = await segmentOf('tasks', { owner: ['o'] });
  expect(matchSegment(decodeSegment(bytes), h.schema)).toBe(h.table('tasks'));
});
