/** Rounds, pulls, bootstraps and segments on PostgreSQL: every test that SQLite passes. */
// The files that are left out need no storage: they test units, or run on a log in memory on purpose (`live/`), where a clock
// decides what happens when.
import { describe } from 'vitest';
import '../../support/on-postgres.ts';

// Each in a block of its own, so that its hooks are its own.
describe('round admission', async () => {
  await import('../round-admission.test.ts');
});
describe('round checks', async () => {
  await import('../round-checks.test.ts');
});
describe('round record', async () => {
  await import('../round-record.test.ts');
});
describe('round stream', async () => {
  await import('../round-stream.test.ts');
});
describe('pull answer', async () => {
  await import('../pull-answer.test.ts');
});
describe('pull scopes', async () => {
  await import('../pull-scopes.test.ts');
});
describe('pull window', async () => {
  await import('../pull-window.test.ts');
});
describe('pull convergence', async () => {
  await import('../pull-convergence.test.ts');
});
describe('bootstrap', async () => {
  await import('../bootstrap.test.ts');
});
describe('bootstrap sharing', async () => {
  await import('../bootstrap-sharing.test.ts');
});
describe('large answers', async () => {
  await import('../large-answers.test.ts');
});
describe('segment access', async () => {
  await import('../segment-access.test.ts');
});
describe('segment content', async () => {
  await import('../segment-content.test.ts');
});
