/**
 * Notices between the nodes on one database. No code here.
 *
 * A notice is a hint: it may be lost, repeated, or arrive out of order. It costs latency, never correctness, since a hole is
 * resolved from the log and a head poll is the backstop (architecture §4.2).
 */
import type { LogCommit } from '../../storage/storage.ts';

export type Notice =
  | {
      readonly kind: 'commits';
      readonly partition: string;
      readonly logEpoch: string;
      readonly head: number;
      /** The durable entries, while they fit the bus; else empty and the receiver reads the log. */
      readonly commits: readonly LogCommit[];
    }
  | { readonly kind: 'epoch-rotated'; readonly partition: string; readonly logEpoch: string }
  | { readonly kind: 'scopes-changed'; readonly partition: string; readonly actorId: string }
  /** The actor is cut off altogether: its sockets close with 4401. */
  | { readonly kind: 'actor-revoked'; readonly partition: string; readonly actorId: string }
  /** A host declared a discontinuity: every connection is woken with `reset-required`. */
  | { readonly kind: 'resync'; readonly partition: string };

export interface Bus {
  /** Fire and forget; never throws and never delivers to this node's own subscribers. */
  announce(notice: Notice): void;
  /** Returns the unsubscriber. */
  subscribe(receive: (notice: Notice) => void): () => void;
  /** Called after an outage of the bus: notices may have been lost. Returns the unsubscriber. */
  onReconnect(run: () => void): () => void;
  close(): Promise<void>;
}
