/** Part 4, 4.3 through a whole gateway: who is refused, with what, and what goes on. On both storages. */
import { describe, expect, onTestFinished, test } from 'vitest';
import { createRealClock } from '../../src/gateway/real-clock.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import type { CandidateReader } from '../../src/session/sync/sync-deps.ts';
import { openPostgresStorage } from '../../src/storage/postgres/postgres-storage.ts';
import type { SegmentStore } from '../../src/storage/segments.ts';
import { openSqliteStorage } from '../../src/storage/sqlite/sqlite-storage.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { createTestDatabase } from '../support/postgres-server.ts';
import { call } from './support/http-client.ts';
import { type LiveGateway, startGateway } from './support/live-gateway.ts';
import { ada, frameOf, frames, postSync, SCHEMA } from './support/requests.ts';
import type { RoundSocket } from './support/round-socket.ts';

type Opened = { readonly storage: Storage; readonly segments: SegmentStore };
type Closing = () => Promise<void>;

const clock = createRealClock();
const OPENERS: Readonly<Record<string, () => Promise<Opened & { readonly drop: Closing }>>> = {
  SQLite: async () => ({
    ...(await openSqliteStorage({ path: ':memory:', clock })),
    drop: async () => undefined,
  }),
  PostgreSQL: async () => {
    const database = await createTestDatabase();
    return {
      ...(await openPostgresStorage({ connection: database.url, clock })),
      drop: () => database.drop(),
    };
  },
};

const json = (body: Uint8Array) => JSON.parse(Buffer.from(body).toString());
const OWN = { partition: 'tenant-1', name: 'totals', schemaVersion: SCHEMA.version };
const FOREIGN = { partition: 'tenant-2', name: 'ranks', schemaVersion: SCHEMA.version };

