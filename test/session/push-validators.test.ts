/** The host's validators: what they see, when they run, how they reject (§6.7, §6.8, §6.3.1). */
import { afterEach, describe, expect, test } from 'vitest';
import type {
  CandidateReader,
  CommitOperation,
  CommitValidator,
  CommitValidatorInput,
  RowValidator,
  RowValidatorInput,
} from '../../src/session/sync/sync-deps.ts';
import { CommitValidationRejection, ValidationRejection } from '../../src/session/sync/validation.ts';
import { StorageError } from '../../src/storage/storage-error.ts';
import { overridden, withTx } from './support/faulty-storage.ts';
import { type HarnessOptions, PushHarness, rejection, verdict } from './support/push-harness.ts';

let host: PushHarness;

afterEach(async () => {
  await host.close();
});

const open = async (options: HarnessOptions): Promise<PushHarness> => {
  host = await PushHarness.open(options);
  return host;
};
const openWithRows = (validator: RowValidator, table = 'tasks') =>
  open({ hooks: { rowValidators: new Map([[table, validator]]) } });
const openWithCommits = (commitValidator: CommitValidator) => open({ hooks: { commitValidator } });

describe('row validators', () => {
  test('run after authorization, right before the write; a denied row never reaches one (S-137)', async () => {
    const seen: RowValidatorInput[] = [];
    await openWithRows((input) => void seen.push(input));
    await host.pushAs({ allowed: {} }, host.task('t1'));
    await host.push(host.task('t1', {}, 9));
    await host.push({ ...host.task('t1'), payload: Uint8Array.of(7) });
    expect(seen).toEqual([]);
    await host.push(host.task('t1', { title: 'a' }));
    expect(seen).toEqual([
      {
        op: 'upsert',
        table: 'tasks',
        rowId: 't1',
        actorId: 'ada',
        partition: 'tenant-1',
        row: { id: 't1', project_id: 'p1', title: 'a', points: null },
        stored: undefined,
      },
    ]);
  });

  test('see what will persist: stripped scopes, the merged document, and the stored row', async () => {
    const seen: RowValidatorInput[] = [];
    await open({
      hooks: {
        rowValidators: new Map([['notes', (input: RowValidatorInput) => void seen.push(input)]]),
        crdtMergers: new Map([['yjs-doc', (a, b) => Uint8Array.of(...(a ?? []), ...b)]]),
      },
    });
    const note = { id: 1, org: 'o1', team: 1, doc: Uint8Array.of(1) };
    await host.push(host.upsert('notes', note));
    await host.push(host.upsert('notes', { ...note, org: 'elsewhere', doc: Uint8Array.of(2) }));
    expect(seen[1]!.row).toMatchObject({ org: 'o1', doc: Uint8Array.of(1, 2) });
    expect(seen[1]!.stored).toMatchObject({ org: 'o1', doc: Uint8Array.of(1) });
  });

  test('see ciphertext as bytes (S-121)', async () => {
    let secret: unknown;
    await openWithRows(({ row }) => {
      secret = row!.secret;
    }, 'vaults');
    await host.push(host.upsert('vaults', { id: 'v', project_id: 'p1', secret: Uint8Array.of(1, 255) }));
    expect(secret).toEqual(Uint8Array.of(1, 255));
  });

  test('run for the delete of a row, with the stored one, and not for an absent row (S-141)', async () => {
    const seen: RowValidatorInput[] = [];
    await openWithRows((input) => void seen.push(input));
    await host.push(host.delete('tasks', 't1'));
    await host.push(host.task('t1'));
    await host.push(host.delete('tasks', 't1'));
    expect(seen.map(({ op }) => op)).toEqual(['upsert', 'delete']);
    expect(seen[1]).toMatchObject({ row: undefined, stored: { id: 't1' } });
  });

  test('cannot change what is stored (S-138)', async () => {
    await openWithRows(({ row, stored }) => {
      for (const object of [row, stored]) {
        if (object === undefined) continue;
        (object.secret as Uint8Array).fill(0);
        Object.assign(object, { id: 'other', project_id: 'p2' });
      }
    }, 'vaults');
    const vault = { id: 'v', project_id: 'p1', secret: Uint8Array.of(1, 2, 3) };
    for (const expected of ['applied', 'applied']) {
      const operation = host.upsert('vaults', vault);
      const pushed = Uint8Array.from(operation.payload!);
      expect(verdict(await host.push(operation))).toBe(expected);
      expect(await host.row('vaults', 'v')).toEqual(vault);
      // The typed columns are written from what the request's bytes say.
      expect(operation.payload).toEqual(pushed);
    }
  });

  test.each<[string, RowValidator]>([
    [
      'throwing',
      () => {
        throw new ValidationRejection('app.no', 'not this one');
      },
    ],
    ['rejecting', () => Promise.reject(new ValidationRejection('app.no', 'not this one'))],
  ])('a %s one ends the commit with the host’s code and text', async (_name, validator) => {
    await openWithRows(validator);
    const outcome = await host.push(host.delete('tasks', 'x'), host.task('t1'), host.task('t2'));
    expect(outcome).toEqual({
      result: {
        type: 'PUSH_RESULT',
        clientCommitId: 'commit-1',
        status: 'rejected',
        results: [{ opIndex: 1, status: 'error', code: 'app.no', message: 'not this one', retryable: false }],
      },
      details: null,
    });
    expect(await host.log()).toEqual([]);
    expect(host.eventsOf('push.rejected')).toMatchObject([{ code: 'app.no', opIndex: 1, actorId: 'ada' }]);
  });

  test('any other throw is sync.constraint_violation, without its text (S-140)', async () => {
    const failure = new Error('password=hunter2');
    await openWithRows(() => Promise.reject(failure));
    const outcome = await host.push(host.task('t1'));
    expect(rejection(outcome)).toMatchObject({ code: 'sync.constraint_violation', retryable: false });
    expect(JSON.stringify(outcome)).not.toContain('hunter2');
    expect(host.eventsOf('host.failed')).toMatchObject([{ hook: 'rowValidator', error: failure }]);
  });
});

