/** One table of values, through push, delta, pull and bootstrap of a whole gateway, on both storages. */
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest';
import { createGateway } from '../../src/gateway/gateway.ts';
import type { StorageOption } from '../../src/gateway/gateway-options.ts';
import type { RequestFrame } from '../../src/protocol/frames.ts';
import { rowCodecOf } from '../../src/protocol/row-codec.ts';
import type { ColumnValue } from '../../src/protocol/schema.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import type { SchemaDocument } from '../../src/protocol/schema-document.ts';
import { decodeSegment } from '../../src/protocol/segment.ts';
import { createTestDatabase, runSql, type TestDatabase } from '../support/postgres-server.ts';
import { connectTo, gatewayOptions } from './support/live-gateway.ts';
import { encodeRequest, frameOf, frames, postSync } from './support/requests.ts';

const SCHEMA: SchemaDocument = {
  version: 3,
  tables: [
    {
      name: 'things',
      primaryKey: 'id',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'project', type: 'string' },
        { name: 'text', type: 'string', nullable: true },
        { name: 'count', type: 'integer', nullable: true },
        { name: 'ratio', type: 'float', nullable: true },
        { name: 'flag', type: 'boolean', nullable: true },
        { name: 'data', type: 'json', nullable: true },
        { name: 'bytes', type: 'bytes', nullable: true },
        { name: 'doc', type: 'crdt', crdtType: 'last', nullable: true },
      ],
      scopes: ['project:{project}'],
    },
  ],
};
const TABLE = compileSchema(SCHEMA, { crdtTypes: ['last'] }).tables[0]!;
const CODEC = rowCodecOf(TABLE);

interface Case {
  readonly name: string;
  readonly row: Readonly<Record<string, ColumnValue>>;
  /** Bytes that no encoder writes, in the place of others. */
  readonly patch?: readonly [placeholder: Uint8Array, bytes: Uint8Array];
  /** The type and text of the typed column on PostgreSQL, by column. */
  readonly typed?: readonly [column: string, type: string, text: string];
}

const int64 = (value: bigint): Uint8Array => new Uint8Array(new BigInt64Array([value]).buffer);
const float64 = (value: number): Uint8Array => new Uint8Array(new Float64Array([value]).buffer);
const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const PLACE_INTEGER = 1_234_567_890_123;
const PLACE_FLOAT = 1.234_567_890_123;
const integer = (value: bigint): Pick<Case, 'row' | 'patch'> => ({
  row: { count: PLACE_INTEGER },
  patch: [int64(BigInt(PLACE_INTEGER)), int64(value)],
});
const float = (value: number): Pick<Case, 'row' | 'patch'> => ({
  row: { ratio: PLACE_FLOAT },
  patch: [float64(PLACE_FLOAT), float64(value)],
});
const LONE_SURROGATE = new Uint8Array([0xed, 0xa0, 0x80]);

const ACCEPTED: readonly Case[] = [
  { name: 'an empty text', row: { text: '' }, typed: ['text', 'text', ''] },
  {
    name: 'a text of every plane',
    row: { text: 'a\u00e9\uffff🦆\u0001' },
    typed: ['text', 'text', 'a\u00e9\uffff🦆\u0001'],
  },
  { name: 'a text with a written escape', row: { text: '\\u0000' }, typed: ['text', 'text', '\\u0000'] },
  { name: 'a long text', row: { text: 'é'.repeat(20_000) } },
  { name: 'zero', ...integer(0n), typed: ['count', 'bigint', '0'] },
  {
    name: 'the greatest safe integer',
    ...integer(2n ** 53n - 1n),
    typed: ['count', 'bigint', '9007199254740991'],
  },
  {
    name: 'the least safe integer',
    ...integer(1n - 2n ** 53n),
    typed: ['count', 'bigint', '-9007199254740991'],
  },
  { name: 'a third', ...float(1 / 3), typed: ['ratio', 'double precision', '0.3333333333333333'] },
  { name: 'negative zero', ...float(-0), typed: ['ratio', 'double precision', '-0'] },
  { name: 'the least subnormal', ...float(Number.MIN_VALUE), typed: ['ratio', 'double precision', '5e-324'] },
  {
    name: 'the greatest float',
    ...float(Number.MAX_VALUE),
    typed: ['ratio', 'double precision', '1.7976931348623157e+308'],
  },
  { name: 'infinity', ...float(Number.POSITIVE_INFINITY), typed: ['ratio', 'double precision', 'Infinity'] },
  {
    name: 'minus infinity',
    ...float(Number.NEGATIVE_INFINITY),
    typed: ['ratio', 'double precision', '-Infinity'],
  },
  { name: 'false', row: { flag: false }, typed: ['flag', 'boolean', 'false'] },
  {
    name: 'JSON with its spelling',
    row: { data: ' {"b" : 1.0, "a":[1e2] } ' },
    typed: ['data', 'jsonb', '{"a": [100], "b": 1.0}'],
  },
  {
    name: 'JSON of integers beyond doubles',
    row: { data: '[9007199254740993]' },
    typed: ['data', 'jsonb', '[9007199254740993]'],
  },
  {
    name: 'JSON with an escaped backslash',
    row: { data: '"\\\\u0000"' },
    typed: ['data', 'jsonb', '"\\\\u0000"'],
  },
  { name: 'no bytes', row: { bytes: new Uint8Array() }, typed: ['bytes', 'bytea', '\\x'] },
  {
    name: 'bytes of any kind',
    row: { bytes: new Uint8Array([0, 255, 0xed, 0xa0]) },
    typed: ['bytes', 'bytea', '\\x00ffeda0'],
  },
  { name: 'a state of a crdt', row: { doc: new Uint8Array([1, 0]) }, typed: ['doc', 'bytea', '\\x0100'] },
];

