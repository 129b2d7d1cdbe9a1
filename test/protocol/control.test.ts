/** Control messages (part 1.10, 3.3): golden realtime vectors, every malformed shape, what is ignored, the builders. */
import { describe, expect, it } from 'vitest';
import {
  type ClientControl,
  encodeAck,
  encodeHeartbeat,
  encodeHello,
  encodePresence,
  encodePresencePublish,
  encodePresenceRefusal,
  encodeWakeUp,
  parseClientControl,
  parseServerControl,
  type ServerControl,
  TAG_DELTA,
  TAG_ROUND,
} from '../../src/protocol/control.ts';
import { realtimeCases } from './vectors.ts';

/** The two messages of the vectors that a client sends. */
const FROM_CLIENT = new Set(['presence-publish', 'presence-scalar-doc']);
const parse = (name: string, text: string) =>
  FROM_CLIENT.has(name) ? parseClientControl(text) : parseServerControl(text);

/** What was understood, written again. */
function rewritten(parsed: ServerControl | ClientControl): string {
  switch (parsed.kind) {
    case 'hello':
      return encodeHello(parsed);
    case 'wake-up':
      return encodeWakeUp(parsed);
    case 'presence':
      return encodePresence({ ...parsed.presence, docText: JSON.stringify(parsed.presence.doc) });
    case 'presence-publish':
      return encodePresencePublish(parsed.scopeKey, parsed.doc);
    default:
      return JSON.stringify(`no vector is ${parsed.kind}`);
  }
}

describe('golden realtime vectors (part 1.15 point 5)', () => {
  it.each(realtimeCases().valid)(
    '$name is a known message with the members of its JSON',
    ({ name, text }) => {
      expect(JSON.parse(rewritten(parse(name, text)))).toStrictEqual(JSON.parse(text));
    },
  );

  it.each(realtimeCases().invalid)('$name is malformed ($error)', ({ name, text }) => {
    expect(parse(name, text).kind).toBe('malformed');
  });
});

const hello = {
  protocolVersion: 1,
  sessionId: 's',
  actorId: 'a',
  clientId: 'c',
  cursor: -1,
  latestCursor: 0,
  requiresSync: true,
  timestamp: 5,
};
const wake = { cursor: 4, requiresPull: true, reason: 'delta-too-large', timestamp: 5 };
const join = { scopeKey: 'k', kind: 'join', actorId: 'a', clientId: 'c', doc: {}, timestamp: 5 };
const refusal = { scopeKey: 'k', error: 'presence.too_large', timestamp: 5 };
const EVENTS: readonly (readonly [string, Readonly<Record<string, unknown>>])[] = [
  ['hello', hello],
  ['sync', wake],
  ['heartbeat', { timestamp: 5 }],
  ['presence', join],
  ['presence', refusal],
];
const server = (event: string, data: unknown) => parseServerControl(JSON.stringify({ event, data }));