describe.each(Object.keys(OPENERS))('the serve gate on %s', (kind) => {
  let opened: Awaited<ReturnType<(typeof OPENERS)[string]>>;
  let live: LiveGateway;
  let socket: RoundSocket;
  /** What happens between admission and the gate, once. */
  let meanwhile: (() => Promise<void>) | null;

  async function start(): Promise<void> {
    opened = await OPENERS[kind]!();
    const { storage, drop } = opened;
    // The version is there already: it takes no declaration along.
    await storage.ensureSchema(compileSchema(SCHEMA));
    // Called in the opposite order.
    onTestFinished(drop);
    onTestFinished(() => storage.close());
    meanwhile = null;
    live = await startGateway({
      storage: { storage: interrupted(opened.storage), segments: opened.segments },
      operatorToken: 'operator',
      checkpoints: [OWN],
    });
    socket = await live.connect();
    const pulled = await socket.round(ada.pull());
    socket.ack(frameOf(pulled, 'SUB_END').nextCursor);
  }

  /** Admission has read the old state when the gate reads the new one. */
  function interrupted(storage: Storage): Storage {
    return new Proxy(storage, {
      get: (target, method) => {
        const member = Reflect.get(target, method);
        if (typeof member !== 'function') return member;
        return async (...args: unknown[]) => {
          if (method === 'transaction' || method === 'readSnapshot') {
            const event = meanwhile;
            meanwhile = null;
            await event?.();
          }
          return Reflect.apply(member, target, args);
        };
      },
    });
  }

  async function activate(checkpoint: typeof OWN): Promise<void> {
    const { storage } = opened;
    const { ownerEpoch } = await storage.claimCheckpoint({ ...checkpoint, nowMs: 0 });
    const { partition, name } = checkpoint;
    const request = { partition, name, ownerEpoch, watermark: 1_000, sources: [], nowMs: 0 };
    expect(await storage.activateCheckpoint(request)).toBe('activated');
  }

  const headOf = async () => (await opened.storage.listPartitions({ afterPartition: null, max: 1 }))[0]!.head;

  const REFUSALS: readonly (readonly [string, () => Promise<void>, object])[] = [
    [
      'schema',
      async () => opened.storage.ensureSchema(compileSchema({ ...SCHEMA, version: 4 })),
      { storedSchemaVersion: 4, runningSchemaVersion: 3 },
    ],
    [
      'epoch',
      async () => opened.storage.rotateEpoch({ partition: 'tenant-1', logEpoch: 'another' }),
      { logEpochChanged: true },
    ],
    [
      'checkpoint',
      async () => opened.storage.declareCheckpoint({ ...OWN, nowMs: 0 }),
      { partition: 'tenant-1', projection: 'totals' },
    ],
    [
      'checkpoint of another partition',
      async () => opened.storage.declareCheckpoint({ ...FOREIGN, nowMs: 0 }),
      { projection: 'ranks' },
    ],
  ];
  const REQUESTS = {
    push: () => ada.push({ rowId: 'r1' }),
    pull: () => ada.pull(),
  };

  describe.each(REFUSALS)('%s', (_kind, close, details) => {
    test.each(['push', 'pull'] as const)(
      '4.5-7, 4.5-8: a %s by HTTP that it overtakes is 503, and nothing is applied',
      async (request) => {
        await start();
        meanwhile = close;
        const answer = await postSync(live.url, REQUESTS[request]());
        expect(answer.status).toBe(503);
        expect(Number(answer.headers['retry-after'])).toBeGreaterThan(0);
        expect(json(answer.body)).toEqual({
          code: 'sync.schema_not_ready',
          category: 'unavailable',
          retryable: true,
          recommendedAction: 'retryLater',
          message: 'the server is not ready to serve this partition',
          details,
        });
        expect(await headOf()).toBe(0);
      },
    );

    test.each(['push', 'pull'] as const)(
      '4.5-7: a %s by socket is answered RESP_HEADER, ERROR, END, and the connection stays',
      async (request) => {
        await start();
        meanwhile = close;
        const answer = frames(await socket.round(REQUESTS[request]()));
        expect(answer.map(({ type }) => type)).toEqual(['RESP_HEADER', 'ERROR']);
        const error = answer[1]!;
        expect(error).toMatchObject({ code: 'sync.schema_not_ready', retryable: true });
        expect(error.type === 'ERROR' && JSON.parse(error.details!)).toEqual(details);
        expect(await headOf()).toBe(0);
        expect(socket.closed).toBeNull();
        expect(socket.excessBytes).toBe(0);
      },
    );
  });

  test.each(REFUSALS)(
    '4.5-7, 4.5-8: a query of the host that it overtakes is refused before it reads: %s',
    async (kind, close, details) => {
      await start();
      await socket.round(ada.push({ rowId: 'r1' }));
      const logEpoch = await opened.storage.readSnapshot(
        'tenant-1',
        async (reader) => (await reader.state()).logEpoch,
      );
      const readTitle = () =>
        live.gateway.query({ partition: 'tenant-1', logEpoch }, async (reader) => {
          const { row } = (await reader.getRow(SCHEMA.tables[0]!.name, 'r1'))!;
          return row.id;
        });
      expect(await readTitle()).toBe('r1');
      let hasRead = false;
      meanwhile = close;
      const refused = live.gateway.query({ partition: 'tenant-1', logEpoch }, async () => {
        hasRead = true;
      });
      await expect(refused).rejects.toMatchObject({ code: 'sync.schema_not_ready', details });
      expect(hasRead, kind).toBe(false);
    },
  );

  test('a query sees one moment, scans by scope, and its reader ends with it', async () => {
    await start();
    for (const rowId of ['r1', 'r2', 'r3']) await socket.round(ada.push({ rowId }));
    const table = SCHEMA.tables[0]!.name;
    let leaked: CandidateReader | null = null;
    const rowIds = await live.gateway.query({ partition: 'tenant-1' }, async (reader) => {
      leaked = reader;
      await socket.round(ada.push({ rowId: 'r4' }));
      expect(await reader.getRow(table, 'r4')).toBeUndefined();
      const first = await reader.scanRows({ table, scopeFilter: { project: ['shared'] }, limit: 2 });
      const rest = await reader.scanRows({ table, scopeFilter: { project: ['shared'] }, afterRowId: 'r2' });
      return [...first, ...rest].map(({ rowId }) => rowId);
    });
    expect(rowIds).toEqual(['r1', 'r2', 'r3']);
    await expect(leaked!.getRow(table, 'r1')).rejects.toMatchObject({ code: 'sync.storage.failed' });
    const wrong = [
      (reader: CandidateReader) => reader.getRow('nothing', 'r1'),
      (reader: CandidateReader) => reader.scanRows({ table, scopeFilter: {} }),
      (reader: CandidateReader) =>
        reader.scanRows({ table, scopeFilter: { project: ['shared'] }, limit: 1_001 }),
    ];
    for (const read of wrong) {
      await expect(
        live.gateway.query({ partition: 'tenant-1' }, read as () => Promise<unknown>),
      ).rejects.toThrow();
    }
    await expect(live.gateway.query({ partition: 'nobody' }, async () => 1)).rejects.toMatchObject({
      code: 'sync.storage.unknown_partition',
    });
  });

  test('the next round after activation succeeds on the same connection; deltas went on all the while', async () => {
    await start();
    await opened.storage.declareCheckpoint({ ...OWN, nowMs: 0 });
    const push = ada.push({ rowId: 'r1' });
    expect(frames(await socket.round(push))[1]).toMatchObject({ code: 'sync.schema_not_ready' });
    await activate(OWN);
    expect(frameOf(await socket.round(push), 'PUSH_RESULT')).toMatchObject({
      status: 'applied',
      commitSeq: 1,
    });
    const writer = await live.connect({ clientId: 'client-2' });
    await writer.round(ada.push({ clientId: 'client-2', rowId: 'r2' }));
    await socket.until(
      () => socket.deltas.length > 0 || socket.controls.some(({ event }) => event === 'sync'),
    );
  });

  test('another tenant goes on while this one waits for its declared backfill', async () => {
    await start();
    await opened.storage.declareCheckpoint({ ...OWN, nowMs: 0 });
    const answer = await postSync(live.url, ada.push({ rowId: 'r1' }), { token: 'token-eve' });
    expect(frameOf(answer.body, 'PUSH_RESULT').status).toBe('applied');
  });

  test('4.5-9: the push of a refused mixed round is durable, reaches a peer once, and its retry is cached', async () => {
    await start();
    const peer = await live.connect({ clientId: 'peer', token: 'token-ben' });
    const pulled = await peer.round(ada.pull({ clientId: 'peer' }));
    peer.ack(frameOf(pulled, 'SUB_END').nextCursor);
    const mixed = ada.mixed({ rowId: 'r1', cursor: 0 });
    // The push passes the gate, the pull behind it does not.
    meanwhile = async () => {
      meanwhile = () => opened.storage.declareCheckpoint({ ...OWN, nowMs: 0 });
    };
    expect(frames(await socket.round(mixed)).map(({ type }) => type)).toEqual(['RESP_HEADER', 'ERROR']);
    expect(await headOf()).toBe(1);
    await peer.until(() => peer.deltas.length === 1);
    await activate(OWN);
    const retried = await socket.round(mixed);
    expect(frameOf(retried, 'PUSH_RESULT')).toMatchObject({ status: 'cached', commitSeq: 1 });
    expect(peer.deltas).toHaveLength(1);
  });

  test('a segment that was minted before the version of a checkpoint has expired', async () => {
    await start();
    await postSync(live.url, ada.push({ rowId: 'r1' }));
    const { segmentId } = frameOf((await postSync(live.url, ada.pull({ accept: 2 }))).body, 'SEGMENT_REF');
    const download = () =>
      call(`${live.url}/segments/${segmentId}`, {
        headers: {
          authorization: 'Bearer token-ada',
          'x-syncular-scopes': JSON.stringify({ project: ['shared'] }),
        },
      });
    expect((await download()).status).toBe(200);
    await opened.storage.declareCheckpoint({ ...OWN, schemaVersion: 4, nowMs: 0 });
    const refused = await download();
    expect(refused.status).toBe(404);
    expect(json(refused.body)).toMatchObject({ code: 'sync.segment_expired' });
  });

  test('a process below the fence: the whole push fails, nothing lands, and no record of it is left', async () => {
    await start();
    // Of a later version, so that the gate has nothing against this process: only the database has.
    await opened.storage.declareCheckpoint({ ...OWN, schemaVersion: 4, nowMs: 0 });
    const answer = await postSync(live.url, ada.push({ rowId: 'r1' }));
    expect(answer.status).toBe(503);
    expect(json(answer.body)).toMatchObject({
      code: 'sync.schema_not_ready',
      details: { writerFenced: true },
    });
    expect(await headOf()).toBe(0);
    const results = await opened.storage.transaction('tenant-1', (tx) =>
      tx.readResults([{ clientId: 'client-1', clientCommitId: 'commit-r1' }]),
    );
    expect(results).toEqual([null]);
  });

  test('/readyz: 503 with the phase while a checkpoint of this process is pending; its name for an operator alone', async () => {
    await start();
    const ready = (token?: string) =>
      call(
        `${live.url}/readyz`,
        token === undefined ? {} : { headers: { authorization: `Bearer ${token}` } },
      );
    expect((await ready()).status).toBe(200);
    await opened.storage.declareCheckpoint({ ...FOREIGN, nowMs: 0 });
    expect((await ready()).status).toBe(200);
    await opened.storage.declareCheckpoint({ ...OWN, nowMs: 0 });
    for (const token of [undefined, 'token-ada', 'operato']) {
      const answer = await ready(token);
      expect(answer.status).toBe(503);
      expect(json(answer.body)).toEqual({ status: 'unavailable', phase: 'backfill_checkpoint' });
    }
    expect(json((await ready('operator')).body)).toEqual({
      status: 'unavailable',
      phase: 'backfill_checkpoint',
      pending: [{ partition: 'tenant-1', projection: 'totals' }],
    });
    await activate(OWN);
    expect((await ready()).status).toBe(200);
  });

  test('4.5-10: a process without the declaration refuses to start and says which phase, without a name', async () => {
    await start();
    await opened.storage.declareCheckpoint({ ...OWN, nowMs: 0 });
    const { storage, segments } = opened;
    const failure = await startGateway({ storage: { storage, segments } }).catch((thrown: unknown) => thrown);
    expect(failure).toMatchObject({
      code: 'sync.schema_not_ready',
      phase: 'backfill_checkpoint',
      schemaVersion: 3,
      cause: { code: 'sync.storage.checkpoint_incomplete' },
    });
    expect(String(failure)).not.toMatch(/totals|tenant/);
  });
});
