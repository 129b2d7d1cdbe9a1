/** The one error type that the client throws or rejects with. */
import type { ErrorCode, JsonObject } from '../protocol/errors.ts';

/** Client-local codes; they never travel (part 1.11 rule 3). */
export type ClientErrorCode =
  /** `close()` was called. */
  | 'client.closed'
  /** Syncing ended for a reason that another attempt would meet again; `details.reason` says which. */
  | 'client.stopped'
  | 'client.invalid_options'
  /** No WebSocket constructor: none was handed in and the platform has none. */
  | 'client.no_websocket'
  | 'client.invalid_mutation'
  | 'client.invalid_presence'
  | 'client.invalid_subscription'
  /** The schema of the client has no such table. */
  | 'client.unknown_table'
  /** More commits or bytes wait than `outboxCommitsMax` or `outboxBytesMax` allow. */
  | 'client.outbox_full'
  | 'client.commit_too_large'
  | 'client.subscriptions_full'
  /** `unsubscribe()` was called before the subscription was ready. */
  | 'client.unsubscribed'
  /** The `token` function failed or took too long. */
  | 'client.token_failed'
  /** A referenced segment could not be fetched or did not hash to its id. */
  | 'client.segment_unavailable'
  /** The server sent what SSP2 does not allow. */
  | 'client.protocol_violation'
  /** The socket closed, or a round did not move in time. */
  | 'client.connection_lost';

export interface ClientErrorOptions {
  readonly details?: JsonObject;
  readonly cause?: unknown;
}

export class ClientError extends Error {
  override readonly name = 'ClientError';
  readonly code: ClientErrorCode | ErrorCode;
  readonly details: JsonObject | undefined;

  constructor(code: ClientErrorCode | ErrorCode, message: string, options: ClientErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = code;
    this.details = options.details;
  }
}

export function protocolViolation(message: string, cause?: unknown): ClientError {
  return new ClientError('client.protocol_violation', message, { cause });
}
