/** A PostgreSQL database per test file, on the server of the test run or on the one that `TIDEGATE_TEST_PG_URL` names. */
import { randomBytes } from 'node:crypto';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import pg from 'pg';
import { inject } from 'vitest';
import { FAILURE } from './postgres-global.ts';

export interface TestDatabase {
  readonly url: string;
  /** Ends whoever is still connected. */
  drop(): Promise<void>;
}

export async function createTestDatabase(): Promise<TestDatabase> {
  const server = await testServerUrl();
  const name = `tidegate_test_${randomBytes(6).toString('hex')}`;
  await runSql(server, `CREATE DATABASE ${name} TEMPLATE template0 ENCODING 'UTF8'`);
  const url = new URL(server);
  url.pathname = `/${name}`;
  const drop = async (): Promise<void> => {
    await runSql(server, `DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
  };
  return { url: url.href, drop };
}

/** Statements without parameters, on a connection of their own; the rows of the last. */
export async function runSql<Row extends pg.QueryResultRow = pg.QueryResultRow>(
  url: string,
  sql: string,
): Promise<Row[]> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    const results: pg.QueryResult<Row> | pg.QueryResult<Row>[] = await client.query<Row>(sql);
    return (Array.isArray(results) ? results.at(-1)! : results).rows;
  } finally {
    await client.end();
  }
}

/** Of the maintenance database of the server that the tests use. */
export async function testServerUrl(): Promise<string> {
  const elsewhere = process.env.TIDEGATE_TEST_PG_URL;
  if (elsewhere !== undefined && elsewhere !== '') return elsewhere;
  const answer = await text(connect(inject('postgresPort'), '127.0.0.1'));
  if (answer.startsWith(FAILURE)) throw new Error(answer.slice(FAILURE.length));
  return answer;
}
