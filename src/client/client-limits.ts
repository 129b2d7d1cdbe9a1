/** Every bound of the client, each with its unit in the name. */
export interface ClientLimits {
  /** Commits that are written and not yet answered; over it `mutate` throws `client.outbox_full`. */
  readonly outboxCommitsMax: number;
  readonly outboxBytesMax: number;
  /** Operations and encoded bytes of one commit; over it `mutate` throws `client.commit_too_large`. */
  readonly commitOperationsMax: number;
  readonly commitBytesMax: number;
  /** What one round takes from the outbox. The server caps operations per request, 500 by default (§6.1). */
  readonly roundOperationsMax: number;
  readonly roundBytesMax: number;
  readonly subscriptionsMax: number;
  /** A request leaves in socket messages of at most this many bytes. */
  readonly requestChunkBytes: number;
  /** Changes per subscription and round; the server clamps to 1,000 (§4.2). */
  readonly pullChanges: number;
  /** Rows per bootstrap page, and pages per round. */
  readonly snapshotRows: number;
  readonly snapshotPages: number;

  /** Socket opened and `hello` received within this, in ms. */
  readonly connectTimeoutMs: number;
  /** A socket without any message for this long is given up: more than two heartbeat intervals (part 3, 3.9). */
  readonly silenceTimeoutMs: number;
  /** A round that makes no progress for this long is given up, in ms. */
  readonly roundTimeoutMs: number;
  readonly segmentTimeoutMs: number;
  readonly tokenTimeoutMs: number;

  /** First and longest step between attempts, in ms (part 3, 3.8.1). */
  readonly backoffFirstMs: number;
  readonly backoffMaxMs: number;
  /** Spread of the return after the server went away on purpose (1001, 1012), in ms. */
  readonly returnSpreadMs: number;
  /** Spread of the pull after a wake-up that nothing here explains, in ms. */
  readonly wakeSpreadMs: number;
  /** A wake-up this soon after an own round is due to that round and answered at once, in ms. */
  readonly ownRoundWindowMs: number;
  /** Spread of a pull that many clients make at the same time: after an automatic reconnect, a reset, a large commit. */
  readonly herdSpreadMs: number;
  /** Answers `retryable` for the same commit before it counts as rejected (`sync.idempotency_cache_miss`). */
  readonly commitRetriesMax: number;
}

const KIB = 1024;
const MIB = 1024 * KIB;

export const DEFAULT_CLIENT_LIMITS: ClientLimits = {
  outboxCommitsMax: 1_000,
  outboxBytesMax: 16 * MIB,
  commitOperationsMax: 500,
  commitBytesMax: 4 * MIB,
  roundOperationsMax: 500,
  roundBytesMax: 4 * MIB,
  subscriptionsMax: 1_000,
  requestChunkBytes: 256 * KIB,
  pullChanges: 1_000,
  snapshotRows: 5_000,
  snapshotPages: 4,

  connectTimeoutMs: 15_000,
  silenceTimeoutMs: 75_000,
  roundTimeoutMs: 60_000,
  segmentTimeoutMs: 60_000,
  tokenTimeoutMs: 30_000,

  backoffFirstMs: 1_000,
  backoffMaxMs: 30_000,
  returnSpreadMs: 1_000,
  wakeSpreadMs: 250,
  ownRoundWindowMs: 1_000,
  herdSpreadMs: 2_000,
  commitRetriesMax: 5,
};

/** Throws a `RangeError` that names the limit at fault. */
export function resolveClientLimits(overrides: Partial<ClientLimits> = {}): ClientLimits {
  const limits: ClientLimits = { ...DEFAULT_CLIENT_LIMITS, ...overrides };
  for (const [name, value] of Object.entries(limits)) {
    if (!Number.isSafeInteger(value) || value < 0) {
      throw new RangeError(`limit ${name} must be a non-negative whole number, got ${value}`);
    }
  }
  const ordered: readonly (readonly [keyof ClientLimits, keyof ClientLimits])[] = [
    ['commitBytesMax', 'outboxBytesMax'],
    ['commitOperationsMax', 'roundOperationsMax'],
    ['commitBytesMax', 'roundBytesMax'],
    ['backoffFirstMs', 'backoffMaxMs'],
  ];
  for (const [low, high] of ordered) {
    if (limits[low] > limits[high]) {
      throw new RangeError(`limit ${low} (${limits[low]}) must be at most ${high} (${limits[high]})`);
    }
  }
  return limits;
}
