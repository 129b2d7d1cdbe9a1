/**
 * The one handler behind `POST sync` and the socket (§1.1, §8.7): request bytes in, response chunks out, and at the end
 * what the round left behind (architecture §2 steps 2 to 8).
 */
import { SyncError } from '../../protocol/errors.ts';
import { FrameWriter } from '../../protocol/frame-writer.ts';
import type { RespHeaderFrame, WireVersion } from '../../protocol/frames.ts';
import { type DecodedRequest, decodeRequest } from '../../protocol/message.ts';
import type { ClientRecord, PartitionState } from '../../storage/storage.ts';
import { StorageError } from '../../storage/storage-error.ts';
import { admitRound, bindClientId, type RoundContext } from './admission.ts';
import { saveClientRecord } from './client-record.ts';
import { resolveGrant } from './grant.ts';
import { NOTHING_SHARED, planSharing } from './page-sharing.ts';
import { type PulledSections, producePull, writeHead } from './pull.ts';
import { pullBounds } from './pull-bounds.ts';
import { recordedCursorOf, registrationsOf, storedListOf } from './registrations.ts';
import { checkRequest, type RequestedSubscription } from './request-checks.ts';
import { narrowedById, type ResolvedSubscription, resolveSubscription } from './resolved-subscription.ts';
import { ResponseStream } from './response-stream.ts';
import type { RoundOutcome } from './round-outcome.ts';
import type { ScopeGrant } from './scopes.ts';
import type { Identity, PushOutcome, SyncDeps } from './sync-deps.ts';

export type { RoundContext } from './admission.ts';

/** Nothing can refuse the request as a whole any more, except the gate. */
interface PreparedRound {
  readonly kind: 'prepared';
  readonly who: Identity;
  readonly request: DecodedRequest;
  readonly state: PartitionState;
  readonly client: ClientRecord | null;
  readonly grant: ScopeGrant;
  readonly subscriptions: readonly ResolvedSubscription[];
}

interface HeaderOnly {
  readonly kind: 'header-only';
  readonly wireVersion: WireVersion;
  readonly header: RespHeaderFrame;
}

/** Its pushes are done and its pull, if any, may begin. */
interface OpenRound extends PreparedRound {
  readonly pushes: readonly PushOutcome[];
}

/**
 * Fails from its first `next()`, with nothing yielded: a `SyncError` is a request-level failure for the caller to answer
 * (HTTP error, or `errorStream`), anything else has no code. Later failures with a code come back as `failed`, others are
 * thrown. When `signal` aborts, production ends, nothing more is yielded and the signal's reason is thrown; pushes that
 * began are not called back. A consumer that stops early calls `return()`.
 *
 * The chunks are cut anywhere; together with the outcome's `finalChunk` they are the response. The bytes of `request` must
 * not change until the round is over.
 */
export async function* runRound(
  request: Uint8Array,
  context: RoundContext,
  deps: SyncDeps,
): AsyncGenerator<Uint8Array, RoundOutcome> {
  const { who, signal } = context;
  const prepared = await reporting(who, deps, () => prepareRound(request, context, deps));
  if (prepared.kind === 'header-only') return headerOnly(prepared);
  // The commit queue reports its own failures.
  const pushes = await runPushes(prepared, deps);
  const round = { ...prepared, pushes };
  return yield* prepared.request.pull === null ? pushOnly(round, deps) : servePull(round, signal, deps);
}

async function reporting<T>(who: Identity, deps: SyncDeps, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (failure) {
    report(failure, who, deps);
    throw failure;
  }
}

function report(failure: unknown, { partition }: Identity, { events }: SyncDeps): void {
  if (failure instanceof SyncError) events.emit({ type: 'request.refused', partition, code: failure.code });
  if (failure instanceof StorageError) events.emit({ type: 'storage.failed', partition, error: failure });
}

/** Everything up to the pushes. Whatever can refuse the request does so before the first commit (part 2.24 decision 25). */
async function prepareRound(
  bytes: Uint8Array,
  context: RoundContext,
  deps: SyncDeps,
): Promise<PreparedRound | HeaderOnly> {
  const { who, signal } = context;
  const request = context.decode?.(bytes) ?? decodeRequest(bytes, deps.limits);
  const admitted = await admitRound(request, context, deps);
  if (admitted.kind === 'header-only') return { ...admitted, wireVersion: request.wireVersion };
  const { state, client, boundActorId } = admitted;
  const requested = checkRequest(request, deps);
  const grant = await grantFor({ who, request, requested }, deps);
  const narrowed = narrowedById(client);
  const subscriptions = requested.map((subscription) =>
    resolveSubscription(subscription, { grant, narrowed, deps }),
  );
  signal.throwIfAborted();
  await bindClientId({ who, clientId: request.header.clientId, boundActorId }, deps.storage);
  return { kind: 'prepared', who, request, state, client, grant, subscriptions };
}

const NOBODY: ScopeGrant = { kind: 'denied' };

/** At most one call of the resolver per request, none for a request that needs no scopes (S-044). */
async function grantFor(
  round: { who: Identity; request: DecodedRequest; requested: readonly RequestedSubscription[] },
  deps: SyncDeps,
): Promise<ScopeGrant> {
  const { who, request, requested } = round;
  if (request.pushes.length === 0 && requested.length === 0) return NOBODY;
  return await resolveGrant(who, deps);
}

