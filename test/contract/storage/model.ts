/** Random batches against a model that keeps everything in lists and looks at all of it. */
import fc from 'fast-check';
import { expect, test } from 'vitest';
import type { ScopeMap, StoredScopes } from '../../../src/protocol/frames.ts';
import type {
  CommitWindow,
  LogCommit,
  RowPage,
  RowScan,
  Storage,
  WindowQuery,
} from '../../../src/storage/storage.ts';
import { compareUtf8 } from '../../../src/storage/utf8-order.ts';
import { asRead, NOTES, newPartition, note, type Operation, remove, TASKS, task, write } from './fixture.ts';

const PROJECTS = ['p1', 'p2', 'p3', 'p€'];
const OWNERS = ['o1', 'o2', 'o3'];
const TASK_IDS = ['a', 'b', 'c', 'é', '\uff21', '😀', '10', '2'];

interface ModelRow {
  readonly rowId: string;
  readonly scopes: StoredScopes;
  readonly payloadBytes: number;
  readonly serverVersion: number;
}

/** The same answers by brute force. */
class Model {
  readonly log: LogCommit[] = [];
  readonly #rows = new Map<string, Map<string, ModelRow>>();

  take(commits: readonly LogCommit[]): void {
    for (const commit of commits) {
      this.log.push(commit);
      for (const { table, rowId, op, scopes, payload, rowVersion } of commit.changes) {
        const rows = this.#rows.get(table) ?? new Map<string, ModelRow>();
        this.#rows.set(table, rows);
        if (op === 'delete') rows.delete(rowId);
        else rows.set(rowId, { rowId, scopes, payloadBytes: payload!.length, serverVersion: rowVersion! });
      }
    }
  }

  window(query: WindowQuery): CommitWindow {
    const commits: LogCommit[] = [];
    let [changeCount, bytes] = [0, 0];
    for (const commit of this.log) {
      if (commit.commitSeq <= query.afterSeq || commit.commitSeq > query.throughSeq) continue;
      const changes = commit.changes.filter(
        ({ table, scopes }) => table === query.table.name && matches(query.scopes, scopes),
      );
      if (changes.length === 0) continue;
      changeCount += changes.length;
      bytes += changes.reduce((sum, { payload }) => sum + (payload?.length ?? 0), 0);
      if (commits.length > 0 && (changeCount > query.changesMax || bytes > query.bytesMax)) {
        return { commits, scannedThrough: commits.at(-1)!.commitSeq };
      }
      commits.push({ ...commit, changes });
    }
    return { commits, scannedThrough: query.throughSeq };
  }

  page(scan: RowScan): {
    readonly rowIds: string[];
    readonly versions: number[];
    readonly nextRowId: string | null;
  } {
    const all = [...(this.#rows.get(scan.table.name)?.values() ?? [])]
      .filter(({ rowId, scopes }) => isAfter(rowId, scan.afterRowId) && matches(scan.scopes, scopes))
      .sort((a, b) => compareUtf8(a.rowId, b.rowId));
    let [count, bytes] = [0, 0];
    for (const { payloadBytes } of all) {
      bytes += payloadBytes;
      if (count > 0 && (count >= scan.rowsMax || bytes > scan.bytesMax)) break;
      count++;
    }
    const rows = all.slice(0, count);
    return {
      rowIds: rows.map(({ rowId }) => rowId),
      versions: rows.map(({ serverVersion }) => serverVersion),
      nextRowId: count < all.length ? rows.at(-1)!.rowId : null,
    };
  }
}

function isAfter(rowId: string, after: string | null): boolean {
  return after === null || Buffer.compare(Buffer.from(rowId), Buffer.from(after)) > 0;
}

function matches(wanted: ScopeMap, scopes: StoredScopes): boolean {
  return Object.entries(wanted).every(([variable, values]) => values.includes(scopes[variable] ?? '\0'));
}

const operation: fc.Arbitrary<Operation> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc
      .tuple(
        fc.constantFrom(...TASK_IDS),
        fc.constantFrom(...PROJECTS),
        fc.constantFrom(...OWNERS),
        fc.nat({ max: 60 }),
      )
      .map(
        ([id, project, owner_id, size]): Operation =>
          task(id, project, { owner_id, body: new Uint8Array(size) }),
      ),
  },
  { weight: 2, arbitrary: fc.constantFrom(...TASK_IDS).map((id) => remove(TASKS, id)) },
  {
    weight: 2,
    arbitrary: fc
      .tuple(fc.nat({ max: 5 }), fc.constantFrom(...PROJECTS))
      .map(([id, project]) => note(id, project)),
  },
  { weight: 1, arbitrary: fc.nat({ max: 5 }).map((id) => remove(NOTES, String(id))) },
);
const batch = fc.array(fc.array(operation, { maxLength: 5 }), { minLength: 1, maxLength: 6 });

const scopes: fc.Arbitrary<ScopeMap> = fc.oneof(
  fc.subarray(PROJECTS, { minLength: 1 }).map((project): ScopeMap => ({ project })),
  fc.subarray(OWNERS, { minLength: 1 }).map((owner): ScopeMap => ({ owner })),
  fc
    .tuple(fc.subarray(PROJECTS, { minLength: 1 }), fc.subarray(OWNERS, { minLength: 1 }))
    .map(([project, owner]): ScopeMap => ({ project, owner })),
);
const question = fc.record({
  table: fc.constantFrom(TASKS, TASKS, NOTES),
  scopes,
  afterSeq: fc.nat({ max: 30 }),
  throughSeq: fc.nat({ max: 60 }),
  changesMax: fc.integer({ min: 1, max: 8 }),
  afterRowId: fc.oneof(fc.constant(null), fc.constantFrom(...TASK_IDS)),
  rowsMax: fc.integer({ min: 1, max: 6 }),
  bytesMax: fc.oneof(fc.constant(2 ** 40), fc.integer({ min: 1, max: 300 })),
});

export function modelSuite(storage: () => Storage): void {
  test('random batches: windows, pages and the whole log equal the model (S-047, S-058, S-061, S-062)', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(batch, { minLength: 1, maxLength: 5 }),
        fc.array(question, { minLength: 8, maxLength: 16 }),
        async (batches, questions) => {
          const partition = await newPartition(storage());
          const model = new Model();
          for (const commits of batches) model.take(asRead(await write(storage(), partition, ...commits)));
          await storage().readSnapshot(partition, async (reader) => {
            const head = model.log.length;
            expect((await reader.state()).head).toBe(head);
            const whole = { afterSeq: 0, throughSeq: head, commitsMax: head, bytesMax: 2 ** 40 };
            expect(await reader.readCommits(whole)).toEqual(model.log);
            for (const asked of questions) {
              const query = { ...asked, throughSeq: Math.min(asked.throughSeq, head) };
              if (query.afterSeq <= query.throughSeq) {
                expect(await reader.readWindow(query)).toEqual(model.window(query));
              }
              expect(summary(await reader.readRowPage(asked))).toEqual(model.page(asked));
            }
          });
        },
      ),
      { numRuns: 60 },
    );
  });
}

function summary({ rows, nextRowId }: RowPage): ReturnType<Model['page']> {
  return {
    rowIds: rows.map(({ rowId }) => rowId),
    versions: rows.map(({ serverVersion }) => serverVersion),
    nextRowId,
  };
}
