/**
 * Every bound of the gateway, each with its unit in the name. `assertLimits` relates them to each other; the
 * composition root calls it once.
 */
export interface Limits {
  /** Bytes of one sync request, decompressed, on either binding. Over it: HTTP 413, close 1009. */
  readonly requestBytesMax: number;
  /** Bytes of the header section of an HTTP request: `X-Syncular-Scopes` lists every requested value. Over it: HTTP 431. */
  readonly headerBytesMax: number;
  /** Bytes of one frame's payload inside a request. */
  readonly frameBytesMax: number;
  /** Frames in one request, `END` included. */
  readonly framesMax: number;
  /** The same two bounds for whoever reads responses, a client or a tool; the gateway itself reads none. */
  readonly responseFrameBytesMax: number;
  readonly responseFramesMax: number;
  /** Operations over all commits of a request (§6.1); over it `sync.too_many_operations`. */
  readonly operationsMax: number;
  /** Subscriptions of one pull. */
  readonly subscriptionsMax: number;
  /** Scope values over all subscriptions of one pull. */
  readonly scopeValuesMax: number;
  /** UTF-16 units of a client id, client commit id or subscription id: they stand in database keys. */
  readonly idUnitsMax: number;
  /** UTF-16 units of a resume token; a longer one is unusable. */
  readonly resumeTokenUnitsMax: number;

  /** `PULL_HEADER` defaults and clamps (§4.2). */
  readonly pullChangesDefault: number;
  readonly pullChangesMax: number;
  readonly snapshotRowsDefault: number;
  readonly snapshotRowsMax: number;
  readonly snapshotPagesDefault: number;
  readonly snapshotPagesMax: number;
  /** Bytes of pull sections that one response may hold before it is cut at a commit or page boundary. */
  readonly pullBytesMax: number;
  /** Bytes of commits that a pull reads from the log at once. */
  readonly windowSliceBytes: number;
  /** A response leaves in chunks of about this many bytes, or smaller when its next part is not ready. */
  readonly responseChunkBytes: number;
  /** Bytes of rows in one bootstrap page; a page is cut at a row boundary. */
  readonly segmentBytesMax: number;
  /** Rows segments below this many bytes travel inline when the client takes both (§5.7). */
  readonly segmentInlineBytesMax: number;
  /** A block of a rows segment closes at this many rows or bytes, whichever comes first (§5.2). */
  readonly segmentBlockRows: number;
  readonly segmentBlockBytes: number;
  /** Lifetime of a stored segment in ms (§5.1). */
  readonly segmentTtlMs: number;
  /** Interval in which expired segments are removed, in ms. */
  readonly segmentSweepMs: number;
  /** Expired segments removed in one transaction. */
  readonly segmentSweepEntriesMax: number;
  /** An expired segment is remembered this long, in ms: a download is told `sync.segment_expired`, later `sync.not_found`. */
  readonly segmentKeepExpiredMs: number;

  /** Pushes that wait per partition; over it `sync.rate_limited`. */
  readonly commitQueueCommitsMax: number;
  readonly commitQueueBytesMax: number;
  /** Bytes of the rows in the conflicts that answer one push request; over it `sync.too_many_operations`. */
  readonly pushAnswerBytesMax: number;
  /** Hint of a refusal by the full queue, in ms; up to twice of it, so that the refused do not return at once. */
  readonly commitQueueRetryAfterMs: number;
  /** Commits, operations and bytes that one transaction takes. */
  readonly commitBatchCommitsMax: number;
  readonly commitBatchBytesMax: number;
  /** Transactions tried for one batch while the storage says that it may succeed later. */
  readonly commitAttemptsMax: number;
  /** Wait before the second try in ms; it doubles for each further one, up to the maximum. */
  readonly commitRetryFirstMs: number;
  readonly commitRetryMaxMs: number;

  /** Source rows, or changes of them, that one batch of a backfill sees (part 4, 4.4); writers wait as long as one takes. */
  readonly backfillBatchRowsMax: number;
  /** Their payload bytes. */
  readonly backfillBatchBytesMax: number;
  /** Derived rows that one batch may write. */
  readonly backfillWritesMax: number;
  /** Of these, changes in one commit. */
  readonly backfillChangesPerCommit: number;

