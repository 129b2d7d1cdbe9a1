/**
 * What every storage must do, whatever is under it: the guarantees 1 to 8 of `src/storage/storage.ts` and each of its
 * methods. An implementation calls it with a way to make empty data and to open instances on it.
 */
import { afterAll, beforeAll, describe } from 'vitest';
import type { Storage } from '../../src/storage/storage.ts';
import { checkpointSchemaSuite } from './storage/checkpoint-schema.ts';
import { checkpointSuite } from './storage/checkpoints.ts';
import { type MakeStorage, type OpenStorage, SCHEMA, type StorageHarness } from './storage/fixture.ts';
import { isolationSuite } from './storage/isolation.ts';
import { lifecycleSuite } from './storage/lifecycle.ts';
import { logSuite } from './storage/log.ts';
import { modelSuite } from './storage/model.ts';
import { recordSuite } from './storage/records.ts';
import { rowSuite } from './storage/rows.ts';

export function storageContract(name: string, make: MakeStorage): void {
  describe(`storage contract: ${name}`, () => {
    describe('one set of data, a partition per test', () => {
      let harness: StorageHarness;
      let instances: OpenStorage[] = [];
      const storage = (): Storage => instances[0]!.storage;
      const other = (): Storage => instances[1]!.storage;

      beforeAll(async () => {
        harness = await make();
        instances = [await harness.open(), await harness.open()];
        for (const instance of instances) await instance.storage.ensureSchema(SCHEMA);
      });

      afterAll(async () => {
        await Promise.all(instances.map((instance) => instance.storage.close()));
        await harness.dispose();
      });

      describe('log', () => logSuite(storage));
      describe('rows', () => rowSuite(storage));
      describe('isolation', () => isolationSuite({ storage, other }));
      describe('records', () => recordSuite(storage, other));
      describe('model', () => modelSuite(storage));
    });

    describe('checkpoints', () => checkpointSuite(make));

    describe('data per test', () => {
      lifecycleSuite(make);
      checkpointSchemaSuite(make);
    });
  });
}
