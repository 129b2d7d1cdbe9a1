/** What a host says about its PostgreSQL. */
import type { ClientConfig } from 'pg';
import type { Clock } from '../../protocol/clock.ts';
import { PgConnections } from './connections.ts';
import { type Names, namesOf } from './names.ts';

export interface PostgresStorageOptions {
  /** `postgres://user:password@host:port/database?sslmode=verify-full`, or the same as fields. */
  readonly connection: string | ClientConfig;
  readonly clock: Clock;
  /** Schema (in PostgreSQL's sense) that holds every table, created when it is missing. Default `tidegate`. */
  readonly namespace?: string;
  /**
   * The server can keep the statements that every commit and round runs, parsed and planned, which halves its work. Not through a
   * transaction pooler that does not know of them (PgBouncer before 1.21, or without `max_prepared_statements`). `auto`: keep
   * them until the server does not know one, then go on without; nothing is lost, what met it runs again. `named`: always keep
   * them, and fail. `unnamed`: never. Default `auto`.
   */
  readonly preparedStatements?: 'auto' | 'named' | 'unnamed';
  /** Told once, when `auto` found that statements are not kept. */
  readonly onUnnamed?: () => void;
  /** Connections for transactions and for short reads and writes. Default 8. */
  readonly writersMax?: number;
  /** Connections for pinned snapshots. Default 16. */
  readonly readersMax?: number;
  /** How long a free connection is waited for before `sync.storage.busy`, in ms. Default 5,000. */
  readonly acquireTimeoutMs?: number;
  /** How long the server may take to accept a connection, in ms. Default 5,000. */
  readonly connectTimeoutMs?: number;
  /** One statement, in ms; over it `sync.storage.busy`. Default 30,000. */
  readonly statementTimeoutMs?: number;
  /** One lock, in ms; over it `sync.storage.busy`. Default 5,000. */
  readonly lockTimeoutMs?: number;
  /** One lock of a migration, whose statements take as long as they need, in ms. Default 60,000. */
  readonly migrationLockTimeoutMs?: number;
  /** After this time without a statement the server ends a transaction, in ms. Default 60,000. */
  readonly idleInTransactionTimeoutMs?: number;
  /** A connection unused for so long is closed, in ms. Default 60,000. */
  readonly idleTimeoutMs?: number;
  /** A connection of this age is replaced, so that all follow a failover or a new balance in time, in ms. Default 1,800,000. */
  readonly lifetimeMs?: number;
}

const DEFAULTS = {
  preparedStatements: 'auto',
  onUnnamed: () => undefined,
  writersMax: 8,
  readersMax: 16,
  acquireTimeoutMs: 5_000,
  statementTimeoutMs: 30_000,
  lockTimeoutMs: 5_000,
  migrationLockTimeoutMs: 60_000,
  idleInTransactionTimeoutMs: 60_000,
  idleTimeoutMs: 60_000,
  lifetimeMs: 1_800_000,
} as const;

const CONNECT_TIMEOUT_MS_DEFAULT = 5_000;
/** Before the first probe on a silent connection: firewalls forget them after some minutes. */
const KEEP_ALIVE_DELAY_MS = 30_000;
const NAMESPACE_DEFAULT = 'tidegate';

export interface Opened {
  readonly connections: PgConnections;
  readonly names: Names;
  readonly clock: Clock;
}

/** Opens no connection yet. */
export function resolveOptions(options: PostgresStorageOptions): Opened {
  const { connection, clock, namespace = NAMESPACE_DEFAULT, connectTimeoutMs, ...sizes } = options;
  const given = Object.fromEntries(Object.entries(sizes).filter(([, value]) => value !== undefined));
  const client: ClientConfig = {
    application_name: 'tidegate',
    keepAlive: true,
    keepAliveInitialDelayMillis: KEEP_ALIVE_DELAY_MS,
    connectionTimeoutMillis: connectTimeoutMs ?? CONNECT_TIMEOUT_MS_DEFAULT,
    ...(typeof connection === 'string' ? { connectionString: connection } : connection),
  };
  return {
    connections: new PgConnections({ ...DEFAULTS, ...given, client, clock }),
    names: namesOf(namespace),
    clock,
  };
}
