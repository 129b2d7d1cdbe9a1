/** Who is let in, and what is answered by a header alone: before any other work, and without a trace. */
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { SyncError } from '../../src/protocol/errors.ts';
import { readEnvelope } from '../../src/protocol/message.ts';
import { PARTITION, type RoundSpec, SyncHarness, subscription } from '../support/sync-harness.ts';

let h: SyncHarness;
beforeEach(async () => {
  h = await SyncHarness.open();
});
afterEach(() => h.close());

const NOTES = subscription('notes', 'notes', { project: ['p1'] });

/** The code a round fails with before its first chunk. */
async function refusalOf(spec: RoundSpec): Promise<string> {
  const generator = await h.start(spec);
  try {
    await generator.next();
  } catch (error) {
    if (error instanceof SyncError) return error.code;
    throw error;
  }
  return 'none';
}

const head = async (): Promise<number> => (await h.readState()).head;

describe('S-009: the clientId', () => {
  test('S-009, R-002: an id of another actor is refused, nothing is applied', async () => {
    await h.round({ clientId: 'c', actorId: 'alice', subscriptions: [] });
    const spec = { clientId: 'c', actorId: 'bob', pushes: [h.push([h.note('n', 'p1')])] };
    expect(await refusalOf(spec)).toBe('sync.invalid_client_id');
    expect(await head()).toBe(0);
    expect(h.resolved).toBe(0);
  });

  test('S-009: the first of two concurrent binders wins', async () => {
    await h.admit();
    const pull = { clientId: 'c', subscriptions: [NOTES] };
    const codes = await Promise.all(['alice', 'bob'].map((actorId) => refusalOf({ ...pull, actorId })));
    expect(codes.filter((code) => code === 'sync.invalid_client_id')).toHaveLength(1);
  });

  test('S-009: the binding is per partition and survives a rotation (decision 24)', async () => {
    await h.round({ clientId: 'c', actorId: 'alice', subscriptions: [] });
    await h.round({ clientId: 'c', actorId: 'bob', partition: 'tenant-2', subscriptions: [] });
    await h.storage.rotateEpoch({ partition: PARTITION, logEpoch: 'rotated' });
    const spec = { clientId: 'c', actorId: 'bob', logEpoch: 'rotated', subscriptions: [] };
    expect(await refusalOf(spec)).toBe('sync.invalid_client_id');
  });

  test('S-009: the reserved prefix', async () => {
    const spec = { clientId: '["remote-command","x"]', subscriptions: [] };
    expect(await refusalOf(spec)).toBe('sync.invalid_client_id');
  });

  test('R-058: on a socket only its own id', async () => {
    const spec = { clientId: 'c', socketClientId: 'd', pushes: [h.push([h.note('n', 'p1')])] };
    expect(await refusalOf(spec)).toBe('sync.invalid_client_id');
    expect(await refusalOf({ ...spec, socketClientId: 'c' })).toBe('none');
  });

  test.each([['c'.repeat(257)], ['a\0b']])('an id that is no database key: %j', async (clientId) => {
    expect(await refusalOf({ clientId, subscriptions: [] })).toBe('sync.invalid_request');
  });

  test('a request that was refused binds nothing', async () => {
    const twice = [NOTES, NOTES];
    expect(await refusalOf({ clientId: 'c', actorId: 'alice', subscriptions: twice })).toBe(
      'sync.invalid_subscription',
    );
    await h.round({ clientId: 'c', actorId: 'alice', logEpoch: 'stale', subscriptions: [] });
    await h.round({ clientId: 'c', actorId: 'bob', subscriptions: [] });
    expect(await refusalOf({ clientId: 'c', actorId: 'alice', subscriptions: [] })).toBe(
      'sync.invalid_client_id',
    );
  });
});

test('expired credentials are refused (architecture §6)', async () => {
  const expiresAtMs = h.clock.nowMs();
  expect(await refusalOf({ expiresAtMs, subscriptions: [] })).toBe('sync.auth_required');
  expect(await refusalOf({ expiresAtMs: expiresAtMs + 1, subscriptions: [] })).toBe('none');
});

