/** The schema of `tidegate dev`: small, and with every ordinary column type. */
import type { SchemaDocument } from '../protocol/schema-document.ts';

export const DEV_SCHEMA: SchemaDocument = {
  version: 1,
  tables: [
    {
      name: 'projects',
      primaryKey: 'id',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'name', type: 'string' },
        { name: 'archived', type: 'boolean' },
        { name: 'settings', type: 'json', nullable: true },
      ],
      scopes: [{ pattern: 'project:{project_id}', column: 'id' }],
    },
    {
      name: 'tasks',
      primaryKey: 'id',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'project_id', type: 'string' },
        { name: 'title', type: 'string' },
        { name: 'done', type: 'boolean' },
        { name: 'position', type: 'integer' },
        { name: 'estimate_hours', type: 'float', nullable: true },
        { name: 'labels', type: 'json', nullable: true },
      ],
      scopes: ['project:{project_id}'],
    },
    {
      name: 'comments',
      primaryKey: 'id',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'project_id', type: 'string' },
        { name: 'task_id', type: 'string' },
        { name: 'author', type: 'string' },
        { name: 'text', type: 'string' },
        { name: 'created_at_ms', type: 'integer' },
      ],
      scopes: ['project:{project_id}'],
    },
  ],
};
