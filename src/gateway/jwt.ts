/**
 * JSON Web Tokens as credentials (RFC 7519), verified by `jose`: a ready-made `authenticate` and `resolveScopes`. The kind of key decides
 * which algorithms are accepted, never the token, so a public key can be no secret and `none` is nothing.
 */
import { createSecretKey, type KeyObject } from 'node:crypto';
import {
  type CryptoKey,
  createRemoteJWKSet,
  errors,
  importJWK,
  importSPKI,
  type JWK,
  type JWTPayload,
  type JWTVerifyOptions,
  jwtVerify,
} from 'jose';
import type { JsonObject } from '../protocol/errors.ts';
import type { ScopeMap } from '../protocol/frames.ts';
import type { Identity } from '../session/sync/sync-deps.ts';
import { isStorableText } from '../storage/storable-values.ts';
import { type AuthIdentity, type AuthRequest, bearerToken, isScopeMap, type StaticTokens } from './auth.ts';
import { cookieToken } from './cookie-token.ts';

export type JwtKeys =
  /** HS256; at least 32 bytes each. Several while one replaces another. */
  | { readonly secrets: readonly (string | Uint8Array)[] }
  /** RS256 or ES256: PEM (`BEGIN PUBLIC KEY`) or JWK. */
  | { readonly publicKeys: readonly (string | JWK)[] }
  /** RS256 or ES256. Kept for ten minutes; a token of an unknown key asks anew, at most every 30 s. */
  | { readonly jwksUrl: string };

export interface JwtOptions {
  readonly keys: JwtKeys;
  readonly issuer: string | readonly string[];
  readonly audience: string | readonly string[];
  /** Narrows what the keys allow: HS256, or RS256 and ES256. */
  readonly algorithms?: readonly ('HS256' | 'RS256' | 'ES256')[];
  /** Clocks may differ by so much, in seconds. Default 5. */
  readonly clockToleranceSeconds?: number;
  /** Claim that names the actor. Default `sub`. */
  readonly actorClaim?: string;
  /** Claim that names the partition. Default `partition`; `{ fixed }` for one partition for all. */
  readonly partition?: { readonly claim: string } | { readonly fixed: string };
  /** Claim with the scopes, variable → list of values. Default `scopes`. A host's own `resolveScopes` may stand instead of it. */
  readonly scopesClaim?: string;
  /** Name of a cookie that may carry the token, beside the header; only in requests of the same site. */
  readonly cookie?: string;
}

const SECRET_BYTES_MIN = 32;
const CLOCK_TOLERANCE_SECONDS_DEFAULT = 5;
const CLOCK_TOLERANCE_SECONDS_MAX = 300;
const JWKS = { cacheMaxAge: 600_000, cooldownDuration: 30_000, timeoutDuration: 5_000 } as const;

type Verify = (token: string) => Promise<JWTPayload | null>;

/**
 * A token that is missing, expired, of a wrong issuer or audience, or not signed by one of the keys is refused with 401, and
 * nobody is told why. One that is valid and lacks a claim is too. A key set that cannot be fetched is a failure (500): a client
 * must not throw its token away for it. Throws `RangeError` for options that cannot be meant.
 */
export async function createJwtAuth(options: JwtOptions): Promise<StaticTokens> {
  const verify = await createVerify(options);
  const { actorClaim = 'sub', partition = { claim: 'partition' }, scopesClaim = 'scopes', cookie } = options;
  const { clockToleranceSeconds = CLOCK_TOLERANCE_SECONDS_DEFAULT } = options;
  const identityOf = (payload: JWTPayload): AuthIdentity | null => {
    const actorId = payload[actorClaim];
    const inPartition = 'fixed' in partition ? partition.fixed : payload[partition.claim];
    const { exp } = payload;
    if (!isKeyText(actorId) || !isKeyText(inPartition) || exp === undefined) return null;
    if (!Number.isSafeInteger(Math.ceil(exp) * 1_000)) return null;
    const scopes = payload[scopesClaim];
    const claims: JsonObject = isScopeMap(scopes) ? { scopes } : {};
    // The tolerance counts for the whole life of the grant, or a session would end before its token is refused.
    return { actorId, partition: inPartition, expiresAtMs: (exp + clockToleranceSeconds) * 1_000, claims };
  };
  return {
    authenticate: async (request) => {
      const token = tokenOf(request, cookie);
      const payload = token === null ? null : await verify(token);
      return payload === null ? null : identityOf(payload);
    },
    resolveScopes: ({ claims }: Identity): ScopeMap => (isScopeMap(claims.scopes) ? claims.scopes : {}),
  };
}

function tokenOf(request: AuthRequest, cookie: string | undefined): string | null {
  return bearerToken(request) ?? (cookie === undefined ? null : cookieToken(request, cookie));
}

/** Actor and partition become database keys. */
function isKeyText(value: unknown): value is string {
  return typeof value === 'string' && value !== '' && isStorableText(value);
}