describe('rejections as the host constructs them', () => {
  test.each(['sync.x', 'blob.x', 'operation.x', 'presence.x', 'client.x', '', 'a\uD800', 'x'.repeat(257)])(
    'the code %j is refused (S-139)',
    (code) => {
      expect(() => new ValidationRejection(code)).toThrow(RangeError);
      expect(() => new CommitValidationRejection(0, code)).toThrow(RangeError);
    },
  );

  test('a code is any other text, and a message has a default', () => {
    expect(new ValidationRejection('syncing').code).toBe('syncing');
    expect(new CommitValidationRejection(3, 'app.quota')).toMatchObject({ opIndex: 3, detailsJson: null });
    expect(new ValidationRejection('a').message).toBe('the write was rejected');
    expect(() => new ValidationRejection('a', '\uDC00')).toThrow(RangeError);
  });

  test.each([
    {},
    { reason: 'No Token' },
    { fieldPaths: [] },
    { fieldPaths: ['a', 'a'] },
    { stack: 'trace' },
    { references: { key: 'x'.repeat(257) } },
  ])('the details %j are refused (S-130, S-131)', (details) => {
    expect(() => new ValidationRejection('app.no', 'no', details)).toThrow(RangeError);
  });

  test('details travel behind the result, normalized (S-130)', async () => {
    await openWithRows(() => {
      const references = { 'z-key': 'last', 'a-key': 'first' };
      throw new ValidationRejection('app.no', 'no', {
        references,
        reason: 'quota.full',
        fieldPaths: ['a.b'],
      });
    });
    const { details } = await host.push(host.delete('tasks', 'x'), host.task('t1'));
    expect(details).toEqual({
      type: 'PUSH_RESULT_DETAILS',
      clientCommitId: 'commit-1',
      entries: [
        {
          opIndex: 1,
          detailsJson:
            '{"fieldPaths":["a.b"],"reason":"quota.full","references":{"a-key":"first","z-key":"last"}}',
        },
      ],
    });
  });

  test('bad details inside a validator are the host’s failure, not the client’s', async () => {
    await openWithRows(() => {
      throw new ValidationRejection('app.no', 'no', { reason: 'Bad Token' });
    });
    const outcome = await host.push(host.task('t1'));
    expect(rejection(outcome)).toMatchObject({ code: 'sync.constraint_violation' });
    expect(outcome.details).toBeNull();
  });
});

