/** The MessagePack dialect on sockets and over HTTP, beside SSP2 on the same gateway (part 5). */
import { describe, expect, it, onTestFinished } from 'vitest';
import type { ErrorFrame, ResponseFrame } from '../../src/protocol/frames.ts';
import { decodeMessage, encodeMessage } from '../../src/protocol/message.ts';
import type { MsgpackFrame } from '../../src/protocol/msgpack/frames.ts';
import { encodePresenceMessage, encodeRound } from '../../src/protocol/msgpack/messages.ts';
import type { RequestParts } from '../../src/protocol/msgpack/request.ts';
import { rowCodecOf } from '../../src/protocol/row-codec.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import type { SchemaDocument } from '../../src/protocol/schema-document.ts';
import { type Model, packed } from '../protocol/msgpack/model.ts';
import { call, json } from './support/http-client.ts';
import { type LiveGateway, startGateway } from './support/live-gateway.ts';
import { framesOfBody, MsgpackSocket } from './support/msgpack-client.ts';
import { RoundSocket } from './support/round-socket.ts';

const DOCUMENT: SchemaDocument = {
  version: 3,
  tables: [
    {
      name: 'notes',
      primaryKey: 'id',
      columns: [
        { name: 'id', type: 'string' },
        { name: 'project', type: 'string' },
        { name: 'whole', type: 'integer', nullable: true },
        { name: 'score', type: 'float', nullable: true },
        { name: 'done', type: 'boolean', nullable: true },
        { name: 'meta', type: 'json', nullable: true },
        { name: 'data', type: 'bytes', nullable: true },
      ],
      scopes: ['project:{project}'],
    },
  ],
};
const SCHEMA = compileSchema(DOCUMENT);
const NOTES = SCHEMA.tableByName.get('notes')!;
const CONTENT_TYPE = 'application/vnd.tidegate.sync+msgpack';
const note = (id: string, whole = 1) =>
  rowCodecOf(NOTES).encode([id, 'p1', whole, -0, true, '{"b": 1,  "a":2}', Uint8Array.of(0, 255)]);

interface Ask {
  readonly clientId: string;
  readonly logEpoch?: string;
  readonly push?: readonly RequestParts['pushes'][number][];
  readonly subscriptions?: readonly { readonly id: string; readonly cursor: number }[];
  readonly accept?: number;
}

function partsOf({ clientId, logEpoch, push = [], subscriptions, accept = 1 }: Ask): RequestParts {
  const limits = { limitCommits: 0, limitSnapshotRows: 0, maxSnapshotPages: 0 };
  return {
    header: {
      type: 'REQ_HEADER',
      clientId,
      schemaVersion: 3,
      ...(logEpoch === undefined ? {} : { logEpoch }),
    },
    pushes: push,
    pull: subscriptions === undefined ? null : { type: 'PULL_HEADER', ...limits, accept },
    subscriptions: (subscriptions ?? []).map(({ id, cursor }) => ({
      type: 'SUBSCRIPTION',
      id,
      table: 'notes',
      scopes: { project: ['p1'] },
      cursor,
    })),
  };
}

function ssp2Bytes({ header, pushes, pull, subscriptions }: RequestParts): Uint8Array {
  const limits = { limitCommits: 0, limitSnapshotRows: 0, maxSnapshotPages: 0, accept: 0 };
  const pulled =
    pull === null ? [] : [{ ...limits, ...pull, type: 'PULL_HEADER' } as const, ...subscriptions];
  return encodeMessage({ kind: 'request', wireVersion: 2, frames: [header, ...pushes, ...pulled] });
}

function ssp2Frames(bytes: Uint8Array): readonly ResponseFrame[] {
  const message = decodeMessage(bytes);
  if (message.kind !== 'response') throw new Error('not a response');
  return message.frames;
}

/** One client of either dialect. */
interface Driver {
  round(ask: Ask): Promise<readonly (ResponseFrame | MsgpackFrame)[]>;
  ack(cursor: number): void;
  deltas(): readonly (readonly (ResponseFrame | MsgpackFrame)[])[];
  wakeUps(): number;
  readonly requiresSync: boolean;
  until(condition: () => boolean): Promise<void>;
}

type Open = (live: LiveGateway, clientId: string) => Promise<Driver>;