async function createVerify(options: JwtOptions): Promise<Verify> {
  const { keys, issuer, audience, clockToleranceSeconds = CLOCK_TOLERANCE_SECONDS_DEFAULT } = options;
  for (const [name, value] of Object.entries({ issuer, audience })) {
    if (value.length === 0 || [value].flat().some((each) => each === '')) {
      throw new RangeError(`jwt needs an ${name}: a token for somebody else must not be accepted`);
    }
  }
  if (!(clockToleranceSeconds >= 0 && clockToleranceSeconds <= CLOCK_TOLERANCE_SECONDS_MAX)) {
    throw new RangeError(`jwt clockToleranceSeconds must be from 0 to ${CLOCK_TOLERANCE_SECONDS_MAX}`);
  }
  const algorithms = algorithmsOf(options);
  const checks = {
    issuer: [issuer].flat(),
    audience: [audience].flat(),
    algorithms,
    clockTolerance: clockToleranceSeconds,
    requiredClaims: ['exp'],
  };
  if ('jwksUrl' in keys) {
    const keySet = createRemoteJWKSet(new URL(keys.jwksUrl), JWKS);
    return (token) => refusedIsNull(() => verifyBySet(token, keySet, checks));
  }
  const known =
    'secrets' in keys ? keys.secrets.map(secretKey) : await Promise.all(keys.publicKeys.map(publicKey));
  if (known.length === 0) throw new RangeError('jwt needs at least one key');
  return async (token) => {
    for (const { key, algorithm } of known) {
      if (!algorithms.includes(algorithm)) continue;
      const own = { ...checks, algorithms: [algorithm] };
      const payload = await refusedIsNull(async () => (await jwtVerify(token, key, own)).payload);
      if (payload !== null) return payload;
    }
    return null;
  };
}

/** A token that names none of several keys that fit, as while one replaces another, is tried with each of them. */
async function verifyBySet(
  token: string,
  keySet: ReturnType<typeof createRemoteJWKSet>,
  checks: JWTVerifyOptions,
): Promise<JWTPayload> {
  try {
    return (await jwtVerify(token, keySet, checks)).payload;
  } catch (failure) {
    if (!(failure instanceof errors.JWKSMultipleMatchingKeys)) throw failure;
    for await (const key of failure) {
      try {
        return (await jwtVerify(token, key, checks)).payload;
      } catch (ofKey) {
        if (!(ofKey instanceof errors.JWSSignatureVerificationFailed)) throw ofKey;
      }
    }
    throw failure;
  }
}

interface KnownKey {
  readonly key: KeyObject | CryptoKey | Uint8Array;
  readonly algorithm: string;
}

function algorithmsOf({ keys, algorithms }: JwtOptions): string[] {
  const allowed = 'secrets' in keys ? ['HS256'] : ['RS256', 'ES256'];
  if (algorithms === undefined) return allowed;
  const isNarrower = algorithms.length > 0 && algorithms.every((each) => allowed.includes(each));
  if (isNarrower) return [...algorithms];
  throw new RangeError(`jwt algorithms must be among ${allowed.join(', ')} for these keys`);
}

function secretKey(secret: string | Uint8Array): KnownKey {
  const bytes = typeof secret === 'string' ? Buffer.from(secret) : secret;
  if (bytes.byteLength < SECRET_BYTES_MIN) {
    throw new RangeError(`a jwt secret needs at least ${SECRET_BYTES_MIN} bytes`);
  }
  return { key: createSecretKey(bytes), algorithm: 'HS256' };
}

async function publicKey(given: string | JWK): Promise<KnownKey> {
  if (typeof given !== 'string') {
    if (given.d !== undefined || given.kty === 'oct')
      throw new RangeError('a jwt public key is a private one');
    const algorithm = given.kty === 'RSA' ? 'RS256' : 'ES256';
    if (given.alg !== undefined && given.alg !== algorithm)
      throw new RangeError(`a jwt public key is for ${given.alg}`);
    try {
      return { key: await importJWK(given, algorithm), algorithm };
    } catch (cause) {
      throw new RangeError('a jwt public key is no JWK of RSA or P-256', { cause });
    }
  }
  try {
    return { key: await importSPKI(given, 'RS256'), algorithm: 'RS256' };
  } catch {
    return { key: await importEcPem(given), algorithm: 'ES256' };
  }
}

async function importEcPem(pem: string): Promise<CryptoKey> {
  try {
    return await importSPKI(pem, 'ES256');
  } catch (cause) {
    throw new RangeError('a jwt public key is no PEM of RSA or P-256', { cause });
  }
}

/** What the token is to blame for is a refusal; anything else is thrown on. */
async function refusedIsNull<T>(verify: () => Promise<T>): Promise<T | null> {
  try {
    return await verify();
  } catch (failure) {
    if (failure instanceof errors.JWKSTimeout || !(failure instanceof errors.JOSEError)) throw failure;
    if (failure.code === errors.JOSEError.code || failure instanceof errors.JWKSInvalid) throw failure;
    return null;
  }
}
