/** The dialect at the edge of a socket: what many get is encoded once, and a defect costs one connection. */
import { expect, it } from 'vitest';
import { MsgpackSockets } from '../../src/gateway/msgpack-socket.ts';
import { encodeHeartbeat, encodePresence, TAG_DELTA } from '../../src/protocol/control.ts';
import { DEFAULT_LIMITS } from '../../src/protocol/limits.ts';
import { encodeMessage } from '../../src/protocol/message.ts';
import { scanMessage } from '../../src/protocol/msgpack/scan.ts';
import { noteRow, SCHEMA } from '../protocol/msgpack/samples.ts';
import { FakeConnection } from '../support/fake-connection.ts';

const failures: unknown[] = [];
const sockets = () =>
  new MsgpackSockets({
    schema: SCHEMA,
    limits: DEFAULT_LIMITS,
    onFailure: (failure) => failures.push(failure),
  });

/** A delta of the core, as every member of a cohort is handed it. */
function deltaOf(row: Uint8Array): Uint8Array {
  const scopes = { project: 'p1' };
  const changes = [{ tableIndex: 0, rowId: 'n1', op: 'upsert', rowVersion: 1, scopes, row }] as const;
  const response = encodeMessage({
    kind: 'response',
    wireVersion: 2,
    frames: [
      { type: 'RESP_HEADER', logEpoch: 'e', resetRequired: false },
      { type: 'SUB_START', id: 's', status: 'active', reasonCode: '', effectiveScopes: {}, bootstrap: false },
      { type: 'COMMIT', commitSeq: 1, createdAtMs: 1, actorId: 'a', tables: ['notes'], changes },
      { type: 'SUB_END', nextCursor: 1 },
    ],
  });
  return Uint8Array.from([TAG_DELTA, ...response]);
}

it('M-5.5: a delta and a heartbeat are encoded once for all sockets of the dialect', () => {
  const all = sockets();
  const connections = [new FakeConnection(), new FakeConnection(), new FakeConnection()];
  const wrapped = connections.map((connection) => all.wrap(connection).connection);
  const delta = deltaOf(noteRow('n1'));
  const text = encodeHeartbeat(5);
  for (const connection of wrapped) {
    connection.send(delta);
    connection.send(text);
  }
  const [first] = connections;
  expect(first!.sent).toHaveLength(2);
  // The same object, not only the same bytes.
  for (const { sent } of connections) {
    expect(sent[0]).toBe(first!.sent[0]);
    expect(sent[1]).toBe(first!.sent[1]);
  }
  wrapped[0]!.send(deltaOf(noteRow('n1')));
  expect(first!.sent[2]).not.toBe(first!.sent[0]);
  expect(first!.sent[2]).toEqual(first!.sent[0]);
});

it.each([
  ['nested too deeply', `${'['.repeat(15)}1${']'.repeat(15)}`],
  ['nested as deep as a message of SSP2 may be', `${'['.repeat(20_000)}1${']'.repeat(20_000)}`],
  ['with a key that is refused here', '{"constructor":1}'],
  ['with a key that is refused here: __proto__', '{"__proto__":1}'],
  ['with a lone surrogate', '"\\ud800"'],
])('M-5.4: a presence document %s stays away and costs nobody a connection', (_, inside) => {
  const connection = new FakeConnection();
  const { connection: wrapped } = sockets().wrap(connection);
  const presence = (docText: string) =>
    encodePresence({ scopeKey: 'k', kind: 'join', actorId: 'a', clientId: 'c', timestamp: 1, docText });
  expect(wrapped.send(presence(`{"a":${inside}}`))).toBe('sent');
  expect(connection.sent).toHaveLength(0);
  expect(connection.closed).toBeNull();
  wrapped.send(presence(`{"a":${'['.repeat(14)}1${']'.repeat(14)}}`));
  scanMessage(connection.sent[0] as Uint8Array, { bytesMax: 10_000, elementsMax: 100 });
});

it('a row that the schema cannot read closes its connection with 1011 and is told to the operator', () => {
  failures.length = 0;
  const connection = new FakeConnection();
  const sent = sockets()
    .wrap(connection)
    .connection.send(deltaOf(Uint8Array.of(9)));
  expect(sent).toBe('closed');
  expect(connection.closed?.code).toBe(1011);
  expect(failures).toHaveLength(1);
});