const urlOf = (live: LiveGateway, clientId: string) =>
  `${live.url.replace('http:', 'ws:')}/realtime?${new URLSearchParams({ clientId, token: 'token-ada' })}`;

const openSsp2: Open = async (live, clientId) => {
  const socket = new RoundSocket(urlOf(live, clientId));
  onTestFinished(() => socket.end());
  const hello = await socket.control('hello');
  return {
    round: async (ask) => ssp2Frames(await socket.round(ssp2Bytes(partsOf(ask)))),
    ack: (cursor) => socket.ack(cursor),
    deltas: () => socket.deltas.map(ssp2Frames),
    wakeUps: () => socket.controls.filter(({ event }) => event === 'sync').length,
    requiresSync: hello.requiresSync as boolean,
    until: (condition) => socket.until(condition),
  };
};

async function openSocket(
  live: LiveGateway,
  clientId: string,
  protocols?: readonly string[],
): Promise<MsgpackSocket> {
  const socket = new MsgpackSocket(urlOf(live, clientId), SCHEMA, protocols);
  onTestFinished(() => socket.ws.terminate());
  await socket.control('hello');
  return socket;
}

const openMsgpack: Open = async (live, clientId) => {
  const socket = await openSocket(live, clientId);
  const { requiresSync } = await socket.control('hello');
  return {
    round: (ask) => socket.round(partsOf(ask)),
    ack: (cursor) => socket.ack(cursor),
    deltas: () => socket.deltas,
    wakeUps: () => socket.controls.filter(({ kind }) => kind === 'wake-up').length,
    requiresSync,
    until: (condition) => socket.until(condition),
  };
};

/** Rounds over HTTP; what only a socket has stays empty. */
function overHttp(
  post: (live: LiveGateway, parts: RequestParts) => Promise<readonly (ResponseFrame | MsgpackFrame)[]>,
): Open {
  return async (live) => ({
    round: (ask) => post(live, partsOf(ask)),
    ack: () => undefined,
    deltas: () => [],
    wakeUps: () => 0,
    requiresSync: true,
    until: async () => undefined,
  });
}

function post(live: LiveGateway, contentType: string, body: Uint8Array) {
  const headers = { 'content-type': contentType, authorization: 'Bearer token-ada' };
  return call(`${live.url}/sync`, { method: 'POST', headers, body });
}

const httpSsp2 = overHttp(async (live, parts) => {
  const answer = await post(live, 'application/vnd.syncular.sync.v2', ssp2Bytes(parts));
  return answer.status === 200 ? ssp2Frames(Uint8Array.from(answer.body)) : [refusal(answer.body)];
});
const httpMsgpack = overHttp(async (live, parts) => {
  const answer = await post(live, CONTENT_TYPE, encodeRound(4, parts, SCHEMA));
  if (answer.status !== 200) return [refusal(answer.body)];
  expect(answer.headers['content-type']).toBe(CONTENT_TYPE);
  return framesOfBody(Uint8Array.from(answer.body), parts, SCHEMA);
});

/** Errors before the 200 are JSON in both dialects. */
function refusal(body: Uint8Array): ResponseFrame {
  const { details: _, ...error } = json({ body }) as Omit<ErrorFrame, 'type' | 'details'> & {
    details?: unknown;
  };
  return { ...error, type: 'ERROR' };
}

/** What differs between two gateways whatever is spoken: epoch, clock, ids of clients. */
function plain(frames: readonly (ResponseFrame | MsgpackFrame)[]): unknown {
  return JSON.parse(
    JSON.stringify(frames, (key, value: unknown) => {
      if (key === 'logEpoch' || key === 'createdAtMs' || key === 'details') return key;
      return value instanceof Uint8Array ? Buffer.from(value).toString('hex') : value;
    }),
  );
}

