/** A client against the fake server: its schema, its frames, and a clock and randomness that only the test moves. */
import { createHash } from 'node:crypto';
import { WebSocket } from 'ws';
import { type Client, type ClientOptions, createClient } from '../../src/client/client.ts';
import type { Random } from '../../src/protocol/clock.ts';
import type {
  CommitChange,
  CommitFrame,
  PushResultFrame,
  RespHeaderFrame,
  ResponseFrame,
  SegmentInlineFrame,
  SegmentRefFrame,
  SubEndFrame,
  SubStartFrame,
} from '../../src/protocol/frames.ts';
import { rowFromObject } from '../../src/protocol/named-rows.ts';
import { rowCodecOf } from '../../src/protocol/row-codec.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import type { SchemaDocument } from '../../src/protocol/schema-document.ts';
import { SegmentWriter } from '../../src/protocol/segment.ts';
import { ManualClock } from '../support/manual-clock.ts';
import { FakeServer } from './fake-server.ts';

export interface Task {
  readonly id: string;
  readonly list: string;
  readonly title: string;
  readonly done: boolean;
}

export type TaskTables = {
  readonly tasks: Task;
  readonly notes: { readonly id: string; readonly list: string };
};

export const TASKS: SchemaDocument = {
  version: 3,
  tables: [
    {
      name: 'tasks',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'list', type: 'string' },
        { name: 'title', type: 'string' },
        { name: 'done', type: 'boolean' },
      ],
      primaryKey: 'id',
      scopes: ['list:{list}'],
    },
    {
      name: 'notes',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'list', type: 'string' },
      ],
      primaryKey: 'id',
      scopes: ['list:{list}'],
    },
  ],
};

export const SCHEMA = compileSchema(TASKS);
export const EPOCH = 'epoch-1';

/** No spread, ids in order: what is due is due at once. */
export class PlainRandom implements Random {
  #count = 0;
  nextUnit = 0;

  unit(): number {
    return this.nextUnit;
  }

  id(): string {
    return `id-${this.#count++}`;
  }
}

export interface Rig {
  readonly server: FakeServer;
  readonly client: Client<TaskTables>;
  readonly clock: ManualClock;
  readonly random: PlainRandom;
  close(): Promise<void>;
}

export async function rig(options: Partial<ClientOptions> = {}): Promise<Rig> {
  const server = await FakeServer.start();
  const clock = new ManualClock();
  const random = new PlainRandom();
  const client = createClient<TaskTables>({
    url: server.mount,
    clientId: 'c1',
    schema: TASKS,
    webSocket: WebSocket,
    clock,
    random,
    ...options,
  });
  return {
    server,
    client,
    clock,
    random,
    close: async () => {
      await client.close();
      await server.close();
    },
  };
}

export function task(id: string, title = `task ${id}`, done = false, list = 'l1'): Task {
  return { id, list, title, done };
}

export function taskBytes(row: Task): Uint8Array {
  const table = SCHEMA.tableByName.get('tasks')!;
  return rowCodecOf(table).encode(rowFromObject(table, { ...row }));
}

export const header = (overrides: Partial<RespHeaderFrame> = {}): RespHeaderFrame => ({
  type: 'RESP_HEADER',
  logEpoch: EPOCH,
  resetRequired: false,
  ...overrides,
});

export const epochAnswer = (logEpoch = EPOCH): ResponseFrame[] => [header({ logEpoch, resetRequired: true })];

export const subStart = (id: string, overrides: Partial<SubStartFrame> = {}): SubStartFrame => ({
  type: 'SUB_START',
  id,
  status: 'active',
  reasonCode: '',
  effectiveScopes: { list: ['l1'] },
  bootstrap: false,
  ...overrides,
});

export const subEnd = (nextCursor: number, bootstrapState?: string): SubEndFrame => ({
  type: 'SUB_END',
  nextCursor,
  ...(bootstrapState === undefined ? {} : { bootstrapState }),
});

export const upsert = (row: Task, rowVersion = 1): CommitChange => ({
  tableIndex: 0,
  rowId: row.id,
  op: 'upsert',
  rowVersion,
  scopes: { list: row.list },
  row: taskBytes(row),
});

export const remove = (rowId: string, list = 'l1'): CommitChange => ({
  tableIndex: 0,
  rowId,
  op: 'delete',
  scopes: { list },
});

export const commit = (commitSeq: number, ...changes: readonly CommitChange[]): CommitFrame => ({
  type: 'COMMIT',
  commitSeq,
  createdAtMs: 1,
  actorId: 'bob',
  tables: ['tasks'],
  changes,
});

export interface VersionedTask {
  readonly row: Task;
  readonly version: number;
}

export function segmentBytes(rows: readonly (Task | VersionedTask)[]): Uint8Array {
  const { columns } = SCHEMA.tableByName.get('tasks')!;
  const writer = new SegmentWriter(
    { table: 'tasks', schemaVersion: SCHEMA.version, columns },
    { segmentBlockRows: 2, segmentBlockBytes: 1_000 },
  );
  for (const entry of rows) {
    const { row, version } = 'row' in entry ? entry : { row: entry, version: 1 };
    writer.addRow(version, taskBytes(row));
  }
  return writer.finish().bytes;
}

export const inline = (rows: readonly (Task | VersionedTask)[]): SegmentInlineFrame => ({
  type: 'SEGMENT_INLINE',
  payload: segmentBytes(rows),
});

export const segmentIdOf = (bytes: Uint8Array): string =>
  `sha256:${createHash('sha256').update(bytes).digest('hex')}`;

export const segmentRef = (bytes: Uint8Array, overrides: Partial<SegmentRefFrame> = {}): SegmentRefFrame => ({
  type: 'SEGMENT_REF',
  segmentId: segmentIdOf(bytes),
  mediaType: 'rows',
  table: 'tasks',
  byteLength: bytes.length,
  rowCount: 1,
  asOfCommitSeq: 5,
  scopeDigest: 'd',
  ...overrides,
});

/** A whole bootstrap of one subscription in one page. */
export const bootstrap = (
  id: string,
  rows: readonly (Task | VersionedTask)[],
  pin: number,
): ResponseFrame[] => [subStart(id, { bootstrap: true }), inline(rows), subEnd(pin)];

export const applied = (clientCommitId: string, commitSeq: number, operations = 1): PushResultFrame => ({
  type: 'PUSH_RESULT',
  clientCommitId,
  status: 'applied',
  commitSeq,
  results: Array.from({ length: operations }, (_, opIndex) => ({ opIndex, status: 'applied' as const })),
});

export const refusal = (code: string, retryable: boolean, details?: string): ResponseFrame[] => [
  header(),
  {
    type: 'ERROR',
    code,
    message: `refused with ${code}`,
    category: 'any',
    retryable,
    recommendedAction: 'any',
    ...(details === undefined ? {} : { details }),
  },
];

export function titles(client: Client<TaskTables>): string[] {
  return client
    .rows('tasks')
    .map(({ title }) => title)
    .sort();
}
