/** Batches are an optimisation: whatever shares a transaction, logs, rows and results are those of one push at a time. */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, test } from 'vitest';
import type { PushCommitFrame, PushOperation } from '../../src/protocol/frames.ts';
import type { CommitQueue, PushOutcome } from '../../src/session/sync/sync-deps.ts';
import { ValidationRejection } from '../../src/session/sync/validation.ts';
import type { LogCommit } from '../../src/storage/storage.ts';
import { type HarnessOptions, PushHarness, type RowObject } from './support/push-harness.ts';

/** Small pools, so that rows, keys, versions and ids meet often. */
const IDS = ['a', 'b', 'c'];
const EMAILS = [null, 'k', 'l', 'm'];
const PROJECTS = ['p1', 'p2'];

interface OperationSpec {
  readonly table: 'users' | 'tasks';
  readonly kind: 'upsert' | 'delete';
  readonly id: string;
  readonly project: string;
  readonly email: string | null;
  readonly number: number;
  readonly baseVersion: number | null;
}

interface CommitSpec {
  readonly id: number;
  readonly operations: readonly OperationSpec[];
}

interface RequestSpec {
  readonly clientId: string;
  readonly allowed: readonly string[] | null;
  readonly commits: readonly CommitSpec[];
}

const operation = fc.record<OperationSpec>({
  table: fc.constantFrom('users', 'users', 'tasks'),
  kind: fc.constantFrom('upsert', 'upsert', 'upsert', 'delete'),
  id: fc.constantFrom(...IDS),
  project: fc.constantFrom('p1', 'p1', 'p2'),
  email: fc.constantFrom(...EMAILS),
  number: fc.integer({ min: 0, max: 3 }),
  baseVersion: fc.option(fc.integer({ min: 0, max: 3 }), { freq: 3 }),
});

/** Commits are drawn from a pool, so that ids return: with the same content mostly, with other content sometimes. */
const requests = fc
  .tuple(
    fc.array(fc.array(operation, { minLength: 1, maxLength: 4 }), { minLength: 20, maxLength: 20 }),
    fc.array(
      fc.record({
        clientId: fc.constantFrom('x', 'x', 'x', 'y'),
        allowed: fc.constantFrom(PROJECTS, PROJECTS, PROJECTS, ['p1'], null),
        commits: fc.array(
          fc.record({ id: fc.nat({ max: 19 }), shift: fc.constantFrom(0, 0, 0, 0, 0, 0, 1) }),
          {
            minLength: 1,
            maxLength: 6,
          },
        ),
      }),
      { minLength: 1, maxLength: 8 },
    ),
  )
  .map(([pool, specs]) =>
    specs.map(
      ({ commits, ...rest }): RequestSpec => ({
        ...rest,
        commits: commits.map(({ id, shift }) => ({ id, operations: pool[(id + shift) % pool.length]! })),
      }),
    ),
  );

/** Rejects by the row, by the stored row, and by the state of the partition. */
const hooks: HarnessOptions['hooks'] = {
  rowValidators: new Map([
    [
      'tasks',
      ({ row, stored }) => {
        if (row?.points === 3 && stored !== undefined) throw new ValidationRejection('app.points');
      },
    ],
  ]),
  commitValidator: async ({ reader }) => {
    const scopeFilter = { project_id: ['p1'] };
    const rows = [
      ...(await reader.scanRows({ table: 'tasks', scopeFilter })),
      ...(await reader.scanRows({ table: 'users', scopeFilter, limit: 2 })),
    ];
    if (rows.length > 3) throw new ValidationRejection('app.full', 'full', { reason: 'too.many' });
  },
};

let host: PushHarness;
let runs = 0;

beforeAll(async () => {
  host = await PushHarness.open();
});

afterAll(async () => {
  await host.close();
});

function operationOf(spec: OperationSpec): PushOperation {
  const { table, id, project, email, number, baseVersion } = spec;
  if (spec.kind === 'delete') return host.delete(table, id);
  const more: RowObject = table === 'users' ? { email, age: number } : { title: email, points: number };
  return host.upsert(table, { id, project_id: project, ...more }, baseVersion ?? undefined);
}

