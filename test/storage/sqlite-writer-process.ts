/**
 * A process of its own that writes commits of three rows each and prints every commit number once it is acknowledged.
 * Arguments: file, partition, name of the writer, number of commits.
 */
import { createRealClock, keepAliveDuring } from '../../src/gateway/real-clock.ts';
import { openSqliteStorage } from '../../src/storage/sqlite/sqlite-storage.ts';
import { admitTo, SCHEMA, task, write } from '../contract/storage/fixture.ts';

const [path, partition, writer, commits] = process.argv.slice(2) as [string, string, string, string];

async function writeAll(): Promise<void> {
  const { storage } = await openSqliteStorage({ path, clock: createRealClock(), busyTimeoutMs: 20_000 });
  await storage.ensureSchema(SCHEMA);
  await admitTo(storage, partition);
  for (let nth = 0; nth < Number(commits); nth++) {
    const rows = ['a', 'b', 'c'].map((part) => task(`${writer}-${nth}-${part}`, 'p1'));
    const [commit] = await write(storage, partition, rows);
    process.stdout.write(`${commit!.commitSeq}\n`);
  }
  await storage.close();
}

await keepAliveDuring(writeAll());
