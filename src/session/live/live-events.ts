/** What the realtime side tells an operator; never awaited, never throwing. */
import type { CloseCode } from '../../protocol/close-codes.ts';
import type { WakeReason } from '../../protocol/control.ts';

/** Why a node read the log of a partition. */
export type CatchUpCause = 'hole' | 'notice' | 'epoch' | 'reconnect' | 'poll' | 'connect';

export type LiveEvent =
  | {
      readonly type: 'session.opened';
      readonly partition: string;
      readonly actorId: string;
      /** Milliseconds from the upgrade to `hello`. */
      readonly connectMs: number;
      readonly requiresSync: boolean;
    }
  | {
      readonly type: 'session.closed';
      readonly partition: string;
      readonly actorId: string;
      /** `null` when the peer or the network ended it. */
      readonly code: CloseCode | null;
      readonly reason: string;
      readonly openMs: number;
    }
  /** A wake-up was written to a socket; one object per reason. */
  | { readonly type: 'session.woken'; readonly reason: WakeReason }
  /** A failure without a catalogue code; the session closes with 1011. */
  | { readonly type: 'session.failed'; readonly partition: string; readonly error: unknown }
  /** A transport broke its contract. */
  | { readonly type: 'socket.failed'; readonly error: unknown }
  | {
      readonly type: 'round.finished';
      readonly partition: string;
      readonly outcome: 'served' | 'header-only' | 'failed' | 'refused' | 'broken' | 'cut';
      readonly durationMs: number;
      readonly responseBytes: number;
    }
  /** One turn of the fanout that had something to deliver. */
  | {
      readonly type: 'fanout.turn';
      readonly sessions: number;
      readonly deltas: number;
      readonly wakeUps: number;
      readonly bytes: number;
    }
  /** More commits waited than the fanout can match: all their possible sessions were woken instead. */
  | { readonly type: 'fanout.backlog_dropped'; readonly partition: string; readonly throughSeq: number }
  /** A commit that could not be encoded; its sessions were woken instead. */
  | { readonly type: 'fanout.failed'; readonly error: unknown }
  | {
      readonly type: 'feed.caught_up';
      readonly partition: string;
      readonly cause: CatchUpCause;
      readonly commits: number;
    }
  | {
      readonly type: 'feed.read_failed';
      readonly partition: string;
      readonly cause: CatchUpCause;
      readonly error: unknown;
    }
  /** Commits that could not be read: their sessions were woken instead (part 3, 3.5.2-10). */
  | {
      readonly type: 'feed.gap';
      readonly partition: string;
      readonly afterSeq: number;
      readonly throughSeq: number;
      /** `null` when the log no longer holds them, or when they are too many. */
      readonly error: unknown;
    }
  | { readonly type: 'feed.fenced'; readonly partition: string; readonly sessions: number }
  /** A write-behind failed and is kept for the next interval. */
  | {
      readonly type: 'write_behind.failed';
      readonly what: 'cursors' | 'last-seen';
      readonly entries: number;
      readonly error: unknown;
    };

export interface LiveEvents {
  emit(event: LiveEvent): void;
}
