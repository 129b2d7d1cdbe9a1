/** The gateway: everything put together behind a few functions. The only composition root. */
import type { IncomingMessage, Server } from 'node:http';
import type { Duplex } from 'node:stream';
import type { RequestDecoder } from '../session/sync/admission.ts';
import type { BackfillRequest, BackfillResult } from '../session/sync/backfill-request.ts';
import { type QueryRequest, runQuery } from '../session/sync/gated-query.ts';
import { runRound } from '../session/sync/round.ts';
import { openSegment } from '../session/sync/segment-access.ts';
import type { CandidateReader } from '../session/sync/sync-deps.ts';
import { createIdentify } from './auth.ts';
import { GatewayBackfills } from './backfills.ts';
import { type Core, openCore } from './core.ts';
import { createCors } from './cors.ts';
import { createFetchHandler, type FetchHandler } from './fetch-http.ts';
import type { GatewayOptions } from './gateway-options.ts';
import { createHttpHandler, type HttpHandler } from './http.ts';
import { parseTarget } from './http-message.ts';
import { createInFlight, type InFlight } from './in-flight.ts';
import { type ListenAddress, type ListenRequest, startListener } from './listener.ts';
import { metricsRoute } from './metrics.ts';
import { msgpackRound } from './msgpack-round.ts';
import { MsgpackSockets } from './msgpack-socket.ts';
import { createNodeHandler, type NodeHandler } from './node-http.ts';
import { createOriginPolicy } from './origins.ts';
import { createIsOperator, type Readiness, ReadinessProbe } from './readiness.ts';
import { keepAliveDuring } from './real-clock.ts';
import { matchRoute, normalizeMount } from './routes.ts';
import { Shutdown } from './shutdown.ts';
import { Tickets } from './tickets.ts';
import { admitUpgrade } from './upgrade.ts';
import { withinTime } from './within-time.ts';
import { createWsTransport, type WsTransport } from './ws-transport.ts';

export interface GatewayStats {
  readonly state: 'running' | 'draining' | 'closed';
  readonly schemaVersion: number;
  /** Open WebSocket sessions. */
  readonly sessions: number;
  /** HTTP rounds whose response has not ended. */
  readonly httpRounds: number;
  /** Commits that wait for, or are in, a transaction. */
  readonly commitQueueDepth: number;
}

export interface Gateway {
  /** Starts a server of its own. May be called once per address. */
  listen(request: ListenRequest): Promise<ListenAddress>;
  /** For `http.createServer`, or as a middleware with `next`. Upgrades need `attach` too. */
  readonly nodeHandler: NodeHandler;
  /** For hosts with Web-standard requests. HTTP only: sockets need `attach` or `listen`. */
  readonly fetch: FetchHandler;
  /** Takes the WebSocket upgrades at `<mount>/realtime` of a host's server. Returns the function that lets go of it. */
  attach(server: Server): () => void;
  /** After a restore of the database: new log epoch, every session of the partition ends, clients start afresh (§2.1). */
  rotateEpoch(partition: string): Promise<void>;
  /** The actor's scopes changed: open sessions resolve them anew at once. */
  scopesChanged(actor: ActorAddress): void;
  /** The actor is cut off: its sessions close with 4401. */
  revokeActor(actor: ActorAddress): void;
  /** Data was changed behind the log: every session of the partition is told to pull. */
  resync(partition: string): void;
  /**
   * Runs a backfill whose commits the subscribers of this gateway get at once (part 4, 4.4). `close` ends it between two batches
   * with `cancelled`. Throws as `runBackfill`.
   */
  runBackfill(request: BackfillRequest): Promise<BackfillResult>;
  /**
   * Rows for the host's own use, of one moment: refused with `sync.schema_not_ready` while the partition is not served (part 4, 4.3), so
   * that a projection is never read half built. What the actor may see is the host's to decide.
   */
  query<T>(request: QueryRequest, read: (reader: CandidateReader) => Promise<T>): Promise<T>;
  stats(): GatewayStats;
  /** Drains (architecture §6), then closes what the gateway opened. Idempotent. */
  close(): Promise<void>;
}

