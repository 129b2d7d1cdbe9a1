/** The schema and rows of every scenario. */
import { rowCodecOf } from '../src/protocol/row-codec.ts';
import { compileSchema } from '../src/protocol/schema-compiler.ts';
import type { SchemaDocument } from '../src/protocol/schema-document.ts';

export const BENCH_SCHEMA: SchemaDocument = {
  version: 1,
  tables: [
    {
      name: 'items',
      primaryKey: 'id',
      columns: [
        { name: 'id', type: 'string', nullable: false },
        { name: 'project_id', type: 'string', nullable: false },
        { name: 'title', type: 'string', nullable: false },
        { name: 'position', type: 'integer', nullable: false },
        { name: 'done', type: 'boolean', nullable: false },
      ],
      scopes: ['project:{project_id}'],
    },
  ],
};

export const ITEMS = compileSchema(BENCH_SCHEMA).tableByName.get('items')!;
const CODEC = rowCodecOf(ITEMS);
const TITLE = 'a title of about the length that people give to things they have to do';

/** About 110 bytes in row-codec form. */
export function itemPayload(id: string, projectId: string, position: number): Uint8Array {
  return CODEC.encode([id, projectId, TITLE, position, false]);
}
