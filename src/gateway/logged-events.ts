/** What the sync core and the realtime side tell an operator, as log entries. */
import type { LiveEvent } from '../session/live/live-events.ts';
import type { SyncEvent } from '../session/sync/sync-deps.ts';
import type { GatewayLogger } from './logger.ts';

type Level = keyof GatewayLogger;

/** Refusals and rejections are the peer's business, every day: only what an operator should look at is louder. */
const LEVELS: Readonly<Record<SyncEvent['type'] | LiveEvent['type'], Level | null>> = {
  'commit.batch': 'debug',
  'push.rejected': 'debug',
  'commit.slow_path': 'info',
  'host.failed': 'error',
  'storage.failed': 'error',
  'request.refused': 'debug',
  'gate.refused': 'debug',
  'writer.fenced': 'error',
  'checkpoint.declared': 'info',
  'backfill.claimed': 'info',
  'backfill.advanced': 'debug',
  'backfill.stale': 'info',
  'backfill.unverifiable': 'warn',
  'backfill.activated': 'info',
  'backfill.superseded': 'warn',
  'backfill.failed': 'error',
  'segment.built': 'debug',
  'session.opened': 'debug',
  'session.closed': 'debug',
  'session.failed': 'error',
  'socket.failed': 'error',
  // Counted only: a large commit may wake ten thousand at once.
  'session.woken': null,
  'round.finished': 'debug',
  'fanout.turn': 'debug',
  'fanout.backlog_dropped': 'warn',
  'fanout.failed': 'error',
  'feed.caught_up': 'debug',
  'feed.read_failed': 'error',
  'feed.gap': 'warn',
  'feed.fenced': 'info',
  'write_behind.failed': 'error',
};

/** Takes the events of both sides. */
export interface GatewayEvents {
  emit(event: SyncEvent | LiveEvent): void;
}

export function logEvents(logger: GatewayLogger): GatewayEvents {
  return {
    emit: (event) => {
      const level = LEVELS[event.type];
      if (level === null) return;
      const { type, ...fields } = event;
      // `err` is the member that loggers know how to print.
      const entry = 'error' in fields ? { ...fields, err: fields.error, error: undefined } : fields;
      logger[level](entry, type);
    },
  };
}