describe('the commit validator', () => {
  test('runs once, after all operations, with the final and the stored rows (S-143)', async () => {
    const inputs: CommitValidatorInput[] = [];
    await openWithCommits((input) => void inputs.push(input));
    await host.push(host.task('t1', { title: 'old' }));
    inputs.length = 0;
    await host.push(
      host.task('t1', { project_id: 'p2', title: 'new' }),
      host.task('t2'),
      host.delete('tasks', 't1'),
      host.delete('tasks', 'nobody'),
    );
    expect(inputs).toHaveLength(1);
    expect(inputs[0]).toMatchObject({
      clientId: 'client-1',
      clientCommitId: 'commit-2',
      actorId: 'ada',
      partition: 'tenant-1',
    });
    const blank = { title: null, points: null };
    const [updated, inserted] = [
      { id: 't1', project_id: 'p1', title: 'new', points: null },
      { id: 't2', project_id: 'p1', ...blank },
    ];
    const common = { table: 'tasks' };
    expect(inputs[0]!.operations).toEqual<CommitOperation[]>([
      {
        ...common,
        opIndex: 0,
        op: 'upsert',
        rowId: 't1',
        row: updated,
        stored: { ...updated, title: 'old' },
        storedServerVersion: 1,
        nextServerVersion: 2,
      },
      {
        ...common,
        opIndex: 1,
        op: 'upsert',
        rowId: 't2',
        row: inserted,
        stored: undefined,
        storedServerVersion: undefined,
        nextServerVersion: 1,
      },
      {
        ...common,
        opIndex: 2,
        op: 'delete',
        rowId: 't1',
        row: undefined,
        stored: updated,
        storedServerVersion: 2,
        nextServerVersion: undefined,
      },
      {
        ...common,
        opIndex: 3,
        op: 'delete',
        rowId: 'nobody',
        row: undefined,
        stored: undefined,
        storedServerVersion: undefined,
        nextServerVersion: undefined,
      },
    ]);
  });

  test('does not run when an operation failed, nor on a replay (S-143, S-145)', async () => {
    let calls = 0;
    await openWithCommits(() => void calls++);
    await host.push(host.task('t1'), host.task('t2', {}, 5));
    await host.push(host.task('t1'), { ...host.task('t2'), table: 'nowhere' });
    expect(calls).toBe(0);
    const commit = host.commit(host.task('t1'));
    await Promise.all(Array.from({ length: 20 }, () => host.send({ commits: [commit] })));
    await host.send({ commits: [commit, commit] });
    expect(calls).toBe(1);
  });

  test('a rejection drops the candidate and is stored under the same lock (S-144)', async () => {
    let calls = 0;
    await openWithCommits(({ operations }) => {
      calls++;
      if (operations.some(({ row }) => row?.title === 'bad')) {
        throw new CommitValidationRejection(1, 'app.bad', 'bad', { reason: 'bad.title' });
      }
    });
    const bad = host.commit(host.task('t1'), host.task('t2', { title: 'bad' }));
    const [[rejected], [competitor], [replay]] = await Promise.all([
      host.send({ commits: [bad] }),
      host.send({ commits: [host.commit(host.task('t1', { title: 'good' }, 0))] }),
      host.send({ commits: [bad] }),
    ]);
    expect(rejection(rejected!)).toMatchObject({ opIndex: 1, code: 'app.bad' });
    expect(rejected!.details!.entries).toEqual([{ opIndex: 1, detailsJson: '{"reason":"bad.title"}' }]);
    expect(verdict(competitor!)).toBe('applied');
    expect(replay).toEqual(rejected);
    expect(calls).toBe(2);
    expect((await host.log()).map(({ changes }) => changes.length)).toEqual([1]);
  });

  test('a plain rejection counts against operation 0', async () => {
    await openWithCommits(() => Promise.reject(new ValidationRejection('app.no')));
    expect(rejection(await host.push(host.task('a'), host.task('b')))).toMatchObject({
      opIndex: 0,
      code: 'app.no',
    });
  });

  test.each([2, 99, -1, 0.5, Number.NaN])(
    'an opIndex of %d outside the commit becomes the generic code (S-151)',
    async (opIndex) => {
      await openWithCommits(() => {
        throw new CommitValidationRejection(opIndex, 'app.no');
      });
      const outcome = await host.push(host.task('a'), host.task('b'));
      expect(rejection(outcome)).toMatchObject({ opIndex: 0, code: 'sync.constraint_violation' });
      expect(host.eventsOf('host.failed')).toMatchObject([{ hook: 'commitValidator' }]);
    },
  );

  test('cannot change what is stored (S-142)', async () => {
    await openWithCommits(async ({ operations, reader }) => {
      const read = await reader.getRow('tasks', 't1');
      for (const row of [operations[0]!.row, operations[0]!.stored, read?.row]) {
        if (row !== undefined) Object.assign(row, { title: 'forged', project_id: 'p2' });
      }
    });
    for (const title of ['first', 'second']) {
      await host.push(host.task('t1', { title }));
      expect(await host.row('tasks', 't1')).toMatchObject({ title, project_id: 'p1' });
    }
  });

  test('two commits that exclude each other: exactly one is applied (S-148)', async () => {
    await openWithCommits(async ({ reader }) => {
      const rows = await reader.scanRows({ table: 'tasks', scopeFilter: { project_id: ['p1'] } });
      if (rows.length > 1) throw new ValidationRejection('app.full');
    });
    const outcomes = await Promise.all([host.push(host.task('t1')), host.push(host.task('t2'))]);
    expect(outcomes.map(verdict).sort()).toEqual(['app.full', 'applied']);
    expect(await host.log()).toHaveLength(1);
  });
});