async function runPushes(
  { who, request, grant, state }: PreparedRound,
  deps: SyncDeps,
): Promise<readonly PushOutcome[]> {
  const { header, pushes: commits } = request;
  if (commits.length === 0) return [];
  const { clientId, schemaVersion } = header;
  return await deps.commits.push({ who, clientId, schemaVersion, grant, logEpoch: state.logEpoch, commits });
}

/** Schema floor or epoch reset (S-015, S-016). */
function headerOnly({ wireVersion, header }: HeaderOnly): RoundOutcome {
  const writer = new FrameWriter(wireVersion);
  writer.envelope('response');
  writer.frame(header);
  writer.end();
  return { kind: 'header-only', wireVersion, finalChunk: writer.take() };
}

/** Registrations, stored list and cursor stay as they are (§8.7, S-168). */
async function* pushOnly(round: OpenRound, deps: SyncDeps): AsyncGenerator<Uint8Array, RoundOutcome> {
  const { who, request, state, pushes } = round;
  const stream = new ResponseStream(request.wireVersion, deps);
  writeHead(stream, { logEpoch: state.logEpoch, pushes });
  stream.finish();
  await reporting(who, deps, () => saveRecord(round, null, deps));
  yield* chunksOf(stream);
  const finalChunk = await stream.last();
  const handedOver = (): void => undefined;
  return served(round, { registrations: null, snapshotHead: state.head, finalChunk, handedOver });
}

/** All but what `last` gives. */
async function* chunksOf(stream: ResponseStream): AsyncGenerator<Uint8Array, void> {
  for (;;) {
    const chunk = await stream.take();
    if (chunk === null) return;
    yield chunk;
  }
}

async function* servePull(
  round: OpenRound,
  signal: AbortSignal,
  deps: SyncDeps,
): AsyncGenerator<Uint8Array, RoundOutcome> {
  const stream = new ResponseStream(round.request.wireVersion, deps);
  const abort = (): void => stream.abort(signal.reason);
  signal.addEventListener('abort', abort, { once: true });
  if (signal.aborted) abort();
  const producing = produce(round, stream, deps);
  // `stream` hands its failure to the consumer, perhaps much later: until then the rejection is not unheard.
  const settled = producing.then(
    () => undefined,
    () => undefined,
  );
  try {
    yield* chunksOf(stream);
    return await finishPull(round, { stream, producing }, deps);
  } catch (failure) {
    report(failure, round.who, deps);
    const error = SyncError.from(failure);
    if (error === null || !stream.begun) throw failure;
    return { kind: 'failed', error, finalChunk: await stream.lastOfFailed(error) };
  } finally {
    signal.removeEventListener('abort', abort);
    stream.abandon();
    await settled;
  }
}

/** Its failure is the stream's as well, where the consumer meets it in its turn. */
async function produce(round: OpenRound, stream: ResponseStream, deps: SyncDeps): Promise<PulledSections> {
  const { who, request, state, subscriptions, pushes } = round;
  try {
    const bounds = pullBounds(request.pull!, deps.limits);
    const sharing =
      pushes.length > 0 ? NOTHING_SHARED : await planSharing(subscriptions, { state, bounds, deps });
    const { wireVersion } = request;
    const { partition } = who;
    const pull = {
      partition,
      wireVersion,
      logEpoch: state.logEpoch,
      bounds,
      subscriptions,
      pushes,
      sharing,
    };
    return await producePull(pull, stream, deps);
  } catch (failure) {
    stream.fail(failure);
    throw failure;
  }
}

/** The list is stored before END leaves, the cursor counts once it has left (architecture §2.6). */
async function finishPull(
  round: OpenRound,
  { stream, producing }: { stream: ResponseStream; producing: Promise<PulledSections> },
  deps: SyncDeps,
): Promise<RoundOutcome> {
  const { head, sections } = await producing;
  await stream.released();
  await saveRecord(round, sections, deps);
  const cursor = recordedCursorOf(sections);
  const key = { partition: round.who.partition, clientId: round.request.header.clientId };
  return served(round, {
    registrations: registrationsOf(sections, head),
    snapshotHead: head,
    finalChunk: await stream.last(),
    handedOver: () => {
      if (cursor !== null) deps.cursors.pulled(key, cursor);
    },
  });
}

function saveRecord(
  { who, request, state, client }: OpenRound,
  sections: PulledSections['sections'] | null,
  deps: SyncDeps,
): Promise<void> {
  const { clientId, schemaVersion } = request.header;
  const { wireVersion } = request;
  const subscriptions = sections === null ? null : storedListOf(sections);
  const { logEpoch } = state;
  const update = { who, clientId, logEpoch, wireVersion, schemaVersion, subscriptions };
  return saveClientRecord(client, update, deps);
}

type Served = Extract<RoundOutcome, { readonly kind: 'served' }>;

function served(
  { request }: OpenRound,
  rest: Pick<Served, 'registrations' | 'snapshotHead' | 'finalChunk' | 'handedOver'>,
): RoundOutcome {
  const { wireVersion, header } = request;
  return { kind: 'served', wireVersion, schemaVersion: header.schemaVersion, ...rest };
}
