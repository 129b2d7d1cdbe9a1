/** A partition with a long log, written through the storage itself in large transactions, before a gateway opens it. */
import { createRealClock } from '../src/gateway/real-clock.ts';
import { openStorage } from '../src/gateway/storage-option.ts';
import { compileSchema } from '../src/protocol/schema-compiler.ts';
import type { NewCommit, RowUpsert, Storage } from '../src/storage/storage.ts';
import { BENCH_SCHEMA, ITEMS, itemPayload } from './schema.ts';

export interface LongLog {
  readonly partition: string;
  /** Each changes one row. */
  readonly commits: number;
  /** How many of the last commits change the rows of `project`; the others are spread over all projects, this one too. */
  readonly tail: number;
  readonly project: string;
}

const COMMITS_PER_TRANSACTION = 2_000;
const PROJECTS = 1_000;
const ROWS = 20_000;

export async function fillLogs(
  storageUrl: string,
  logs: readonly LongLog[],
  progress: (text: string) => void,
): Promise<void> {
  const { storage, release } = await openStorage({ url: storageUrl }, createRealClock());
  try {
    await storage.ensureSchema(compileSchema(BENCH_SCHEMA));
    for (const log of logs) await fillLog(storage, log, progress);
  } finally {
    await release();
  }
}

async function fillLog(storage: Storage, log: LongLog, progress: (text: string) => void): Promise<void> {
  const { partition, commits } = log;
  const admission = { partition, clientId: 'filler', newLogEpoch: `epoch-${partition}`, nowMs: 0 };
  await storage.admit(admission);
  for (let first = 1; first <= commits; first += COMMITS_PER_TRANSACTION) {
    const last = Math.min(commits, first + COMMITS_PER_TRANSACTION - 1);
    await storage.transaction(partition, (tx) => tx.append(batch(log, first, last)));
    if (last % 100_000 === 0) progress(`  ${partition}: ${last.toLocaleString('en')} commits`);
  }
}

function batch(log: LongLog, first: number, last: number) {
  const commits: NewCommit[] = [];
  const upserts = new Map<string, RowUpsert>();
  for (let seq = first; seq <= last; seq++) {
    const isTail = seq > log.commits - log.tail;
    const rowId = isTail ? `tail-${seq - log.commits + log.tail}` : `row-${seq % ROWS}`;
    const project = isTail ? log.project : `p${seq % PROJECTS}`;
    const payload = itemPayload(rowId, project, seq);
    const scopes = { project_id: project };
    const serverVersion = isTail ? 1 : Math.ceil(seq / ROWS);
    const values = [rowId, project, 'title', seq, false];
    upserts.set(rowId, { rowId, serverVersion, scopes, payload, values });
    const change = {
      table: ITEMS.name,
      rowId,
      op: 'upsert',
      rowVersion: serverVersion,
      payload,
      scopes,
    } as const;
    commits.push({
      commitSeq: seq,
      createdAtMs: seq,
      actorId: 'filler',
      clientId: 'filler',
      clientCommitId: `c${seq}`,
      changes: [change],
      writerVersion: BENCH_SCHEMA.version,
    });
  }
  return { commits, rows: [{ table: ITEMS, upserts: [...upserts.values()], deletes: [] }], results: [] };
}
