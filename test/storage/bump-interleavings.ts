/**
 * Writers of an older program against a schema bump that declares a checkpoint, in an order that a seed decides (part 4,
 * 4.5-2). Real connections: the pauses are round trips to the server, so nothing sleeps and every order is possible.
 */
import pg from 'pg';
import type { Clock } from '../../src/protocol/clock.ts';
import { compileSchema } from '../../src/protocol/schema-compiler.ts';
import { openPostgresStorage } from '../../src/storage/postgres/postgres-storage.ts';
import type { Storage } from '../../src/storage/storage.ts';

const WRITERS = 3;
const PAUSES_MAX = 6;
const NAME = 'totals';

export interface Interleavings {
  /** What became of old writers: `finished` held their partition when the bump came, `fenced` came after it. */
  readonly outcomes: { finished: number; fenced: number };
  /** Throws where an order broke a promise. */
  run(seed: number): Promise<void>;
  close(): Promise<void>;
}

interface OldCommit {
  readonly partition: string;
  /** Schema version in the database before the bump. */
  readonly before: number;
  readonly pause: () => Promise<void>;
}

/** One namespace with a small schema; each seed raises its version by one and uses partitions of its own. */
export async function openInterleavings(options: {
  readonly url: string;
  readonly namespace: string;
  readonly clock: Clock;
}): Promise<Interleavings> {
  const { url, namespace, clock } = options;
  const { storage } = await openPostgresStorage({ connection: url, namespace, clock });
  let version = 1;
  let previous: string | null = null;
  await storage.ensureSchema(schemaOf(version));
  const clients = Array.from({ length: WRITERS }, () => new pg.Client({ connectionString: url }));
  const pauser = new pg.Client({ connectionString: url });
  for (const client of [...clients, pauser]) await client.connect();
  const outcomes = { finished: 0, fenced: 0 };

  async function run(seed: number): Promise<void> {
    const next = mulberry(seed);
    const before = version;
    version++;
    const [mine, theirs] = [`p${seed}`, `q${seed}`];
    for (const partition of [mine, theirs]) {
      await storage.admit({ partition, clientId: 'c', newLogEpoch: 'e', nowMs: 1 });
    }
    const pause = async (): Promise<void> => {
      for (let left = next() % PAUSES_MAX; left > 0; left--) await pauser.query('SELECT 1');
    };
    const declared = { partition: mine, name: NAME, schemaVersion: version };
    const bump = pause().then(() => storage.ensureSchema(schemaOf(version), [declared]));
    // Another host declares by itself, in a partition that has an old writer too.
    const alone = { partition: theirs, name: NAME, schemaVersion: version + 1_000_000, nowMs: 1 };
    const declaration = pause().then(() => storage.declareCheckpoint(alone));
    const old = clients.map((client, nth) =>
      oldWriter(client, namespace, { partition: nth === 0 ? theirs : mine, before, pause }),
    );
    const unfinished = previous;
    previous = mine;
    const worker = pause().then(() =>
      unfinished === null ? undefined : workOn(storage, unfinished, before),
    );
    const [, , , ...writers] = await Promise.all([bump, declaration, worker, ...old]);
    for (const [nth, writer] of writers.entries()) {
      // Without the table's lock, a declaration alone is before or after each of them.
      if (nth === 0) continue;
      if (writer.sawVersion === before && writer.outcome !== 'finished') throw broken(seed, writer);
      if (writer.sawVersion === version && writer.outcome !== 'fenced') throw broken(seed, writer);
      outcomes[writer.outcome]++;
    }
    await assertHeadsDense(seed);
  }

  /** What was numbered landed, and what was refused left no gap. */
  async function assertHeadsDense(seed: number): Promise<void> {
    const { rows } = await clients[0]!.query(
      `SELECT p.partition FROM "${namespace}".sync_partitions AS p WHERE p.partition IN ('p${seed}', 'q${seed}')
       AND p.max_commit_seq <> (SELECT count(*) FROM "${namespace}".sync_commits AS c WHERE c.partition = p.partition)`,
    );
    if (rows.length > 0) throw new Error(`seed ${seed}: a partition's head is not the number of its commits`);
  }

  return {
    outcomes,
    run,
    close: async () => {
      await Promise.all([...clients, pauser].map((client) => client.end()));
      await storage.close();
    },
  };
}

interface OldWriter {
  readonly sawVersion: number;
  readonly outcome: 'finished' | 'fenced';
}

/** The row lock first, as every writer does; then it looks which version it is in, and appends. */
async function oldWriter(client: pg.Client, namespace: string, commit: OldCommit): Promise<OldWriter> {
  const { partition, pause } = commit;
  const table = (name: string): string => `"${namespace}".${name}`;
  await pause();
  await client.query('BEGIN');
  await client.query("SET LOCAL lock_timeout = '20s'");
  const locked = await client.query<{ max_commit_seq: string }>(
    `SELECT max_commit_seq FROM ${table('sync_partitions')} WHERE partition = $1 FOR UPDATE`,
    [partition],
  );
  const meta = await client.query<{ schema_version: string }>(
    `SELECT schema_version FROM ${table('sync_schema_meta')}`,
  );
  const sawVersion = Number(meta.rows[0]!.schema_version);
  try {
    await pause();
    const seq = Number(locked.rows[0]!.max_commit_seq) + 1;
    await client.query(
      `INSERT INTO ${table('sync_commits')}
         (partition, commit_seq, client_id, client_commit_id, actor_id, created_at_ms)
       VALUES ($1, $2, 'old', 'old', 'a', 1)`,
      [partition, seq],
    );
    await pause();
    await client.query(`UPDATE ${table('sync_partitions')} SET max_commit_seq = $2 WHERE partition = $1`, [
      partition,
      seq,
    ]);
    await client.query('COMMIT');
    return { sawVersion, outcome: 'finished' };
  } catch (error) {
    await client.query('ROLLBACK');
    // A deadlock, a timeout: anything but the fence is a broken promise.
    if (!(error instanceof pg.DatabaseError) || error.message !== 'sync.storage.writer_fence_rejected')
      throw error;
    return { sawVersion, outcome: 'fenced' };
  }
}

/** A backfill of the seed before goes on beside the bump: its locks must not cross those of the others. */
async function workOn(storage: Storage, partition: string, schemaVersion: number): Promise<void> {
  const key = { partition, name: NAME };
  const { ownerEpoch } = await storage.claimCheckpoint({ ...key, schemaVersion, nowMs: 1 });
  await storage.transaction(partition, (tx) =>
    tx.advanceCheckpoint({ name: NAME, ownerEpoch, watermark: 1, observedRows: 1, scan: null, nowMs: 2 }),
  );
  await storage.activateCheckpoint({ ...key, ownerEpoch, watermark: 1, sources: ['items'], nowMs: 3 });
}

function schemaOf(version: number) {
  const columns = ['id', 'list'].map((name) => ({ name, type: 'string' }));
  return compileSchema({
    version,
    tables: [{ name: 'items', primaryKey: 'id', columns, scopes: ['list:{list}'] }],
  });
}

function broken(seed: number, { sawVersion, outcome }: OldWriter): Error {
  return new Error(`seed ${seed}: a writer that saw version ${sawVersion} ${outcome}`);
}

/** Whole numbers from a seed. */
function mulberry(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return (mixed ^ (mixed >>> 14)) >>> 0;
  };
}
