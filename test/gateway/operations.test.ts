/** docs/OPERATIONS.md as an administrator follows it: its SQL, with roles that have exactly the rights it names. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, expect, onTestFinished, test } from 'vitest';
import { createTestDatabase, runSql } from '../support/postgres-server.ts';
import { newFolder, runProcess } from './support/cli-process.ts';
import { startGateway } from './support/live-gateway.ts';
import { ada, frameOf, frames, postSync, SCHEMA } from './support/requests.ts';

const PAGE = readFileSync(new URL('../../docs/OPERATIONS.md', import.meta.url), 'utf8');

function blocks(language: string, heading: string): readonly string[] {
  const section = PAGE.split(/^## /m).find((text) => text.startsWith(`${heading}\n`)) ?? '';
  return [...section.matchAll(new RegExp(`^\`\`\`${language}\n([^]*?)^\`\`\``, 'gm'))].map(
    ([, text]) => text!,
  );
}

interface Roles {
  readonly owner: string;
  readonly app: string;
  readonly admin: string;
}

let roles: Roles;
let folder: string;

/** Roles belong to the server, so their names end with that of the database. Nobody else may even connect. */
beforeEach(async () => {
  const database = await createTestDatabase();
  const name = new URL(database.url).pathname.slice(1);
  const [owner, app] = [`tidegate_owner_${name.slice(-12)}`, `tidegate_app_${name.slice(-12)}`];
  const [block] = blocks('sql', 'Rights in PostgreSQL');
  const text = block!.replaceAll('tidegate_owner', owner).replaceAll('tidegate_app', app);
  onTestFinished(async () => {
    await runSql(database.url, `DROP OWNED BY ${app}, ${owner} CASCADE; DROP ROLE ${app}, ${owner}`);
    await database.drop();
  });
  await runSql(
    database.url,
    `REVOKE ALL ON DATABASE ${name} FROM PUBLIC; REVOKE ALL ON SCHEMA public FROM PUBLIC; ${text};
     GRANT CONNECT ON DATABASE ${name} TO ${owner}, ${app}`,
  );
  const as = (username: string, password: string): string =>
    Object.assign(new URL(database.url), { username, password }).href;
  roles = { owner: as(owner, 'owner-password'), app: as(app, 'app-password'), admin: database.url };
  folder = newFolder();
  writeFileSync(join(folder, 'schema.json'), JSON.stringify(SCHEMA));
});

const migrateAs = (url: string, ...args: readonly string[]) =>
  runProcess(['migrate', ...args], {
    folder,
    env: { TIDEGATE_STORAGE: url, TIDEGATE_SCHEMA: 'schema.json' },
  });

const count = async (sql: string): Promise<number> => Number((await runSql(roles.admin, sql))[0]?.n);

test('the owner migrates, the application serves with the rights to rows alone', async () => {
  const early = await migrateAs(roles.app);
  expect(early).toMatchObject({ code: 1, out: '' });
  expect(early.err).toMatch(
    /^tidegate: sync\.storage\.failed: .*\(permission denied for schema tidegate\)\n$/,
  );
  expect(await migrateAs(roles.owner)).toMatchObject({ code: 0, err: '' });
  expect(await migrateAs(roles.app)).toMatchObject({
    code: 0,
    out: expect.stringContaining('nothing to do'),
  });

  const live = await startGateway({ storage: { url: roles.app } });
  const pushed = await postSync(live.url, ada.push({ clientId: 'writer', rowId: 'r1' }));
  expect(frameOf(pushed.body, 'PUSH_RESULT').status).toBe('applied');
  const pulled = await postSync(live.url, ada.pull({ clientId: 'reader' }));
  expect(frames(pulled.body).filter(({ type }) => type === 'SEGMENT_INLINE')).toHaveLength(1);
  await live.gateway.close();

  const rotated = await runProcess(['rotate-epoch', '--all'], {
    folder,
    env: { TIDEGATE_STORAGE: roles.app },
  });
  expect(rotated).toMatchObject({
    code: 0,
    out: expect.stringMatching(/^"tenant-1": \S+ -> \S+\n$/),
    err: '',
  });
  const created = await runSql(roles.app, 'CREATE TABLE tidegate.mine (id int)').catch(String);
  expect(created).toContain('permission denied');

  const [watching] = blocks('sql', 'What to watch');
  for (const statement of watching!.split(';').filter((text) => text.trim() !== '')) {
    await runSql(roles.app, statement);
  }
});

test('a process opens no more connections than the two options add up to', async () => {
  await migrateAs(roles.owner);
  const postgres = { writersMax: 2, readersMax: 3 };
  const live = await startGateway({ storage: { url: roles.app, postgres } });
  const rounds = Array.from({ length: 60 }, (_, i) =>
    postSync(
      live.url,
      i % 2 === 0 ? ada.push({ clientId: `w${i}`, rowId: `r${i}` }) : ada.pull({ clientId: `c${i}` }),
    ),
  );
  expect(new Set((await Promise.all(rounds)).map(({ status }) => status))).toEqual(new Set([200]));
  const open = await count(
    `SELECT count(*) AS n FROM pg_stat_activity
     WHERE application_name = 'tidegate' AND datname = current_database()`,
  );
  expect(open).toBe(5);
});

test('the lists of tables to distribute are those that there are, by the key that the page names', async () => {
  await migrateAs(roles.owner);
  const rows = await runSql<{ name: string; own: boolean; synced: boolean }>(
    roles.admin,
    `SELECT c.relname AS name,
       EXISTS (SELECT 1 FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = 'partition') AS own,
       EXISTS (SELECT 1 FROM pg_attribute AS a WHERE a.attrelid = c.oid AND a.attname = '_sync_partition') AS synced
     FROM pg_class AS c WHERE c.relkind = 'r' AND c.relnamespace = 'tidegate'::regnamespace ORDER BY 1`,
  );
  const [distributed, reference] = blocks('', 'Spreading the tables over several servers').map((text) =>
    text.trim().split(/\s+/),
  );
  const small = rows.filter(({ own, synced }) => !own && !synced).map(({ name }) => name);
  expect(reference!.toSorted()).toEqual(['sync_backfill_checkpoints', ...small].toSorted());
  const keyed = rows.filter(({ name, own }) => own && !reference!.includes(name)).map(({ name }) => name);
  expect(distributed!.toSorted()).toEqual(keyed);
  expect(rows.filter(({ synced }) => synced).map(({ name }) => name)).toEqual(['notes']);
});

test('every table and index is led by the partition, or is one of the few that are not of one', async () => {
  await migrateAs(roles.owner);
  const rows = await runSql<{ name: string; first: string }>(
    roles.admin,
    `SELECT i.relname AS name, pg_get_indexdef(x.indexrelid, 1, true) AS first
     FROM pg_index AS x JOIN pg_class AS i ON i.oid = x.indexrelid
     WHERE i.relnamespace = 'tidegate'::regnamespace ORDER BY 1`,
  );
  const others = rows.filter(({ first }) => !/^(_sync_)?partition$/.test(first)).map(({ name }) => name);
  expect(others).toEqual([
    'sync_backfill_checkpoints_unfinished',
    'sync_schema_meta_pkey',
    'sync_segments_by_expiry',
    'sync_storage_version_pkey',
  ]);
});
