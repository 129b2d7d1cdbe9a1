/** A schema with every column type, and requests and responses over it. */
import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import type {
  CommitFrame,
  OpResult,
  PushCommitFrame,
  RequestFrame,
  ResponseFrame,
  SyncMessage,
} from '../../../src/protocol/frames.ts';
import type { DecodedRequest } from '../../../src/protocol/message.ts';
import type { RequestParts } from '../../../src/protocol/msgpack/request.ts';
import { rowCodecOf } from '../../../src/protocol/row-codec.ts';
import { compileSchema } from '../../../src/protocol/schema-compiler.ts';
import { request, response } from '../arbitraries.ts';
import { valueFor } from '../row-arbitraries.ts';

export const SCHEMA = compileSchema({
  version: 7,
  tables: [
    {
      name: 'notes',
      primaryKey: 'id',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'project', type: 'string' },
        { name: 'count', type: 'integer', nullable: true },
      ],
      scopes: ['project:{project}'],
    },
    {
      name: 'everything',
      primaryKey: 'id',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'project', type: 'string' },
        { name: 'whole', type: 'integer', nullable: true },
        { name: 'score', type: 'float', nullable: true },
        { name: 'done', type: 'boolean', nullable: true },
        { name: 'meta', type: 'json', nullable: true },
        { name: 'data', type: 'bytes', nullable: true },
        { name: 'file', type: 'blob_ref', nullable: true },
        { name: 'doc', type: 'crdt', crdtType: 'yjs-doc', nullable: true },
      ],
      scopes: ['project:{project}'],
    },
  ],
});

export const NOTES = SCHEMA.tableByName.get('notes')!;
export const EVERYTHING = SCHEMA.tableByName.get('everything')!;
export const noteRow = (id: string, count: number | null = 1): Uint8Array =>
  rowCodecOf(NOTES).encode([id, 'p1', count]);

const rowsOf = (table: typeof NOTES): fc.Arbitrary<readonly Uint8Array[]> =>
  fc.array(
    fc.tuple(...table.columns.map(valueFor)).map((values) => rowCodecOf(table).encode(values)),
    {
      minLength: 3,
      maxLength: 5,
    },
  );
const pools = fc.record({ notes: rowsOf(NOTES), everything: rowsOf(EVERYTHING) });

/** Hands out names of tables and rows of them, in turn. */
class Supply {
  readonly #pools: { readonly notes: readonly Uint8Array[]; readonly everything: readonly Uint8Array[] };
  #next = 0;

  constructor(supply: { readonly notes: readonly Uint8Array[]; readonly everything: readonly Uint8Array[] }) {
    this.#pools = supply;
  }

  take(): { readonly table: 'notes' | 'everything'; readonly row: Uint8Array } {
    const at = this.#next++;
    const table = at % 3 === 0 ? 'notes' : 'everything';
    const rows = this.#pools[table];
    return { table, row: rows[at % rows.length]! };
  }
}

const FORBIDDEN = new Set(['__proto__', 'constructor', 'prototype']);
/** Keys that the dialect refuses have no place in a message of it. */
function withAllowedKeys<T>(map: Readonly<Record<string, T>>): Readonly<Record<string, T>> {
  return Object.fromEntries(
    Object.entries(map).map(([key, value]) => [FORBIDDEN.has(key) ? 'k' : key, value]),
  );
}

function suppliedCommit(frame: CommitFrame, supply: Supply): CommitFrame {
  const tables: string[] = [];
  const changes = frame.changes.map((change) => {
    const { table, row } = supply.take();
    if (!tables.includes(table)) tables.push(table);
    const scopes = withAllowedKeys(change.scopes);
    const named = { ...change, tableIndex: tables.indexOf(table), scopes };
    return change.op === 'upsert' ? { ...named, row } : named;
  });
  return { ...frame, tables, changes };
}