function commitOf(spec: CommitSpec): PushCommitFrame {
  return {
    type: 'PUSH_COMMIT',
    clientCommitId: `c${spec.id}`,
    operations: spec.operations.map(operationOf),
  };
}

interface Ending {
  readonly outcomes: readonly (readonly PushOutcome[])[];
  readonly log: readonly LogCommit[];
  readonly rows: readonly unknown[];
  readonly records: readonly unknown[];
  readonly published: readonly LogCommit[];
}

type Play = (
  queue: CommitQueue,
  pushes: readonly (() => Promise<readonly PushOutcome[]>)[],
) => Promise<Ending['outcomes']>;

async function play(specs: readonly RequestSpec[], options: HarnessOptions, push: Play): Promise<Ending> {
  const partition = `run-${++runs}`;
  await host.admit(partition);
  const queue = host.newQueue({ hooks, ...options });
  host.published.length = 0;
  const requestsToSend = specs.map(({ clientId, allowed, commits }) =>
    host.request({
      partition,
      clientId,
      grant: allowed === null ? { kind: 'denied' } : { kind: 'granted', allowed: { project_id: allowed } },
      commits: commits.map(commitOf),
    }),
  );
  const outcomes = await push(
    queue,
    requestsToSend.map((request) => () => queue.push(request)),
  );
  const published = [...host.published];
  const keys = ['x', 'y'].flatMap((clientId) =>
    Array.from({ length: 20 }, (_, id) => ({ clientId, clientCommitId: `c${id}` })),
  );
  const records = await host.storage.transaction(partition, (tx) => tx.readResults(keys));
  const rows = await host.storage.transaction(partition, async (tx) => {
    const read = await Promise.all(['users', 'tasks'].map((name) => tx.readRows(host.table(name), IDS)));
    return read.flatMap((found) => [...found.values()].sort((a, b) => (a.rowId < b.rowId ? -1 : 1)));
  });
  return { outcomes, log: await host.log(partition), rows, records, published };
}

const oneAtATime: Play = async (_queue, pushes) => {
  const outcomes: (readonly PushOutcome[])[] = [];
  for (const push of pushes) outcomes.push(await push());
  return outcomes;
};
const allAtOnce: Play = (_queue, pushes) => Promise.all(pushes.map((push) => push()));

test('batched pushes end exactly like one commit at a time: log, rows, records, answers, publications', async () => {
  await fc.assert(
    fc.asyncProperty(requests, fc.integer({ min: 2, max: 40 }), async (specs, commitBatchCommitsMax) => {
      const batched = await play(specs, { limits: { commitBatchCommitsMax } }, allAtOnce);
      const serial = await play(specs, { limits: { commitBatchCommitsMax: 1 } }, oneAtATime);
      expect(batched).toEqual(serial);
      expect(batched.published).toEqual(batched.log.map((commit) => ({ ...commit, writerVersion: 3 })));
    }),
    { numRuns: 60 },
  );
}, 120_000);

test('the property’s pushes do meet: conflicts, refusals by the database and by the host, replays, slow paths', async () => {
  const codes = new Set<string>();
  host.events.length = 0;
  for (const specs of fc.sample(requests, { numRuns: 60, seed: 7 })) {
    const { outcomes } = await play(specs, {}, allAtOnce);
    for (const { result } of outcomes.flat()) {
      codes.add(result.status);
      for (const record of result.results) if (record.status !== 'applied') codes.add(record.code);
    }
  }
  expect([...codes].sort()).toEqual([
    'app.full',
    'app.points',
    'applied',
    'cached',
    'rejected',
    'sync.constraint_violation',
    'sync.forbidden',
    'sync.invalid_request',
    'sync.row_missing',
    'sync.version_conflict',
  ]);
  expect(host.eventsOf('commit.slow_path').length).toBeGreaterThan(0);
});