  /** Encoded bytes of one delta, tag byte excluded; strictly greater is `delta-too-large` (§8.2). */
  readonly deltaBytesMax: number;
  /** Deltas sent and not acked per session; over it the session goes behind. */
  readonly deltasInFlightMax: number;
  /** Deltas per session within one window, and its length in ms; over it the session goes behind (§8.2). */
  readonly deltasPerWindowMax: number;
  readonly deltaWindowMs: number;
  /** Bytes waiting in one socket: above high the response pauses and deltas become wake-ups; below low it resumes. */
  readonly outboxBytesHigh: number;
  readonly outboxBytesLow: number;
  /** A socket that stays above the high mark this long is closed with 1013, in ms. */
  readonly drainTimeoutMs: number;
  /**
   * Messages and bytes held while a session is still connecting; at half of either the socket is no longer read. A request
   * may come one byte per message, and one read of 64 KiB may hold ten thousand such messages.
   */
  readonly heldMessagesMax: number;
  readonly heldBytesMax: number;
  /** Bytes of one inbound WebSocket message and number of its fragments. */
  readonly messageBytesMax: number;
  readonly messageFragmentsMax: number;
  /** Values in one inbound MessagePack message, keys included: each may cost memory that its bytes do not show (§5.4). */
  readonly msgpackElementsMax: number;
  /** Bytes of one inbound control message. */
  readonly controlBytesMax: number;
  /** A request must be complete this long after its first byte, in ms. Over it: close 4408, HTTP 408; an upgrade 503. */
  readonly requestTimeoutMs: number;
  /** Interval of the heartbeat event, in ms (§8.5). */
  /** One presence document as compact JSON, in UTF-8 bytes (§8.6, 3.10.2). */
  readonly presenceDocBytesMax: number;
  /** All presence documents of one connection, in UTF-8 bytes; over it `presence.too_large`. */
  readonly presenceSessionBytesMax: number;
  /** At most one presence event per connection and key in this time, the newest, in ms; 0: each publish is one (3.10.5). */
  readonly presenceIntervalMs: number;
  readonly heartbeatMs: number;
  /** No pong and no byte for this long closes with 4408, in ms. */
  readonly livenessTimeoutMs: number;
  /** A close handshake that the peer does not answer is cut after this, in ms. */
  readonly closeTimeoutMs: number;
  /** Grain of all session deadlines, in ms: each is met at most this late. */
  readonly sessionTickMs: number;
  /** Open WebSocket sessions of this process; over it `sync.websocket_connection_limit`. */
  readonly connectionsMax: number;
  /** Commits and bytes kept per partition for catch-up without the database. */
  readonly ringCommitsMax: number;
  readonly ringBytesMax: number;
  /** Commits a node reads from the log to close one hole; a wider one turns into wake-ups. */
  readonly catchUpCommitsMax: number;
  /** Sessions served per turn of the event loop when a fanout is large. */
  readonly fanoutSessionsPerTurn: number;
  /** Commits of a partition that wait to be matched; more than that and their sessions are woken instead. */
  readonly fanoutBacklogCommitsMax: number;
  /** Head poll of partitions with sessions, in ms: the backstop for a lost notice. */
  readonly headPollMs: number;

  /** Write-behind interval of client cursors and partition last-seen times, in ms. */
  readonly cursorFlushMs: number;
  readonly lastSeenFlushMs: number;
  /** A ticket is good for so long, in ms. */
  readonly ticketLifetimeMs: number;
  /** Tickets that a process issues to one actor in the lifetime of one; above it 429. */
  readonly ticketsPerActorMax: number;
  /** Used tickets that a process remembers until they expire; above it upgrades by ticket are refused with 503. */
  readonly ticketsKeptMax: number;

  /** The storage's answer to a readiness probe, in ms; without one in time the probe says 503. */
  readonly readinessTimeoutMs: number;
  /** Rounds in flight get this long at shutdown, then sockets close over `drainSpreadMs`, in ms. */
  readonly shutdownRoundsMs: number;
  readonly drainSpreadMs: number;
}

const KIB = 1024;
const MIB = 1024 * KIB;