describe('versions', () => {
  test('S-011: wire 1 and 2 are read, and answered in kind', async () => {
    for (const wireVersion of [1, 2] as const) {
      const { bytes, frames, outcome } = await h.round({ wireVersion, subscriptions: [NOTES] });
      expect(readEnvelope(bytes)).toEqual({ wireVersion, kind: 'response' });
      expect(frames[0]).toMatchObject(
        wireVersion === 1 ? { logEpoch: undefined } : { logEpoch: 'id-1', resetRequired: false },
      );
      expect(outcome).toMatchObject({ kind: 'served', wireVersion });
    }
  });

  test('S-010, R-033: wire 1 after a rotation is refused before any work', async () => {
    await h.admit();
    await h.storage.rotateEpoch({ partition: PARTITION, logEpoch: 'rotated' });
    const spec = { wireVersion: 1 as const, pushes: [h.push([h.note('n', 'p1')])] };
    expect(await refusalOf(spec)).toBe('sync.client_wire_unsupported');
    expect(await head()).toBe(0);
    expect(h.resolved).toBe(0);
    expect(await refusalOf({ ...spec, schemaVersion: 1 })).toBe('sync.client_wire_unsupported');
  });

  test.each([1, 6, 8, 99])(
    'S-016, S-017, R-069: schema version %i gets the floor and nothing else',
    async (v) => {
      await h.round({ subscriptions: [NOTES] });
      const before = await h.clientRecord();
      const spec = { schemaVersion: v, pushes: [h.push([h.note('n', 'p1')])], subscriptions: [] };
      const { frames, outcome, chunks } = await h.round(spec);
      expect(frames).toEqual([
        {
          type: 'RESP_HEADER',
          requiredSchemaVersion: 7,
          latestSchemaVersion: 7,
          logEpoch: 'id-1',
          resetRequired: false,
        },
      ]);
      expect(outcome.kind).toBe('header-only');
      expect(chunks).toEqual([]);
      expect(await head()).toBe(0);
      expect(await h.clientRecord()).toEqual(before);
    },
  );

  test('S-016: the floor in wire 1, and together with a stale epoch', async () => {
    const wire1 = await h.round({ wireVersion: 1, schemaVersion: 8, subscriptions: [] });
    expect(wire1.frames).toMatchObject([{ requiredSchemaVersion: 7, logEpoch: undefined }]);
    const stale = await h.round({ schemaVersion: 8, logEpoch: 'other', subscriptions: [] });
    expect(stale.frames).toMatchObject([{ requiredSchemaVersion: 7, resetRequired: true }]);
  });
});

describe('log epoch', () => {
  test('S-015, S-029, R-069: another epoch is answered by a reset, with no other work', async () => {
    await h.round({ subscriptions: [NOTES] });
    const before = await h.clientRecord();
    const resolvedBefore = h.resolved;
    const pushes = [h.push([h.note('n', 'p1')])];
    const { frames, outcome } = await h.round({ logEpoch: 'other', pushes, subscriptions: [NOTES, NOTES] });
    expect(frames).toMatchObject([{ type: 'RESP_HEADER', logEpoch: 'id-1', resetRequired: true }]);
    expect(frames[0]).toMatchObject({ requiredSchemaVersion: undefined, latestSchemaVersion: undefined });
    expect(outcome).toMatchObject({ kind: 'header-only', wireVersion: 2 });
    expect(await head()).toBe(0);
    expect(h.resolved).toBe(resolvedBefore);
    expect(await h.clientRecord()).toEqual(before);
  });

  test('S-015: no epoch and no commits asks for one', async () => {
    const { frames } = await h.round({ logEpoch: null, subscriptions: [NOTES] });
    expect(frames).toMatchObject([{ logEpoch: 'id-1', resetRequired: true }]);
  });

  test('decision 2: no epoch with commits is an invalid request, nothing applied', async () => {
    const pushes = [h.push([h.note('n', 'p1')])];
    expect(await refusalOf({ logEpoch: null, pushes })).toBe('sync.invalid_request');
    expect(await head()).toBe(0);
  });

  test('S-027: the epoch is made at first contact, not empty, and stable', async () => {
    const first = Promise.all([h.round({ logEpoch: null, subscriptions: [] }), h.admit()]);
    const [{ frames }, admitted] = await first;
    expect(frames[0]).toMatchObject({ logEpoch: admitted });
    expect(admitted).not.toBe('');
    expect((await h.round({ logEpoch: null, subscriptions: [] })).frames[0]).toMatchObject({
      logEpoch: admitted,
    });
  });

  test('S-026: partitions share neither epoch, log, rows nor records', async () => {
    await h.commit([h.note('n', 'p1')]);
    const other = await h.round({ partition: 'tenant-2', subscriptions: [NOTES] });
    expect(other.frames.at(-1)).toMatchObject({ type: 'SUB_END', nextCursor: 0 });
    expect((await h.readState('tenant-2')).logEpoch).not.toBe((await h.readState()).logEpoch);
    expect(await h.clientRecord()).toBeNull();
  });
});

test('refusals are told to the operator', async () => {
  await refusalOf({ clientId: '["remote-command",', subscriptions: [] });
  expect(h.events).toContainEqual({
    type: 'request.refused',
    partition: PARTITION,
    code: 'sync.invalid_client_id',
  });
});