describe('server messages', () => {
  it.each(EVENTS)('%s: every member is required, and of its type', (event, data) => {
    expect(server(event, data).kind).not.toBe('malformed');
    for (const name of Object.keys(data)) {
      for (const wrong of [undefined, null, [], {}, 'x', 1.5, true, 7]) {
        const sameType =
          typeof wrong === typeof data[name] && (typeof wrong !== 'number' || Number.isInteger(wrong));
        if (sameType) continue;
        expect(server(event, { ...data, [name]: wrong }), `${name} ${wrong}`).toStrictEqual({
          kind: 'malformed',
          event,
        });
      }
    }
  });

  it.each(EVENTS)('%s: numbers are integers within 2^53 - 1', (event, data) => {
    const text = JSON.stringify({ event, data });
    const numbers = Object.keys(data).filter(
      (name) => typeof data[name] === 'number' && name !== 'protocolVersion',
    );
    for (const name of numbers) {
      const put = (number: string) =>
        parseServerControl(text.replace(new RegExp(`"${name}":-?\\d+`), `"${name}":${number}`)).kind;
      for (const legal of ['0', '-9007199254740991', '9007199254740991', '1.0', '1e3'])
        expect(put(legal)).not.toBe('malformed');
      for (const illegal of ['0.5', '9007199254740992', '-9007199254740992', '1e400', '-1e400']) {
        expect(put(illegal), `${name} ${illegal}`).toBe('malformed');
      }
    }
  });

  it.each(EVENTS)('%s: data of another shape, or none, is malformed', (event) => {
    for (const data of [undefined, null, 1, 'x', [], true])
      expect(server(event, data)).toStrictEqual({ kind: 'malformed', event });
  });

  it.each(EVENTS)('%s: additional members are ignored (W-k)', (event, data) => {
    expect(server(event, { ...data, extra: 1.5 })).toStrictEqual(server(event, data));
  });

  it('the sets of reasons, kinds and refusals are closed', () => {
    expect(server('sync', { ...wake, reason: 'because' }).kind).toBe('malformed');
    expect(server('sync', { ...wake, requiresPull: false }).kind).toBe('malformed');
    expect(server('sync', { ...wake, requiresPull: 'true' }).kind).toBe('malformed');
    expect(server('presence', { ...join, kind: 'snapshot' }).kind).toBe('malformed');
    expect(server('presence', { ...refusal, error: 'presence.other' }).kind).toBe('malformed');
    expect(server('hello', { ...hello, protocolVersion: 2 }).kind).toBe('malformed');
    for (const reason of ['delta-too-large', 'catchup-required', 'reset-required']) {
      expect(server('sync', { ...wake, reason })).toStrictEqual({
        kind: 'wake-up',
        cursor: 4,
        reason,
        timestamp: 5,
      });
    }
  });

  it('doc is an object for join and update, null for leave', () => {
    for (const kind of ['join', 'update']) {
      expect(server('presence', { ...join, kind }).kind).toBe('presence');
      for (const doc of [null, [], 'x', undefined])
        expect(server('presence', { ...join, kind, doc }).kind).toBe('malformed');
    }
    expect(server('presence', { ...join, kind: 'leave', doc: null }).kind).toBe('presence');
    expect(server('presence', { ...join, kind: 'leave' }).kind).toBe('malformed');
    expect(server('presence', { ...join, kind: 'leave', doc: undefined }).kind).toBe('malformed');
  });

  it('fractions inside a doc are the host’s', () => {
    expect(server('presence', { ...join, doc: { x: 0.5 } })).toMatchObject({
      kind: 'presence',
      presence: { doc: { x: 0.5 } },
    });
  });
});

const NOISE = [
  '',
  '{',
  'hello',
  '[]',
  '7',
  'null',
  '"x"',
  '{}',
  '{"event":"later","data":{}}',
  '{"event":7}',
  '{"type":"later"}',
];

describe('what is tolerated', () => {
  it.each(NOISE)('%j is unknown both ways', (text) => {
    expect(parseServerControl(text)).toStrictEqual({ kind: 'unknown' });
    expect(parseClientControl(text)).toStrictEqual({ kind: 'unknown' });
  });

  it.each(['toString', '__proto__', 'constructor'])('an event called %s is unknown', (event) => {
    expect(parseServerControl(`{"event":"${event}","data":{}}`).kind).toBe('unknown');
    expect(parseClientControl(`{"event":"${event}","data":{}}`).kind).toBe('unknown');
  });

  it('messages of the other direction are unknown to a server', () => {
    expect(parseClientControl(encodeHello(hello)).kind).toBe('unknown');
    expect(parseClientControl(encodeHeartbeat(1)).kind).toBe('unknown');
    expect(parseServerControl(encodeAck(1)).kind).toBe('unknown');
    expect(parseClientControl('{"event":"ack","cursor":1}').kind).toBe('unknown');
    expect(parseClientControl('{"type":"presence","data":{}}').kind).toBe('unknown');
  });
});

