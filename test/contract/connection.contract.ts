/**
 * What every transport owes the session (`session/live/connection.ts`), from outside: a real peer on the other end. The peer
 * reads only while it is not paused, so backpressure is real.
 */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { describe, expect, onTestFinished, test } from 'vitest';
import type { Limits } from '../../src/protocol/limits.ts';
import type { Connection } from '../../src/session/live/connection.ts';

export interface Peer {
  sendText(text: string): void;
  sendBinary(bytes: Uint8Array): void;
  /** One message in so many pieces. */
  sendFragments(pieces: readonly Uint8Array[]): void;
  /** A text message whose bytes need not be UTF-8. */
  sendRawText(bytes: Uint8Array): void;
  stopReading(): void;
  readAgain(): void;
  /** Breaks off without a handshake. */
  vanish(): void;
  /** Starts the close handshake. */
  leave(): void;
  /** Messages received so far: text as string, binary as bytes. */
  readonly received: readonly (string | Uint8Array)[];
  readonly pings: number;
  /** Code and reason the peer saw; 1006 when it was cut off. */
  readonly closed: { readonly code: number; readonly reason: string } | null;
  /** Resolves when the condition holds; looks after every event of the peer or of the endpoint. */
  until(condition: () => boolean): Promise<void>;
}

export interface ConnectedPair {
  readonly connection: Connection;
  readonly peer: Peer;
  /** What the session's endpoint was told, in order. */
  readonly events: readonly EndpointEvent[];
}

export type EndpointEvent =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'binary'; readonly bytes: Uint8Array }
  | { readonly kind: 'pong' }
  | { readonly kind: 'closed' };

export interface ConnectionFixture {
  connect(): Promise<ConnectedPair>;
  close(): Promise<void>;
}

export type StartFixture = (limits: Partial<Limits>) => Promise<ConnectionFixture>;

const LOW = 64 * 1024;
const MIB = 1024 * 1024;

