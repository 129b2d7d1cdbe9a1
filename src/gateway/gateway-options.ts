/** What a host hands to `createGateway`. */
import type { Clock, Random } from '../protocol/clock.ts';
import type { ScopeMap } from '../protocol/frames.ts';
import type { Limits } from '../protocol/limits.ts';
import type { SchemaDocument } from '../protocol/schema-document.ts';
import type { Bus } from '../session/live/bus.ts';
import type { CommitValidator, CrdtMerger, Identity, RowValidator } from '../session/sync/sync-deps.ts';
import type { CheckpointDeclaration } from '../storage/checkpoints.ts';
import type { PostgresStorageOptions } from '../storage/postgres/options.ts';
import type { SegmentStore } from '../storage/segments.ts';
import type { Storage } from '../storage/storage.ts';
import type { Authenticate } from './auth.ts';
import type { GatewayLogger } from './logger.ts';

/** Their meaning and defaults are in `docs/CONFIG.md`, their use in `docs/OPERATIONS.md`. */
export type PostgresTuning = Pick<
  PostgresStorageOptions,
  'namespace' | 'preparedStatements' | 'writersMax' | 'readersMax'
>;

export type StorageOption =
  /** A SQLite file that the gateway opens and closes; `':memory:'` ends with it. */
  | { readonly path: string; readonly synchronous?: 'FULL' | 'NORMAL' }
  /** `sqlite:PATH`, `sqlite::memory:` or `postgres://USER:PASSWORD@HOST/DATABASE`; `postgres` is for the last alone. */
  | { readonly url: string; readonly postgres?: PostgresTuning }
  /** Opened by the host, who closes it after the gateway. */
  | { readonly storage: Storage; readonly segments: SegmentStore };

export interface GatewayOptions {
  /** Refused with a `SchemaError` that names every problem. */
  readonly schema: SchemaDocument;
  readonly storage: StorageOption;
  /**
   * Backfills that this version of the schema rolls out (part 4): installed together with the version, and served only once
   * activated. Every process of the version declares the same ones until they are.
   */
  readonly checkpoints?: readonly CheckpointDeclaration[];
  readonly authenticate: Authenticate;
  /** Variable → values that the actor may read and write; `'*'` = any. Called at most once per request; a throw revokes. */
  readonly resolveScopes: (who: Identity) => ScopeMap | Promise<ScopeMap>;
  /** By table. */
  readonly rowValidators?: Readonly<Record<string, RowValidator>>;
  readonly commitValidator?: CommitValidator;
  /** By `crdtType`. */
  readonly crdtMergers?: Readonly<Record<string, CrdtMerger>>;
  /** Path prefix of the protocol routes. Default `/`. */
  readonly mount?: string;
  /**
   * Origins of pages on other hosts that may connect, with CORS headers; `'localhost'` for any port of this machine, `'*'` for
   * every page. Pages of the same host always may.
   */
  readonly allowedOrigins?: readonly string[];
  /** `replace` (default): a newer connection of a client closes the older one with 4409. */
  readonly duplicateClients?: 'replace' | 'keep';
  readonly limits?: Partial<Limits>;
  /**
   * `GET /metrics` for Prometheus: `operator` asks for `operatorToken` as bearer token, `public` answers everybody, for ports that only the
   * scraper reaches. Default `off`.
   */
  readonly metrics?: 'off' | 'operator' | 'public';
  /** Seals the tickets of `POST ticket`, at least 32 bytes: the same on every node. Default: a random one, so that each node takes its own. */
  readonly ticketSecret?: string;
  /** With it as bearer token, `/readyz` names the backfills that are pending. Default: it names them to nobody. */
  readonly operatorToken?: string;
  /** A `pino` instance is one. Default: silence. */
  readonly logger?: GatewayLogger;
  /** Between several gateways on one database. Default: this one is alone. Closed with the gateway. */
  readonly bus?: Bus;
  /** For tests and simulations. */
  readonly clock?: Clock;
  readonly random?: Random;
}
