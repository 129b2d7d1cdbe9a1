/**
 * The state machine of one connection (part 3, 3.14) as data. Pure: `session.ts` asks it what an event means and is the
 * only place that changes a state. `docs/SESSION.md` says the same in words.
 */
import type { CloseCode } from '../../protocol/close-codes.ts';

export const SESSION_STATES = [
  'connecting',
  'open-behind',
  'open-live',
  'round-in-flight',
  'draining',
  'closed',
] as const;
export type SessionState = (typeof SESSION_STATES)[number];

export const SESSION_EVENTS = [
  /** Loading ended; `hello` goes out. */
  'loaded-behind',
  'loaded-live',
  'load-failed',
  /** Refused while loading: the client id belongs to another actor or is reserved. */
  'client-refused',
  /** Over the connection cap. */
  'overloaded',
  'request-partial',
  'request-complete',
  'bytes-past-end',
  'bad-request-header',
  'bad-tag',
  'round-pulled',
  'round-pushed',
  /** An error stream, an in-band `ERROR`, or a header-only answer. */
  'round-refused',
  'round-broke',
  'commit-matched',
  'commit-unmatched',
  /** Known by notice only: its entry could not be read. */
  'commit-unread',
  /** A delta over a bound: size, unacked, per window, or a schema version that is not served. */
  'delta-dropped',
  'ack-reached',
  'ack-short',
  'text-ignored',
  /** Well-formed; whether the key is held and the document small enough is for `Presence`. */
  'presence-received',
  'presence-malformed',
  'presence-from-peer',
  'heartbeat-due',
  'buffer-high',
  'buffer-low',
  'identity-ended',
  'replaced',
  'too-big',
  'silent',
  'undrained',
  'request-late',
  'scopes-changed',
  'epoch-rotated',
  'resync',
  'drain',
  /** The time that a draining connection was given is over. */
  'drain-due',
  'socket-gone',
] as const;
export type SessionEvent = (typeof SESSION_EVENTS)[number];

export type SessionEffect =
  /** The event cannot happen in this state. */
  | 'impossible'
  | 'nothing'
  | 'hold'
  | 'greet'
  | 'collect'
  | 'run-round'
  /** Switch registrations and versions, look for a gap, hand `END` over. */
  | 'install'
  /** Take the wire version, keep registrations, hand `END` over. */
  | 'adopt-version'
  /** Change nothing, hand `END` over. */
  | 'keep'
  | 'send-delta'
  /** Raise observed and wake. */
  | 'wake'
  | 'wake-after-hello'
  | 'note-ack'
  | 'publish'
  | 'forward'
  | 'send-heartbeat'
  | 'merge-wake-ups'
  | 'pause-response'
  | 'continue-response'
  | 'flush'
  | 'resolve-again'
  /** Drop all registrations, resolve, install what is left, wake. */
  | 're-register'
  | 'close-soon'
  | 'finish-round'
  | 'close'
  | 'release';

export interface Outcome {
  readonly effect: SessionEffect;
  /** `by-flag`: open-behind when suppressed, else open-live. */
  readonly next: SessionState | 'stay' | 'by-flag';
  /** What happens to `suppressed`. */
  readonly suppressed: 'set' | 'clear' | 'keep';
  /** Code of the close that this outcome is, or that follows once its effect is done. */
  readonly close: CloseCode | null;
}

const outcome = (
  effect: SessionEffect,
  next: Outcome['next'] = 'stay',
  suppressed: Outcome['suppressed'] = 'keep',
): Outcome => ({ effect, next, suppressed, close: null });
const closing = (close: CloseCode, effect: SessionEffect = 'close'): Outcome => ({
  effect,
  next: 'closed',
  suppressed: 'keep',
  close,
});

const NEVER = outcome('impossible');
const NOTHING = outcome('nothing');
const HOLD = outcome('hold');
const GONE = outcome('release', 'closed');
const WAKE = outcome('wake', 'stay', 'set');
const FALL_BEHIND = outcome('wake', 'open-behind', 'set');

/** What ends a connection in every state but the last two. */
const ENDS = {
  'identity-ended': closing(4401),
  replaced: closing(4409),
  'epoch-rotated': closing(1012),
  'socket-gone': GONE,
} as const;

/** What an open connection answers alike, with and without a round in flight. */
const OPEN = {
  ...ENDS,
  'loaded-behind': NEVER,
  'loaded-live': NEVER,
  'load-failed': NEVER,
  'client-refused': NEVER,
  overloaded: NEVER,
  'bytes-past-end': closing(1008),
  'bad-request-header': closing(1008),
  'bad-tag': closing(1008),
  'commit-unmatched': NOTHING,
  'ack-short': outcome('note-ack'),
  'text-ignored': NOTHING,
  'presence-received': outcome('publish'),
  'presence-malformed': closing(1008),
  'presence-from-peer': outcome('forward'),
  'heartbeat-due': outcome('send-heartbeat'),
  silent: closing(4408),
  undrained: closing(1013),
  'too-big': closing(1009),
  'drain-due': NEVER,
} as const;

