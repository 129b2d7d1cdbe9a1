/** Sessions, hub and fanout on PostgreSQL: every test that SQLite passes. */
// The files that are left out need no storage: they test units, or run on a log in memory on purpose (`live/`), where a clock
// decides what happens when.
import { describe } from 'vitest';
import '../../support/on-postgres.ts';

// Each in a block of its own, so that its hooks are its own.
describe('live sqlite', async () => {
  await import('../live/live-sqlite.test.ts');
});