async function story(open: Open, isSocket: boolean): Promise<unknown[]> {
  const live = await startGateway({ schema: DOCUMENT });
  const told: unknown[] = [];
  const reader = await open(live, 'reader');
  const writer = await open(live, 'writer');
  const tell = async (driver: Driver, ask: Ask) => {
    const frames = await driver.round(ask);
    told.push(plain(frames));
    return frames;
  };
  told.push(reader.requiresSync);
  const subscriptions = [{ id: 's1', cursor: -1 }];
  const [header] = await tell(reader, { clientId: 'reader', subscriptions });
  const logEpoch = header?.type === 'RESP_HEADER' ? (header.logEpoch ?? '') : '';
  const upsert = (rowId: string, payload: Uint8Array, baseVersion?: number) =>
    ({
      table: 'notes',
      rowId,
      op: 'upsert',
      payload,
      ...(baseVersion === undefined ? {} : { baseVersion }),
    }) as const;
  const commit = (clientCommitId: string, ...operations: RequestParts['pushes'][number]['operations']) =>
    ({ type: 'PUSH_COMMIT', clientCommitId, operations }) as const;
  const asWriter = { clientId: 'writer', logEpoch };
  await tell(writer, {
    ...asWriter,
    push: [commit('c1', upsert('n1', note('n1')), upsert('n2', note('n2')))],
  });
  const booted = await tell(reader, { clientId: 'reader', logEpoch, subscriptions });
  const end = booted.find((frame) => frame.type === 'SUB_END');
  const cursor = end?.type === 'SUB_END' ? end.nextCursor : 0;
  reader.ack(cursor);
  await tell(writer, { ...asWriter, push: [commit('c2', { table: 'notes', rowId: 'n2', op: 'delete' })] });
  await tell(writer, {
    ...asWriter,
    push: [
      commit('c3', upsert('n1', note('n1', 9_007_199_254_740_991))),
      commit('c4', upsert('n1', note('n1', 3), 1)),
      commit('c5', { table: 'nowhere', rowId: 'x', op: 'delete' }),
      commit('c6', upsert('other', note('n1'))),
      commit('c2', { table: 'notes', rowId: 'n2', op: 'delete' }),
    ],
  });
  if (isSocket) await reader.until(() => reader.deltas().length >= 2);
  told.push(reader.deltas().map(plain), reader.wakeUps());
  await tell(reader, { clientId: 'reader', logEpoch, subscriptions: [{ id: 's1', cursor }] });
  await tell(reader, { clientId: 'reader', logEpoch, subscriptions: [...subscriptions, ...subscriptions] });
  await tell(reader, { clientId: 'reader', logEpoch: 'another', subscriptions });
  await tell(reader, { clientId: 'reader', logEpoch, subscriptions: [{ id: 's1', cursor: 1_000 }] });
  // The database and the cursors, as a third client and the next connection of the first one see them.
  const judge = await openSsp2(live, 'judge');
  told.push(plain(await judge.round({ clientId: 'judge', logEpoch, subscriptions })));
  const again = await openSsp2(live, 'reader');
  told.push(again.requiresSync);
  return told;
}

describe('one story in both dialects (5.5)', () => {
  it('M-5.5: sockets give the same answers, deltas, wake-ups, rows and cursors', async () => {
    const ssp2 = await story(openSsp2, true);
    expect(JSON.stringify(ssp2)).toContain('sync.version_conflict');
    expect(await story(openMsgpack, true)).toEqual(ssp2);
  });

  it('M-5.5: HTTP gives the same answers, refusals, rows and cursors', async () => {
    const ssp2 = await story(httpSsp2, false);
    expect(JSON.stringify(ssp2)).toContain('sync.invalid_subscription');
    expect(await story(httpMsgpack, false)).toEqual(ssp2);
  });
});

describe('negotiation (5.1)', () => {
  it.each([
    [['tidegate.msgpack.v1'], 'tidegate.msgpack.v1'],
    [['bearer.token-ada', 'tidegate.msgpack.v1'], 'tidegate.msgpack.v1'],
    [['tidegate.msgpack.v1', 'ssp2'], 'tidegate.msgpack.v1'],
    [['later.v9', 'ssp2', 'tidegate.msgpack.v1'], 'ssp2'],
  ])('M-5.1: an offer of %j is answered with %s', async (offer, chosen) => {
    const live = await startGateway({ schema: DOCUMENT });
    const socket = new MsgpackSocket(urlOf(live, 'c'), SCHEMA, offer);
    onTestFinished(() => socket.ws.terminate());
    await socket.until(() => socket.controls.length + socket.texts > 0);
    expect(socket.ws.protocol).toBe(chosen);
    // What is spoken follows what was answered.
    expect(socket.texts).toBe(chosen === 'ssp2' ? 1 : 0);
  });

  it('M-5.1: a token beside the subprotocol authenticates and is not echoed', async () => {
    const live = await startGateway({ schema: DOCUMENT });
    const url = `${live.url.replace('http:', 'ws:')}/realtime?clientId=c`;
    const socket = new MsgpackSocket(url, SCHEMA, ['tidegate.msgpack.v1', 'bearer.token-ada']);
    onTestFinished(() => socket.ws.terminate());
    expect((await socket.control('hello')).actorId).toBe('ada');
    expect(socket.ws.protocol).toBe('tidegate.msgpack.v1');
  });

  it.each([[['later.v9']], [['bearer.token-ada']]])(
    'M-5.1: an offer of %j alone is refused',
    async (offer) => {
      const live = await startGateway({ schema: DOCUMENT });
      const socket = new MsgpackSocket(urlOf(live, 'c'), SCHEMA, offer);
      expect((await socket.untilClosed()).code).toBe(1006);
    },
  );
});

