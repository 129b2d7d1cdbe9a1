/**
 * A commit of a few bytes may touch a row of megabytes, and be answered with it. What a batch holds in memory, and what one
 * response carries, is bounded all the same; and a client that takes the answers in smaller parts gets all of them.
 */
import { afterEach, describe, expect, test } from 'vitest';
import type { PushCommitFrame } from '../../src/protocol/frames.ts';
import type { PushOutcome } from '../../src/session/sync/sync-deps.ts';
import { type HarnessOptions, PushHarness, verdict } from './support/push-harness.ts';

const ROW_BYTES = 10_000;
const CONFLICT = 'sync.version_conflict';

let host: PushHarness;
afterEach(() => host.close());

/** A partition with `rows` large rows. */
async function open(limits: HarnessOptions['limits'], rows = 1): Promise<void> {
  host = await PushHarness.open({ limits });
  for (let i = 0; i < rows; i++) await host.push(host.task(`large-${i}`, { title: 'x'.repeat(ROW_BYTES) }));
  host.events.length = 0;
}

const stale = (row = 0): PushCommitFrame => host.commit(host.task(`large-${row}`, {}, 77));
const batches = (): number[] => host.eventsOf('commit.batch').map(({ rejected }) => rejected);
const rowBytes = ({ result }: PushOutcome): number => {
  const [record] = result.results;
  return record?.status === 'conflict' ? record.serverRow.length : 0;
};

describe('a batch ends early once it holds more than commitBatchBytesMax', () => {
  test('of rows in its answers: conflicts with one row, from many clients, all answered in the end', async () => {
    await open({ commitBatchBytesMax: 3 * ROW_BYTES });
    const clients = Array.from({ length: 12 }, (_, i) => `client-${i}`);
    const pushes = clients.map((clientId) => host.send({ clientId, commits: [stale()] }));
    const outcomes = (await Promise.all(pushes)).flat();
    expect(outcomes.map(verdict)).toEqual(clients.map(() => CONFLICT));
    expect(Math.max(...batches())).toBeLessThanOrEqual(3);
    expect(host.queue.depth).toBe(0);
  });

  test('of rows it read: large rows are updated by small commits, in order', async () => {
    await open({ commitBatchBytesMax: 20 * ROW_BYTES }, 64);
    const commits = Array.from({ length: 64 }, (_, i) => host.commit(host.task(`large-${i}`, { points: i })));
    const outcomes = await host.send({ commits });
    expect(outcomes.map(({ result }) => result.commitSeq)).toEqual(commits.map((_, i) => 65 + i));
    expect(host.eventsOf('commit.batch').map(({ commits }) => commits)).not.toContain(64);
    expect((await host.log()).map(({ commitSeq }) => commitSeq)).toEqual(
      Array.from({ length: 128 }, (_, i) => 1 + i),
    );
  });

  test('the commits it did not get to come before those that arrived later', async () => {
    await open({ commitBatchBytesMax: 1 });
    const first = host.send({ clientId: 'a', commits: [stale(), host.commit(host.task('n')), stale()] });
    const second = host.send({ clientId: 'b', commits: [host.commit(host.task('n', { points: 2 }))] });
    const [a, b] = await Promise.all([first, second]);
    expect(a.map(verdict)).toEqual([CONFLICT, 'applied', CONFLICT]);
    expect(b.map(verdict)).toEqual(['applied']);
    expect(b[0]!.result.commitSeq).toBe(a[1]!.result.commitSeq! + 1);
    expect(await host.row('tasks', 'n')).toMatchObject({ points: 2 });
  });

  test('S-129: a copy further down answers like the first, whichever batch it meets', async () => {
    await open({ commitBatchBytesMax: 1 });
    const commit = stale();
    const fresh = host.commit(host.task('n'));
    const outcomes = await host.send({ commits: [commit, fresh, commit, fresh] });
    expect(outcomes.map(({ result }) => result.status)).toEqual([
      'rejected',
      'applied',
      'rejected',
      'cached',
    ]);
    expect(outcomes[2]).toEqual(outcomes[0]);
  });
});

describe('one request is answered with at most pushAnswerBytesMax of conflicts', () => {
  test('over it: sync.too_many_operations; in smaller parts every commit gets its one result', async () => {
    await open({ pushAnswerBytesMax: 4 * ROW_BYTES });
    const commits = Array.from({ length: 20 }, () => stale());
    await expect(host.send({ commits })).rejects.toMatchObject({ code: 'sync.too_many_operations' });
    expect(host.queue.depth).toBe(0);
    for (let at = 0; at < commits.length; at += 4) {
      const outcomes = await host.send({ commits: commits.slice(at, at + 4) });
      expect(outcomes.map(verdict)).toEqual([CONFLICT, CONFLICT, CONFLICT, CONFLICT]);
      expect(outcomes.map(rowBytes).every((bytes) => bytes > ROW_BYTES)).toBe(true);
    }
  });

  test('a single commit is answered, however large its conflict', async () => {
    await open({ pushAnswerBytesMax: 1 });
    expect(verdict((await host.send({ commits: [stale()] }))[0]!)).toBe(CONFLICT);
  });

  test('what was applied before stays and answers cached; neighbours are not touched', async () => {
    await open({ pushAnswerBytesMax: ROW_BYTES, commitBatchBytesMax: 2 * ROW_BYTES });
    const applied = host.commit(host.task('n'));
    const late = host.commit(host.task('late'));
    const large = host.send({ clientId: 'a', commits: [applied, stale(), stale(), stale(), late] });
    const neighbour = host.send({ clientId: 'b', commits: [host.commit(host.task('m'))] });
    await expect(large).rejects.toMatchObject({ code: 'sync.too_many_operations' });
    expect((await neighbour).map(verdict)).toEqual(['applied']);
    expect(await host.row('tasks', 'late')).toBeNull();
    const again = await host.send({ clientId: 'a', commits: [applied, late] });
    expect(again.map(({ result }) => result.status)).toEqual(['cached', 'applied']);
    expect(host.queue.depth).toBe(0);
  });
});
