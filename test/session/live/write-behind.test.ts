/** Cursors and last-seen times, written behind (architecture §4.7). */
import { describe, expect, test } from 'vitest';
import { DEFAULT_LIMITS } from '../../../src/protocol/limits.ts';
import { createCursorWriter } from '../../../src/session/live/cursor-writer.ts';
import { createLastSeen } from '../../../src/session/live/last-seen.ts';
import type { LiveEvent } from '../../../src/session/live/live-events.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { LogStorage } from './support/log-storage.ts';

function setUp() {
  const clock = new ManualClock();
  const storage = new LogStorage();
  const events: LiveEvent[] = [];
  const limits = { ...DEFAULT_LIMITS, cursorFlushMs: 1_000, lastSeenFlushMs: 5_000 };
  const deps = { clock, storage, limits, events: { emit: (event: LiveEvent) => void events.push(event) } };
  const cursors = createCursorWriter(deps);
  const written = () =>
    storage.saved.map((updates) => updates.map(({ mode, cursor }) => `${mode} ${cursor}`));
  return { clock, storage, events, cursors, lastSeen: createLastSeen(deps), written };
}

const key = { partition: 'p', clientId: 'c' };
const other = { partition: 'p', clientId: 'd' };

describe('cursors', () => {
  test.each([
    [
      'a pull replaces an ack',
      [
        ['acked', 9],
        ['pulled', 4],
      ],
      'set 4',
    ],
    [
      'an ack raises a pull',
      [
        ['pulled', 4],
        ['acked', 9],
      ],
      'set 9',
    ],
    [
      'an ack below a pull changes nothing',
      [
        ['pulled', 4],
        ['acked', 2],
      ],
      'set 4',
    ],
    [
      'acks only raise',
      [
        ['acked', 9],
        ['acked', 3],
      ],
      'raise 9',
    ],
    [
      'the last pull counts',
      [
        ['pulled', 9],
        ['acked', 11],
        ['pulled', 5],
      ],
      'set 5',
    ],
  ] as const)('%s', async (_name, notes, expected) => {
    const { clock, cursors, written } = setUp();
    for (const [what, cursor] of notes) cursors[what](key, cursor);
    await clock.advanceSettled(1_000, 1_000);
    expect(written()).toEqual([[expected]]);
  });

  test('one write per interval for all clients, none while nothing moves', async () => {
    const { clock, cursors, written } = setUp();
    for (let n = 0; n < 5; n++) {
      cursors.acked(key, n);
      cursors.acked(other, n);
    }
    await clock.advanceSettled(10_000, 500);
    expect(written()).toEqual([['raise 4', 'raise 4']]);
    expect(clock.timersWaiting).toBe(0);
  });

  test('flush of a clean client writes nothing, of a dirty one everything', async () => {
    const { cursors, written } = setUp();
    cursors.acked(other, 1);
    await cursors.flush(key);
    expect(written()).toEqual([]);
    cursors.acked(key, 2);
    await Promise.all([cursors.flush(key), cursors.flush(key), cursors.flush(other)]);
    expect(written()).toEqual([['raise 1', 'raise 2']]);
  });

  test('flush waits for the write that holds the client', async () => {
    const { clock, storage, cursors } = setUp();
    const release = storage.hold('saveCursors');
    cursors.acked(key, 1);
    const first = cursors.flushAll();
    let isDone = false;
    const second = cursors.flush(key).then(() => {
      isDone = true;
    });
    await clock.settle();
    expect(isDone).toBe(false);
    release();
    await Promise.all([first, second]);
    expect(isDone).toBe(true);
    expect(storage.saved.length).toBe(1);
  });

  test('a failed write is told, kept below what came later, and tried again', async () => {
    const { clock, storage, cursors, events, written } = setUp();
    const release = storage.hold('saveCursors');
    storage.fail('saveCursors');
    cursors.pulled(key, 4);
    cursors.acked(other, 7);
    const failing = cursors.flushAll();
    const outcome = expect(failing).rejects.toThrow('the database is away');
    cursors.acked(key, 6);
    release();
    await outcome;
    expect(events).toMatchObject([{ type: 'write_behind.failed', what: 'cursors', entries: 2 }]);
    await clock.advanceSettled(1_000, 1_000);
    expect(written()).toEqual([['set 6', 'raise 7']]);
  });

  test('a failure of the interval is not an unhandled rejection', async () => {
    const { clock, storage, cursors, written } = setUp();
    storage.fail('saveCursors', 2);
    cursors.acked(key, 1);
    await clock.advanceSettled(5_000, 500);
    expect(written()).toEqual([['raise 1']]);
  });
});

describe('last seen', () => {
  test('S-028: at most one write per interval, with the newest time of each partition', async () => {
    const { clock, storage, lastSeen } = setUp();
    lastSeen.touch('a');
    clock.advance(1_000);
    lastSeen.touch('a');
    lastSeen.touch('b');
    const seenMs = clock.nowMs();
    await clock.advanceSettled(10_000, 1_000);
    expect(storage.touched.map((seen) => [...seen])).toEqual([
      [
        ['a', seenMs],
        ['b', seenMs],
      ],
    ]);
    expect(clock.timersWaiting).toBe(0);
  });

  test('a failed write is told and tried again', async () => {
    const { clock, storage, lastSeen, events } = setUp();
    storage.fail('touchPartitions');
    lastSeen.touch('a');
    await clock.advanceSettled(5_000, 5_000);
    expect(events).toMatchObject([{ type: 'write_behind.failed', what: 'last-seen', entries: 1 }]);
    await clock.advanceSettled(5_000, 5_000);
    expect(storage.touched.length).toBe(1);
  });

  test('flush writes at once', async () => {
    const { storage, lastSeen, clock } = setUp();
    lastSeen.touch('a');
    await lastSeen.flush();
    await lastSeen.flush();
    expect(storage.touched.length).toBe(1);
    expect(clock.timersWaiting).toBe(0);
  });
});
