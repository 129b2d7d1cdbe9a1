/** Direct download: who gets the bytes of a segment, and what everybody else is told (§5.5). */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { canonicalScopes } from '../../src/protocol/canonical-json.ts';
import { SyncError } from '../../src/protocol/errors.ts';
import type { ScopeMap, SegmentRefFrame } from '../../src/protocol/frames.ts';
import { DEFAULT_LIMITS } from '../../src/protocol/limits.ts';
import { openSegment } from '../../src/session/sync/segment-access.ts';
import { PARTITION, SyncHarness, sha256, subscription } from '../support/sync-harness.ts';
import { sectionOf } from '../support/sync-sections.ts';

const P1 = { project: ['p1'] };
const UNKNOWN = `sha256:${'0'.repeat(64)}`;

let h: SyncHarness;
let segmentId: string;
beforeEach(async () => {
  h = await SyncHarness.open();
  await h.commit([h.note('a', 'p1')]);
  segmentId = await referTo(P1);
});
afterEach(() => h.close());

async function referTo(scopes: ScopeMap, partition = PARTITION): Promise<string> {
  const subscriptions = [subscription('s', 'notes', scopes)];
  const { frames } = await h.round({ partition, pull: { accept: 0b10 }, subscriptions });
  return (sectionOf(frames, 's').segments[0] as SegmentRefFrame).segmentId;
}

interface Asked {
  readonly scopes?: ScopeMap | null;
  readonly header?: string;
  readonly id?: string;
  readonly partition?: string;
  readonly actorId?: string;
}

const open = ({ scopes = P1, header, id = segmentId, partition, actorId }: Asked = {}) =>
  openSegment({
    who: h.who({ ...(partition && { partition }), ...(actorId && { actorId }) }),
    segmentId: id,
    scopesHeader: header ?? (scopes === null ? null : canonicalScopes(scopes)),
    deps: h.deps,
  });

async function codeOf(asked: Asked): Promise<string> {
  try {
    await open(asked);
    return 'opened';
  } catch (error) {
    if (error instanceof SyncError) return error.code;
    throw error;
  }
}

test('the bytes, for the scopes they were made for', async () => {
  const { entry, read } = await open();
  expect(entry).toMatchObject({ segmentId, table: 'notes', rowCount: 1 });
  const bytes = await read();
  expect(`sha256:${sha256(bytes)}`).toBe(segmentId);
  expect(bytes).toHaveLength(entry.byteLength);
});

describe('S-054: the digest is computed anew', () => {
  test('other scopes in the header are forbidden', async () => {
    expect(await codeOf({ scopes: { project: ['p2'] } })).toBe('sync.forbidden');
    expect(await codeOf({ scopes: { project: ['p1', 'p2'] } })).toBe('sync.forbidden');
    expect(await codeOf({ scopes: {} })).toBe('sync.forbidden');
  });

  test('it is the digest of the effective scopes, in whatever order and spelling', async () => {
    h.grants.set('actor-1', P1);
    expect(await codeOf({ scopes: { project: ['p3', 'p1', 'p1'] } })).toBe('opened');
    expect(await codeOf({ header: ' { "project" : [ "p1" ] } ' })).toBe('opened');
  });

  test('equal bytes for several scope sets open for each of them', async () => {
    const other = await referTo({ project: ['p1', 'p9'] });
    expect(other).toBe(segmentId);
    expect(await codeOf({ scopes: { project: ['p1', 'p9'] } })).toBe('opened');
    expect(await codeOf({})).toBe('opened');
    expect(await codeOf({ scopes: { project: ['p9'] } })).toBe('sync.forbidden');
  });
});

describe('S-093: authorized at every download', () => {
  test('revoked between two downloads', async () => {
    expect(await codeOf({})).toBe('opened');
    h.grants.set('actor-1', { project: ['p2'] });
    expect(await codeOf({})).toBe('sync.forbidden');
  });

  test('a resolver that throws or strays is forbidden', async () => {
    h.grants.set('actor-1', new Error('down'));
    expect(await codeOf({})).toBe('sync.forbidden');
    h.grants.set('actor-1', { ...P1, stray: ['x'] });
    expect(await codeOf({})).toBe('sync.forbidden');
  });

  test('an actor without the scope', async () => {
    h.grants.set('bob', { project: ['p2'] });
    expect(await codeOf({ actorId: 'bob' })).toBe('sync.forbidden');
  });
});

describe('S-094, decision 10: codes', () => {
  test('unknown ids, before anything else', async () => {
    h.grants.set('actor-1', {});
    expect(await codeOf({ id: UNKNOWN })).toBe('sync.not_found');
    expect(await codeOf({ id: UNKNOWN, scopes: null })).toBe('sync.not_found');
    expect(await codeOf({ id: 'sha256:ABC' })).toBe('sync.not_found');
    expect(await codeOf({ id: `${segmentId}\0` })).toBe('sync.not_found');
  });

  test('S-026: a segment of another partition is unknown', async () => {
    await h.admit('tenant-2');
    expect(await codeOf({ partition: 'tenant-2' })).toBe('sync.not_found');
  });

  test('a missing header is forbidden', async () => {
    expect(await codeOf({ scopes: null })).toBe('sync.forbidden');
  });

  test.each(['', '{', '[]', 'null', '"x"', '{"project":"p1"}', '{"project":[1]}'])(
    'a malformed header is an invalid request: %j',
    async (header) => {
      expect(await codeOf({ header })).toBe('sync.invalid_request');
    },
  );

  test("an undeclared key or '*' is an invalid subscription", async () => {
    expect(await codeOf({ scopes: { ...P1, owner: ['o'] } })).toBe('sync.invalid_subscription');
    expect(await codeOf({ scopes: { project: ['*'] } })).toBe('sync.invalid_subscription');
    expect(await codeOf({ header: '{"__proto__":["p1"]}' })).toBe('sync.invalid_subscription');
  });

  test('expired, and expired and forgotten', async () => {
    h.clock.advance(DEFAULT_LIMITS.segmentTtlMs - 1);
    expect(await codeOf({})).toBe('opened');
    h.clock.advance(1);
    expect(await codeOf({})).toBe('sync.segment_expired');
    await h.segments.sweep({ expiredBeforeMs: h.clock.nowMs() + 1, max: 10 });
    expect(await codeOf({})).toBe('sync.not_found');
  });

  test('expired for these scopes, alive for others', async () => {
    h.clock.advance(DEFAULT_LIMITS.segmentTtlMs / 2);
    expect(await referTo({ project: ['p1', 'p9'] })).toBe(segmentId);
    h.clock.advance(DEFAULT_LIMITS.segmentTtlMs / 2);
    expect(await codeOf({})).toBe('sync.segment_expired');
    expect(await codeOf({ scopes: { project: ['p1', 'p9'] } })).toBe('opened');
    expect(await codeOf({ scopes: { project: ['p9'] } })).toBe('sync.forbidden');
  });

  test('S-033: a segment of another epoch has expired', async () => {
    await h.storage.rotateEpoch({ partition: PARTITION, logEpoch: 'rotated' });
    expect(await codeOf({})).toBe('sync.segment_expired');
    expect(await codeOf({ scopes: { project: ['p2'] } })).toBe('sync.segment_expired');
  });

  test('bytes that were swept after the entry was read', async () => {
    const { read } = await open();
    await h.segments.sweep({ expiredBeforeMs: h.clock.nowMs() + DEFAULT_LIMITS.segmentTtlMs + 1, max: 10 });
    await expect(read()).rejects.toMatchObject({ code: 'sync.segment_expired' });
  });
});