describe('the candidate reader', () => {
  /** Runs `look` inside the commit validator of a commit of these operations. */
  async function looking<T>(
    look: (reader: CandidateReader) => Promise<T>,
    operations: (h: PushHarness) => Parameters<PushHarness['push']>,
    prepare: (h: PushHarness) => Promise<unknown> = async () => undefined,
  ): Promise<{ readonly seen: T | undefined; readonly outcome: string }> {
    let seen: T | undefined;
    let isLooking = false;
    await openWithCommits(async ({ reader }) => {
      if (isLooking) seen = await look(reader);
    });
    await prepare(host);
    isLooking = true;
    const outcome = verdict(await host.push(...operations(host)));
    return { seen, outcome };
  }

  test('sees siblings in any order, deletes, and rows nobody touched', async () => {
    const { seen } = await looking(
      (reader) =>
        Promise.all(['kept', 'gone', 'new', 'nobody', 'n\0'].map((id) => reader.getRow('tasks', id))),
      (h) => [h.delete('tasks', 'gone'), h.task('new', { title: 'n' })],
      (h) => h.push(h.task('kept'), h.task('gone')),
    );
    expect(seen!.map((found) => found?.row.id)).toEqual(['kept', undefined, 'new', undefined, undefined]);
    expect(seen![2]).toEqual({
      row: { id: 'new', project_id: 'p1', title: 'n', points: null },
      serverVersion: 1,
    });
  });

  test('scans the merged state in order, in pages, within the filter', async () => {
    // U+FF5E comes before the surrogate pair by UTF-8 bytes, behind it by UTF-16 units.
    const ids = ['a', 'b', 'c', 'd', '\u{FF5E}', '\u{1F600}'];
    const { seen } = await looking(
      async (reader) => {
        const pages: string[][] = [];
        let afterRowId: string | undefined;
        do {
          const after = afterRowId === undefined ? {} : { afterRowId };
          const scopeFilter = { project_id: ['p1', 'nowhere', 'n\0'] };
          const page = await reader.scanRows({ table: 'tasks', scopeFilter, limit: 2, ...after });
          pages.push(page.map(({ rowId }) => rowId));
          afterRowId = page.at(-1)?.rowId;
        } while (afterRowId !== undefined);
        return pages;
      },
      (h) => [
        h.delete('tasks', 'b'),
        h.task('d'),
        h.task('\u{FF5E}'),
        h.task('other', { project_id: 'p2' }),
        h.delete('tasks', 'moved'),
        h.task('moved', { project_id: 'p2' }),
        h.task('c', { title: 'changed' }),
      ],
      (h) =>
        h.push(
          ...['a', 'b', 'c', '\u{1F600}', 'moved'].map((id) => h.task(id)),
          h.task('elsewhere', { project_id: 'p2' }),
        ),
    );
    expect(seen).toEqual([[ids[0], ids[2]], [ids[3], ids[4]], [ids[5]], []]);
  });

  test('limit is 100 unless told', async () => {
    const { seen } = await looking(
      (reader) => reader.scanRows({ table: 'tasks', scopeFilter: { project_id: ['p1'] } }),
      (h) => [h.delete('tasks', 'x')],
      (h) => h.push(...Array.from({ length: 130 }, (_, i) => h.task(`t${String(i).padStart(3, '0')}`))),
    );
    expect(seen).toHaveLength(100);
    expect(seen!.at(-1)!.rowId).toBe('t099');
  });

  test.each<[string, (reader: CandidateReader) => Promise<unknown>, string | RegExp]>([
    [
      'an empty filter',
      (r) => r.scanRows({ table: 'tasks', scopeFilter: {} }),
      'sync.storage.scan_requires_scope',
    ],
    [
      'limit 0',
      (r) => r.scanRows({ table: 'tasks', scopeFilter: { project_id: ['p1'] }, limit: 0 }),
      /limit/,
    ],
    [
      'limit 1001',
      (r) => r.scanRows({ table: 'tasks', scopeFilter: { project_id: ['p1'] }, limit: 1_001 }),
      /limit/,
    ],
    [
      'limit 1.5',
      (r) => r.scanRows({ table: 'tasks', scopeFilter: { project_id: ['p1'] }, limit: 1.5 }),
      /limit/,
    ],
    [
      'an unknown table',
      (r) => r.scanRows({ table: 'x', scopeFilter: { project_id: ['p1'] } }),
      /unknown table/,
    ],
    ['an unknown table of getRow', (r) => r.getRow('x', '1'), /unknown table/],
    [
      'a scope the table does not declare',
      (r) => r.scanRows({ table: 'tasks', scopeFilter: { org: ['o'] } }),
      /scope/,
    ],
  ])(
    '%s fails loudly, and unhandled rejects the commit generically (S-147)',
    async (_name, look, expected) => {
      const { outcome } = await looking(look, (h) => [h.task('t1')]);
      expect(outcome).toBe('sync.constraint_violation');
      const [failed] = host.eventsOf('host.failed');
      const error = failed!.error as Error & { code?: string };
      if (typeof expected === 'string') expect(error.code).toBe(expected);
      else expect(error.message).toMatch(expected);
    },
  );

  test('stays inside the partition (S-146)', async () => {
    const { seen } = await looking(
      (reader) =>
        Promise.all([
          reader.getRow('tasks', 'theirs'),
          reader.scanRows({ table: 'tasks', scopeFilter: { project_id: ['p1'] } }),
        ]),
      (h) => [h.task('ours')],
      (h) => h.pushAs({ partition: 'tenant-2' }, h.task('theirs')),
    );
    expect(seen![0]).toBeUndefined();
    expect(seen![1].map(({ rowId }) => rowId)).toEqual(['ours']);
  });

  test('is closed when the validator has settled', async () => {
    const leaked: CandidateReader[] = [];
    await openWithCommits(({ reader }) => void leaked.push(reader));
    await host.push(host.task('t1'));
    await expect(leaked[0]!.getRow('tasks', 't1')).rejects.toThrow(/settled/);
  });

  test('a failure of the storage fails the push, even when the validator hides it', async () => {
    const down = new StorageError('sync.storage.unavailable', 'down');
    await open({
      hooks: {
        commitValidator: async ({ reader }) => {
          const scan = reader.scanRows({ table: 'tasks', scopeFilter: { project_id: ['p1'] } });
          await scan.catch(() => Promise.reject(new ValidationRejection('app.no')));
        },
      },
      wrap: (storage) => withTx(storage, (tx) => overridden(tx, { scanRows: () => Promise.reject(down) })),
    });
    const commit = host.commit(host.task('t1'));
    await expect(host.send({ commits: [commit] })).rejects.toBe(down);
    expect(await host.log()).toEqual([]);
    const [retry] = await host.newQueue({}).push(host.request({ commits: [commit] }));
    expect(verdict(retry!)).toBe('applied');
  });
});
