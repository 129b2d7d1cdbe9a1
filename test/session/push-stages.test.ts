/** Decode, merge, blobs, atomicity: one commit's way through its stages (part 2.24 decision 20). */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import type { PushOperation } from '../../src/protocol/frames.ts';
import type { CrdtMerger } from '../../src/session/sync/sync-deps.ts';
import { overridden, withTx } from './support/faulty-storage.ts';
import { type HarnessOptions, PushHarness, rejection, verdict } from './support/push-harness.ts';

let host: PushHarness;

const open = async (options: HarnessOptions): Promise<void> => {
  await host.close();
  host = await PushHarness.open(options);
};

beforeEach(async () => {
  host = await PushHarness.open();
});

afterEach(async () => {
  await host.close();
});

describe('decode', () => {
  test('an unknown table and an undecodable payload reject their own commit only (S-021, S-135)', async () => {
    const outcomes = await host.send({
      commits: [
        host.commit(host.task('t1')),
        host.commit({ ...host.task('t2'), table: 'nowhere' }),
        host.commit(host.task('t3')),
        host.commit({ ...host.task('t4'), payload: Uint8Array.of(0, 1, 2) }),
        host.commit(host.task('t5')),
      ],
    });
    expect(outcomes.map(verdict)).toEqual([
      'applied',
      'sync.unknown_table',
      'applied',
      'sync.invalid_request',
      'applied',
    ]);
    expect((await host.log()).map(({ commitSeq, changes }) => [commitSeq, changes[0]!.rowId])).toEqual([
      [1, 't1'],
      [2, 't3'],
      [3, 't5'],
    ]);
    expect(rejection(outcomes[1]!)).toMatchObject({ opIndex: 0, status: 'error', retryable: false });
  });

  test('the first operation that fails ends the commit, whichever stage it fails in', async () => {
    const foreign = host.task('t1', { project_id: 'elsewhere' });
    const broken = { ...host.task('t2'), payload: Uint8Array.of(255) };
    expect(rejection(await host.push(foreign, broken))).toMatchObject({ opIndex: 0, code: 'sync.forbidden' });
    expect(rejection(await host.push(broken, foreign))).toMatchObject({
      opIndex: 0,
      code: 'sync.invalid_request',
    });
    expect(rejection(await host.push(host.task('t3'), broken))).toMatchObject({
      opIndex: 1,
      code: 'sync.invalid_request',
    });
    expect(await host.log()).toEqual([]);
  });

  test.each<[string, (h: PushHarness) => PushOperation]>([
    ['a rowId that is not the primary key', (h) => ({ ...h.task('t1'), rowId: 't2' })],
    [
      'an integer key in another spelling',
      (h) => ({ ...h.upsert('notes', { id: 7, org: 'o1' }), rowId: '07' }),
    ],
    ['a text with a NUL character', (h) => h.task('t1', { title: 'a\0b' })],
    ['a rowId with a NUL character', (h) => h.task('t\0')],
    ['a deleted rowId with a NUL character', (h) => h.delete('tasks', 't\0')],
    ['bytes left over', (h) => ({ ...h.task('t1'), payload: Uint8Array.of(...h.task('t1').payload!, 0) })],
  ])('%s is sync.invalid_request, without the value in the message', async (_name, make) => {
    const record = rejection(await host.push(host.task('fine'), make(host)));
    expect(record).toMatchObject({ opIndex: 1, status: 'error', code: 'sync.invalid_request' });
    expect(record.message).not.toMatch(/\0|t1|07|a.b/);
    expect(await host.log()).toEqual([]);
  });

  test('the message says which column cannot be stored and why', async () => {
    const record = rejection(await host.push(host.task('t1', { title: 'a\0b' })));
    expect(record.message).toBe('column title cannot be stored: holds a NUL character');
  });

  test('a clientCommitId that no database can hold is refused, not stored', async () => {
    const commit = { ...host.commit(host.task('t1')), clientCommitId: 'c\0' };
    const [outcome, neighbour] = await host.send({ commits: [commit, host.commit(host.task('t2'))] });
    expect(rejection(outcome!)).toMatchObject({ opIndex: 0, code: 'sync.invalid_request' });
    expect(verdict(neighbour!)).toBe('applied');
  });
});

