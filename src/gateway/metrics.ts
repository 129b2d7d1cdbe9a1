/**
 * What a gateway counts, for Prometheus. Fed by the events that are logged anyway and read when somebody asks; no label is a partition, an
 * actor or an id, so the number of series is fixed.
 */
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client';
import type { WakeReason } from '../protocol/control.ts';
import type { LiveEvent } from '../session/live/live-events.ts';
import type { SyncEvent } from '../session/sync/sync-deps.ts';
import type { GatewayOptions } from './gateway-options.ts';
import type { MetricsRoute } from './http.ts';
import type { GatewayEvents } from './logged-events.ts';

/** Asked at each scrape. */
export interface MetricSources {
  readonly sessions: () => number;
  readonly httpRounds: () => number;
  readonly commitQueueDepth: () => number;
}

export interface Exchange {
  readonly route: string;
  readonly status: number;
  readonly durationMs: number;
}

const SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10];
const COMMITS = [1, 2, 4, 8, 16, 32, 64, 128, 256];

export class GatewayMetrics {
  readonly registry = new Registry();
  readonly events: GatewayEvents = { emit: (event) => this.#count(event) };
  readonly #sessionsOpened = this.#counter('tidegate_sessions_opened_total', 'Sessions that were greeted');
  readonly #sessionsClosed = this.#counter(
    'tidegate_sessions_closed_total',
    'Sessions that ended, by close code; none: by the peer or the network',
    ['code'],
  );
  readonly #connectSeconds = this.#histogram(
    'tidegate_session_connect_seconds',
    'From the upgrade to hello',
    { buckets: SECONDS },
  );
  readonly #roundSeconds = this.#histogram('tidegate_round_seconds', 'Rounds over sockets', {
    buckets: SECONDS,
    labelNames: ['outcome'],
  });
  readonly #httpSeconds = this.#histogram(
    'tidegate_http_request_seconds',
    'HTTP requests until the head of the answer',
    { buckets: SECONDS, labelNames: ['route', 'status'] },
  );
  readonly #sentBytes = this.#counter('tidegate_sent_bytes_total', 'Payload bytes written to sockets', [
    'kind',
  ]);
  readonly #deltas = this.#counter('tidegate_deltas_total', 'Deltas sent');
  readonly #wakeUps = this.#counter('tidegate_wake_ups_total', 'Wake-ups sent', ['reason']);
  /** Found once: a large commit wakes ten thousand sessions. */
  readonly #wakeUpsOf: Readonly<Record<WakeReason, Counter.Internal>> = {
    'catchup-required': this.#wakeUps.labels('catchup-required'),
    'delta-too-large': this.#wakeUps.labels('delta-too-large'),
    'reset-required': this.#wakeUps.labels('reset-required'),
  };
  readonly #deltaBytes = this.#sentBytes.labels('delta');
  readonly #batchCommits = this.#histogram(
    'tidegate_commit_batch_commits',
    'Commits that one transaction made durable',
    { buckets: COMMITS },
  );
  readonly #batchSeconds = this.#histogram(
    'tidegate_commit_batch_seconds',
    'From the first try of a batch to its durable end',
    { buckets: SECONDS },
  );
  readonly #commits = this.#counter('tidegate_commits_total', 'Commits, by what became of them', ['outcome']);
  readonly #slowPaths = this.#counter(
    'tidegate_commit_slow_paths_total',
    'Batches that ran again one commit at a time',
  );
  readonly #refused = this.#counter(
    'tidegate_requests_refused_total',
    'Requests refused before a commit or pull, by code',
    ['code'],
  );
  readonly #gateRefusals = this.#counter('tidegate_gate_refusals_total', 'Requests that met the serve gate', [
    'kind',
  ]);
  readonly #fenced = this.#counter(
    'tidegate_writer_fenced_total',
    'Appends that the database refused for the schema version of this process',
  );
  readonly #segments = this.#counter('tidegate_segments_built_total', 'Bootstrap segments built');
  readonly #segmentRows = this.#counter('tidegate_segment_rows_total', 'Rows in them');
  readonly #catchUps = this.#counter('tidegate_feed_catch_ups_total', 'Reads of the log by the fanout', [
    'cause',
  ]);
  readonly #gaps = this.#counter(
    'tidegate_feed_gaps_total',
    'Holes in the feed that could not be read: sessions were woken instead',
  );
  readonly #dropped = this.#counter(
    'tidegate_fanout_dropped_total',
    'Backlogs of the fanout that were dropped: sessions were woken instead',
  );
  readonly #failures = this.#counter(
    'tidegate_failures_total',
    'Failures that an operator should look at, by what failed',
    ['what'],
  );
  readonly #backfillRows = this.#gauge(
    'tidegate_backfill_rows',
    'Source rows seen by the backfill of this process that moved last',
  );
  readonly #backfillLag = this.#gauge('tidegate_backfill_lag_commits', 'Head of the log minus its watermark');

  constructor() {
    collectDefaultMetrics({ register: this.registry });
  }

  /** Once. */
  watch(sources: MetricSources): void {
    this.#watch('tidegate_sessions', 'Open WebSocket sessions', sources.sessions);
    this.#watch('tidegate_http_rounds', 'HTTP rounds whose answer has not ended', sources.httpRounds);
    this.#watch(
      'tidegate_commit_queue_depth',
      'Commits that wait for a transaction or are in one',
      sources.commitQueueDepth,
    );
  }

  exchange({ route, status, durationMs }: Exchange): void {
    this.#httpSeconds.observe({ route, status }, durationMs / 1_000);
  }

  #count(event: SyncEvent | LiveEvent): void {
    switch (event.type) {
      case 'session.opened':
        this.#sessionsOpened.inc();
        this.#connectSeconds.observe(event.connectMs / 1_000);
        return;
      case 'session.closed':
        this.#sessionsClosed.inc({ code: event.code ?? 'none' });
        return;
      case 'session.woken':
        this.#wakeUpsOf[event.reason].inc();
        return;
      case 'round.finished':
        this.#roundSeconds.observe({ outcome: event.outcome }, event.durationMs / 1_000);
        this.#sentBytes.inc({ kind: 'round' }, event.responseBytes);
        return;
      case 'fanout.turn':
        this.#deltas.inc(event.deltas);
        this.#deltaBytes.inc(event.bytes);
        return;
      case 'feed.caught_up':
        this.#catchUps.inc({ cause: event.cause });
        return;
      case 'feed.gap':
        this.#gaps.inc();
        return;
      case 'fanout.backlog_dropped':
        this.#dropped.inc();
        return;
      default:
        this.#countWork(event);
    }
  }

  #countWork(event: SyncEvent | LiveEvent): void {
    switch (event.type) {
      case 'commit.batch':
        this.#batchCommits.observe(event.commits);
        this.#batchSeconds.observe(event.durationMs / 1_000);
        this.#commits.inc({ outcome: 'applied' }, event.commits);
        this.#commits.inc({ outcome: 'rejected' }, event.rejected);
        return;
      case 'commit.slow_path':
        this.#slowPaths.inc();
        return;
      case 'request.refused':
        this.#refused.inc({ code: event.code });
        return;
      case 'gate.refused':
        this.#gateRefusals.inc({ kind: event.kind });
        return;
      case 'writer.fenced':
        this.#fenced.inc();
        return;
      case 'segment.built':
        this.#segments.inc();
        this.#segmentRows.inc(event.rows);
        return;
      case 'backfill.advanced':
        this.#backfillRows.set(event.observedRows);
        this.#backfillLag.set(event.head - event.watermark);
        return;
      default:
        if ('error' in event && event.error !== null) this.#failures.inc({ what: event.type });
    }
  }

  #counter(name: string, help: string, labelNames: readonly string[] = []): Counter {
    return new Counter({ name, help, labelNames, registers: [this.registry] });
  }

  #gauge(name: string, help: string): Gauge {
    return new Gauge({ name, help, registers: [this.registry] });
  }

  #watch(name: string, help: string, read: () => number): void {
    new Gauge({
      name,
      help,
      registers: [this.registry],
      collect() {
        this.set(read());
      },
    });
  }

  #histogram(
    name: string,
    help: string,
    {
      buckets,
      labelNames = [],
    }: { readonly buckets: readonly number[]; readonly labelNames?: readonly string[] },
  ): Histogram {
    return new Histogram({ name, help, buckets: [...buckets], labelNames, registers: [this.registry] });
  }
}

/** `null`: there is no such route. */
export function metricsRoute(metrics: GatewayMetrics | null, mode: GatewayOptions['metrics']): MetricsRoute {
  if (metrics === null) return NO_METRICS;
  const { registry } = metrics;
  return {
    audience: mode === 'public' ? 'everybody' : 'operator',
    read: async () => ({ contentType: registry.contentType, text: await registry.metrics() }),
    observe: (exchange) => metrics.exchange(exchange),
  };
}

export const NO_METRICS: MetricsRoute = {
  audience: 'nobody',
  read: () => Promise.reject(new Error('metrics are off')),
  observe: () => undefined,
};