function suppliedResult(result: OpResult, supply: Supply): OpResult {
  return result.status === 'conflict' ? { ...result, opIndex: 0, serverRow: supply.take().row } : result;
}

export interface ResponseSample {
  readonly message: Extract<SyncMessage, { readonly kind: 'response' }>;
  readonly request: DecodedRequest;
}

/** A response of wire version 2 without unknown frames, and a request that it answers. */
export const responseSample: fc.Arbitrary<ResponseSample> = fc
  .tuple(
    response.filter(({ wireVersion }) => wireVersion === 2),
    pools,
  )
  .map(([message, rows]) => {
    const supply = new Supply(rows);
    const pushes: PushCommitFrame[] = [];
    const frames = (message.frames as readonly ResponseFrame[]).flatMap((frame): ResponseFrame[] => {
      if (frame.type === 'UNKNOWN') return [];
      if (frame.type === 'COMMIT') return [suppliedCommit(frame, supply)];
      if (frame.type === 'SUB_START')
        return [{ ...frame, effectiveScopes: withAllowedKeys(frame.effectiveScopes) }];
      if (frame.type !== 'PUSH_RESULT') return [frame];
      const conflict = supply.take();
      const results = frame.results.map((result) =>
        result.status === 'conflict'
          ? { ...suppliedResult(result, supply), serverRow: conflict.row }
          : result,
      );
      const operations = [{ table: conflict.table, rowId: 'r', op: 'delete' }] as const;
      pushes.push({ type: 'PUSH_COMMIT', clientCommitId: frame.clientCommitId, operations });
      return [{ ...frame, results }];
    });
    const header = { type: 'REQ_HEADER', clientId: 'c', schemaVersion: SCHEMA.version } as const;
    const answered = { wireVersion: 2, header, pushes, pull: null, subscriptions: [], unknown: [] } as const;
    return { message: { kind: 'response', wireVersion: 2, frames }, request: answered };
  });

/** The frames of a request of this schema. */
export const requestFrames: fc.Arbitrary<readonly RequestFrame[]> = fc
  .tuple(
    request.filter(({ wireVersion }) => wireVersion === 2),
    pools,
  )
  .map(([message, rows]) => {
    const supply = new Supply(rows);
    return (message.frames as readonly RequestFrame[]).flatMap((frame): RequestFrame[] => {
      if (frame.type === 'UNKNOWN') return [];
      if (frame.type === 'REQ_HEADER') return [{ ...frame, schemaVersion: SCHEMA.version }];
      if (frame.type === 'SUBSCRIPTION') return [{ ...frame, scopes: withAllowedKeys(frame.scopes) }];
      if (frame.type !== 'PUSH_COMMIT') return [frame];
      const operations = frame.operations.map((operation) => {
        const { table, row } = supply.take();
        return operation.op === 'upsert' ? { ...operation, table, payload: row } : { ...operation, table };
      });
      return [{ ...frame, operations }];
    });
  });

/** The parts of a request. */
export function partsOf(frames: readonly RequestFrame[]): RequestParts {
  const of = <T extends RequestFrame['type']>(type: T) =>
    frames.filter((frame): frame is Extract<RequestFrame, { readonly type: T }> => frame.type === type);
  return {
    header: of('REQ_HEADER')[0]!,
    pushes: of('PUSH_COMMIT'),
    pull: of('PULL_HEADER')[0] ?? null,
    subscriptions: of('SUBSCRIPTION'),
  };
}

/** The golden vectors and the refused ones. */
export function msgpackVectors(): Uint8Array[] {
  const manifest = JSON.parse(
    readFileSync(new URL('../../vectors/msgpack/manifest.json', import.meta.url), 'utf8'),
  ) as {
    readonly cases: readonly { readonly hex: string }[];
    readonly invalid: readonly { readonly hex: string }[];
  };
  return [...manifest.cases, ...manifest.invalid].map(({ hex }) => Uint8Array.from(Buffer.from(hex, 'hex')));
}