const header = { clientId: 'c', schemaVersion: 3 };
const round = (req: Model, id: Model = 1): Model => ({ t: 'round', id, req });

/** What is no message of the dialect: the socket closes, HTTP answers 400 or 413. */
const BROKEN: readonly [string, Uint8Array, number][] = [
  ['an array', packed([1]), 1008],
  ['an extension type', packed({ t: 'ack', cursor: { $raw: 'd40100' } }), 1008],
  ['a timestamp extension', packed({ t: 'ack', cursor: { $raw: 'd6ff00000000' } }), 1008],
  ['the byte that is never used', packed({ t: { $raw: 'c1' } }), 1008],
  ['a key that is no string', Uint8Array.from(Buffer.from('8101a0', 'hex')), 1008],
  ['broken UTF-8', packed({ t: { $raw: 'a2c328' } }), 1008],
  ['a surrogate', packed({ t: { $raw: 'a3eda080' } }), 1008],
  [
    'the key __proto__',
    Uint8Array.from(Buffer.concat([Buffer.from([0x81]), packed('__proto__'), packed({})])),
    1008,
  ],
  ['the key constructor', packed(round({ ...header, constructor: 1 })), 1008],
  ['the key prototype', packed(round({ ...header, prototype: 1 })), 1008],
  ['a key twice', Uint8Array.from(Buffer.from('82a174a161a174a162', 'hex')), 1008],
  ['seventeen levels', packed({ t: 'x', x: { $raw: `${'91'.repeat(16)}c0` } }), 1008],
  ['a length beyond the message', packed({ t: { $raw: 'db00000100' } }), 1008],
  ['a length beyond every bound', packed({ t: { $raw: 'dbffffffff' } }), 1009],
  ['a count beyond every bound', packed({ t: { $raw: 'ddffffffff' } }), 1009],
  ['more values than the bound', packed({ t: { $raw: `dd00100000${'c0'.repeat(0x10_0000)}` } }), 1009],
  ['bytes behind the message', Uint8Array.from([...packed({ t: 'ack', cursor: 1 }), 0]), 1008],
  ['half a message', packed({ t: 'ack', cursor: 1 }).subarray(0, 6), 1008],
  ['no t', packed({}), 1008],
  ['an unknown t', packed({ t: 'later' }), 1008],
  ['a round without an id', packed({ t: 'round', req: header }), 1008],
  ['a round with a float for an id', packed(round(header, { $float: 1 })), 1008],
  ['a round with an id beyond 2^53', packed(round(header, { $int: '9007199254740992' })), 1008],
  ['a presence message without a key', packed({ t: 'presence', doc: {} }), 1008],
  [
    'a presence document with bytes',
    packed({ t: 'presence', scopeKey: 'k', doc: { a: { $bin: '00' } } }),
    1008,
  ],
];

const sub = { id: 's1', table: 'notes', scopes: { project: ['p1'] }, cursor: -1 };
const pull = (pulled: Readonly<Record<string, Model>>): Model => ({ ...header, pull: pulled });
const op = { table: 'notes', rowId: 'n1', op: 'upsert', payload: { id: 'n1', project: 'p1' } };
const pushed = (operation: Readonly<Record<string, Model>>): Model => ({
  ...header,
  push: [{ clientCommitId: 'c1', operations: [operation] }],
});

