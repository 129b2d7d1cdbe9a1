/** An application at version 1 with tasks in projects; version 2 adds a table of totals per project. */
import { createRandom } from '../../../src/gateway/random.ts';
import { createRealClock } from '../../../src/gateway/real-clock.ts';
import { DEFAULT_LIMITS, type Limits } from '../../../src/protocol/limits.ts';
import { rowCodecOf } from '../../../src/protocol/row-codec.ts';
import type { CompiledTable } from '../../../src/protocol/schema.ts';
import { compileSchema } from '../../../src/protocol/schema-compiler.ts';
import type { SchemaDocument } from '../../../src/protocol/schema-document.ts';
import type { BackfillDeps } from '../../../src/session/sync/backfill.ts';
import type { BackfillBatch, BackfillInput } from '../../../src/session/sync/backfill-request.ts';
import type { SyncEvent } from '../../../src/session/sync/sync-deps.ts';
import type { LogCommit, Storage } from '../../../src/storage/storage.ts';
import { admitTo, type Operation, WHOLE_LOG, WHOLE_PAGE, write } from '../../contract/storage/fixture.ts';

export const PARTITION = 'tenant';
export const CHECKPOINT = 'totals';

const tasks = {
  name: 'tasks',
  primaryKey: 'id',
  columns: [
    { name: 'id', type: 'string' },
    { name: 'project', type: 'string' },
    { name: 'points', type: 'integer' },
  ],
  scopes: ['project:{project}'],
} as const;

const totals = {
  name: 'totals',
  primaryKey: 'project',
  columns: [
    { name: 'project', type: 'string' },
    { name: 'tasks', type: 'integer' },
    { name: 'points', type: 'integer' },
  ],
  scopes: ['project:{project}'],
} as const;

export const DOCUMENT_1: SchemaDocument = { version: 1, tables: [tasks] };
export const DOCUMENT_2: SchemaDocument = { version: 2, tables: [tasks, totals] };
export const SCHEMA_1 = compileSchema(DOCUMENT_1);
export const SCHEMA_2 = compileSchema(DOCUMENT_2);
export const TASKS = SCHEMA_2.tableByName.get('tasks')!;
export const TOTALS = SCHEMA_2.tableByName.get('totals')!;
export const DECLARED = { partition: PARTITION, name: CHECKPOINT, schemaVersion: 2 };

export function task(id: string, project: string, points: number): Operation {
  return { op: 'upsert', table: TASKS, values: [id, project, points] };
}

export function removeTask(id: string): Operation {
  return { op: 'delete', table: TASKS, rowId: id };
}

/** Version 1 with `count` tasks in `projects` projects, then the bump that declares the checkpoint. */
export async function seed(
  storage: Storage,
  { count, projects = 7 }: { readonly count: number; readonly projects?: number },
): Promise<void> {
  await storage.ensureSchema(SCHEMA_1);
  await admitTo(storage, PARTITION);
  for (let from = 0; from < count; from += 500) {
    const ids = Array.from({ length: Math.min(500, count - from) }, (_, i) => from + i);
    await write(
      storage,
      PARTITION,
      ids.map((n) => task(`t${n}`, `p${n % projects}`, n % 11)),
    );
  }
  await storage.ensureSchema(SCHEMA_2, [DECLARED]);
}

const TASKS_PER_READ = 1_000;

/** The totals of every project that one of the rows belongs to, computed from what is stored. */
export const totalsBatch: BackfillBatch = async ({ rows, reader }: BackfillInput) => {
  const projects = [...new Set(rows.map(({ scopes }) => scopes.project!))];
  return Promise.all(
    projects.map(async (project) => {
      let count = 0;
      let points = 0;
      for (let afterRowId: string | undefined; ; ) {
        const page = await reader.scanRows({
          table: 'tasks',
          scopeFilter: { project: [project] },
          limit: TASKS_PER_READ,
          ...(afterRowId === undefined ? {} : { afterRowId }),
        });
        for (const { row } of page) {
          count++;
          points += row.points as number;
        }
        afterRowId = page.at(-1)?.rowId;
        if (page.length < TASKS_PER_READ) break;
      }
      const row = count === 0 ? null : { project, tasks: count, points };
      return { table: 'totals', rowId: project, row };
    }),
  );
};

export class Recorder {
  readonly events: SyncEvent[] = [];
  readonly accepted: LogCommit[] = [];

  types(): string[] {
    return this.events.map(({ type }) => type);
  }

  count(type: SyncEvent['type']): number {
    return this.events.filter((event) => event.type === type).length;
  }
}

export function depsOf(
  storage: Storage,
  recorder = new Recorder(),
  limits: Partial<Limits> = {},
): BackfillDeps {
  return {
    schema: SCHEMA_2,
    storage,
    sink: { accept: (_partition, _epoch, commits) => void recorder.accepted.push(...commits) },
    limits: {
      ...DEFAULT_LIMITS,
      backfillBatchRowsMax: 20,
      commitRetryFirstMs: 1,
      commitRetryMaxMs: 1,
      ...limits,
    },
    clock: createRealClock(),
    random: createRandom(),
    events: { emit: (event) => void recorder.events.push(event) },
  };
}

async function rowsOf(storage: Storage, table: CompiledTable): Promise<readonly (readonly unknown[])[]> {
  const page = await storage.transaction(PARTITION, (tx) => tx.scanTable({ table, ...WHOLE_PAGE }));
  return page.rows.map(({ payload }) => rowCodecOf(table).decode(payload));
}

/** The projection as it stands, and computed from scratch: `[project, tasks, points]` by project. */
export async function compare(storage: Storage): Promise<{
  readonly stored: readonly (readonly unknown[])[];
  readonly expected: readonly (readonly unknown[])[];
}> {
  const byProject = new Map<string, [string, number, number]>();
  for (const [, project, points] of (await rowsOf(storage, TASKS)) as [string, string, number][]) {
    const total = byProject.get(project) ?? [project, 0, 0];
    byProject.set(project, [project, total[1] + 1, total[2] + points]);
  }
  const expected = [...byProject.values()].sort(([a], [b]) => (a < b ? -1 : 1));
  return { stored: await rowsOf(storage, TOTALS), expected };
}

/** What a subscriber that replays the whole log holds of the totals: the log says the same as the table, without a hole. */
export async function replay(storage: Storage): Promise<readonly (readonly unknown[])[]> {
  const rows = new Map<string, readonly unknown[]>();
  const log = await storage.readSnapshot(PARTITION, (reader) => reader.readCommits(WHOLE_LOG));
  for (const [nth, { commitSeq, changes }] of log.entries()) {
    if (commitSeq !== nth + 1 + (log[0]!.commitSeq - 1))
      throw new Error(`the log has a hole before ${commitSeq}`);
    for (const { table, rowId, op, payload } of changes) {
      if (table !== 'totals') continue;
      if (op === 'delete') rows.delete(rowId);
      else rows.set(rowId, rowCodecOf(TOTALS).decode(payload!));
    }
  }
  return [...rows.values()].sort(([a], [b]) => (String(a) < String(b) ? -1 : 1));
}
