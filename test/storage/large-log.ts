/** A partition with a long log, made by plain SQL, and the plans of the statements that a storage really sends on it. */
import pg from 'pg';
import { rowCodecOf } from '../../src/protocol/row-codec.ts';
import { PgConnection, type Statement, type Step } from '../../src/storage/postgres/driver.ts';
import { namesOf } from '../../src/storage/postgres/names.ts';
import type { Storage } from '../../src/storage/storage.ts';
import { NO_LIMITS, remove, TASKS, task, WHOLE_PAGE, write } from '../contract/storage/fixture.ts';

export const PARTITION = 'large';
const CHANGES_PER_COMMIT = 4;
const PROJECTS = 1_000;

export interface Database {
  readonly url: string;
  readonly namespace: string;
}

/** `changes` in commits of four; a tenth as many rows, tombstones and half as many results; then ANALYZE. */
export async function fillLog({ url, namespace }: Database, changes: number): Promise<void> {
  const names = namesOf(namespace);
  const template = task('template', 'p0');
  const payload = Buffer.from(rowCodecOf(TASKS).encode(template.values)).toString('hex');
  const commits = Math.ceil(changes / CHANGES_PER_COMMIT);
  const rows = Math.ceil(changes / 10);
  const scopes = (n: string): string =>
    `jsonb_build_object('project', 'p' || ${n} % ${PROJECTS}, 'owner', 'o' || ${n} % 50)`;
  const scopePairs = (n: string): string =>
    `(VALUES ('project', 'p' || ${n} % ${PROJECTS}), ('owner', 'o' || ${n} % 50)) AS scope (var, value)`;
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    for (const text of [
      `INSERT INTO ${names.commits} SELECT '${PARTITION}', n, 'c' || n % 500, 'k' || n, 'a', n, 3
         FROM generate_series(1, ${commits}) AS n`,
      `INSERT INTO ${names.changes} SELECT '${PARTITION}', n, i, 'tasks', 'r' || (n * 7 + i) % ${rows}, 'upsert', 1,
         ${scopes('n')}, '\\x${payload}' FROM generate_series(1, ${commits}) AS n,
         generate_series(0, ${CHANGES_PER_COMMIT - 1}) AS i`,
      `INSERT INTO ${names.changeScopes} SELECT '${PARTITION}', 'tasks', var, value, n
         FROM generate_series(1, ${commits}) AS n CROSS JOIN LATERAL ${scopePairs('n')}`,
      `INSERT INTO ${names.results} SELECT '${PARTITION}', 'c' || n % 500, 'k' || n, repeat('0', 64), 3, n, '{}'
         FROM generate_series(1, ${commits}) AS n`,
      `INSERT INTO ${names.qualified('tasks')} (_sync_partition, _sync_row_id, _sync_server_version, _sync_scopes,
           id, project_id, owner_id, title, _sync_payload)
         SELECT '${PARTITION}', 'r' || n, 1, ${scopes('n')}, 'r' || n, 'p', 'o', 't', '\\x${payload}'
         FROM generate_series(1, ${rows}) AS n`,
      `INSERT INTO ${names.rowScopes} SELECT '${PARTITION}', 'tasks', var, value, 'r' || n
         FROM generate_series(1, ${rows}) AS n CROSS JOIN LATERAL ${scopePairs('n')}`,
      `INSERT INTO ${names.tombstones} SELECT '${PARTITION}', 'tasks', 'gone' || n, n
         FROM generate_series(1, ${rows}) AS n`,
      `UPDATE ${names.partitions} SET max_commit_seq = ${commits} WHERE partition = '${PARTITION}'`,
      'ANALYZE',
    ]) {
      await client.query(text);
    }
  } finally {
    await client.end();
  }
}

