/**
 * The seam of presence (part 3, 3.10): what a session tells it and what it may do to one. Sessions parse, check shapes and
 * hold what comes before `hello`; keys, documents, snapshots and fan-out are the implementation's.
 */
import type { ClientControl } from '../../protocol/control.ts';
import type { Registration } from '../sync/round-outcome.ts';

export type PresenceMessage = Extract<ClientControl, { kind: 'presence-publish' | 'presence-leave' }>;

/** One connection as presence sees it. The object itself is the identity of the connection. */
export interface PresencePeer {
  readonly partition: string;
  readonly actorId: string;
  readonly clientId: string;
  /** Its buffer is full: what is sent now would only wait. */
  readonly isStalled: boolean;
  /** Asks for `drained` once there is room. */
  awaitRoom(): void;
  /** Sends a control message unless the state of the connection forbids it. Never throws. */
  forwardPresence(text: string): void;
}

/** None of these throws. */
export interface Presence {
  /** Right after `hello`, at the end of a round that switched registrations, and when scopes changed: keys are gained and lost. */
  registered(peer: PresencePeer, registrations: readonly PresenceScope[]): void;
  /** The scopes are being found out anew: nothing reaches the connection until `registered` says which keys it keeps. */
  suspended(peer: PresencePeer): void;
  /** A well-formed message of an open connection. */
  received(peer: PresencePeer, message: PresenceMessage): void;
  /** Its buffer has room again. */
  drained(peer: PresencePeer): void;
  /** The connection ended, for whatever reason. Called once for each peer that was registered. */
  closed(peer: PresencePeer): void;
}

/** What of a registration decides on scope keys. */
export type PresenceScope = Pick<Registration, 'table' | 'effective'>;

/** Presence switched off: publishes are checked for their shape and otherwise ignored. */
export const PRESENCE_OFF: Presence = {
  registered: () => undefined,
  suspended: () => undefined,
  received: () => undefined,
  drained: () => undefined,
  closed: () => undefined,
};