/** What is wrong with a request: answered under its id, on an open connection. */
const BAD_REQUESTS: readonly [string, Model, string][] = [
  ['no map', 7, 'sync.invalid_request'],
  ['no clientId', { schemaVersion: 3 }, 'sync.invalid_request'],
  ['an empty clientId', { ...header, clientId: '' }, 'sync.invalid_request'],
  [
    'a float for an integer',
    { ...(pull({}) as object), schemaVersion: { $float: 3 } },
    'sync.invalid_request',
  ],
  [
    'an integer beyond 2^53',
    pull({ subscriptions: [{ ...sub, cursor: { $int: '9007199254740992' } }] }),
    'sync.invalid_request',
  ],
  [
    'the smallest int64',
    pull({ subscriptions: [{ ...sub, cursor: { $int: '-9223372036854775808' } }] }),
    'sync.invalid_request',
  ],
  ['neither push nor pull', header, 'sync.invalid_request'],
  ['an unknown key', pull({ later: 1 }), 'sync.invalid_request'],
  ['accept bit 5', pull({ accept: 32, subscriptions: [] }), 'sync.invalid_request'],
  ['params that are no JSON', pull({ subscriptions: [{ ...sub, params: '{' }] }), 'sync.invalid_request'],
  [
    'scopes that are no lists',
    pull({ subscriptions: [{ ...sub, scopes: { project: 'p1' } }] }),
    'sync.invalid_request',
  ],
  ['an unknown op', pushed({ ...op, op: 'merge' }), 'sync.invalid_request'],
  ['an upsert without a row', pushed({ table: 'notes', rowId: 'n1', op: 'upsert' }), 'sync.invalid_request'],
  ['a delete with a row', pushed({ ...op, op: 'delete' }), 'sync.invalid_request'],
  ['a row that is bytes', pushed({ ...op, payload: { $bin: '00' } }), 'sync.invalid_request'],
  [
    'a commit without operations',
    { ...header, push: [{ clientCommitId: 'c', operations: [] }] },
    'sync.empty_commit',
  ],
  [
    'another clientId',
    { ...(pull({ subscriptions: [] }) as object), clientId: 'd' },
    'sync.invalid_client_id',
  ],
];

/** Values that no row of SSP2 could carry. */
const BAD_ROWS: readonly [string, Readonly<Record<string, Model>>][] = [
  ['a float in an integer column', { whole: { $float: 2 } }],
  ['an integer beyond 2^53', { whole: { $int: '9007199254740993' } }],
  ['text in an integer column', { whole: '2' }],
  ['bytes in a text column', { project: { $bin: '00' } }],
  ['NULL where it may not be', { project: null }],
  ['a map for JSON text', { meta: { a: 1 } }],
  ['text that is no JSON', { meta: '{' }],
  ['a column that the table has not', { nowhere: 1 }],
];

describe('malformed input (5.4)', () => {
  it.each(BROKEN)('M-5.4: %s ends a socket and is refused over HTTP', async (_, bytes, code) => {
    const live = await startGateway({ schema: DOCUMENT });
    const socket = await openSocket(live, 'c');
    socket.ws.send(bytes);
    expect((await socket.untilClosed()).code).toBe(code);
    const answer = await post(live, CONTENT_TYPE, bytes);
    expect(answer.status).toBe(code === 1009 ? 413 : 400);
    expect(json(answer)).toMatchObject({ code: 'sync.invalid_request' });
  });

  it('M-5.2: a text message ends the socket, an empty binary one and a malformed ack do not', async () => {
    const live = await startGateway({ schema: DOCUMENT });
    const socket = await openSocket(live, 'c');
    socket.ws.send(new Uint8Array(0));
    socket.ws.send(packed({ t: 'ack', cursor: { $float: 1.5 } }));
    expect(await socket.round(partsOf({ clientId: 'c', subscriptions: [] }))).toMatchObject([
      { resetRequired: true },
    ]);
    socket.ws.send('{"type":"ack","cursor":1}');
    expect((await socket.untilClosed()).code).toBe(1008);
  });

  it('M-5.4: faults of a request are answered under its id, and the socket stays open', async () => {
    const live = await startGateway({ schema: DOCUMENT });
    const socket = await openSocket(live, 'c');
    for (const [what, req, code] of BAD_REQUESTS) {
      const frames = await socket.roundOf((id) => packed(round(req, id)));
      expect([what, frames.map(({ type }) => type)]).toEqual([what, ['RESP_HEADER', 'ERROR']]);
      expect([what, frames[1]]).toMatchObject([what, { code }]);
      if (code === 'sync.invalid_client_id') continue;
      const answer = await post(live, CONTENT_TYPE, packed(round(req)));
      expect([what, json(answer)]).toMatchObject([what, { code }]);
    }
  });

  it('M-5.4: a value that no row can hold rejects its commit alone, as unreadable row bytes do in SSP2', async () => {
    const live = await startGateway({ schema: DOCUMENT });
    const socket = await openSocket(live, 'c');
    const [first] = await socket.round(partsOf({ clientId: 'c', subscriptions: [] }));
    const { logEpoch } = first as { readonly logEpoch: string };
    for (const [at, [what, columns]] of BAD_ROWS.entries()) {
      const good = { ...op, rowId: `n${at}`, payload: { id: `n${at}`, project: 'p1', score: 3 } };
      const push = [
        { clientCommitId: `bad-${at}`, operations: [{ ...op, payload: { ...op.payload, ...columns } }] },
        { clientCommitId: `good-${at}`, operations: [good] },
      ];
      const frames = await socket.roundOf((id) => packed(round({ ...header, logEpoch, push }, id)));
      const message = expect.stringMatching(/^the row cannot be encoded: (column \w+: |a row has a column)/);
      const bad = {
        status: 'rejected',
        results: [{ status: 'error', code: 'sync.invalid_request', message }],
      };
      expect([what, ...frames.slice(1)]).toMatchObject([what, bad, { status: 'applied' }]);
    }
  });
});

