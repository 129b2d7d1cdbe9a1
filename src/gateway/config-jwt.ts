/** `auth: { jwt }` of a configuration file. What the values mean is judged by `createJwtAuth`. */
import { isRecord } from '../protocol/schema-problems.ts';
import type { ConfigFile } from './config-file.ts';
import type { JwtKeys, JwtOptions } from './jwt.ts';

type Check = (value: unknown) => boolean;

const isText: Check = (value) => typeof value === 'string' && value !== '';
const isListOf =
  (check: Check): Check =>
  (value) =>
    Array.isArray(value) && value.length > 0 && value.every(check);
const isOneOrMore: Check = (value) => isText(value) || isListOf(isText)(value);

const MEMBERS: Readonly<Record<keyof JwtOptions, { readonly check: Check; readonly what: string }>> = {
  keys: { check: isKeys, what: 'one of { secrets: [...] }, { publicKeys: [...] } and { jwksUrl }' },
  issuer: { check: isOneOrMore, what: 'a text or a list of texts' },
  audience: { check: isOneOrMore, what: 'a text or a list of texts' },
  algorithms: { check: isListOf(isText), what: 'a list of HS256, RS256 and ES256' },
  clockToleranceSeconds: {
    check: (value) => typeof value === 'number' && value >= 0 && value <= 300,
    what: 'a number from 0 to 300',
  },
  actorClaim: { check: isText, what: 'the name of a claim' },
  partition: { check: isPartition, what: '{ claim } or { fixed }' },
  scopesClaim: { check: isText, what: 'the name of a claim' },
  cookie: { check: isText, what: 'the name of a cookie' },
};

const NEEDED: readonly (keyof JwtOptions)[] = ['keys', 'issuer', 'audience'];

/** `null` when the file has none. */
export function readJwt(file: ConfigFile | null, problems: string[]): JwtOptions | null {
  const auth = file?.content.auth;
  if (!isRecord(auth) || auth.jwt === undefined) return null;
  const place = `auth.jwt in ${file?.path}`;
  const { jwt } = auth;
  if (!isRecord(jwt)) {
    problems.push(`${place} must be an object`);
    return null;
  }
  const found: string[] = [];
  for (const key of Object.keys(jwt)) if (!Object.hasOwn(MEMBERS, key)) found.push(`${place} has no ${key}`);
  for (const [key, { check, what }] of Object.entries(MEMBERS)) {
    const value = jwt[key];
    const isNeeded = NEEDED.some((needed) => needed === key);
    if (value === undefined ? isNeeded : !check(value)) found.push(`${place}: ${key} must be ${what}`);
  }
  problems.push(...found);
  return found.length === 0 && isJwtOptions(jwt) ? jwt : null;
}

/** Each member was checked above. */
function isJwtOptions(value: object): value is JwtOptions {
  return NEEDED.every((key) => key in value);
}

function isKeys(value: unknown): value is JwtKeys {
  if (!isRecord(value) || Object.keys(value).length !== 1) return false;
  const { secrets, publicKeys, jwksUrl } = value;
  if (secrets !== undefined) return isListOf(isText)(secrets);
  if (publicKeys !== undefined) return isListOf((key) => isText(key) || isRecord(key))(publicKeys);
  return typeof jwksUrl === 'string' && URL.canParse(jwksUrl) && /^https?:/.test(jwksUrl);
}

function isPartition(value: unknown): boolean {
  if (!isRecord(value) || Object.keys(value).length !== 1) return false;
  return isText(value.claim) || isText(value.fixed);
}