/** What an open connection without a round in flight answers alike. */
const IDLE = {
  ...OPEN,
  'request-partial': outcome('collect'),
  'request-complete': outcome('run-round', 'round-in-flight'),
  'round-pulled': NEVER,
  'round-pushed': NEVER,
  'round-refused': NEVER,
  'round-broke': NEVER,
  'buffer-low': outcome('flush'),
  'request-late': closing(4408),
  'scopes-changed': outcome('re-register', 'open-behind', 'set'),
  drain: outcome('close-soon', 'draining'),
} as const;

export const TRANSITIONS: Readonly<Record<SessionState, Readonly<Record<SessionEvent, Outcome>>>> = {
  connecting: {
    ...ENDS,
    'loaded-behind': outcome('greet', 'open-behind', 'set'),
    'loaded-live': outcome('greet', 'open-live', 'clear'),
    'load-failed': closing(1011),
    'client-refused': closing(1008),
    overloaded: closing(1013),
    'request-partial': HOLD,
    'request-complete': HOLD,
    'bytes-past-end': HOLD,
    'bad-request-header': HOLD,
    'bad-tag': HOLD,
    'round-pulled': NEVER,
    'round-pushed': NEVER,
    'round-refused': NEVER,
    'round-broke': NEVER,
    'commit-matched': HOLD,
    'commit-unmatched': HOLD,
    'commit-unread': HOLD,
    'delta-dropped': NEVER,
    'ack-reached': HOLD,
    'ack-short': HOLD,
    'text-ignored': HOLD,
    'presence-received': HOLD,
    'presence-malformed': HOLD,
    'presence-from-peer': NOTHING,
    'heartbeat-due': NOTHING,
    'buffer-high': NEVER,
    'buffer-low': NEVER,
    'too-big': closing(1009),
    silent: closing(4408),
    undrained: NEVER,
    'request-late': NEVER,
    'scopes-changed': outcome('resolve-again'),
    resync: outcome('wake-after-hello'),
    drain: closing(1012),
    'drain-due': NEVER,
  },
  'open-behind': {
    ...IDLE,
    'commit-matched': WAKE,
    'commit-unread': WAKE,
    'delta-dropped': NEVER,
    'ack-reached': outcome('note-ack', 'open-live', 'clear'),
    'buffer-high': outcome('merge-wake-ups'),
    resync: WAKE,
  },
  'open-live': {
    ...IDLE,
    'commit-matched': outcome('send-delta'),
    'commit-unread': FALL_BEHIND,
    'delta-dropped': FALL_BEHIND,
    'ack-reached': outcome('note-ack'),
    'buffer-high': FALL_BEHIND,
    resync: FALL_BEHIND,
  },
  'round-in-flight': {
    ...OPEN,
    'request-partial': closing(1008),
    'request-complete': closing(1008),
    'round-pulled': outcome('install', 'by-flag'),
    'round-pushed': outcome('adopt-version', 'by-flag'),
    'round-refused': outcome('keep', 'by-flag'),
    'round-broke': closing(1011),
    'commit-matched': WAKE,
    'commit-unread': WAKE,
    'delta-dropped': NEVER,
    'ack-reached': outcome('note-ack', 'stay', 'clear'),
    'buffer-high': outcome('pause-response'),
    'buffer-low': outcome('continue-response'),
    'request-late': NEVER,
    'scopes-changed': outcome('re-register', 'stay', 'set'),
    resync: WAKE,
    drain: outcome('finish-round', 'draining'),
  },
  draining: {
    'loaded-behind': NEVER,
    'loaded-live': NEVER,
    'load-failed': NEVER,
    'client-refused': NEVER,
    overloaded: NEVER,
    'request-partial': closing(1012),
    'request-complete': closing(1012),
    'bytes-past-end': closing(1008),
    'bad-request-header': closing(1008),
    'bad-tag': closing(1008),
    'round-pulled': closing(1012, 'install'),
    'round-pushed': closing(1012, 'adopt-version'),
    'round-refused': closing(1012, 'keep'),
    'round-broke': closing(1012),
    'commit-matched': NOTHING,
    'commit-unmatched': NOTHING,
    'commit-unread': NOTHING,
    'delta-dropped': NEVER,
    'ack-reached': outcome('note-ack'),
    'ack-short': outcome('note-ack'),
    'text-ignored': NOTHING,
    'presence-received': NOTHING,
    'presence-malformed': NOTHING,
    'presence-from-peer': NOTHING,
    'heartbeat-due': NOTHING,
    'buffer-high': outcome('pause-response'),
    'buffer-low': outcome('continue-response'),
    'identity-ended': closing(4401),
    replaced: closing(1012),
    'too-big': closing(1008),
    silent: closing(1012),
    undrained: closing(1012),
    'request-late': closing(1012),
    'scopes-changed': outcome('re-register', 'stay', 'set'),
    'epoch-rotated': closing(1012),
    resync: NOTHING,
    drain: NOTHING,
    'drain-due': closing(1012),
    'socket-gone': GONE,
  },
  closed: Object.fromEntries(SESSION_EVENTS.map((event) => [event, NOTHING])) as Record<
    SessionEvent,
    Outcome
  >,
};

/** The state after `outcome`, given the flag as `outcome` left it. */
export function nextState(state: SessionState, outcome: Outcome, suppressed: boolean): SessionState {
  if (outcome.next === 'stay') return state;
  if (outcome.next !== 'by-flag') return outcome.next;
  return suppressed ? 'open-behind' : 'open-live';
}
