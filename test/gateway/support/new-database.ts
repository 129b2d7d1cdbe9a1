/** An empty database of either kind for one test. */
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import { createTestDatabase } from '../../support/postgres-server.ts';

/** For `describe.each`: name, and the url of a new database whose file, if it is one, lies in the folder. */
export const DATABASES: readonly (readonly [string, (folder: string) => Promise<string>])[] = [
  ['SQLite', async (folder) => `sqlite:${join(folder, 'app.db')}`],
  [
    'PostgreSQL',
    async () => {
      const database = await createTestDatabase();
      onTestFinished(() => database.drop());
      return database.url;
    },
  ],
];
