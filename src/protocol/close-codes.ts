/** WebSocket close codes (architecture §6) and what a client does about each. */

export type CloseCode =
  | 1000
  | 1001
  | 1002
  | 1007
  | 1008
  | 1009
  | 1011
  | 1012
  | 1013
  | 4401
  | 4403
  | 4408
  | 4409;

/**
 * `stop`: the session ended as intended. `retry-now`: reconnect at once with jitter. `retry-backoff`: reconnect after
 * a growing delay. `refresh-auth`: obtain a new credential first. `never`: the same client would fail again.
 */
export type ReconnectClass = 'stop' | 'retry-now' | 'retry-backoff' | 'refresh-auth' | 'never';

export const CLOSE_CODES: Readonly<
  Record<CloseCode, { readonly meaning: string; readonly reconnect: ReconnectClass }>
> = {
  1000: { meaning: 'normal', reconnect: 'stop' },
  1001: { meaning: 'going away', reconnect: 'retry-now' },
  1002: { meaning: 'framing error', reconnect: 'never' },
  1007: { meaning: 'text is not UTF-8', reconnect: 'never' },
  1008: { meaning: 'protocol violation', reconnect: 'never' },
  1009: { meaning: 'message too big', reconnect: 'never' },
  1011: { meaning: 'server failure', reconnect: 'retry-backoff' },
  1012: { meaning: 'restart', reconnect: 'retry-now' },
  1013: { meaning: 'overloaded, or the consumer is too slow', reconnect: 'retry-backoff' },
  4401: { meaning: 'credentials missing, invalid or expired', reconnect: 'refresh-auth' },
  4403: { meaning: 'origin or partition not allowed', reconnect: 'never' },
  4408: { meaning: 'no sign of life in time', reconnect: 'retry-backoff' },
  4409: { meaning: 'replaced by a newer connection of the same client', reconnect: 'never' },
};

/** Class of any code a socket may report, 1005 and 1006 (no code, cut off) included. Unknown codes back off. */
export function reconnectClass(code: number): ReconnectClass {
  return Object.hasOwn(CLOSE_CODES, code) ? CLOSE_CODES[code as CloseCode].reconnect : 'retry-backoff';
}
