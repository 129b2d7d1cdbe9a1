/** What opening a database file and `ensureSchema` would do to it, as SQL to read, without doing it. */
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Clock } from '../../protocol/clock.ts';
import type { CompiledSchema } from '../../protocol/schema.ts';
import type { CheckpointDeclaration } from '../checkpoints.ts';
import { SqliteConnection, type SqlParams, type SqlValue } from './driver.ts';
import { quoted } from './identifiers.ts';
import { guarded } from './sqlite-errors.ts';
import { openSqliteStorage } from './sqlite-storage.ts';

/**
 * Statements in order, each without a closing semicolon, and comments (`-- ...`) for what only the program can do; empty where
 * nothing is to be done. Throws what `ensureSchema` would.
 *
 * The real migration runs on a copy of the file's tables in the temporary folder, with a row of each where there is one: enough
 * to see what would be written anew. The file itself is only read, so a gateway may be running on it. What depends on all
 * rows, such as a unique index over values that are not unique, shows only when it is carried out.
 */
export async function planSqliteMigration(
  { path, clock }: { readonly path: string; readonly clock: Clock },
  schema: CompiledSchema,
  checkpoints: readonly CheckpointDeclaration[] = [],
): Promise<readonly string[]> {
  const folder = mkdtempSync(join(tmpdir(), 'tidegate-plan-'));
  try {
    const copy = join(folder, 'plan.db');
    if (existsSync(path)) guarded(() => copySkeleton({ path, copy }, schema));
    const heard: string[] = [];
    const observe = (sql: string, params: SqlParams): void => {
      heard.push(literal(sql.trim(), params));
    };
    const { storage } = await openSqliteStorage({ path: copy, clock, synchronous: 'NORMAL', observe });
    try {
      await storage.ensureSchema(schema, checkpoints);
    } finally {
      await storage.close();
    }
    return planOf(heard);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Small tables, of which every row decides. */
const WHOLE_TABLES: readonly string[] = [
  'sync_storage_version',
  'sync_schema_meta',
  'sync_backfill_checkpoints',
  'sync_writer_fence',
];

function copySkeleton(
  { path, copy }: { readonly path: string; readonly copy: string },
  { tables }: CompiledSchema,
): void {
  const source = new SqliteConnection(path);
  const target = new SqliteConnection(copy);
  try {
    source.exec('PRAGMA query_only = ON');
    source.run('BEGIN');
    target.exec('PRAGMA foreign_keys = OFF');
    createAll({ source, target }, ['table']);
    for (const name of WHOLE_TABLES) copyRows({ source, target }, name, '');
    for (const { name } of tables) {
      copyRows({ source, target }, name, 'LIMIT 1');
      const change = `WHERE tbl = '${name.replaceAll("'", "''")}' AND payload IS NOT NULL LIMIT 1`;
      copyRows({ source, target }, 'sync_changes', change);
    }
    createAll({ source, target }, ['index', 'view', 'trigger']);
  } finally {
    source.close();
    target.close();
  }
}

interface Pair {
  readonly source: SqliteConnection;
  readonly target: SqliteConnection;
}

/** A virtual table needs its module, and would make its own tables: its name alone is copied. */
function createAll({ source, target }: Pair, types: readonly string[]): void {
  const found = source.all(
    `SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'
       AND type IN (SELECT value FROM json_each(?)) ORDER BY rowid`,
    [JSON.stringify(types)],
  );
  for (const [name, sql] of found as [string, string][]) {
    target.exec(/^CREATE VIRTUAL/i.test(sql) ? `CREATE TABLE ${quoted(name)} (stands_for_it)` : sql);
  }
}

function copyRows({ source, target }: Pair, table: string, which: string): void {
  const columns = source
    .all('SELECT name FROM pragma_table_info(?)', [table])
    .map(([name]) => quoted(name as string));
  if (columns.length === 0) return;
  const rows = source.all(`SELECT ${columns.join(', ')} FROM ${quoted(table)} ${which}`);
  const places = columns.map(() => '?').join(', ');
  const insert = `INSERT INTO ${quoted(table)} (${columns.join(', ')}) VALUES (${places})`;
  for (const row of rows) target.run(insert, row);
}

/** Transactions that change something, each from its BEGIN to its COMMIT. */
function planOf(heard: readonly string[]): readonly string[] {
  const plan: string[] = [];
  let steps: Set<string> | null = null;
  for (const text of heard) {
    if (/^BEGIN\b/.test(text)) steps = new Set();
    else if (text === 'ROLLBACK') steps = null;
    else if (text === 'COMMIT') {
      if (steps !== null && steps.size > 0) plan.push('BEGIN IMMEDIATE', ...steps, 'COMMIT');
      steps = null;
    } else {
      const step = stepOf(text);
      if (step !== null) steps?.add(step);
    }
  }
  return plan;
}

/** Parameters in their place, for a reader. Texts of this storage hold no question mark of their own. */
function literal(sql: string, params: SqlParams): string {
  let nth = 0;
  return params.length === 0 ? sql : sql.replaceAll('?', () => literalOf(params[nth++] ?? null));
}

function literalOf(value: SqlValue): string {
  if (value === null) return 'NULL';
  if (value instanceof Uint8Array) return `x'${Buffer.from(value).toString('hex')}'`;
  return typeof value === 'number' ? String(value) : `'${value.replaceAll("'", "''")}'`;
}

const RECORDS = /^INSERT INTO sync_(storage_version|schema_meta|backfill_checkpoints|writer_fence)\b/;
const ROWS = /^(?:INSERT(?: OR \w+)? INTO|UPDATE|DELETE FROM) ("(?:[^"]|"")*"|\w+)/;

/** `null` for what only reads. */
function stepOf(text: string): string | null {
  if (/^(SELECT|PRAGMA)\b/.test(text)) return null;
  const table = RECORDS.test(text) ? undefined : ROWS.exec(text)?.[1];
  if (table !== undefined) return `-- rows of ${table} are written anew, in the new layout`;
  return text.replace(/;$/, '');
}