export interface ActorAddress {
  readonly partition: string;
  readonly actorId: string;
}

/** Throws `ReadinessError`, `RangeError` for a limit or an option, `StorageError`; then nothing is left open. */
export async function createGateway(options: GatewayOptions): Promise<Gateway> {
  if (options.metrics === 'operator' && options.operatorToken === undefined) {
    throw new RangeError('metrics for the operator need an operatorToken');
  }
  const mount = normalizeMount(options.mount ?? '/');
  const core = await keepAliveDuring(openCore(options));
  return new RunningGateway(options, mount, core);
}

class RunningGateway implements Gateway {
  readonly nodeHandler: NodeHandler;
  readonly fetch: FetchHandler;
  readonly #core: Core;
  readonly #mount: string;
  readonly #rounds: InFlight = createInFlight();
  readonly #exchanges: InFlight = createInFlight();
  readonly #transport: WsTransport;
  readonly #shutdown: Shutdown;
  readonly #backfills: GatewayBackfills;
  readonly #tickets: Tickets;
  readonly #forgetRevocations: () => void;
  readonly #readinessProbe: ReadinessProbe;

  constructor(options: GatewayOptions, mount: string, core: Core) {
    const { limits, clock, random, logger } = core;
    const { storage, schema, declarations } = core.sync;
    this.#core = core;
    this.#readinessProbe = new ReadinessProbe({
      storage,
      schemaVersion: schema.version,
      declarations,
      limits,
      clock,
      logger,
    });
    this.#mount = mount;
    const tickets = new Tickets({ secret: options.ticketSecret ?? null, limits, clock });
    this.#tickets = tickets;
    this.#forgetRevocations = core.bus.subscribe((notice) => {
      if (notice.kind === 'actor-revoked') tickets.revoke(notice);
    });
    const handler = this.#createHttp(options);
    this.nodeHandler = createNodeHandler({
      handler,
      exchanges: this.#exchanges,
      isDraining: () => this.#shutdown.state !== 'running',
      limits,
      clock,
      random,
      logger,
    });
    this.fetch = createFetchHandler({ handler, random });
    this.#transport = this.#createTransport(options);
    this.#backfills = new GatewayBackfills({ ...core.sync, sink: core.hub });
    core.metrics?.watch({
      sessions: () => this.stats().sessions,
      httpRounds: () => this.stats().httpRounds,
      commitQueueDepth: () => this.stats().commitQueueDepth,
    });
    this.#shutdown = new Shutdown({
      core,
      backfills: this.#backfills,
      rounds: this.#rounds,
      exchanges: this.#exchanges,
      transport: this.#transport,
    });
  }

  async listen(request: ListenRequest): Promise<ListenAddress> {
    const { limits, logger } = this.#core;
    this.#shutdown.assertRunning();
    const { server, address } = await startListener(request, {
      handler: this.nodeHandler,
      attach: (own) => this.attach(own),
      limits,
      logger,
    });
    this.#shutdown.ownServer(server);
    return address;
  }

  attach(server: Server): () => void {
    const onUpgrade = (req: IncomingMessage, socket: Duplex, head: Buffer): void => {
      // Another listener may know the path. Without one, nobody else would ever answer.
      if (this.#ownsUpgrade(req) || server.listenerCount('upgrade') === 1) {
        this.#transport.upgrade(req, socket, head);
      }
    };
    server.on('upgrade', onUpgrade);
    const detach = (): void => {
      server.off('upgrade', onUpgrade);
    };
    this.#shutdown.onClosed(detach);
    return detach;
  }

  async rotateEpoch(partition: string): Promise<void> {
    const { sync, live, random } = this.#core;
    const logEpoch = random.id();
    await sync.storage.rotateEpoch({ partition, logEpoch });
    live.epochRotated(partition, logEpoch);
  }

  scopesChanged({ partition, actorId }: ActorAddress): void {
    this.#core.live.scopesChanged(partition, actorId);
  }

  revokeActor({ partition, actorId }: ActorAddress): void {
    this.#tickets.revoke({ partition, actorId });
    this.#core.live.revokeActor(partition, actorId);
  }

  resync(partition: string): void {
    this.#core.live.resync(partition);
  }

  async runBackfill(request: BackfillRequest): Promise<BackfillResult> {
    this.#shutdown.assertRunning();
    return this.#backfills.run(request);
  }

  async query<T>(request: QueryRequest, read: (reader: CandidateReader) => Promise<T>): Promise<T> {
    this.#shutdown.assertRunning();
    return runQuery(request, read, this.#core.sync);
  }

  stats(): GatewayStats {
    const { sync, live } = this.#core;
    return {
      state: this.#shutdown.state,
      schemaVersion: sync.schema.version,
      sessions: live.sessionCount,
      httpRounds: this.#rounds.count,
      commitQueueDepth: sync.commits.depth,
    };
  }

  close(): Promise<void> {
    this.#forgetRevocations();
    return this.#shutdown.run();
  }

  #createHttp({ authenticate, allowedOrigins = [], operatorToken, metrics }: GatewayOptions): HttpHandler {
    const { sync, lastSeen, limits, clock, logger } = this.#core;
    const identify = createIdentify(authenticate, clock, this.#tickets);
    return createHttpHandler({
      mount: this.#mount,
      identify: async (request, kind) => {
        const bound = { clock, timeoutMs: limits.requestTimeoutMs, what: 'authentication' };
        const who = await withinTime(identify(request, kind), bound);
        lastSeen.touch(who.partition);
        return who;
      },
      runRound: (request, { who, signal, dialect }) => {
        const run = (decode?: RequestDecoder) =>
          runRound(request, { who, clientId: null, signal, decode }, sync);
        return dialect === 'ssp2' ? run() : msgpackRound({ schema: sync.schema, limits, run });
      },
      openSegment: ({ who, segmentId, scopesHeader }) =>
        openSegment({ who, segmentId, scopesHeader, deps: sync }),
      issueTicket: (who, askedMs) => this.#tickets.issue(who, askedMs),
      readiness: () => this.#readiness(),
      isOperator: createIsOperator(operatorToken),
      metrics: metricsRoute(this.#core.metrics, metrics),
      isDraining: () => this.#shutdown.state !== 'running',
      rounds: this.#rounds,
      cors: createCors(allowedOrigins),
      limits,
      clock,
      logger,
    });
  }

  #createTransport({ authenticate, allowedOrigins = [] }: GatewayOptions): WsTransport {
    const { sync, live, limits, clock, random, logger } = this.#core;
    const { schema } = sync;
    const msgpack = new MsgpackSockets({
      schema,
      limits,
      onFailure: (failure, connectionId) =>
        logger.error({ connectionId, err: failure }, 'a message has no MessagePack form'),
    });
    const upgrade = {
      mount: this.#mount,
      identify: createIdentify(authenticate, clock, this.#tickets),
      origins: createOriginPolicy(allowedOrigins),
      refusal: live.refusal.bind(live),
      isDraining: () => this.#shutdown.state !== 'running',
    };
    return createWsTransport({
      admit: (request) => admitUpgrade(request, upgrade),
      open: ({ who, clientId, connection, dialect }) => {
        const socket = dialect === 'msgpack' ? msgpack.wrap(connection) : { connection };
        return live.open({ who, clientId, ...socket });
      },
      limits,
      clock,
      random,
      logger,
    });
  }

  #ownsUpgrade(req: IncomingMessage): boolean {
    const path = parseTarget(req.url ?? '')?.pathname ?? '';
    const match = matchRoute(this.#mount, 'GET', path);
    return match.kind === 'match' && match.name === 'realtime';
  }

  #readiness(): Promise<Readiness> {
    if (this.#shutdown.state !== 'running') return Promise.resolve({ status: 'draining' });
    return this.#readinessProbe.ask();
  }
}
