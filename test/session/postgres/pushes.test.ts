/** Group commit and the push path on PostgreSQL: every test that SQLite passes. */
// The files that are left out need no storage: they test units, or run on a log in memory on purpose (`live/`), where a clock
// decides what happens when.
import { describe } from 'vitest';
import '../../support/on-postgres.ts';

// Each in a block of its own, so that its hooks are its own.
describe('commit queue', async () => {
  await import('../commit-queue.test.ts');
});
describe('commit queue faults', async () => {
  await import('../commit-queue-faults.test.ts');
});
describe('push blob ref', async () => {
  await import('../push-blob-ref.test.ts');
});
describe('push conflict', async () => {
  await import('../push-conflict.test.ts');
});
describe('push equivalence', async () => {
  await import('../push-equivalence.test.ts');
});
describe('push idempotency', async () => {
  await import('../push-idempotency.test.ts');
});
describe('push stages', async () => {
  await import('../push-stages.test.ts');
});
describe('push validators', async () => {
  await import('../push-validators.test.ts');
});
