/** Puts the parts below the transports together. A feature that is off is an "off" object chosen here. */
import type { Clock, Random } from '../protocol/clock.ts';
import { assertLimits, DEFAULT_LIMITS, type Limits } from '../protocol/limits.ts';
import type { CompiledSchema } from '../protocol/schema.ts';
import type { Bus } from '../session/live/bus.ts';
import { createCursorWriter } from '../session/live/cursor-writer.ts';
import { createHub, type Hub } from '../session/live/hub.ts';
import { createLastSeen, type LastSeen } from '../session/live/last-seen.ts';
import { createLive, type Live } from '../session/live/live.ts';
import { PresenceHub } from '../session/live/presence-hub.ts';
import { NO_BLOBS } from '../session/sync/blob-references.ts';
import { createCommitQueue } from '../session/sync/commit-queue.ts';
import { compileDeclarations, type Declarations } from '../session/sync/declarations.ts';
import { runRound } from '../session/sync/round.ts';
import { SegmentBuilds } from '../session/sync/segment-builds.ts';
import type { HostHooks, SyncDeps } from '../session/sync/sync-deps.ts';
import { createMemoryBusNetwork } from './bus/memory.ts';
import { compileReadySchema, ensureStorageReady } from './ensure-ready.ts';
import type { GatewayOptions } from './gateway-options.ts';
import { type GatewayEvents, logEvents } from './logged-events.ts';
import { type GatewayLogger, SILENT_LOGGER } from './logger.ts';
import { GatewayMetrics } from './metrics.ts';
import { createRandom, sha256Hex } from './random.ts';
import { createRealClock } from './real-clock.ts';
import { type SegmentSweep, startSegmentSweep } from './segment-sweep.ts';
import { type OpenedStorage, openStorage } from './storage-option.ts';

export interface Core {
  readonly sync: SyncDeps;
  readonly live: Live;
  readonly hub: Hub;
  readonly bus: Bus;
  readonly lastSeen: LastSeen;
  readonly segmentSweep: SegmentSweep;
  readonly limits: Limits;
  readonly clock: Clock;
  readonly random: Random;
  readonly logger: GatewayLogger;
  /** `null` where nobody may ask for them. */
  readonly metrics: GatewayMetrics | null;
  /** Closes the storage that was opened here. */
  releaseStorage(): Promise<void>;
}

/** Throws `ReadinessError`, `RangeError` for a limit or an option, `StorageError`; then nothing is left open. */
export async function openCore(options: GatewayOptions): Promise<Core> {
  const limits: Limits = Object.freeze({ ...DEFAULT_LIMITS, ...options.limits });
  assertLimits(limits);
  const crdtTypes = Object.keys(options.crdtMergers ?? {});
  const schema = compileReadySchema({ schema: options.schema, crdtTypes });
  const declarations = compileDeclarations(options.checkpoints ?? [], schema.version);
  const hooks = hostHooks(options, schema);
  const clock = options.clock ?? createRealClock();
  const logger = options.logger ?? SILENT_LOGGER;
  const onUnnamed = () =>
    logger.warn({ event: 'storage.unnamed' }, 'the pooler before the database does not keep statements');
  const opened = await openStorage(options.storage, clock, onUnnamed);
  try {
    await ensureStorageReady(opened.storage, schema, declarations.list);
  } catch (failure) {
    await opened.release();
    throw failure;
  }
  return assemble(options, { limits, schema, declarations, hooks, clock, opened });
}

interface Checked {
  readonly limits: Limits;
  readonly schema: CompiledSchema;
  readonly declarations: Declarations;
  readonly hooks: HostHooks;
  readonly clock: Clock;
  readonly opened: OpenedStorage;
}

function assemble(options: GatewayOptions, checked: Checked): Core {
  const { limits, schema, declarations, hooks, clock, opened } = checked;
  const { storage, segments } = opened;
  const logger = options.logger ?? SILENT_LOGGER;
  const random = options.random ?? createRandom();
  const metrics = options.metrics === undefined || options.metrics === 'off' ? null : new GatewayMetrics();
  const logged = logEvents(logger);
  const events = metrics === null ? logged : both(logged, metrics.events);
  for (const declaration of declarations.list) events.emit({ type: 'checkpoint.declared', ...declaration });
  const bus = options.bus ?? lonelyBus(logger);
  const hub = createHub({ schema, storage, limits, clock, bus, events });
  const cursors = createCursorWriter({ storage, clock, limits, events });
  const lastSeen = createLastSeen({ storage, clock, limits, events });
  const shared = { schema, declarations, storage, hooks, limits, clock, random, events, sha256: sha256Hex };
  const commits = createCommitQueue({ ...shared, sink: hub, blobs: NO_BLOBS });
  const sync: SyncDeps = { ...shared, segments, segmentBuilds: new SegmentBuilds(), commits, cursors };
  const duplicateClients = options.duplicateClients ?? 'replace';
  const presence = new PresenceHub({ schema, clock, limits });
  const live = createLive({ deps: sync, runRound, hub, bus, presence, lastSeen, events, duplicateClients });
  const segmentSweep = startSegmentSweep({ segments, clock, limits, logger });
  const releaseStorage = (): Promise<void> => opened.release();
  const shown = { metrics, limits, clock, random, logger, releaseStorage };
  return { sync, live, hub, bus, lastSeen, segmentSweep, ...shown };
}

function both(first: GatewayEvents, second: GatewayEvents): GatewayEvents {
  return {
    emit: (event) => {
      first.emit(event);
      second.emit(event);
    },
  };
}

/** One gateway on its database: nobody to tell. */
function lonelyBus(logger: GatewayLogger): Bus {
  return createMemoryBusNetwork((failure) => {
    logger.error({ err: failure }, 'a bus subscriber failed');
  }).join();
}

function hostHooks(options: GatewayOptions, schema: CompiledSchema): HostHooks {
  const rowValidators = new Map(Object.entries(options.rowValidators ?? {}));
  for (const table of rowValidators.keys()) {
    if (schema.tableByName.has(table)) continue;
    throw new RangeError(`rowValidators names the table ${table}, which the schema does not have`);
  }
  const { resolveScopes, commitValidator = 'off', crdtMergers = {} } = options;
  return { resolveScopes, rowValidators, commitValidator, crdtMergers: new Map(Object.entries(crdtMergers)) };
}