function signal(): { readonly given: Promise<void>; readonly give: () => void } {
  let give = (): void => undefined;
  const given = new Promise<void>((resolve) => {
    give = resolve;
  });
  return { given, give: () => give() };
}

describe('one round at a time', () => {
  it('R-059, M-5.2: a round while another one is answered closes with 1008, and is not processed', async () => {
    const gate = signal();
    const asked = signal();
    const live = await startGateway({
      schema: DOCUMENT,
      resolveScopes: async () => {
        asked.give();
        await gate.given;
        return { project: ['*'] };
      },
    });
    const socket = await openSocket(live, 'c');
    const [first] = await socket.round(partsOf({ clientId: 'c', subscriptions: [] }));
    const { logEpoch } = first as { readonly logEpoch: string };
    const operations = [{ table: 'notes', rowId: 'n1', op: 'upsert', payload: note('n1') }] as const;
    const push = [{ type: 'PUSH_COMMIT', clientCommitId: 'c1', operations }] as const;
    socket.ws.send(
      encodeRound(1, partsOf({ clientId: 'c', logEpoch, subscriptions: [{ id: 's', cursor: -1 }] }), SCHEMA),
    );
    await asked.given;
    socket.ws.send(encodeRound(2, partsOf({ clientId: 'c', logEpoch, push }), SCHEMA));
    expect((await socket.untilClosed()).code).toBe(1008);
    gate.give();
    const judge = await openMsgpack(live, 'judge');
    const frames = await judge.round({
      clientId: 'judge',
      logEpoch,
      subscriptions: [{ id: 's1', cursor: -1 }],
      accept: 16,
    });
    expect(frames).toContainEqual({ type: 'ROWS', table: 'notes', rows: [], first: true });
  });
});

describe('rows instead of segments (5.3)', () => {
  it('M-5.3: are the default, carry every value, and only the first of a fresh bootstrap clears', async () => {
    const live = await startGateway({ schema: DOCUMENT });
    const socket = await openSocket(live, 'c');
    const [first] = await socket.round(partsOf({ clientId: 'c', subscriptions: [] }));
    const { logEpoch } = first as { readonly logEpoch: string };
    const rows = ['a', 'b', 'c'].map(
      (id) => ({ table: 'notes', rowId: id, op: 'upsert', payload: note(id) }) as const,
    );
    await socket.round(
      partsOf({
        clientId: 'c',
        logEpoch,
        push: [{ type: 'PUSH_COMMIT', clientCommitId: 'c', operations: rows }],
      }),
    );
    const req: Model = { ...header, logEpoch, pull: { limitSnapshotRows: 2, subscriptions: [sub] } };
    const frames = await socket.roundOf((id) => packed(round(req, id)));
    expect(frames.map(({ type }) => type)).toEqual(['RESP_HEADER', 'SUB_START', 'ROWS', 'ROWS', 'SUB_END']);
    const values = rowCodecOf(NOTES).decode(note('a'));
    expect(frames[2]).toMatchObject({ table: 'notes', first: true, rows: [{ values }, {}] });
    expect(frames[3]).toMatchObject({ table: 'notes', first: false, rows: [{}] });
  });
});

