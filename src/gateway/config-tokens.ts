/** The fixed tokens of a configuration file. Problems name the actor or the position, never the token. */
import { isRecord } from '../protocol/schema-problems.ts';
import { isScopeMap, type StaticGrant } from './auth.ts';
import type { ConfigFile } from './config-file.ts';

/** `null` when the file has no `auth`, or one of the other kind. */
export function readStaticTokens(
  file: ConfigFile | null,
  problems: string[],
): ReadonlyMap<string, StaticGrant> | null {
  const auth = file?.content.auth;
  if (auth === undefined || auth === null) return null;
  // `config-jwt.ts` reads that.
  if (isRecord(auth) && auth.jwt !== undefined && auth.tokens === undefined) return null;
  const tokens = isRecord(auth) && auth.jwt === undefined ? auth.tokens : undefined;
  if (!isRecord(tokens)) {
    problems.push(
      `auth in ${file?.path} must be { tokens: { "<token>": { actorId, partition, scopes } } } or { jwt: { keys, issuer, audience } }`,
    );
    return new Map();
  }
  const grants = new Map<string, StaticGrant>();
  for (const [position, [token, entry]] of Object.entries(tokens).entries()) {
    const grant = readGrant(entry, `auth.tokens entry ${position + 1} in ${file?.path}`, problems);
    if (token === '' || /\s/.test(token)) {
      problems.push(
        `auth.tokens entry ${position + 1} in ${file?.path}: a token is text without white space`,
      );
    } else if (grant !== null) {
      grants.set(token, grant);
    }
  }
  return grants;
}

function readGrant(entry: unknown, place: string, problems: string[]): StaticGrant | null {
  if (!isRecord(entry)) {
    problems.push(`${place} must be an object`);
    return null;
  }
  const { actorId, partition, scopes, expiresAt } = entry;
  const expiresAtMs = readTime(expiresAt);
  const known = ['actorId', 'partition', 'scopes', 'expiresAt'];
  const unknown = Object.keys(entry).filter((key) => !known.includes(key));
  if (unknown.length > 0) problems.push(`${place} has unknown keys: ${unknown.join(', ')}`);
  if (typeof actorId !== 'string' || actorId === '') problems.push(`${place} needs an actorId`);
  else if (typeof partition !== 'string' || partition === '') problems.push(`${place} needs a partition`);
  else if (!isScopeMap(scopes)) problems.push(`${place} needs scopes: { variable: [values] }`);
  else if (expiresAtMs === undefined) {
    problems.push(`${place}: expiresAt must be a date such as 2030-01-31T00:00:00Z`);
  } else return { actorId, partition, scopes, expiresAtMs };
  return null;
}

/** `null`: it never ends. `undefined`: it is no time. */
function readTime(value: unknown): number | null | undefined {
  if (value === undefined || value === null) return null;
  const timeMs = typeof value === 'string' ? Date.parse(value) : Number.NaN;
  return Number.isNaN(timeMs) ? undefined : timeMs;
}
