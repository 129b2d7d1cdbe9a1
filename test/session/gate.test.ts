/** The serve gate as a pure function (part 4, 4.3). */
import { describe, expect, test } from 'vitest';
import { compileDeclarations, NOTHING_DECLARED } from '../../src/session/sync/declarations.ts';
import { askGate, gateOf, serveGateRefusal } from '../../src/session/sync/gate.ts';
import type { SyncEvent } from '../../src/session/sync/sync-deps.ts';
import type { PartitionState } from '../../src/storage/storage.ts';

const RUNNING = 3;
const open = { storedSchemaVersion: RUNNING, logEpoch: 'e1', pending: [] };
const expected = { partition: 'p1', logEpoch: 'e1' };
const own = { partition: 'p1', name: 'totals' };
const foreign = { partition: 'p2', name: 'secret-of-p2' };

function refusal(gate: Parameters<typeof serveGateRefusal>[0], declarations = NOTHING_DECLARED) {
  return serveGateRefusal(gate, RUNNING, declarations, expected);
}

describe('serveGateRefusal', () => {
  test('an open gate refuses nothing', () => {
    expect(refusal(open)).toBeNull();
  });

  test.each([2, 4])('schema: the database is at version %d', (storedSchemaVersion) => {
    expect(refusal({ ...open, storedSchemaVersion })).toEqual({
      kind: 'schema',
      details: { storedSchemaVersion, runningSchemaVersion: RUNNING },
    });
  });

  test('epoch: the partition has another one than the request was admitted with', () => {
    expect(refusal({ ...open, logEpoch: 'e2' })).toEqual({
      kind: 'epoch',
      details: { logEpochChanged: true },
    });
  });

  test('checkpoint: one of this partition refuses, declared or not, and is named with its partition', () => {
    const answer = { kind: 'checkpoint', details: { partition: 'p1', projection: 'totals' } };
    expect(refusal({ ...open, pending: [foreign, own] })).toEqual(answer);
    const declarations = compileDeclarations([{ ...own, schemaVersion: RUNNING }], RUNNING);
    expect(refusal({ ...open, pending: [own] }, declarations)).toEqual(answer);
  });

  test("checkpoint: another partition's refuses unless declared, and its partition is not named", () => {
    const gate = { ...open, pending: [foreign] };
    expect(refusal(gate)).toEqual({ kind: 'checkpoint', details: { projection: 'secret-of-p2' } });
    expect(refusal(gate, compileDeclarations([{ ...foreign, schemaVersion: RUNNING }], RUNNING))).toBeNull();
    const sameName = compileDeclarations(
      [{ partition: 'p3', name: foreign.name, schemaVersion: RUNNING }],
      RUNNING,
    );
    expect(refusal(gate, sameName)?.kind).toBe('checkpoint');
  });

  test('the first of the table wins', () => {
    const all = { storedSchemaVersion: 4, logEpoch: 'e2', pending: [own] };
    expect(refusal(all)?.kind).toBe('schema');
    expect(refusal({ ...all, storedSchemaVersion: RUNNING })?.kind).toBe('epoch');
  });
});

describe('the gate in a partition state', () => {
  const state: PartitionState = {
    ...open,
    partition: 'p1',
    head: 0,
    horizon: 0,
    epochRequired: false,
    newestCheckpointVersion: 0,
  };

  test('only checkpoints of the running version count', () => {
    const pending = [
      { ...own, schemaVersion: RUNNING - 1 },
      { ...foreign, schemaVersion: RUNNING },
    ];
    expect(gateOf({ ...state, pending }, RUNNING).pending).toEqual([{ ...foreign, schemaVersion: RUNNING }]);
  });

  test('every kind has the same message; names and numbers travel in details; the refusal is an event', () => {
    const refused: PartitionState[] = [
      { ...state, storedSchemaVersion: 4 },
      { ...state, logEpoch: 'e2' },
      { ...state, pending: [{ ...own, schemaVersion: RUNNING }] },
    ];
    const events: SyncEvent[] = [];
    const deps = {
      schema: { version: RUNNING },
      declarations: NOTHING_DECLARED,
      events: { emit: (event: SyncEvent) => void events.push(event) },
    };
    const errors = refused.map((each) => askGate(each, expected, deps));
    for (const error of errors) {
      expect(error).toMatchObject({ code: 'sync.schema_not_ready', httpStatus: 503 });
    }
    expect(new Set(errors.map((error) => error?.message)).size).toBe(1);
    expect(events.map((event) => (event.type === 'gate.refused' ? event.kind : event.type))).toEqual([
      'schema',
      'epoch',
      'checkpoint',
    ]);
    expect(askGate(state, expected, deps)).toBeNull();
  });
});

describe('compileDeclarations', () => {
  test.each([
    ['an empty name', [{ partition: 'p', name: '', schemaVersion: 1 }]],
    ['an empty partition', [{ partition: '', name: 'n', schemaVersion: 1 }]],
    ['a version that is none', [{ partition: 'p', name: 'n', schemaVersion: 0 }]],
    ['a version above the running one', [{ partition: 'p', name: 'n', schemaVersion: RUNNING + 1 }]],
    [
      'the same checkpoint twice',
      [
        { partition: 'p', name: 'n', schemaVersion: 1 },
        { partition: 'p', name: 'n', schemaVersion: 2 },
      ],
    ],
  ])('%s is refused', (_name, list) => {
    expect(() => compileDeclarations(list, RUNNING)).toThrow(RangeError);
  });
});