export const DEFAULT_LIMITS: Limits = {
  requestBytesMax: 16 * MIB,
  headerBytesMax: 64 * KIB,
  frameBytesMax: 8 * MIB,
  framesMax: 20_000,
  responseFrameBytesMax: 64 * MIB,
  responseFramesMax: 1_000_000,
  operationsMax: 500,
  subscriptionsMax: 1_000,
  scopeValuesMax: 20_000,
  idUnitsMax: 256,
  resumeTokenUnitsMax: 16_384,

  pullChangesDefault: 1_000,
  pullChangesMax: 1_000,
  snapshotRowsDefault: 1_000,
  snapshotRowsMax: 50_000,
  snapshotPagesDefault: 4,
  snapshotPagesMax: 50,
  pullBytesMax: 16 * MIB,
  windowSliceBytes: 1 * MIB,
  responseChunkBytes: 64 * KIB,
  segmentBytesMax: 8 * MIB,
  segmentInlineBytesMax: 256 * KIB,
  segmentBlockRows: 1_000,
  segmentBlockBytes: 256 * KIB,
  segmentTtlMs: 24 * 60 * 60 * 1_000,
  segmentSweepMs: 60_000,
  segmentSweepEntriesMax: 100,
  segmentKeepExpiredMs: 60 * 60 * 1_000,

  commitQueueCommitsMax: 4_096,
  commitQueueBytesMax: 64 * MIB,
  pushAnswerBytesMax: 16 * MIB,
  commitQueueRetryAfterMs: 500,
  commitBatchCommitsMax: 256,
  commitBatchBytesMax: 8 * MIB,
  commitAttemptsMax: 6,
  commitRetryFirstMs: 20,
  commitRetryMaxMs: 1_000,

  backfillBatchRowsMax: 500,
  backfillBatchBytesMax: 4 * MIB,
  backfillWritesMax: 5_000,
  backfillChangesPerCommit: 500,

  deltaBytesMax: 1 * MIB,
  deltasInFlightMax: 1_024,
  deltasPerWindowMax: 10_000,
  deltaWindowMs: 1_000,
  outboxBytesHigh: 2 * MIB,
  outboxBytesLow: 512 * KIB,
  drainTimeoutMs: 30_000,
  heldMessagesMax: 32_768,
  heldBytesMax: 20 * MIB,
  messageBytesMax: 16 * MIB,
  messageFragmentsMax: 128,
  msgpackElementsMax: 400_000,
  controlBytesMax: 64 * KIB,
  requestTimeoutMs: 30_000,
  presenceDocBytesMax: 16 * KIB,
  presenceSessionBytesMax: 256 * KIB,
  presenceIntervalMs: 0,
  heartbeatMs: 30_000,
  livenessTimeoutMs: 75_000,
  closeTimeoutMs: 5_000,
  sessionTickMs: 50,
  connectionsMax: 50_000,
  ringCommitsMax: 1_024,
  ringBytesMax: 8 * MIB,
  catchUpCommitsMax: 16_384,
  fanoutSessionsPerTurn: 256,
  fanoutBacklogCommitsMax: 16_384,
  headPollMs: 5_000,

  cursorFlushMs: 1_000,
  lastSeenFlushMs: 60_000,
  ticketLifetimeMs: 30_000,
  ticketsPerActorMax: 100,
  ticketsKeptMax: 100_000,
  readinessTimeoutMs: 2_000,
  shutdownRoundsMs: 10_000,
  drainSpreadMs: 2_000,
};

/** Throws a `RangeError` that names the two bounds when they contradict each other. */
export function assertLimits(limits: Limits): void {
  for (const [name, value] of Object.entries(limits)) {
    if (!Number.isSafeInteger(value) || value < 0) {
      throw new RangeError(`limit ${name} must be a non-negative whole number, got ${value}`);
    }
  }
  const ordered: readonly (readonly [keyof Limits, '<' | '<=', keyof Limits])[] = [
    ['outboxBytesLow', '<', 'outboxBytesHigh'],
    ['deltaBytesMax', '<=', 'outboxBytesHigh'],
    ['segmentInlineBytesMax', '<=', 'segmentBytesMax'],
    ['segmentBytesMax', '<=', 'pullBytesMax'],
    ['windowSliceBytes', '<=', 'pullBytesMax'],
    ['responseChunkBytes', '<=', 'pullBytesMax'],
    ['segmentBlockBytes', '<=', 'segmentBytesMax'],
    ['pullChangesDefault', '<=', 'pullChangesMax'],
    ['snapshotRowsDefault', '<=', 'snapshotRowsMax'],
    ['snapshotPagesDefault', '<=', 'snapshotPagesMax'],
    ['frameBytesMax', '<=', 'requestBytesMax'],
    ['frameBytesMax', '<=', 'responseFrameBytesMax'],
    ['segmentBytesMax', '<', 'responseFrameBytesMax'],
    ['controlBytesMax', '<=', 'messageBytesMax'],
    ['commitBatchCommitsMax', '<=', 'commitQueueCommitsMax'],
    ['commitBatchBytesMax', '<=', 'commitQueueBytesMax'],
    ['commitRetryFirstMs', '<=', 'commitRetryMaxMs'],
    ['presenceDocBytesMax', '<=', 'presenceSessionBytesMax'],
    ['heartbeatMs', '<', 'livenessTimeoutMs'],
    ['sessionTickMs', '<=', 'heartbeatMs'],
    ['ringCommitsMax', '<=', 'catchUpCommitsMax'],
  ];
  for (const [low, relation, high] of ordered) {
    const holds = relation === '<' ? limits[low] < limits[high] : limits[low] <= limits[high];
    if (!holds) {
      throw new RangeError(`limit ${low} (${limits[low]}) must be ${relation} ${high} (${limits[high]})`);
    }
  }
}