export function connectionContract(name: string, startFixture: StartFixture): void {
  const start = async (limits: Partial<Limits> = {}): Promise<ConnectionFixture> => {
    const fixture = await startFixture({ outboxBytesLow: LOW, ...limits });
    onTestFinished(() => fixture.close());
    return fixture;
  };
  const connect = async (limits: Partial<Limits> = {}): Promise<ConnectedPair> =>
    (await start(limits)).connect();
  /** Sends to a peer that does not read far more than two kernels hold. Returns the number of messages. */
  const fill = async (connection: Connection): Promise<number> => {
    let sent = 0;
    for (let stuckTurns = 0; stuckTurns < 20; stuckTurns += 1) {
      while (connection.bufferedBytes < 16 * MIB) {
        connection.send(new Uint8Array(MIB).fill(sent++));
        stuckTurns = 0;
      }
      await nextTurn();
    }
    return sent;
  };

  describe(`connection contract: ${name}`, () => {
    describe('sending', () => {
      test('strings leave as text, bytes as binary, in the order of send', async () => {
        const { connection, peer } = await connect();
        const order = ['a', Uint8Array.of(1, 2), '', 'ü😀', Uint8Array.of(), Uint8Array.of(0)];
        for (const message of order) expect(connection.send(message)).toBe('sent');
        await peer.until(() => peer.received.length === order.length);
        expect(peer.received).toEqual(order);
      });

      test('one buffer goes to many connections unchanged', async () => {
        const fixture = await start();
        const pairs = await Promise.all([fixture.connect(), fixture.connect(), fixture.connect()]);
        const bytes = Uint8Array.from({ length: 70_000 }, (_, index) => index % 251);
        const copy = bytes.slice();
        for (const { connection } of pairs) connection.send(bytes);
        for (const { peer } of pairs) {
          await peer.until(() => peer.received.length === 1);
          expect(Buffer.compare(peer.received[0] as Uint8Array, copy)).toBe(0);
        }
        expect(Buffer.compare(bytes, copy)).toBe(0);
      });

      test('ids are unique', async () => {
        const fixture = await start();
        const pairs = await Promise.all([fixture.connect(), fixture.connect()]);
        expect(new Set(pairs.map(({ connection }) => connection.id)).size).toBe(2);
      });

      test('a ping is answered by a pong', async () => {
        const { connection, peer, events } = await connect();
        connection.ping();
        await peer.until(() => events.length > 0);
        expect(peer.pings).toBe(1);
        expect(events).toEqual([{ kind: 'pong' }]);
      });
    });

    describe('backpressure', () => {
      test('above the low mark send says buffered; drained resolves when the peer has read', async () => {
        const { connection, peer } = await connect();
        expect(await connection.drained()).toBe('open');
        peer.stopReading();
        const sent = await fill(connection);
        expect(connection.send('late')).toBe('buffered');
        let drained: string | null = null;
        const waiting = connection.drained().then((how) => {
          drained = how;
        });
        expect(connection.bufferedBytes).toBeGreaterThan(LOW);
        expect(drained).toBeNull();
        peer.readAgain();
        await waiting;
        expect(drained).toBe('open');
        expect(connection.bufferedBytes).toBeLessThanOrEqual(LOW);
        await peer.until(() => peer.received.length === sent + 1);
        expect(peer.received.slice(0, -1).map((message) => [message.length, message.at(-1)])).toEqual(
          Array.from({ length: sent }, (_, index) => [MIB, index]),
        );
        expect(peer.received.at(-1)).toBe('late');
      });

      test('drained is per connection: a stuck neighbour delays nobody', async () => {
        const fixture = await start();
        const [stuck, free] = await Promise.all([fixture.connect(), fixture.connect()]);
        stuck.peer.stopReading();
        await fill(stuck.connection);
        let stuckDrained = false;
        void stuck.connection.drained().then(() => {
          stuckDrained = true;
        });
        free.peer.stopReading();
        await fill(free.connection);
        free.peer.readAgain();
        expect(await free.connection.drained()).toBe('open');
        expect(stuckDrained).toBe(false);
      });

      test('every waiter is released', async () => {
        const { connection, peer } = await connect();
        peer.stopReading();
        await fill(connection);
        const waiting = Promise.all([connection.drained(), connection.drained()]);
        peer.readAgain();
        expect(await waiting).toEqual(['open', 'open']);
      });

      test('drained resolves closed when the peer vanishes, and when the session closes', async () => {
        const fixture = await start();
        const [lost, shut] = await Promise.all([fixture.connect(), fixture.connect()]);
        for (const { connection, peer } of [lost, shut]) {
          peer.stopReading();
          await fill(connection);
        }
        const lostDrained = lost.connection.drained();
        const shutDrained = shut.connection.drained();
        lost.peer.vanish();
        shut.connection.close(1013, 'too slow');
        expect(await lostDrained).toBe('closed');
        expect(await shutDrained).toBe('closed');
        expect(await shut.connection.drained()).toBe('closed');
      });

      test('paused reading holds messages back; resumed they come in order', async () => {
        const { connection, peer, events } = await connect();
        peer.sendText('first');
        await peer.until(() => events.length === 1);
        connection.pauseReading();
        for (let i = 0; i < 20; i += 1) peer.sendText(`held ${i}`);
        // The other direction still works, and its answer comes after what was sent before it.
        connection.send('marker');
        await peer.until(() => peer.received.includes('marker'));
        expect(events.length).toBe(1);
        connection.resumeReading();
        await peer.until(() => events.length === 21);
        expect(events.slice(1)).toEqual(
          Array.from({ length: 20 }, (_, index) => ({ kind: 'text', text: `held ${index}` })),
        );
      });
    });

    describe('receiving', () => {
      test('text and binary arrive in order, bytes as a copy of their own', async () => {
        const { peer, events } = await connect();
        peer.sendBinary(Uint8Array.of(1, 7, 7));
        peer.sendText('{"type":"ack","cursor":1}');
        peer.sendBinary(Uint8Array.of());
        await peer.until(() => events.length === 3);
        expect(events).toEqual([
          { kind: 'binary', bytes: Uint8Array.of(1, 7, 7) },
          { kind: 'text', text: '{"type":"ack","cursor":1}' },
          { kind: 'binary', bytes: Uint8Array.of() },
        ]);
        for (const event of events) {
          if (event.kind !== 'binary') continue;
          expect(event.bytes.constructor).toBe(Uint8Array);
          expect(event.bytes.buffer.byteLength).toBe(event.bytes.byteLength);
        }
      });

      test('a fragmented message arrives whole', async () => {
        const { peer, events } = await connect();
        peer.sendFragments(Array.from({ length: 100 }, (_, index) => Uint8Array.of(index)));
        await peer.until(() => events.length === 1);
        expect(events).toEqual([
          { kind: 'binary', bytes: Uint8Array.from({ length: 100 }, (_, index) => index) },
        ]);
      });

      test('a message of exactly the bound is taken, one byte more closes with 1009', async () => {
        const { peer, events } = await connect({ messageBytesMax: 1_000 });
        peer.sendBinary(new Uint8Array(1_000));
        await peer.until(() => events.length === 1);
        peer.sendBinary(new Uint8Array(1_001));
        await peer.until(() => peer.closed !== null && events.length === 2);
        expect(peer.closed?.code).toBe(1009);
        expect(events.at(-1)).toEqual({ kind: 'closed' });
      });

      test('a text over controlBytesMax closes with 1009, in bytes and not in characters', async () => {
        const { peer, events } = await connect({ controlBytesMax: 100 });
        peer.sendText('é'.repeat(50));
        await peer.until(() => events.length === 1);
        peer.sendText('é'.repeat(51));
        await peer.until(() => peer.closed !== null && events.length === 2);
        expect(peer.closed?.code).toBe(1009);
        expect(events.at(-1)).toEqual({ kind: 'closed' });
      });

      test('text that is not UTF-8 closes with 1007', async () => {
        const { peer, events } = await connect();
        peer.sendRawText(Uint8Array.of(0x22, 0xff, 0x22));
        await peer.until(() => peer.closed !== null && events.length === 1);
        expect(peer.closed?.code).toBe(1007);
        expect(events).toEqual([{ kind: 'closed' }]);
      });

      test('more fragments than messageFragmentsMax close', async () => {
        const { peer, events } = await connect({ messageFragmentsMax: 8 });
        peer.sendFragments(Array.from({ length: 8 }, () => Uint8Array.of(1)));
        await peer.until(() => events.length === 1);
        peer.sendFragments(Array.from({ length: 9 }, () => Uint8Array.of(1)));
        await peer.until(() => peer.closed !== null && events.length === 2);
        expect(peer.closed?.code).toBe(1008);
      });
    });

    describe('the end', () => {
      test('close sends code and reason, once; afterwards every call is harmless', async () => {
        const { connection, peer, events } = await connect();
        connection.send('last');
        connection.close(4401, 'the credentials have expired');
        connection.close(1000, 'again');
        expect(connection.send('after')).toBe('closed');
        connection.ping();
        connection.pauseReading();
        connection.resumeReading();
        await peer.until(() => peer.closed !== null && events.length === 1);
        expect(peer.closed).toEqual({ code: 4401, reason: 'the credentials have expired' });
        expect(peer.received).toEqual(['last']);
        expect(events).toEqual([{ kind: 'closed' }]);
        expect(connection.send('after')).toBe('closed');
        expect(await connection.drained()).toBe('closed');
      });

      test('a reason is cut to 123 bytes at a character boundary', async () => {
        const { connection, peer } = await connect();
        connection.close(1008, 'é'.repeat(100));
        await peer.until(() => peer.closed !== null);
        expect(peer.closed).toEqual({ code: 1008, reason: 'é'.repeat(61) });
      });

      test('nothing is delivered after close was called', async () => {
        const { connection, peer, events } = await connect();
        connection.pauseReading();
        for (let i = 0; i < 50; i += 1) peer.sendText('late');
        connection.send('marker');
        await peer.until(() => peer.received.includes('marker'));
        connection.close(1008, 'violation');
        await peer.until(() => events.length > 0);
        expect(events).toEqual([{ kind: 'closed' }]);
        expect(peer.closed?.code).toBe(1008);
      });

      test('a peer that does not answer the handshake is cut off at the deadline', async () => {
        const { connection, peer, events } = await connect({ closeTimeoutMs: 50 });
        peer.stopReading();
        await fill(connection);
        connection.close(1013, 'too slow');
        await peer.until(() => events.length > 0);
        expect(events).toEqual([{ kind: 'closed' }]);
      });

      test('the peer leaves: closed, exactly once', async () => {
        const { connection, peer, events } = await connect();
        peer.leave();
        await peer.until(() => events.length > 0 && peer.closed !== null);
        expect(events).toEqual([{ kind: 'closed' }]);
        expect(connection.send('x')).toBe('closed');
      });

      test('the peer vanishes: closed, exactly once', async () => {
        const { connection, peer, events } = await connect();
        peer.vanish();
        await peer.until(() => events.length > 0);
        expect(events).toEqual([{ kind: 'closed' }]);
        expect(connection.send('x')).toBe('closed');
        connection.close(1000, 'bye');
      });
    });
  });
}
