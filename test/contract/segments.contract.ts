/** What every segment store must do (§5.1, S-033, S-075 to S-082 as far as they are the store's). */
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { SegmentEntry, SegmentKey, SegmentStore } from '../../src/storage/segments.ts';
import { type MakeStorage, type OpenStorage, SCHEMA, type StorageHarness } from './storage/fixture.ts';

const KEY: SegmentKey = {
  partition: 'seg',
  logEpoch: 'e1',
  table: 'tasks',
  schemaVersion: 3,
  scopeDigest: 'd'.repeat(64),
  paramsDigest: '',
  asOfCommitSeq: 12,
  rowCursor: null,
  rowsMax: 1_000,
};

let partitions = 0;

function entryOf(changes: Partial<SegmentEntry> = {}): SegmentEntry {
  return {
    ...KEY,
    segmentId: `sha256:${'a'.repeat(64)}`,
    byteLength: 3,
    rowCount: 2,
    nextRowCursor: 'row-2',
    createdAtMs: 1_000,
    expiresAtMs: 2_000,
    ...changes,
  };
}

export function segmentsContract(name: string, make: MakeStorage): void {
  describe(`segment store contract: ${name}`, () => {
    let harness: StorageHarness;
    let instance: OpenStorage;
    const store = (): SegmentStore => instance.segments;
    const newPartition = (): string => `seg-${++partitions}`;

    beforeAll(async () => {
      harness = await make();
      instance = await harness.open();
      await instance.storage.ensureSchema(SCHEMA);
    });

    afterAll(async () => {
      await instance.storage.close();
      await harness.dispose();
    });

    test('a put segment is found by its whole key, its entries by id, its bytes plain', async () => {
      const entry = entryOf({ partition: newPartition() });
      const bytes = new Uint8Array([1, 0, 255]);
      await store().put(entry, bytes);
      expect(await store().find(entry, 1_500)).toEqual(entry);
      expect(await store().entries(entry.partition, entry.segmentId)).toEqual([entry]);
      expect(await store().read(entry.partition, entry.segmentId)).toEqual(bytes);
    });

    test.each([
      ['logEpoch', 'e2'],
      ['table', 'notes'],
      ['schemaVersion', 4],
      ['scopeDigest', 'other'],
      ['paramsDigest', 'p'],
      ['asOfCommitSeq', 13],
      ['rowCursor', ''],
      ['rowsMax', 999],
      ['partition', 'seg-elsewhere'],
    ] as const)('another %s is another key (S-033)', async (field, value) => {
      const entry = entryOf({ partition: newPartition() });
      await store().put(entry, new Uint8Array([1]));
      expect(await store().find({ ...entry, [field]: value }, 1_500)).toBeNull();
      expect(await store().find(entry, 1_500)).not.toBeNull();
    });

    test('an expired entry is not found but still known by its id, until it is put again', async () => {
      const entry = entryOf({ partition: newPartition() });
      await store().put(entry, new Uint8Array([1]));
      expect(await store().find(entry, 1_999)).not.toBeNull();
      expect(await store().find(entry, 2_000)).toBeNull();
      expect(await store().entries(entry.partition, entry.segmentId)).toHaveLength(1);
      await store().put({ ...entry, createdAtMs: 2_500, expiresAtMs: 3_500 }, new Uint8Array([1]));
      expect((await store().find(entry, 3_000))?.expiresAtMs).toBe(3_500);
      expect(await store().entries(entry.partition, entry.segmentId)).toHaveLength(1);
    });

    test('equal bytes of two scope sets: one id, two entries, bytes while either is left', async () => {
      const partition = newPartition();
      const one = entryOf({ partition, scopeDigest: 'one', expiresAtMs: 100 });
      const two = entryOf({ partition, scopeDigest: 'two', expiresAtMs: 200 });
      for (const entry of [one, two]) await store().put(entry, new Uint8Array([9]));
      const digests = (await store().entries(partition, one.segmentId)).map(({ scopeDigest }) => scopeDigest);
      expect(digests.sort()).toEqual(['one', 'two']);
      expect(await store().sweep({ expiredBeforeMs: 150, max: 100 })).toBe(1);
      expect(await store().read(partition, one.segmentId)).toEqual(new Uint8Array([9]));
      expect(await store().sweep({ expiredBeforeMs: 250, max: 100 })).toBe(1);
      expect(await store().read(partition, one.segmentId)).toBeNull();
    });

    test('one key may have had other bytes before: the youngest is found, the older one stays readable', async () => {
      const partition = newPartition();
      const older = entryOf({ partition, createdAtMs: 1_000 });
      const younger = entryOf({ partition, createdAtMs: 1_100, segmentId: `sha256:${'b'.repeat(64)}` });
      await store().put(older, new Uint8Array([1]));
      await store().put(younger, new Uint8Array([2]));
      expect((await store().find(older, 1_500))?.segmentId).toBe(younger.segmentId);
      expect(await store().read(partition, older.segmentId)).toEqual(new Uint8Array([1]));
      expect(await store().entries(partition, older.segmentId)).toEqual([older]);
    });

    test('the same id in two partitions is two segments', async () => {
      const [mine, theirs] = [newPartition(), newPartition()];
      const entry = entryOf({ partition: mine });
      await store().put(entry, new Uint8Array([1]));
      expect(await store().read(theirs, entry.segmentId)).toBeNull();
      expect(await store().entries(theirs, entry.segmentId)).toEqual([]);
      await store().put({ ...entry, partition: theirs, expiresAtMs: 500 }, new Uint8Array([1]));
      await store().sweep({ expiredBeforeMs: 600, max: 100 });
      expect(await store().read(theirs, entry.segmentId)).toBeNull();
      expect(await store().read(mine, entry.segmentId)).not.toBeNull();
    });

    test('the sweep takes expired ones only, at most so many, and says how many', async () => {
      const partition = newPartition();
      for (const nth of [1, 2, 3, 4]) {
        const segmentId = `sha256:${String(nth).repeat(64)}`;
        await store().put(
          entryOf({ partition, segmentId, asOfCommitSeq: nth, expiresAtMs: nth }),
          new Uint8Array([nth]),
        );
      }
      const sweep = (expiredBeforeMs: number) => store().sweep({ expiredBeforeMs, max: 2 });
      expect([await sweep(4), await sweep(4), await sweep(4)]).toEqual([2, 1, 0]);
      expect(await store().read(partition, `sha256:${'3'.repeat(64)}`)).toBeNull();
      expect(await store().read(partition, `sha256:${'4'.repeat(64)}`)).toEqual(new Uint8Array([4]));
    });

    test('large segments come back byte for byte', async () => {
      const bytes = new Uint8Array(8 * 1024 * 1024).map((_, n) => (n * 17) % 253);
      const entry = entryOf({ partition: newPartition(), byteLength: bytes.length, nextRowCursor: null });
      await store().put(entry, bytes);
      expect(Buffer.compare((await store().read(entry.partition, entry.segmentId))!, bytes)).toBe(0);
      expect((await store().find(entry, 1_500))?.nextRowCursor).toBeNull();
    });

    test('nothing there: null and an empty list', async () => {
      expect(await store().find(KEY, 0)).toBeNull();
      expect(await store().read('seg', 'sha256:none')).toBeNull();
      expect(await store().entries('seg', 'sha256:none')).toEqual([]);
    });
  });
}
