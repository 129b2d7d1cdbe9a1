/** Rounds of a partition that begin together share one read, and each still gets what is its own. */
import { expect, test } from 'vitest';
import { Admissions } from '../../src/storage/postgres/admissions.ts';
import type { Step, StepResult } from '../../src/storage/postgres/driver.ts';
import { namesOf } from '../../src/storage/postgres/names.ts';
import { admitTo, SCHEMA } from '../contract/storage/fixture.ts';
import { postgresPerFile } from './postgres-harness.ts';

const make = postgresPerFile();

test('300 clients at once: each gets its own record and binding, in the state of one moment', async () => {
  const harness = await make();
  const { storage } = await harness.open();
  try {
    await storage.ensureSchema(SCHEMA);
    await admitTo(storage, 'p');
    const ids = Array.from({ length: 300 }, (_, i) => `client-${i}`);
    const bound = ids.filter((_, i) => i % 3 === 0);
    await Promise.all(
      bound.map((clientId) =>
        storage.bindClient({ partition: 'p', clientId, actorId: `actor of ${clientId}` }),
      ),
    );
    const admissions = await Promise.all(
      ids.map((clientId) => storage.admit({ partition: 'p', clientId, newLogEpoch: 'never', nowMs: 1 })),
    );
    for (const [i, { state, client, boundActorId }] of admissions.entries()) {
      expect(state).toMatchObject({ partition: 'p', head: 0 });
      expect(client).toBeNull();
      expect(boundActorId).toBe(i % 3 === 0 ? `actor of client-${i}` : null);
    }
    const strangers = await Promise.all(
      ['q', 'r', 'q'].map((partition) =>
        storage.admit({ partition, clientId: 'c', newLogEpoch: `new ${partition}`, nowMs: 1 }),
      ),
    );
    expect(strangers.map(({ state }) => state.logEpoch)).toEqual(['new q', 'new r', 'new q']);
  } finally {
    await storage.close();
    await harness.dispose();
  }
});

/** A database that answers when the test says so. */
class HeldReads {
  readonly clientsPerRead: number[] = [];
  readonly #held: {
    readonly resolve: (results: readonly StepResult[]) => void;
    readonly reject: (error: Error) => void;
  }[] = [];

  readonly read = (...steps: readonly Step[]): Promise<readonly StepResult[]> => {
    const [step] = steps;
    const ids = step !== undefined && 'params' in step ? step.params?.[1] : undefined;
    if (!Buffer.isBuffer(ids)) throw new Error('not a read of admissions');
    // The length of the array, in its binary form.
    this.clientsPerRead.push(ids.readInt32BE(12));
    return new Promise((resolve, reject) => this.#held.push({ resolve, reject }));
  };

  answer(): void {
    this.#held.shift()!.resolve([{ rows: [], tag: 'SELECT 0', hasMore: false }]);
  }

  fail(): void {
    this.#held.shift()!.reject(new Error('the connection broke'));
  }
}

test('one read at a time per partition; who came later waits for the next; a failed one fails its own clients only', async () => {
  const reads = new HeldReads();
  const admissions = new Admissions(reads.read, namesOf('tidegate'));
  const first = admissions.read('p', 'a');
  const second = Promise.allSettled(['b', 'c', 'd'].map((clientId) => admissions.read('p', clientId)));
  const elsewhere = admissions.read('q', 'e');
  expect(reads.clientsPerRead).toEqual([1, 1]);
  reads.answer();
  expect(await first).toBeNull();
  reads.answer();
  expect(await elsewhere).toBeNull();
  expect(reads.clientsPerRead).toEqual([1, 1, 3]);
  const third = admissions.read('p', 'f');
  reads.fail();
  expect((await second).map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
  reads.answer();
  expect(await third).toBeNull();
  // At rest it holds nothing back.
  void admissions.read('p', 'g');
  while (reads.clientsPerRead.length < 5) await Promise.resolve();
  expect(reads.clientsPerRead).toEqual([1, 1, 3, 1, 1]);
});
