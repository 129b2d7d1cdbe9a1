/** The small parts: close frames, the wheel, the ring, the scope index. */
import fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { ScopeMap, StoredScopes } from '../../../src/protocol/frames.ts';
import { closeSocket, cutReason, sendableCode } from '../../../src/session/live/close-socket.ts';
import { Cohort } from '../../../src/session/live/cohort.ts';
import { CommitRing } from '../../../src/session/live/commit-ring.ts';
import type { LiveEvent } from '../../../src/session/live/live-events.ts';
import { RingEntry } from '../../../src/session/live/ring-entry.ts';
import { ScopeIndex } from '../../../src/session/live/scope-index.ts';
import { OFF_WHEEL, TickWheel } from '../../../src/session/live/tick-wheel.ts';
import { matchesScopes } from '../../../src/session/sync/scopes.ts';
import type { LogChange } from '../../../src/storage/storage.ts';
import { FakeConnection } from '../../support/fake-connection.ts';
import { ManualClock } from '../../support/manual-clock.ts';
import { change, note, registered } from './support/live-harness.ts';

describe('closing a socket', () => {
  test('the reason is cut to 123 bytes between characters, whatever it is', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme', maxLength: 300 }), (reason) => {
        const cut = cutReason(reason);
        expect(Buffer.byteLength(cut)).toBeLessThanOrEqual(123);
        expect(reason.startsWith(cut)).toBe(true);
        expect(/[\uD800-\uDFFF]/u.test(cut)).toBe(false);
        if (Buffer.byteLength(reason) <= 123) expect(cut).toBe(reason);
      }),
    );
    expect(cutReason('é'.repeat(70))).toBe('é'.repeat(61));
    expect(cutReason('a'.repeat(200)).length).toBe(123);
  });

  test('codes that may not be sent leave as 1011', () => {
    expect([1005, 1006, 1015, 999, 5000, 3000].map(sendableCode)).toEqual(new Array(6).fill(1011));
    expect([1000, 1008, 4401].map(sendableCode)).toEqual([1000, 1008, 4401]);
  });

  test('never throws', () => {
    const events: LiveEvent[] = [];
    const connection = new FakeConnection();
    connection.close = () => {
      throw new Error('already gone');
    };
    const sink = { emit: (event: LiveEvent) => void events.push(event) };
    closeSocket(connection, { code: 1000, reason: '' }, sink);
    expect(events.map(({ type }) => type)).toEqual(['socket.failed']);
  });
});

describe('the wheel', () => {
  class Entry {
    wheelTick = OFF_WHEEL;
    readonly ticks: number[] = [];
    next: number = Number.POSITIVE_INFINITY;

    onTick(nowMs: number): number {
      this.ticks.push(nowMs);
      return this.next;
    }
  }

  test('meets every deadline at most one tick late, and stops when nobody waits', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(5_000), { minLength: 1, maxLength: 30 }), fc.nat(200), (dues, startMs) => {
        const clock = new ManualClock();
        clock.advance(startMs);
        const wheel = new TickWheel(clock, 50);
        const entries = dues.map((dueMs) => {
          const entry = new Entry();
          wheel.schedule(entry, startMs + dueMs);
          return entry;
        });
        clock.advance(6_000);
        entries.forEach((entry, at) => {
          const dueMs = startMs + dues[at]!;
          expect(entry.ticks.length).toBe(1);
          expect(entry.ticks[0]).toBeGreaterThanOrEqual(dueMs);
          expect(entry.ticks[0]).toBeLessThanOrEqual(dueMs + 100);
        });
        expect([wheel.waiting, clock.timersWaiting]).toEqual([0, 0]);
      }),
    );
  });

  test('an earlier deadline wins, a cancelled one is silent, a returned one is kept', () => {
    const clock = new ManualClock();
    const wheel = new TickWheel(clock, 10);
    const [moved, cancelled, again] = [new Entry(), new Entry(), new Entry()];
    wheel.schedule(moved, 500);
    wheel.schedule(moved, 100);
    wheel.schedule(moved, 300);
    wheel.schedule(cancelled, 50);
    wheel.cancel(cancelled);
    again.next = 200;
    wheel.schedule(again, 100);
    clock.advance(150);
    again.next = Number.POSITIVE_INFINITY;
    clock.advance(1_000);
    expect([moved.ticks, cancelled.ticks, again.ticks]).toEqual([[100], [], [100, 200]]);
    wheel.schedule(cancelled, 0);
    clock.advance(30);
    expect(cancelled.ticks.length).toBe(1);
  });
});

