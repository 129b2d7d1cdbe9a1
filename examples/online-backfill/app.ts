/** The application of this story: tasks in projects. Version 2 adds a summary per project, derived from the tasks. */
import type { BackfillBatch, SchemaDocument, StaticTokens } from '../../src/index.ts';
import { createStaticTokens } from '../../src/index.ts';

export const PARTITION = 'acme';
export const PROJECTS = ['apollo', 'gemini', 'mercury'];

const tasks = {
  name: 'tasks',
  primaryKey: 'id',
  columns: [
    { name: 'id', type: 'string' },
    { name: 'project_id', type: 'string' },
    { name: 'title', type: 'string' },
    { name: 'done', type: 'boolean' },
  ],
  scopes: [{ pattern: 'project:{project_id}', column: 'project_id' }],
} as const;

const summaries = {
  name: 'summaries',
  primaryKey: 'project_id',
  columns: [
    { name: 'project_id', type: 'string' },
    { name: 'open', type: 'integer' },
    { name: 'done', type: 'integer' },
  ],
  scopes: [{ pattern: 'project:{project_id}', column: 'project_id' }],
} as const;

export const VERSION_1: SchemaDocument = { version: 1, tables: [tasks] };
export const VERSION_2: SchemaDocument = { version: 2, tables: [tasks, summaries] };
export const CHECKPOINT = { partition: PARTITION, name: 'summaries', schemaVersion: 2 };

export function tokens(): StaticTokens {
  const grant = { partition: PARTITION, scopes: { project_id: PROJECTS }, expiresAtMs: null };
  const people = ['ada', 'ben', 'eve'];
  return createStaticTokens(new Map(people.map((actorId) => [`token-of-${actorId}`, { actorId, ...grant }])));
}

const ROWS_PER_READ = 1_000;

/** The summary of every project that one of these tasks is, or was, in: counted anew from what is stored. */
export const summarize: BackfillBatch = async ({ rows, reader }) => {
  const projects = [...new Set(rows.map(({ scopes }) => scopes.project_id!))];
  return Promise.all(
    projects.map(async (project_id) => {
      let open = 0;
      let done = 0;
      let afterRowId: string | undefined;
      do {
        const request = { table: 'tasks', scopeFilter: { project_id: [project_id] }, limit: ROWS_PER_READ };
        const page = await reader.scanRows(afterRowId === undefined ? request : { ...request, afterRowId });
        for (const { row } of page) {
          if (row.done === true) done++;
          else open++;
        }
        afterRowId = page.length === ROWS_PER_READ ? page.at(-1)!.rowId : undefined;
      } while (afterRowId !== undefined);
      const row = open + done === 0 ? null : { project_id, open, done };
      return { table: 'summaries', rowId: project_id, row };
    }),
  );
};