describe('one commit applies in full or not at all (S-133)', () => {
  test('the last of many operations fails', async () => {
    await host.push(host.task('kept', { title: 'before' }));
    const outcome = await host.push(
      host.task('kept', { title: 'after' }),
      host.task('new'),
      host.delete('tasks', 'kept'),
      host.task('missing', {}, 4),
    );
    expect(rejection(outcome)).toMatchObject({ opIndex: 3, code: 'sync.row_missing' });
    expect(await host.row('tasks', 'kept')).toMatchObject({ title: 'before' });
    expect(await host.stored('tasks', 'new')).toBeNull();
    expect(await host.log()).toHaveLength(1);
  });

  test('a later commit of the request does not see what a rejected one had staged', async () => {
    const outcomes = await host.send({
      commits: [
        host.commit(host.task('t1', { title: 'staged' }), host.task('x', {}, 4)),
        host.commit(host.task('t1', {}, 1)),
        host.commit(host.task('t1', { title: 'first' }, 0)),
        host.commit(host.task('t1', { title: 'second' }, 1)),
        host.commit(host.delete('tasks', 't1')),
        host.commit(host.task('t1', { title: 'third' }, 0)),
      ],
    });
    expect(outcomes.map(verdict)).toEqual([
      'sync.row_missing',
      'sync.row_missing',
      'applied',
      'applied',
      'applied',
      'applied',
    ]);
    expect(outcomes.map(({ result }) => result.commitSeq)).toEqual([undefined, undefined, 1, 2, 3, 4]);
    expect(await host.row('tasks', 't1')).toMatchObject({ title: 'third' });
    expect((await host.stored('tasks', 't1'))!.serverVersion).toBe(1);
  });

  test('result records per status (S-126)', async () => {
    const applied = await host.push(host.task('t1'), host.task('t2'), host.delete('tasks', 'x'));
    expect(applied).toEqual({
      result: {
        type: 'PUSH_RESULT',
        clientCommitId: 'commit-1',
        status: 'applied',
        commitSeq: 1,
        results: [0, 1, 2].map((opIndex) => ({ opIndex, status: 'applied' })),
      },
      details: null,
    });
    const rejected = await host.push(host.task('t1'), host.task('t2', {}, 9), host.task('t3', {}, 9));
    expect(rejected.result).toEqual({
      type: 'PUSH_RESULT',
      clientCommitId: 'commit-2',
      status: 'rejected',
      results: [expect.objectContaining({ opIndex: 1, status: 'conflict', serverVersion: 1 })],
    });
  });
});

test('a row that would persist without the scopes it was authorized by: sync.missing_scopes (S-041)', async () => {
  // A storage with a defect: its stored row and its stored scopes disagree.
  await open({
    wrap: (storage) =>
      withTx(storage, (tx) =>
        overridden(tx, {
          readRows: async (table, rowIds) => {
            const rows = await tx.readRows(table, rowIds);
            return new Map([...rows].map(([id, row]) => [id, { ...row, scopes: { project_id: 'p2' } }]));
          },
        }),
      ),
  });
  await host.push(host.task('t1'));
  const outcome = await host.push(host.task('t1', { project_id: 'p1', title: 'x' }));
  expect(rejection(outcome)).toMatchObject({ code: 'sync.missing_scopes', retryable: false });
  expect(await host.log()).toHaveLength(1);
});

describe('blob references', () => {
  const ref = (digit: string) => `{"blobId":"sha256:${digit.repeat(64)}","byteLength":3}`;

  test('without a blob store a new reference rejects the whole commit, and that is not kept (S-110, decision 13)', async () => {
    const commit = host.commit(
      host.upsert('files', { id: 'f1', project_id: 'p1' }),
      host.upsert('files', { id: 'f2', project_id: 'p1', cover: ref('a') }),
    );
    const [outcome] = await host.send({ commits: [commit] });
    expect(rejection(outcome!)).toMatchObject({ opIndex: 1, code: 'blob.not_found', retryable: false });
    expect(await host.log()).toEqual([]);
    const uploaded = host.newQueue({ blobs: { exists: () => true } });
    const [later] = await uploaded.push(host.request({ commits: [commit] }));
    expect(verdict(later!)).toBe('applied');
  });

  test('only references the row does not hold yet are looked up, for this actor and partition', async () => {
    const asked: unknown[] = [];
    const exists = (reference: unknown) => {
      asked.push(reference);
      return Promise.resolve(true);
    };
    await open({ blobs: { exists } });
    const file = { id: 'f1', project_id: 'p1' };
    await host.push(host.upsert('files', { ...file, cover: ref('a'), body: ref('a') }));
    expect(asked).toEqual([{ partition: 'tenant-1', actorId: 'ada', blobId: `sha256:${'a'.repeat(64)}` }]);
    await host.push(host.upsert('files', { ...file, cover: null, body: ref('a') }));
    await host.push(host.upsert('files', { ...file, cover: ref('a'), body: null }));
    expect(asked).toHaveLength(1);
    await host.push(host.upsert('files', { ...file, cover: ref('a'), body: ref('b') }));
    expect(asked).toHaveLength(2);
  });

  test('a reference is looked up behind authorization and version check, before the validator', async () => {
    const seen: string[] = [];
    await open({
      blobs: { exists: () => seen.push('blob') > 0 },
      hooks: { rowValidators: new Map([['files', () => void seen.push('validator')]]) },
    });
    const row = { id: 'f1', project_id: 'p1', cover: ref('a') };
    await host.pushAs({ allowed: {} }, host.upsert('files', row));
    await host.push(host.upsert('files', row, 3));
    expect(seen).toEqual([]);
    await host.push(host.upsert('files', row));
    expect(seen).toEqual(['blob', 'validator']);
  });
});

