/** The public text behind a close code: no values, no internals. */
import type { SessionEvent } from './session-state.ts';

const REASONS: Partial<Readonly<Record<SessionEvent, string>>> = {
  'load-failed': 'the session could not be loaded',
  'client-refused': 'sync.invalid_client_id',
  overloaded: 'sync.websocket_connection_limit',
  'request-partial': 'round bytes while a response is in flight',
  'request-complete': 'round bytes while a response is in flight',
  'bytes-past-end': 'bytes behind the END of a request',
  'bad-request-header': 'not an SSP2 request',
  'bad-tag': 'unknown channel tag or message',
  'presence-malformed': 'malformed presence message',
  'round-broke': 'the round failed',
  'identity-ended': 'sync.auth_required',
  replaced: 'replaced by a newer connection of the same client',
  'too-big': 'message or request too big',
  silent: 'no sign of life in time',
  undrained: 'the consumer is too slow',
  'request-late': 'the request was not finished in time',
  'epoch-rotated': 'the log epoch was rotated',
};

/** While the server drains, that is the reason for everything. */
const RESTARTING = 'the server restarts';

export function closeReason(event: SessionEvent, code: number): string {
  return code === 1012 && event !== 'epoch-rotated' ? RESTARTING : (REASONS[event] ?? '');
}
