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
/** Bump, declaration and backfill. */
const OTHERS = 3;
const PAUSES_MAX = 6;
const NAME = 'totals';

/** One namespace with a small schema; each seed raises its version by one and uses partitions of its own. */
export class Interleavings {
  readonly #namespace: string;
  readonly #storage: Storage;
  readonly #writers: readonly pg.Client[];
  readonly #pausers: readonly pg.Client[];
  #version = 1;
  #unfinished: string | null = null;
  /** What became of old writers: `finished` held their partition when the bump came, `fenced` came after it. */
  readonly outcomes = { finished: 0, fenced: 0 };

  private constructor(namespace: string, storage: Storage, clients: readonly pg.Client[]) {
    this.#namespace = namespace;
    this.#storage = storage;
    this.#writers = clients.slice(0, WRITERS);
    this.#pausers = clients.slice(WRITERS);
  }

  static async open(options: {
    readonly url: string;
    readonly namespace: string;
    readonly clock: Clock;
    /** Seeds are below it. */
    readonly seeds: number;
  }): Promise<Interleavings> {
    const { url, namespace, clock, seeds } = options;
    const { storage } = await openPostgresStorage({ connection: url, namespace, clock });
    await storage.ensureSchema(schemaOf(1));
    const clients = Array.from({ length: WRITERS + OTHERS }, () => new pg.Client({ connectionString: url }));
    for (const client of clients) await client.connect();
    const partitions = `FROM generate_series(0, ${seeds - 1}) AS seed, (VALUES ('p'), ('q')) AS kind (letter)`;
    await clients[0]!.query(
      `INSERT INTO "${namespace}".sync_partitions (partition) SELECT letter || seed ${partitions};
       INSERT INTO "${namespace}".sync_partition_registry (partition, log_epoch, last_authenticated_at_ms)
         SELECT letter || seed, 'e', 1 ${partitions}`,
    );
    return new Interleavings(namespace, storage, clients);
  }

  /** Throws where an order broke a promise. */
  async run(seed: number): Promise<void> {
    const before = this.#version++;
    const version = this.#version;
    const [mine, theirs] = [`p${seed}`, `q${seed}`];
    const storage = this.#storage;
    const clients = [...this.#writers, ...this.#pausers];
    const pauses = clients.map((client, actor) => pausesOf(client, seed * clients.length + actor));
    const [bumpPause, declarePause, workPause] = pauses.slice(WRITERS);
    const declared = [
      { partition: mine, name: NAME, schemaVersion: version },
      { partition: theirs, name: 'another', schemaVersion: version },
      { partition: theirs, name: NAME, schemaVersion: version },
    ];
    const bump = bumpPause!().then(() => storage.ensureSchema(schemaOf(version), declared));
    // Another host declares the last one by itself, in a partition that has an old writer too.
    const alone = { partition: theirs, name: NAME, schemaVersion: version + 1_000_000, nowMs: 1 };
    const declaration = declarePause!().then(() => storage.declareCheckpoint(alone));
    const unfinished = this.#unfinished;
    this.#unfinished = mine;
    const work = workPause!().then(() => (unfinished === null ? null : workOn(storage, unfinished, before)));
    const old = this.#writers.map((client, nth) =>
      oldWriter(client, this.#namespace, { partition: nth === 0 ? theirs : mine, pause: pauses[nth]! }),
    );
    const [, , , ...writers] = await Promise.all([bump, declaration, work, ...old]);
    // Without the table's lock, a declaration alone may come before or after the first one's commit.
    for (const { sawVersion, outcome } of writers.slice(1)) {
      if (outcome !== (sawVersion === before ? 'finished' : 'fenced')) {
        throw new Error(`seed ${seed}: a writer that saw version ${sawVersion} of ${version} ${outcome}`);
      }
      this.outcomes[outcome]++;
    }
  }

  /** Partitions whose head is not the number of their commits: one that was refused left a gap, or one got lost. */
  async gaps(): Promise<readonly string[]> {
    const { rows } = await this.#writers[0]!.query<{ partition: string }>(
      `SELECT p.partition FROM "${this.#namespace}".sync_partitions AS p WHERE p.max_commit_seq <>
        (SELECT count(*) FROM "${this.#namespace}".sync_commits AS c WHERE c.partition = p.partition)`,
    );
    return rows.map(({ partition }) => partition);
  }

  async close(): Promise<void> {
    await Promise.all([...this.#writers, ...this.#pausers].map((client) => client.end()));
    await this.#storage.close();
  }
}

/** Of one actor: they depend on the seed alone. */
function pausesOf(client: pg.Client, seed: number): () => Promise<void> {
  const next = mulberry(seed);
  return async () => {
    for (let left = next() % PAUSES_MAX; left > 0; left--) await client.query('SELECT 1');
  };
}

interface OldCommit {
  readonly partition: string;
  readonly pause: () => Promise<void>;
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