/** Pushes, pulls, catch-up of the fanout, and pruning; everything that touches the log, the rows or the results. */
export async function serve(storage: Storage, head: number): Promise<void> {
  const ids = Array.from({ length: 256 }, (_, i) => `r${i * 3 + 1}`);
  await storage.readSnapshot(PARTITION, async (reader) => {
    const one = { project: ['p7'] };
    const several = { project: ['p7', 'p8', 'p9'] };
    const both = { project: Array.from({ length: 200 }, (_, i) => `p${i}`), owner: ['o7', 'o8'] };
    for (const scopes of [one, several, both]) {
      for (const afterSeq of [0, head - 500]) {
        const window = { table: TASKS, scopes, afterSeq, throughSeq: head };
        await reader.readWindow({ ...window, ...NO_LIMITS, changesMax: 1_000 });
      }
      await reader.readRowPage({ ...WHOLE_PAGE, table: TASKS, scopes, rowsMax: 1_000 });
      await reader.readRowPage({ ...WHOLE_PAGE, table: TASKS, scopes, rowsMax: 50, afterRowId: 'r5' });
    }
    await reader.readRow(TASKS, 'r1');
    const range = { throughSeq: head, commitsMax: 1_024, bytesMax: 2 ** 23 };
    await reader.readCommits({ ...range, afterSeq: head - 100 });
    await reader.readCommits({ ...range, afterSeq: 0 });
  });
  await storage.transaction(PARTITION, async (tx) => {
    await tx.readResults([{ clientId: 'c7', clientCommitId: 'k7' }]);
    await tx.readResults(ids.map((id, i) => ({ clientId: `c${i}`, clientCommitId: id })));
    await tx.readRows(TASKS, ids);
    await tx.scanRows({ ...WHOLE_PAGE, table: TASKS, scopes: { project: ['p7'] }, rowsMax: 100 });
  });
  await write(storage, PARTITION, [
    task('r1', 'p7', { title: 'changed' }),
    task('r2', 'p8'),
    task('new', 'p1'),
  ]);
  await write(storage, PARTITION, [remove(TASKS, 'r3'), task('gone1', 'p1')]);
  await storage.pruneLog({ partition: PARTITION, horizon: head / 2, commitsMax: 500 });
}

export interface PlanNode {
  readonly 'Node Type': string;
  readonly 'Relation Name'?: string;
  readonly 'Index Name'?: string;
  readonly 'Index Cond'?: string;
  readonly Plans?: readonly PlanNode[];
}

export interface SentStatement {
  readonly text: string;
  readonly plan: readonly PlanNode[];
}

/** A statement with the settings that its transaction had made before it. */
export interface Captured {
  readonly statement: Statement;
  readonly settings: readonly string[];
}

/** What `work` sends, each text once per values that came with it. */
export async function capture(work: () => Promise<void>): Promise<readonly Captured[]> {
  const sent = new Map<string, Captured>();
  const settings = new WeakMap<PgConnection, string[]>();
  const original = PgConnection.prototype.send;
  PgConnection.prototype.send = function (this: PgConnection, steps: readonly Step[], ...rest) {
    for (const step of steps) {
      if (!('text' in step)) continue;
      if (step.text.startsWith('BEGIN')) settings.set(this, []);
      else if (/^SET LOCAL|set_config\(/.test(step.text)) settings.get(this)?.push(step.text);
      else if (/^(SELECT|INSERT|UPDATE|DELETE|WITH)\b/.test(step.text)) {
        sent.set(JSON.stringify([step.text, step.params]), {
          statement: step,
          settings: [...(settings.get(this) ?? [])],
        });
      }
    }
    return original.call(this, steps, ...rest);
  };
  try {
    await work();
  } finally {
    PgConnection.prototype.send = original;
  }
  return [...sent.values()];
}

export async function explain(url: string, sent: readonly Captured[]): Promise<readonly SentStatement[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const explained: SentStatement[] = [];
    for (const { statement, settings } of sent) {
      await client.query('BEGIN');
      for (const setting of settings) await client.query(setting);
      const { rows } = await client.query({
        text: `EXPLAIN (FORMAT JSON) ${statement.text}`,
        values: [...(statement.params ?? [])],
      });
      await client.query('ROLLBACK');
      explained.push({ text: statement.text, plan: nodesOf(rows[0]['QUERY PLAN'][0].Plan) });
    }
    return explained;
  } finally {
    await client.end();
  }
}

function nodesOf(node: PlanNode): readonly PlanNode[] {
  return [node, ...(node.Plans ?? []).flatMap(nodesOf)];
}

export const LARGE_TABLES: readonly string[] = [
  'sync_commits',
  'sync_changes',
  'sync_change_scopes',
  'sync_row_scopes',
  'sync_push_results',
  'sync_tombstones',
  'tasks',
];

/** Which indexes belong to a table is in their names. */
function isOfLarge(node: PlanNode): boolean {
  if (LARGE_TABLES.includes(node['Relation Name'] ?? '')) return true;
  return node['Index Name']?.startsWith('sync_') === true && node['Node Type'] === 'Bitmap Index Scan';
}

/**
 * Nodes that read a large table from front to back: scans without an index, and those whose index narrows it to the partition
 * alone, which is no less of it.
 */
export function scansOf(sent: readonly SentStatement[]): readonly string[] {
  return sent.flatMap(({ text, plan }) =>
    plan
      .filter((node) => isOfLarge(node) && /Scan$/.test(node['Node Type']) && isWide(node))
      .map((node) => `${node['Node Type']} ${node['Relation Name'] ?? node['Index Name']}: ${text}`),
  );
}

function isWide(node: PlanNode): boolean {
  if (node['Node Type'] === 'Bitmap Heap Scan') return false;
  const condition = node['Index Cond'];
  return condition === undefined || /^\(\w+ = '[^']*'::text\)$/.test(condition);
}