describe('client messages', () => {
  it('ack: the cursor is a safe integer, or the message is malformed', () => {
    for (const cursor of [-1, 0, 9_007_199_254_740_991]) {
      expect(parseClientControl(encodeAck(cursor))).toStrictEqual({ kind: 'ack', cursor });
    }
    for (const cursor of ['1.5', '"1"', 'null', '9007199254740992', '1e400', '{}']) {
      expect(parseClientControl(`{"type":"ack","cursor":${cursor}}`)).toStrictEqual({
        kind: 'malformed',
        event: 'ack',
      });
    }
    expect(parseClientControl('{"type":"ack"}').kind).toBe('malformed');
  });

  it('publish and leave', () => {
    const doc = { b: 1.5, a: [1, null] };
    expect(parseClientControl(encodePresencePublish('k', doc))).toStrictEqual({
      kind: 'presence-publish',
      scopeKey: 'k',
      doc,
      docText: '{"b":1.5,"a":[1,null]}',
    });
    expect(parseClientControl(encodePresencePublish('k', null))).toStrictEqual({
      kind: 'presence-leave',
      scopeKey: 'k',
    });
  });

  it.each([
    ['no data', '{"event":"presence"}'],
    ['data null', '{"event":"presence","data":null}'],
    ['data an array', '{"event":"presence","data":[]}'],
    ['no scopeKey', '{"event":"presence","data":{"doc":{}}}'],
    ['an empty scopeKey', '{"event":"presence","data":{"scopeKey":"","doc":{}}}'],
    ['a numeric scopeKey', '{"event":"presence","data":{"scopeKey":1,"doc":{}}}'],
    ['no doc', '{"event":"presence","data":{"scopeKey":"k"}}'],
    ['a scalar doc', '{"event":"presence","data":{"scopeKey":"k","doc":"x"}}'],
    ['a boolean doc', '{"event":"presence","data":{"scopeKey":"k","doc":false}}'],
    ['an array doc', '{"event":"presence","data":{"scopeKey":"k","doc":[]}}'],
  ])('presence with %s is malformed', (_name, text) => {
    expect(parseClientControl(text)).toStrictEqual({ kind: 'malformed', event: 'presence' });
  });

  it('a document too deep to be written again is malformed, not a crash', () => {
    const depth = 30_000;
    const doc = `{"a":${'['.repeat(depth)}${']'.repeat(depth)}}`;
    expect(parseClientControl(`{"event":"presence","data":{"scopeKey":"k","doc":${doc}}}`).kind).toBe(
      'malformed',
    );
  });
});

describe('builders', () => {
  it('write the members of part 1.10 in their order', () => {
    expect(encodeHello(hello)).toBe(JSON.stringify({ event: 'hello', data: hello }));
    expect(encodeWakeUp({ cursor: 4, reason: 'delta-too-large', timestamp: 5 })).toBe(
      JSON.stringify({ event: 'sync', data: wake }),
    );
    expect(encodeHeartbeat(5)).toBe('{"event":"heartbeat","data":{"timestamp":5}}');
    expect(encodeAck(7)).toBe('{"type":"ack","cursor":7}');
    expect(encodePresenceRefusal({ scopeKey: 'k"', error: 'presence.forbidden', timestamp: 5 })).toBe(
      '{"event":"presence","data":{"scopeKey":"k\\"","error":"presence.forbidden","timestamp":5}}',
    );
  });

  it('put a presence document in as it is', () => {
    const head = { scopeKey: 'k"}', kind: 'update', actorId: 'a', clientId: 'c', timestamp: 5 } as const;
    expect(encodePresence({ ...head, docText: '{"x":0.5}' })).toBe(
      JSON.stringify({
        event: 'presence',
        data: { scopeKey: 'k"}', kind: 'update', actorId: 'a', clientId: 'c', doc: { x: 0.5 }, timestamp: 5 },
      }),
    );
    const leave = encodePresence({ ...head, kind: 'leave', docText: null });
    expect(parseServerControl(leave)).toStrictEqual({
      kind: 'presence',
      presence: { ...head, kind: 'leave', doc: null },
    });
  });

  it('the channel tags are those of part 1.10', () => {
    expect([TAG_DELTA, TAG_ROUND]).toStrictEqual([0x00, 0x01]);
  });
});