const REJECTED: readonly Case[] = [
  { name: 'a NUL in a text', row: { text: 'a\0b' } },
  { name: 'a NUL in a scope value', row: { project: 'a\0b' } },
  { name: 'a lone surrogate in a text', row: { text: 'XYZ' }, patch: [utf8('XYZ'), LONE_SURROGATE] },
  {
    name: 'a byte that is no UTF-8',
    row: { text: 'XYZ' },
    patch: [utf8('XYZ'), new Uint8Array([0xff, 0xfe, 0xfd])],
  },
  { name: 'the greatest int64', ...integer(2n ** 63n - 1n) },
  { name: 'the least int64', ...integer(-(2n ** 63n)) },
  { name: 'an integer beyond doubles', ...integer(2n ** 53n + 1n) },
  { name: 'not a number', ...float(Number.NaN) },
  { name: 'an escaped NUL in JSON', row: { data: '"\\u0000"' } },
  { name: 'an escaped lone surrogate in JSON', row: { data: '["\\ud800"]' } },
  { name: 'JSON that is none', row: { data: '"QQ"' }, patch: [utf8('"QQ"'), utf8('{{{{')] },
  { name: 'JSON too deep', row: { data: `${'['.repeat(1_001)}${']'.repeat(1_001)}` } },
  { name: 'a JSON number no numeric holds', row: { data: '1e131073' } },
];

function payloadOf(id: string, { row, patch }: Case): Uint8Array {
  const named: Record<string, ColumnValue> = { id, project: 'shared', ...row };
  const payload = CODEC.encode(TABLE.columns.map(({ name }) => named[name] ?? null));
  if (patch === undefined) return payload;
  const at = Buffer.from(payload).indexOf(patch[0]);
  if (at < 0) throw new Error('the placeholder is not in the payload');
  payload.set(patch[1], at);
  return payload;
}

function pushOf(id: string, payload: Uint8Array): RequestFrame {
  return {
    type: 'PUSH_COMMIT',
    clientCommitId: `commit-${id}`,
    operations: [{ table: 'things', rowId: id, op: 'upsert', payload }],
  };
}

function pullOf(clientId: string, cursor: number, accept: number): Uint8Array {
  return encodeRequest({ clientId }, [
    { type: 'PULL_HEADER', limitCommits: 0, limitSnapshotRows: 0, maxSnapshotPages: 0, accept },
    { type: 'SUBSCRIPTION', id: 's1', table: 'things', scopes: { project: ['shared'] }, cursor },
  ]);
}

async function startGateway(storage: StorageOption) {
  const options = gatewayOptions({
    storage,
    schema: SCHEMA,
    crdtMergers: { last: (_stored, incoming) => incoming },
  });
  const gateway = await createGateway(options);
  onTestFinished(() => gateway.close());
  const { url } = await gateway.listen({ port: 0 });
  return url;
}

const idOf = (index: number): string => `row-${String(index).padStart(3, '0')}`;
const hex = (bytes: Uint8Array | undefined): string => Buffer.from(bytes ?? []).toString('hex');

