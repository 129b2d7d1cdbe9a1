/** Sessions, hub and fanout on PostgreSQL: every test that SQLite passes. */
import { describe } from 'vitest';
import '../../support/on-postgres.ts';

// Each in a block of its own, so that its hooks are its own.
describe('live sqlite', async () => {
  await import('../live/live-sqlite.test.ts');
});
