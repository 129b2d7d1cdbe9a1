/** The two users of `tidegate dev`. Their tokens are known to everybody: they only ever open a development database. */
import type { StaticGrant } from './auth.ts';

export const DEV_TOKENS: ReadonlyMap<string, StaticGrant> = new Map([
  ['dev-ada', { actorId: 'ada', partition: 'dev', scopes: { project_id: ['*'] }, expiresAtMs: null }],
  ['dev-ben', { actorId: 'ben', partition: 'dev', scopes: { project_id: ['shared'] }, expiresAtMs: null }],
]);