/** What a subscriber, a pull from 0 and a bootstrap got for each accepted value, and what each rejected one was answered. */
async function sendAll(storage: StorageOption) {
  const url = await startGateway(storage);
  const watcher = await connectTo(url, { clientId: 'watcher' });
  const pulled = await watcher.round(pullOf('watcher', -1, 3));
  watcher.ack(frameOf(pulled, 'SUB_END').nextCursor);
  const values = ACCEPTED.map((accepted, i) => pushOf(idOf(i), payloadOf(idOf(i), accepted)));
  const faults = REJECTED.map((rejected, i) => pushOf(`bad-${i}`, payloadOf(`bad-${i}`, rejected)));
  // In turns: every rejected one has neighbours that must land.
  const mixed = values.flatMap((frame, i) => (faults[i] === undefined ? [frame] : [faults[i], frame]));
  const request = encodeRequest({ clientId: 'writer' }, mixed);
  const answer = async () =>
    frames((await postSync(url, request)).body).flatMap((frame) =>
      frame.type === 'PUSH_RESULT' ? [frame] : [],
    );
  const [first, again] = [await answer(), await answer()];
  const commitsIn = (bytes: readonly Uint8Array[]) =>
    bytes.flatMap((each) => frames(each)).flatMap((frame) => (frame.type === 'COMMIT' ? frame.changes : []));
  await watcher.until(() => commitsIn(watcher.deltas).length >= ACCEPTED.length);
  const byId = (changes: ReturnType<typeof commitsIn>) =>
    Object.fromEntries(changes.map(({ rowId, row }) => [rowId, hex(row)]));
  const replay = await postSync(url, pullOf('reader', 0, 3));
  const bootstrap = await postSync(url, pullOf('newcomer', -1, 3));
  return {
    first: first.map(({ status, clientCommitId, results }) => ({ status, clientCommitId, results })),
    again: again.map(({ status, clientCommitId, results }) => ({ status, clientCommitId, results })),
    delta: byId(commitsIn(watcher.deltas)),
    pull: byId(commitsIn([replay.body])),
    bootstrap: Object.fromEntries(
      frames(bootstrap.body)
        .flatMap((frame) =>
          frame.type === 'SEGMENT_INLINE' ? decodeSegment(frame.payload).blocks.flat() : [],
        )
        .map(({ values, payload }) => [String(values[0]), hex(payload)]),
    ),
  };
}

describe('every value, on both storages', () => {
  let database: TestDatabase;
  let onSqlite: Awaited<ReturnType<typeof sendAll>>;
  let onPostgres: Awaited<ReturnType<typeof sendAll>>;

  beforeAll(async () => {
    database = await createTestDatabase();
  });
  afterAll(() => database.drop());

  test('S-043: what is accepted comes back byte for byte by delta, pull and bootstrap', async () => {
    onSqlite = await sendAll({ path: ':memory:' });
    onPostgres = await sendAll({ url: database.url });
    const expected = Object.fromEntries(ACCEPTED.map((each, i) => [idOf(i), hex(payloadOf(idOf(i), each))]));
    for (const { delta, pull, bootstrap } of [onSqlite, onPostgres]) {
      expect(delta).toEqual(expected);
      expect(pull).toEqual(expected);
      expect(bootstrap).toEqual(expected);
    }
  });

  test('what is refused is refused for good, with the same code on both, and its neighbours land', () => {
    expect(onPostgres.first).toEqual(onSqlite.first);
    const rejected = onSqlite.first.filter(({ clientCommitId }) => clientCommitId.startsWith('commit-bad'));
    expect(rejected).toHaveLength(REJECTED.length);
    for (const { status, results } of rejected) {
      expect(status).toBe('rejected');
      expect(results).toEqual([expect.objectContaining({ status: 'error', retryable: false })]);
    }
    const others = onSqlite.first.filter(({ clientCommitId }) => !clientCommitId.startsWith('commit-bad'));
    expect(new Set(others.map(({ status }) => status))).toEqual(new Set(['applied']));
    // The second time: cached where it was applied, the same refusal where it was not.
    for (const { first, again } of [onSqlite, onPostgres]) {
      expect(again.map(({ results }) => results)).toEqual(first.map(({ results }) => results));
      expect(new Set(again.map(({ status }) => status))).toEqual(new Set(['cached', 'rejected']));
    }
  });

  test.each(
    ACCEPTED.flatMap(({ name, typed }, i) => (typed === undefined ? [] : [[name, i, ...typed] as const])),
  )('the typed column on PostgreSQL: %s', async (_name, index, column, type, text) => {
    const [row] = await runSql<{ type: string; text: string }>(
      database.url,
      `SELECT pg_typeof("${column}")::text AS type, "${column}"::text AS text FROM tidegate.things WHERE id = '${idOf(index)}'`,
    );
    expect(row).toEqual({ type, text });
  });
});