describe('cohorts', () => {
  it('M-5.5: subscribers of both dialects get the same commits in the same order', async () => {
    const live = await startGateway({ schema: DOCUMENT });
    const opened = await Promise.all(
      [openSsp2, openMsgpack, openSsp2, openMsgpack].map((open, at) => open(live, `reader-${at}`)),
    );
    const readers = opened.map((driver, at) => ({ driver, clientId: `reader-${at}` }));
    const [first] = await readers[0]!.driver.round({ clientId: 'reader-0', subscriptions: [] });
    const { logEpoch } = first as { readonly logEpoch: string };
    for (const { driver, clientId } of readers) {
      await driver.round({ clientId, logEpoch, subscriptions: [{ id: 's1', cursor: -1 }] });
      driver.ack(0);
    }
    const writer = await openMsgpack(live, 'writer');
    for (let n = 0; n < 3; n++) {
      const operations = [{ table: 'notes', rowId: `n${n}`, op: 'upsert', payload: note(`n${n}`) }] as const;
      const push = [{ type: 'PUSH_COMMIT', clientCommitId: `c${n}`, operations }] as const;
      await writer.round({ clientId: 'writer', logEpoch, push });
    }
    const commits = (driver: Driver) =>
      driver.deltas().flatMap((frames) => frames.filter(({ type }) => type === 'COMMIT'));
    for (const { driver } of readers) await driver.until(() => commits(driver).length === 3);
    const seen = readers.map(({ driver }) => plain(commits(driver) as readonly ResponseFrame[]));
    expect(new Set(seen.map((commit) => JSON.stringify(commit))).size).toBe(1);
    expect(seen[0]).toMatchObject([{ commitSeq: 1 }, { commitSeq: 2 }, { commitSeq: 3 }]);
  });
});

describe('presence across dialects', () => {
  it('M-5.2: documents travel both ways, refusals and leaves as well', async () => {
    const live = await startGateway({ schema: DOCUMENT });
    const theirs = await openSocket(live, 'packed');
    const [first] = await theirs.round(partsOf({ clientId: 'packed', subscriptions: [] }));
    const { logEpoch } = first as { readonly logEpoch: string };
    const subscriptions = [{ id: 's1', cursor: -1 }];
    await theirs.round(partsOf({ clientId: 'packed', logEpoch, subscriptions }));
    const ours = new RoundSocket(urlOf(live, 'texts'));
    onTestFinished(() => ours.end());
    await ours.control('hello');
    await ours.round(ssp2Bytes(partsOf({ clientId: 'texts', logEpoch, subscriptions })));
    const scopeKey = 'project:p1';
    const doc = { at: [1, 1.5, -0.25, null, true], name: 'Ada' };
    const packedSeen = () =>
      theirs.controls.flatMap((control) => (control.kind === 'presence' ? [control.presence] : []));
    const textSeen = () => ours.controls.filter(({ event }) => event === 'presence').map(({ data }) => data);

    theirs.ws.send(encodePresenceMessage(scopeKey, doc));
    await ours.until(() => textSeen().length === 1);
    expect(textSeen()[0]).toMatchObject({ kind: 'join', clientId: 'packed', actorId: 'ada', scopeKey, doc });
    ours.sendText(JSON.stringify({ event: 'presence', data: { scopeKey, doc } }));
    await theirs.until(() => packedSeen().length === 1);
    expect(packedSeen()[0]).toMatchObject({ kind: 'join', clientId: 'texts', actorId: 'ada', scopeKey, doc });
    theirs.ws.send(encodePresenceMessage('project:elsewhere', doc));
    expect(await theirs.control('presence-refusal')).toMatchObject({ error: 'presence.forbidden' });
    theirs.ws.send(encodePresenceMessage(scopeKey, null));
    await ours.until(() => textSeen().length === 2);
    expect(textSeen()[1]).toMatchObject({ kind: 'leave', clientId: 'packed', doc: null });
  });
});
