/**
 * Who may download a segment (§5.5): having seen its id grants nothing, so every request resolves the scopes anew and
 * compares digests (S-054, S-093). Answers of part 2.11 and part 2.24 decision 10, in this order.
 */
import { scopeDigest } from '../../protocol/canonical-json.ts';
import { SyncError } from '../../protocol/errors.ts';
import type { ScopeMap } from '../../protocol/frames.ts';
import type { SegmentEntry } from '../../storage/segments.ts';
import { resolveGrantOrDeny } from './grant.ts';
import { assertRequestedScopes, intersectScopes } from './scopes.ts';
import type { Identity, SyncDeps } from './sync-deps.ts';

export interface SegmentRequest {
  readonly who: Identity;
  readonly segmentId: string;
  /** `X-Syncular-Scopes`: JSON of the owning subscription's requested scopes; `null` when missing. */
  readonly scopesHeader: string | null;
  readonly deps: SyncDeps;
}

export interface OpenedSegment {
  readonly entry: SegmentEntry;
  /** The uncompressed bytes. Throws `sync.segment_expired` when they were swept since. */
  read(): Promise<Uint8Array>;
}

const SEGMENT_ID = /^sha256:[0-9a-f]{64}$/;

/**
 * Throws `sync.not_found` for an unknown id, `sync.invalid_request` and `sync.invalid_subscription` for a bad header,
 * `sync.segment_expired` and `sync.forbidden`. Nothing of the segment is read before the answer is yes.
 */
export async function openSegment(request: SegmentRequest): Promise<OpenedSegment> {
  const { who, segmentId, scopesHeader, deps } = request;
  const { segments } = deps;
  const entries = SEGMENT_ID.test(segmentId) ? await segments.entries(who.partition, segmentId) : [];
  const [any] = entries;
  if (any === undefined) throw new SyncError('sync.not_found', 'there is no such segment');
  if (scopesHeader === null) throw forbidden();
  const requested = parseScopesHeader(scopesHeader);
  // Equal bytes name the same table, so each entry of an id is of the one table.
  const table = deps.schema.tableByName.get(any.table);
  if (table === undefined) throw expired();
  assertRequestedScopes(table, requested);
  const live = await liveEntries(entries, who, deps);
  if (live.length === 0) throw expired();
  const digest = await effectiveDigest(requested, who, deps);
  const entry = live.find((candidate) => candidate.scopeDigest === digest);
  if (entry !== undefined) return { entry, read: () => read(who.partition, segmentId, deps) };
  // The same scopes did have it: a pull will give a new descriptor.
  if (entries.some((candidate) => candidate.scopeDigest === digest)) throw expired();
  throw forbidden();
}

/**
 * Neither past their lifetime nor of another log epoch (S-033), nor minted for a schema version that the database has left or
 * that is older than a projection of the partition (part 4, 4.3).
 */
async function liveEntries(
  entries: readonly SegmentEntry[],
  { partition }: Identity,
  { storage, clock }: SyncDeps,
): Promise<readonly SegmentEntry[]> {
  const nowMs = clock.nowMs();
  const unexpired = entries.filter(({ expiresAtMs }) => expiresAtMs > nowMs);
  if (unexpired.length === 0) return [];
  const state = await storage.readSnapshot(partition, (reader) => reader.state());
  const versionMin = Math.max(state.storedSchemaVersion, state.newestCheckpointVersion);
  return unexpired.filter((entry) => entry.logEpoch === state.logEpoch && entry.schemaVersion >= versionMin);
}

/** `null` when the scopes are revoked or cannot be resolved, which matches no segment. */
async function effectiveDigest(requested: ScopeMap, who: Identity, deps: SyncDeps): Promise<string | null> {
  const effective = intersectScopes(requested, await resolveGrantOrDeny(who, deps));
  return effective.status === 'revoked' ? null : scopeDigest(effective.scopes, deps.sha256);
}

async function read(partition: string, segmentId: string, { segments }: SyncDeps): Promise<Uint8Array> {
  const bytes = await segments.read(partition, segmentId);
  if (bytes === null) throw expired();
  return bytes;
}

/** Any JSON of the right shape: the digest is made from its content, not from its spelling. */
function parseScopesHeader(text: string): ScopeMap {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new SyncError('sync.invalid_request', 'the scopes header is not JSON', { cause });
  }
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw malformedHeader();
  const scopes: Record<string, readonly string[]> = Object.create(null);
  for (const [variable, values] of Object.entries(value)) {
    if (!Array.isArray(values) || !values.every((entry) => typeof entry === 'string')) {
      throw malformedHeader();
    }
    scopes[variable] = values;
  }
  return scopes;
}

function malformedHeader(): SyncError {
  return new SyncError('sync.invalid_request', 'the scopes header is not a map of lists of strings');
}

function expired(): SyncError {
  return new SyncError('sync.segment_expired', 'the segment has expired');
}

function forbidden(): SyncError {
  return new SyncError('sync.forbidden', 'the scopes do not grant this segment');
}