describe('crdt columns (§5.10)', () => {
  /** A grow-only set of bytes, as one sorted list. */
  const union: CrdtMerger = (stored, incoming) =>
    Uint8Array.from(new Set([...(stored ?? []), ...incoming])).sort();
  const merging = (merge: CrdtMerger): HarnessOptions => ({
    hooks: { crdtMergers: new Map([['yjs-doc', merge]]) },
  });
  const note = (doc: number[] | null, more = {}, baseVersion?: number) =>
    host.upsert(
      'notes',
      { id: 1, org: 'o1', team: 1, doc: doc && Uint8Array.from(doc), ...more },
      baseVersion,
    );
  const doc = async () => [...((await host.row('notes', '1'))!.doc as Uint8Array)];

  test('merged bytes are stored and sent, on an insert too (S-115)', async () => {
    await open(merging(union));
    await host.push(note([9, 1]));
    expect(await doc()).toEqual([1, 9]);
    await host.push(note([5]));
    expect(await doc()).toEqual([1, 5, 9]);
    const [, update] = await host.log();
    const { payload } = (await host.stored('notes', '1'))!;
    expect(update!.changes[0]).toMatchObject({ op: 'upsert', rowVersion: 2, payload });
  });

  test('a push without baseVersion merges and cannot conflict; other columns are last-write-wins (S-116)', async () => {
    await open(merging(union));
    await host.push(note([1], { text: 'a' }));
    await host.push(note([2], { text: 'b' }));
    expect(verdict(await host.push(note([3], { text: 'c' })))).toBe('applied');
    expect(await doc()).toEqual([1, 2, 3]);
    expect(await host.row('notes', '1')).toMatchObject({ text: 'c' });
  });

  test('a conflict merges nothing and shows the merged value (S-117)', async () => {
    let merges = 0;
    await open(
      merging((stored, incoming) => {
        merges++;
        return union(stored, incoming);
      }),
    );
    await host.push(note([2, 1]));
    const record = rejection(await host.push(note([3], {}, 7)));
    expect(merges).toBe(1);
    if (record.status !== 'conflict') throw new Error('not a conflict');
    expect(host.decode('notes', record.serverRow).doc).toEqual(Uint8Array.of(1, 2));
  });

  test('a replay is not merged again (S-118)', async () => {
    let merges = 0;
    await open(
      merging((stored, incoming) => {
        merges++;
        return union(stored, incoming);
      }),
    );
    const commit = host.commit(note([1]));
    await host.send({ commits: [commit, commit] });
    const [replay] = await host.send({ commits: [commit] });
    expect(replay!.result.status).toBe('cached');
    expect(merges).toBe(1);
  });

  test('NULL replaces without a merge (decision 18), and a document starts again from empty', async () => {
    const inputs: (number[] | null)[] = [];
    await open(
      merging((stored, incoming) => {
        inputs.push(stored && [...stored]);
        return union(stored, incoming);
      }),
    );
    await host.push(note([1]));
    await host.push(note(null));
    expect(await host.row('notes', '1')).toMatchObject({ doc: null });
    await host.push(note([2]));
    expect(inputs).toEqual([null, null]);
    expect(await doc()).toEqual([2]);
  });

  test.each<[string, HarnessOptions]>([
    ['missing', {}],
    [
      'throwing',
      {
        hooks: {
          crdtMergers: new Map([
            [
              'yjs-doc',
              () => {
                throw new Error('secret');
              },
            ],
          ]),
        },
      },
    ],
  ])(
    'a %s merger: sync.crdt_merge_failed, rolled back, not kept (S-114, decision 13)',
    async (_name, options) => {
      await open(options);
      const commit = host.commit(host.task('t1'), note([1]));
      const [outcome] = await host.send({ commits: [commit] });
      expect(rejection(outcome!)).toMatchObject({
        opIndex: 1,
        code: 'sync.crdt_merge_failed',
        retryable: false,
      });
      expect(JSON.stringify(outcome)).not.toContain('secret');
      expect(await host.log()).toEqual([]);
      const repaired = host.newQueue(merging(union));
      const [later] = await repaired.push(host.request({ commits: [commit] }));
      expect(verdict(later!)).toBe('applied');
    },
  );

  test('updates in any order, repeated or not, end in the same value (S-113)', async () => {
    await open(merging(union));
    for (const order of [
      [1, 2, 3],
      [3, 1, 2, 1],
      [2, 2, 3, 1],
    ]) {
      await host.push(host.delete('notes', '1'));
      for (const update of order) await host.push(note([update]));
      expect(await doc()).toEqual([1, 2, 3]);
    }
  });
});

test('ciphertext is stored unchanged (S-120)', async () => {
  const secret = Uint8Array.of(1, 255, 0, 128);
  const operation = host.upsert('vaults', { id: 'v1', project_id: 'p1', secret });
  await host.push(operation);
  expect((await host.stored('vaults', 'v1'))!.payload).toEqual(operation.payload);
  expect(await host.row('vaults', 'v1')).toMatchObject({ secret });
});