describe('the ring', () => {
  const entry = (commitSeq: number, bytes: number): RingEntry =>
    new RingEntry({
      commitSeq,
      createdAtMs: 1,
      actorId: 'a',
      clientId: 'c',
      clientCommitId: `${commitSeq}`,
      changes: [note('p1', 'n', bytes)],
    });

  test('is bounded in commits and bytes, and knows what it covers', () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat(3_000), { maxLength: 300 }),
        fc.integer({ min: 1, max: 40 }),
        (sizes, max) => {
          const ring = new CommitRing({ ringCommitsMax: max, ringBytesMax: 20_000 }, 100);
          sizes.forEach((bytes, at) => {
            ring.push(entry(101 + at, bytes));
            expect(ring.length).toBeLessThanOrEqual(max);
            expect(ring.bytes).toBeLessThanOrEqual(20_000);
            const held = ring.after(ring.floorSeq).map(({ seq }) => seq);
            expect(held).toEqual(Array.from({ length: ring.length }, (_, n) => ring.floorSeq + 1 + n));
            expect(ring.floorSeq + ring.length).toBe(101 + at);
            expect([...ring.newestFirst(ring.floorSeq)].map(({ seq }) => seq)).toEqual([...held].reverse());
          });
        },
      ),
      { numRuns: 30 },
    );
  });
});

describe('the scope index', () => {
  const value = fc.constantFrom('a', 'b', 'c');
  const values = fc.uniqueArray(value, { minLength: 1, maxLength: 3 });
  const effective: fc.Arbitrary<ScopeMap> = fc.oneof(
    fc.record({ project: values }),
    fc.record({ owner: values }),
    fc.record({ project: values, owner: values }),
  );
  const stored: fc.Arbitrary<StoredScopes> = fc.record({ project: value, owner: value });
  const table = fc.constantFrom('notes', 'tasks');

  test('finds exactly the registrations that §3.2 matches, once, and forgets those that leave', () => {
    const registration = fc.record({ table, effective, leaves: fc.boolean() });
    fc.assert(
      fc.property(
        fc.array(registration, { maxLength: 12 }),
        fc.array(fc.record({ table, stored }), { minLength: 1, maxLength: 6 }),
        (registrations, changes) => {
          const index = new ScopeIndex();
          const cohorts = registrations.map(({ table, effective }) => {
            const identity = {
              wireVersion: 2,
              schemaVersion: 1,
              registrations: [registered('s', effective, { table })],
            } as const;
            const setting = {
              key: '',
              header: new Uint8Array(0),
              deltaBytesMax: 1_000_000,
              isServable: true,
            };
            const cohort = new Cohort(identity, { ...setting, encodeFailed: () => undefined });
            index.add(cohort.registrations[0]!);
            return cohort;
          });
          registrations.forEach(({ leaves }, at) => {
            if (leaves) index.remove(cohorts[at]!.registrations[0]!);
          });
          const logChanges: LogChange[] = changes.map((each) => change(each.table, each.stored));
          const commit = { commitSeq: 1, createdAtMs: 1, actorId: '', clientId: '', clientCommitId: '' };
          const ready = new Map<Cohort, number>();
          const addCohort = (cohort: Cohort) => void ready.set(cohort, (ready.get(cohort) ?? 0) + 1);
          index.match(new RingEntry({ ...commit, changes: logChanges }), { addCohort });
          registrations.forEach((each, at) => {
            const expected = changes.filter(
              (one) => !each.leaves && one.table === each.table && matchesScopes(each.effective, one.stored),
            );
            expect(ready.get(cohorts[at]!) ?? 0).toBe(expected.length);
          });
          for (const cohort of cohorts) index.remove(cohort.registrations[0]!);
          expect(index.size).toBe(0);
        },
      ),
    );
  });
});
